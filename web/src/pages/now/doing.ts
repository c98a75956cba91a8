// What a conversation does, as groups of the page Now.
import type { Activity } from '$api/gen/holdfast/gateway/v1/runs_pb';
import { duration, toDate } from '$lib/format';
import { t } from './text';

export const DOING = ['waiting_approval', 'waiting_message', 'calling', 'thinking', 'queued', 'waiting_event', 'paused'] as const;
export type Doing = (typeof DOING)[number];

/** Groups in the order of the page: what needs a person comes first. */
export const GROUPS = [
  { id: 'people', doing: ['waiting_approval', 'waiting_message'] },
  { id: 'running', doing: ['calling', 'thinking'] },
  { id: 'queued', doing: ['queued'] },
  { id: 'events', doing: ['waiting_event'] },
  { id: 'paused', doing: ['paused'] },
] as const satisfies { id: string; doing: Doing[] }[];

export type Group = (typeof GROUPS)[number]['id'];

export function isDoing(doing: string): doing is Doing {
  return (DOING as readonly string[]).includes(doing);
}

export function doingLabel(doing: string): string {
  return isDoing(doing) ? t(`doing_${doing}`) : doing;
}

export const sinceMs = ({ since }: Activity): number => toDate(since)?.getTime() ?? 0;

/** How long it does so, in whole seconds. */
export function waitLength(item: Activity, now: number): string {
  return duration(Math.max(1000, Math.floor((now - sinceMs(item)) / 1000) * 1000));
}

/**
 * Activities of a group in an order that changes little: by the beginning of the turn or the wait.
 * `since` of a running turn changes with each step, so its id, which grows with time, decides there.
 */
export function inOrder(items: Activity[], group: Group): Activity[] {
  const key = (item: Activity) => (group === 'running' ? item.runId : String(sinceMs(item)).padStart(15, '0')) + (item.session?.id ?? '');
  return items.toSorted((one, other) => (key(one) < key(other) ? -1 : 1));
}
