// Statuses of todos in the order of the board's columns, and changes of a list.
import { work } from '$api/clients';
import type { TodoCounts } from '$api/gen/holdfast/gateway/v1/work_pb';
import { toast } from '$kit';
import { act } from '$lib/act';
import { t } from './text';

export const STATUSES = ['WAIT', 'IN_PROGRESS', 'COMPLETE', 'DONE', 'FAILED', 'CHECK_FAILED'] as const;
export type Status = (typeof STATUSES)[number];

const WORDS = { WAIT: 'wait', IN_PROGRESS: 'inProgress', COMPLETE: 'complete', DONE: 'done', FAILED: 'failed', CHECK_FAILED: 'checkFailed' } as const;
const KINDS = { WAIT: 'quiet', IN_PROGRESS: 'info', COMPLETE: 'ok', DONE: 'ok', FAILED: 'bad', CHECK_FAILED: 'bad' } as const;

export function statusWord(status: string): string {
  const key = WORDS[status as Status];
  return key ? t(key) : status;
}

export const statusKind = (status: string) => KINDS[status as Status] ?? 'quiet';

export function countOf(counts: TodoCounts | undefined, status: Status): number | undefined {
  if (!counts) return undefined;
  const { wait, inProgress, complete, done, failed, checkFailed } = counts;
  return { WAIT: wait, IN_PROGRESS: inProgress, COMPLETE: complete, DONE: done, FAILED: failed, CHECK_FAILED: checkFailed }[status];
}

export type Operation =
  | { op: 'init'; mode: 'merge' | 'replace'; items: { title: string; description?: string; type?: string; priority?: number }[] }
  | { op: 'update'; code: string; to_status: string; reason: string }
  | { op: 'update'; code: string; priority: number }
  | { op: 'note'; code: string; kind: string; text: string };

/** Changes todos. Tells why an operation was refused; returns whether all were applied. */
export async function applyTodos(session: string, operations: Operation[], done = ''): Promise<boolean> {
  const request = { session, operations: JSON.stringify(operations), requestId: crypto.randomUUID() };
  const answer = await act(() => work.applyTodos(request));
  if (!answer) return false;
  const refused = answer.results.filter(({ applied }) => !applied);
  for (const { message, error } of refused) toast({ kind: 'bad', text: message || error });
  if (refused.length === 0 && done) toast({ kind: 'ok', text: done });
  return refused.length === 0;
}
