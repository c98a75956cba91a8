// What a person does with a conversation.
import { messages, sessions } from '$api/clients';
import { Outcome } from '$api/gen/holdfast/gateway/v1/messages_pb';
import type { Entry, Session } from '$api/gen/holdfast/gateway/v1/sessions_pb';
import { confirm, toast } from '$kit';
import { act } from '$lib/act';
import { download } from '$lib/download';
import { go, href, path } from '$lib/router.svelte';
import { sessionTitle } from '$lib/session-title';
import { toJson } from '@bufbuild/protobuf';
import { EntrySchema, SessionSchema } from '$api/gen/holdfast/gateway/v1/sessions_pb';
import type { Conversation } from './conversation.svelte';
import { outbox } from './outbox.svelte';
import { t } from './text';

/** Asks for another answer to a message, or puts another text in its place, in a new branch. */
export async function branchFrom(conversation: Conversation, seq: number, change: { again: true } | { text: string }) {
  const requestId = crypto.randomUUID();
  const answer = await act(() =>
    sessions.branchSession({ session: conversation.id, beforeMessageSeq: BigInt(seq), requestId, ...change }),
  );
  if (!answer?.session) return;
  if (answer.messageId) outbox.follow(answer.messageId, answer.session.id);
  go(path`/chat/${answer.session.id}`);
}

/** Sets the model of a conversation, and of branches that begin there. Returns whether it is set. */
export async function chooseModel(conversation: Conversation, model: string): Promise<boolean> {
  const request = { requestId: crypto.randomUUID(), text: `/model ${model}`, session: conversation.id };
  const outcome = await act(async () => {
    for await (const { event } of messages.stream(request)) if (event.case === 'done') return event.value.outcome;
    return Outcome.FAILED;
  });
  return outcome === Outcome.COMPLETED;
}

export async function stop(session: string) {
  const answer = await act(() => messages.cancel({ session }));
  if (answer && !answer.running && !answer.queued) toast({ kind: 'info', text: t('nothingRuns') });
}

export async function remove(session: Session, then: () => void) {
  const title = t('deleteTitle', { name: sessionTitle(session) });
  if (!(await confirm({ title, text: t('deleteText'), action: t('delete'), danger: true }))) return;
  if (await act(() => sessions.deleteSession({ session: session.id }), { done: t('deleted') })) then();
}

export async function setPinned(session: Session, pinned: boolean): Promise<Session | undefined> {
  return (await act(() => sessions.updateSession({ session: session.id, pinned })))?.session;
}

/** Saves a session with its whole journal as lines of JSON. */
export async function exportSession(session: Session) {
  const lines: string[] = [];
  const done = await act(async () => {
    for await (const { part } of sessions.exportSession({ session: session.id })) {
      if (part.case) lines.push(JSON.stringify({ [part.case]: json(part.value) }) + '\n');
    }
    return true;
  });
  if (done) download(`${sessionTitle(session)}.jsonl`, lines, 'application/jsonl');
}

function json(part: Session | Entry): unknown {
  return part.$typeName === SessionSchema.typeName ? toJson(SessionSchema, part as Session) : toJson(EntrySchema, part as Entry);
}

export async function copyLink(session: Session) {
  await act(() => navigator.clipboard.writeText(location.origin + href(path`/chat/${session.id}`)), { done: t('linkCopied') });
}
