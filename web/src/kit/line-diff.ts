// Lines of a change, from two texts or from a unified patch.
import { parsePatch, structuredPatch } from 'diff';

export type DiffLine =
  | { kind: 'added' | 'removed' | 'same'; text: string; old?: number; new?: number }
  | { kind: 'file'; text: string }
  | { kind: 'note' }
  /** Lines between two parts that are not shown. */
  | { kind: 'gap'; count: number };

type Hunk = { oldStart: number; newStart: number; lines: string[] };

/** A comparison that takes longer, in milliseconds, shows all lines as replaced. */
const MAX_COMPARE_TIME = 300;
const CONTEXT_LINES = 3;

export function linesOfTexts(before: string, after: string): DiffLine[] {
  if (before === after) return [];
  const options = { context: CONTEXT_LINES, timeout: MAX_COMPARE_TIME };
  const patch = structuredPatch('', '', before, after, undefined, undefined, options);
  return linesOfHunks(patch?.hunks ?? [replaced(before, after)]);
}

/** Undefined if the text is no unified patch. */
export function linesOfPatch(patch: string): DiffLine[] | undefined {
  try {
    const files = parsePatch(patch);
    if (files.every(({ hunks }) => hunks.length === 0)) return undefined;
    return files.flatMap((file) => {
      const name = file.newFileName && file.newFileName !== '/dev/null' ? file.newFileName : file.oldFileName;
      const head: DiffLine[] = name ? [{ kind: 'file', text: name.replace(/^[ab]\//, '') }] : [];
      return [...head, ...linesOfHunks(file.hunks)];
    });
  } catch {
    return undefined;
  }
}

function replaced(before: string, after: string): Hunk {
  const lines = (text: string, sign: string) => (text === '' ? [] : text.replace(/\n$/, '').split('\n').map((line) => sign + line));
  return { oldStart: 1, newStart: 1, lines: [...lines(before, '-'), ...lines(after, '+')] };
}

function linesOfHunks(hunks: Hunk[]): DiffLine[] {
  const lines: DiffLine[] = [];
  let reached = 1;
  for (const hunk of hunks) {
    let [old, current] = [hunk.oldStart, hunk.newStart];
    if (old > reached) lines.push({ kind: 'gap', count: old - reached });
    for (const line of hunk.lines) {
      const [sign, text] = [line[0], line.slice(1).replace(/\r$/, '')];
      if (sign === '+') lines.push({ kind: 'added', text, new: current++ });
      else if (sign === '-') lines.push({ kind: 'removed', text, old: old++ });
      else if (sign === '\\') lines.push({ kind: 'note' });
      else lines.push({ kind: 'same', text, old: old++, new: current++ });
    }
    reached = old;
  }
  return lines;
}
