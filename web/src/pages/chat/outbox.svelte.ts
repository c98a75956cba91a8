// Messages on their way: sent again under the same request until the gateway has accepted them, and
// followed until they are answered. They outlive a reload of the page.
import { messages } from '$api/clients';
import { Outcome, type RunEvent } from '$api/gen/holdfast/gateway/v1/messages_pb';
import { listen } from '$api/live.svelte';
import { me } from '$api/session.svelte';
import { Code, ConnectError } from '@connectrpc/connect';
import { applyRunEvent, turns } from './turns.svelte';

export type OutgoingFile = { name: string; mediaType: string; content: Uint8Array<ArrayBuffer> };

type Stored = {
  requestId: string;
  text: string;
  agent: string;
  /** Id or key of the session, as it is sent. */
  target: string;
  sessionId: string;
  messageId: string;
  seq: number;
  fileNames: string[];
};

const PAUSES = [500, 1000, 2000, 4000, 8000];

/** Longest wait for the gateway to accept a message, in milliseconds, beside the time for its files. */
const ACCEPT_TIMEOUT = 20_000;

/** Bytes of files that the slowest network carries in a millisecond. */
const SLOWEST_UPLOAD = 20;

/** A stream on which nothing comes for so long may be dead, in milliseconds: another is opened. */
const MAX_SILENCE = 60_000;

/** The gateway has decided about the message: the same again has the same answer. */
const FINAL = new Set([
  Code.InvalidArgument,
  Code.NotFound,
  Code.PermissionDenied,
  Code.FailedPrecondition,
  Code.ResourceExhausted,
  Code.OutOfRange,
  Code.Unimplemented,
  Code.Aborted,
  Code.AlreadyExists,
]);

/** Codes with which following a message fails for good. */
const GONE = new Set([Code.NotFound, Code.PermissionDenied, Code.InvalidArgument, Code.Unimplemented]);

export class OutgoingMessage {
  messageId = $state('');
  sessionId = $state('');
  /** Place in the inbox; 0 until it is accepted. */
  seq = $state(0);
  error = $state.raw<unknown>();
  /** The gateway cannot be reached; it is tried again. */
  isDelayed = $state(false);
  /** Given up by the mesh. */
  isDead = $state(false);
  abort = new AbortController();

  constructor(
    readonly requestId: string,
    readonly text: string,
    readonly agent: string,
    readonly target: string,
    readonly files: OutgoingFile[],
    readonly fileNames: string[],
  ) {}

  get isAccepted(): boolean {
    return this.messageId !== '';
  }

  /** The run that it begins, unless another takes it along. */
  get run(): string {
    return this.messageId.replace(/^msg_/, 'run_');
  }

  /** Longest wait for the next event, in milliseconds. */
  get maxWait(): number {
    if (this.isAccepted) return MAX_SILENCE;
    return ACCEPT_TIMEOUT + this.files.reduce((bytes, { content }) => bytes + content.length, 0) / SLOWEST_UPLOAD;
  }

