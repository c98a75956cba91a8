// What a conversation shows below each other: its journal, and what is on its way.
import type { Approval } from '$api/gen/holdfast/gateway/v1/approvals_pb';
import type { Conversation } from './conversation.svelte';
import type { OutgoingMessage } from './outbox.svelte';
import { rowsOf, type Row } from './rows';
import type { LiveTurn } from './turns.svelte';

export type Shown =
  | Row
  | { kind: 'outgoing'; key: string; message: OutgoingMessage }
  | { kind: 'live'; key: string; turn: LiveTurn }
  | { kind: 'approval'; key: string; approval: Approval }
  | { kind: 'working'; key: string };

/** Rows of a conversation from the oldest to what comes next. */
export function shownRows(conversation: Conversation): Shown[] {
  const { rows, journal, outgoing, turns, approvals, isBusy } = conversation;
  if (journal && !journal.isAtEnd) return rows;
  const live = turns.filter(({ isOver, text }) => !isOver || text);
  const runs = new Set(live.map(({ run }) => run));
  const journaled = new Set(journal?.entries.slice(-50).map(({ run }) => run));
  const heard = live.flatMap(({ run }) => (journaled.has(run) ? [] : (conversation.heard.get(run) ?? [])));
  const outgoingRow = (message: OutgoingMessage) => ({ kind: 'outgoing' as const, key: message.requestId, message });
  const waits = isBusy && live.length === 0 && !approvals.some(({ state }) => state === 'pending');
  return [
    ...rows,
    ...rowsOf(heard, new Map()).map((row) => ({ ...row, key: `h${row.entry.run}${row.key}` })),
    ...outgoing.filter(({ run }) => runs.has(run)).map(outgoingRow),
    ...live.map((turn) => ({ kind: 'live' as const, key: `live-${turn.run}`, turn })),
    // A decision is of interest until its turn is over; the journal has it then.
    ...approvals.filter(({ state, runId }) => state === 'pending' || runs.has(runId)).map((approval) => ({ kind: 'approval' as const, key: approval.id, approval })),
    ...outgoing.filter(({ run }) => !runs.has(run)).map(outgoingRow),
    ...(waits ? [{ kind: 'working' as const, key: 'working' }] : []),
  ];
}

/** The text of a row, for copying and for screen readers. */
export function textOf(row: Shown): string {
  if (row.kind === 'outgoing') return row.message.text;
  if (row.kind === 'live') return row.turn.text;
  if (row.kind === 'approval') return row.approval.subject;
  return row.kind === 'working' ? '' : row.entry.text;
}
