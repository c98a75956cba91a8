// Rows of a conversation, made of the entries of its journal.
import type { Detail, JournalEntry, StoredFile } from './entries';
import type { Fork } from './branches';

export type CallResult = { text: string; failed: boolean; files: StoredFile[] };

/** A tool call with what is known of it. */
export type Call = {
  id: string;
  run: string;
  tool: string;
  input: string;
  /** The call was recorded as begun. */
  isBegun: boolean;
  result?: CallResult;
};

type Common = { key: string; entry: JournalEntry; fork?: Fork | undefined };
export type MessageRow = Common & { kind: 'message' };
export type AnswerRow = Common & { kind: 'answer'; calls: Call[]; /** The last text of its turn. */ isLast: boolean };
export type NoteRow = Common & { kind: 'note'; note: string; text: string };
export type Row = MessageRow | AnswerRow | NoteRow;

/** Notes that are part of the record only. */
const HIDDEN_NOTES = new Set(['posted', 'handed_over', 'unknown', 'flushed']);

/** Tool with which a model ends a step of a behaviour. */
export const STEP_RESULT = 'behavior_result';

export function rowsOf(entries: readonly JournalEntry[], forks: ReadonlyMap<number, Fork>): Row[] {
  const rows: Row[] = [];
  const waiting = [...forks].sort(([a], [b]) => a - b);
  let calls = new Map<string, Call>();
  let lastAnswer: AnswerRow | undefined;
  const add = (row: Row) => {
    // The row that shows the first entry behind a fork has the switch.
    while (waiting[0] && row.entry.seq > waiting[0][0]) row.fork = waiting.shift()![1];
    rows.push(row);
  };
  for (const entry of entries) {
    if (lastAnswer && lastAnswer.entry.run !== entry.run) lastAnswer = endTurn(lastAnswer);
    if (entry.kind === 'called' || entry.kind === 'returned') attach(entry, calls);
    else if (entry.kind === 'thought') {
      const row = answerOf(entry);
      calls = new Map(row.calls.map((call) => [call.id, call]));
      lastAnswer = row;
      if (row.calls.length > 0 || entry.text) add(row);
    } else {
      const row = rowOf(entry);
      if (row) add(row);
    }
  }
  if (lastAnswer) endTurn(lastAnswer);
  return rows;
}

function endTurn(row: AnswerRow): undefined {
  row.isLast = row.calls.length === 0;
}

function answerOf(entry: JournalEntry): AnswerRow {
  const calls = (entry.detail.calls ?? []).map(
    (call): Call => ({ id: call.id, run: entry.run, tool: call.tool, input: call.input, isBegun: false }),
  );
  return { kind: 'answer', key: `e${entry.seq}`, entry, calls, isLast: false };
}

/** Puts a beginning or a result to its call: ids are unique within one reply of the model. */
function attach(entry: JournalEntry, calls: Map<string, Call>) {
  const call = calls.get(entry.detail.call ?? '');
  if (!call) return;
  call.isBegun = true;
  if (entry.kind !== 'returned') return;
  const { shown = [], attached = [] } = entry.detail.media ?? {};
  call.result = { text: entry.text, failed: entry.detail.failed === true, files: [...shown, ...attached] };
}

function rowOf(entry: JournalEntry): Row | undefined {
  const { detail } = entry;
  const key = `e${entry.seq}`;
  if (entry.kind === 'heard') {
    if (detail.role === 'assistant') return { kind: 'answer', key, entry, calls: [], isLast: false };
    const event = eventOf(detail);
    return event ? { kind: 'note', key, entry, note: event, text: entry.text } : { kind: 'message', key, entry };
  }
  const note = detail.note ?? '';
  // The answer of a command is read as an answer.
  if (note === 'command' || note === 'reset') return { kind: 'answer', key, entry, calls: [], isLast: false };
  if (entry.kind !== 'noted' || HIDDEN_NOTES.has(note)) return undefined;
  return { kind: 'note', key, entry, note, text: entry.text };
}

/** What a message is that no person wrote. */
function eventOf(detail: Detail): string {
  if (detail.fired) return 'fired';
  if (detail.heartbeat) return 'heartbeat';
  if (detail.role) return detail.role;
  return detail.event ? 'event' : '';
}
