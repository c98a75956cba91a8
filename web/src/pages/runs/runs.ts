// What lists and comparisons of runs show of them.
import type { Run } from '$api/gen/holdfast/gateway/v1/sessions_pb';
import { duration, toDate } from '$lib/format';

export function isRunId(text: string): boolean {
  return /^run_[0-9a-f]{32}$/.test(text);
}

/** When a run began, in milliseconds: ids are UUIDv7, which begin with the time. */
export function beginningOf(id: string): number {
  return Number.parseInt(id.slice('run_'.length, 'run_'.length + 12), 16);
}

export function tokensOf({ usage }: Run): number {
  return Number(usage?.inputTokens ?? 0) + Number(usage?.outputTokens ?? 0);
}

/** Milliseconds until it ended, or until now; `undefined` if it has not begun. */
export function lengthOfRun({ startedAt, finishedAt }: Run, now: number): number | undefined {
  const start = toDate(startedAt)?.getTime();
  return start === undefined ? undefined : Math.max(0, (toDate(finishedAt)?.getTime() ?? now) - start);
}

export function runLength(run: Run, now: number): string {
  return duration(lengthOfRun(run, now));
}