  isOf(...names: string[]): boolean {
    return names.some((name) => name !== '' && (name === this.target || name === this.sessionId));
  }
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
const storageKey = () => `holdfast.chat.outbox.${me.tenantId}.${me.id}`;

let all = $state.raw<OutgoingMessage[]>([]);
let owner = '';
const whenAnswered = new Set<(message: OutgoingMessage) => Promise<void> | undefined>();
const whenTold = new Set<(event: RunEvent) => void>();

export const outbox = {
  of(...names: string[]): OutgoingMessage[] {
    return all.filter((message) => message.isOf(...names));
  },
  send(message: { text: string; agent: string; target: string; files: OutgoingFile[] }): OutgoingMessage {
    const { text, agent, target, files } = message;
    const one = new OutgoingMessage(crypto.randomUUID(), text, agent, target, files, files.map(({ name }) => name));
    all = [...all, one];
    save();
    void deliver(one);
    return one;
  },
  /** Follows a message that was sent by another call. */
  follow(messageId: string, sessionId: string) {
    const one = new OutgoingMessage(messageId, '', '', sessionId, [], []);
    [one.messageId, one.sessionId] = [messageId, sessionId];
    all = [...all, one];
    save();
    void deliver(one);
  },
  retry(message: OutgoingMessage) {
    message.error = undefined;
    void deliver(message);
  },
  remove(message: OutgoingMessage) {
    message.abort.abort();
    all = all.filter((one) => one !== message);
    save();
  },
  /** Calls back when a message is answered. Returns what ends that. */
  onAnswer(call: (message: OutgoingMessage) => Promise<void> | undefined): () => void {
    whenAnswered.add(call);
    return () => whenAnswered.delete(call);
  },
  /** Calls back for each event of a message that is followed. */
  onRunEvent(call: (event: RunEvent) => void): () => void {
    whenTold.add(call);
    return () => whenTold.delete(call);
  },
  /** Takes up what this tab had sent before it was reloaded. */
  restore() {
    if (owner === storageKey()) return;
    owner = storageKey();
    for (const message of all) message.abort.abort();
    all = stored().map(restored);
    all.forEach((message) => void deliver(message));
  },
};

function save() {
  const kept = all.map(({ requestId, text, agent, target, sessionId, messageId, seq, fileNames }): Stored => {
    return { requestId, text, agent, target, sessionId, messageId, seq, fileNames };
  });
  sessionStorage.setItem(storageKey(), JSON.stringify(kept));
}

function stored(): Stored[] {
  try {
    // Files are not kept over a reload: the browser asks before it.
    const kept = JSON.parse(sessionStorage.getItem(storageKey()) ?? '[]') as Stored[];
    return kept.filter(({ messageId, fileNames }) => messageId || fileNames.length === 0);
  } catch {
    return [];
  }
}

function restored({ requestId, text, agent, target, sessionId, messageId, seq, fileNames }: Stored): OutgoingMessage {
  const message = new OutgoingMessage(requestId, text, agent, target, [], fileNames);
  [message.sessionId, message.messageId, message.seq] = [sessionId, messageId, seq];
  return message;
}

/** Delivers a message and follows it to its end. */
async function deliver(message: OutgoingMessage) {
  for (let attempt = 0; all.includes(message); ) {
    await earlierOnes(message);
    message.abort = new AbortController();
    try {
      if (await follow(message, () => (attempt = 0))) return;
    } catch (thrown) {
      const { code } = ConnectError.from(thrown);
      if (message.isAccepted && code === Code.NotFound) return outbox.remove(message);
      if ((message.isAccepted ? GONE : FINAL).has(code)) {
        message.error = thrown;
        return;
      }
    }
    interrupted(message);
    await pause(message.abort.signal.aborted ? 0 : PAUSES[Math.min(attempt, PAUSES.length - 1)]!);
    attempt += 1;
  }
}

/** Waits until the messages before it in its session are accepted: they keep their order. */
async function earlierOnes(message: OutgoingMessage) {
  const before = () => all.slice(0, all.indexOf(message)).some((one) => one.target === message.target && !one.isAccepted && !one.error);
  while (!message.isAccepted && all.includes(message) && before()) await pause(50);
}

/** Without a stream the page's connection tells of the turn. */
function interrupted(message: OutgoingMessage) {
  message.isDelayed = !message.isAccepted;
  for (const turn of turns.of(message.sessionId)) if (turn.source === message.messageId) turn.source = '';
}

/** Returns whether the message is answered; false if the stream ended before. */
async function follow(message: OutgoingMessage, onProgress: () => void): Promise<boolean> {
  const { abort } = message;
  let timer = setTimeout(() => abort.abort(), message.maxWait);
  const isHeard = () => {
    clearTimeout(timer);
    timer = setTimeout(() => abort.abort(), message.maxWait);
    onProgress();
  };
  try {
    return await readStream(message, isHeard);
  } finally {
    clearTimeout(timer);
  }
}

async function readStream(message: OutgoingMessage, onEvent: () => void): Promise<boolean> {
  const { signal } = message.abort;
  const { requestId, text, agent, target, messageId } = message;
  const attachments = message.files.map(({ name, mediaType, content }) => ({ name, mediaType, content, kind: mediaType.startsWith('image/') ? 'photo' : 'document' }));
  const events = message.isAccepted
    ? messages.follow({ messageId }, { signal })
    : messages.stream({ requestId, text, agent, session: target, attachments }, { signal });
  for await (const event of events) {
    if (event.event.case === 'accepted') accepted(message, event);
    onEvent();
    applyRunEvent(event);
    whenTold.forEach((call) => call(event));
    if (event.event.case === 'done') {
      message.isDead = event.event.value.outcome === Outcome.DEAD;
      await answered(message, event.runId);
      return true;
    }
  }
  return false;
}

function accepted(message: OutgoingMessage, event: RunEvent) {
  message.messageId = event.messageId;
  message.sessionId = event.sessionId;
  message.seq = event.event.case === 'accepted' ? Number(event.event.value.seq) : 0;
  message.isDelayed = false;
  message.files.length = 0;
  save();
}

async function answered(message: OutgoingMessage, run: string) {
  if (run) await turns.end(run);
  await Promise.all([...whenAnswered].map((call) => call(message)));
  if (message.isDead) return;
  all = all.filter((one) => one !== message);
  save();
}

// A stream may be dead without an error, such as after the network was gone.
listen(['live.connected', 'reset'], () => {
  for (const message of all) message.abort.abort();
});

addEventListener('beforeunload', (event) => {
  if (all.some(({ isAccepted, files }) => !isAccepted && files.length > 0)) event.preventDefault();
});
