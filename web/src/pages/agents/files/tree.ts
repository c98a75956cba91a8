// Files of an agent as rows of a tree.
import type { File as AgentFile } from '$api/gen/holdfast/gateway/v1/files_pb';

export type TreeRow = {
  path: string;
  name: string;
  level: number;
  /** Absent for a folder. */
  file: AgentFile | undefined;
  /** Of a folder. */
  isOpen: boolean;
};

type Folder = { folders: Map<string, Folder>; files: { name: string; file: AgentFile }[] };

const newFolder = (): Folder => ({ folders: new Map(), files: [] });

/** Rows that are shown: folders first, and only the content of open ones. */
export function rowsOf(files: AgentFile[], isOpen: (path: string) => boolean): TreeRow[] {
  const root = newFolder();
  for (const file of files) {
    const parts = file.path.split('/');
    const name = parts.pop() ?? '';
    let place = root;
    for (const part of parts) {
      const inner = place.folders.get(part) ?? newFolder();
      place.folders.set(part, inner);
      place = inner;
    }
    place.files.push({ name, file });
  }
  return rowsIn(root, '', 1, isOpen);
}

function rowsIn(folder: Folder, within: string, level: number, isOpen: (path: string) => boolean): TreeRow[] {
  const { compare } = new Intl.Collator(undefined, { numeric: true });
  const folders = [...folder.folders].toSorted(([one], [other]) => compare(one, other));
  const files = folder.files.toSorted((one, other) => compare(one.name, other.name));
  return [
    ...folders.flatMap(([name, inner]) => {
      const path = within + name;
      const open = isOpen(path);
      const row: TreeRow = { path, name, level, file: undefined, isOpen: open };
      return [row, ...(open ? rowsIn(inner, `${path}/`, level + 1, isOpen) : [])];
    }),
    ...files.map(({ name, file }): TreeRow => ({ path: file.path, name, level, file, isOpen: false })),
  ];
}

/** Folders around a file. */
export function foldersOf(path: string): string[] {
  const parts = path.split('/').slice(0, -1);
  return parts.map((_, index) => parts.slice(0, index + 1).join('/'));
}

/** Text of a file, or `undefined` if it is no text. */
export function textOf(content: Uint8Array): string | undefined {
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(content);
    return text.includes('\0') ? undefined : text;
  } catch {
    return undefined;
  }
}

/** Whether a path can be one of a file: relative, without empty parts. */
export function isPath(path: string): boolean {
  return path !== '' && path.length <= 1024 && path.split('/').every((part) => part !== '' && part !== '.' && part !== '..');
}
