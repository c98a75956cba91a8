// Turns that run: what the journal does not have yet.
import type { LiveEvent } from '$api/live.svelte';
import type { RunEvent, StepProgress } from '$api/gen/holdfast/gateway/v1/messages_pb';

export type LiveTool = { id: string; tool: string; state: 'running' | 'done' | 'failed' };

export type Progress = Pick<StepProgress, 'behavior' | 'step' | 'todo' | 'todosDone' | 'todos'> & { costMicros: bigint };

/** A turn that runs, with what its current step has said so far. */
export class LiveTurn {
  text = $state('');
  thinking = $state('');
  tools = $state.raw<LiveTool[]>([]);
  progress = $state.raw<Progress>();
  isOver = $state(false);
  /** Message whose stream tells the text of the step; the streams of other messages tell the same. */
  source = '';
  step = -1;
  /** Text of the step that `source` has told: always from its beginning. */
  #streamed = '';
  /** Texts of the journal's newest reply of the turn, which are no part of the current step. */
  #journaled = '';

  constructor(
    readonly run: string,
    readonly session: string,
  ) {}

  startStep() {
    this.source = '';
    this.text = '';
    this.thinking = '';
    this.tools = [];
  }

  /** The page's connection tells the same as a stream, later. */
  get isStreamed(): boolean {
    return this.source !== '';
  }

  /** The journal has a reply of the turn: the text of its step is shown from there. */
  journaled(text: string) {
    this.#journaled = text;
    if (text.startsWith(this.text)) this.startStep();
  }

  /** Takes the whole text of the current step. */
  setText(text: string) {
    if (text && text === this.#journaled) return;
    this.text = text;
  }

  /** Takes a piece of the text of the current step from the stream of a message. */
  addText(piece: string, message: string) {
    if (!this.source) [this.source, this.#streamed] = [message, ''];
    if (this.source !== message) return;
    this.#streamed += piece;
    this.text = this.#streamed;
  }

  addThinking(piece: string, message: string) {
    if (!this.source) [this.source, this.#streamed] = [message, ''];
    if (this.source === message) this.thinking += piece;
  }

  /** A step begins, or begins anew, as the stream of a message says. */
  beginStep(step: number, isAgain: boolean, message: string) {
    const isOther = this.source !== '' && this.source !== message;
    if (step === this.step && (!isAgain || isOther)) return;
    this.step = step;
    this.startStep();
  }

  setTool(id: string, tool: string, state: LiveTool['state']) {
    const others = this.tools.filter((one) => one.id !== id);
    const name = tool || this.tools.find((one) => one.id === id)?.tool || '';
    this.tools = [...others, { id, tool: name, state }];
  }
}

let all = $state.raw<LiveTurn[]>([]);
/** Runs that are over: what is told late of them counts no more. */
let ended = new Set<string>();
const whenOver = new Set<(turn: LiveTurn) => Promise<void> | undefined>();

/** Turns that run in the sessions that this tab shows or writes to. */
export const turns = {
  of(session: string): LiveTurn[] {
    return all.filter((turn) => turn.session === session);
  },
  /** The turn of a run, which begins with the first event; `undefined` if it is over. */
  get(run: string, session: string): LiveTurn | undefined {
    if (ended.has(run)) return undefined;
    const known = all.find((turn) => turn.run === run);
    if (known) return known;
    const turn = new LiveTurn(run, session);
    all = [...all, turn];
    return turn;
  },
  /** Ends a turn. It stays until the pages that show it have read the journal. */
  async end(run: string) {
    ended.add(run);
    const turn = all.find((one) => one.run === run);
    if (!turn || turn.isOver) return;
    turn.isOver = true;
    await Promise.all([...whenOver].map((call) => call(turn)));
    all = all.filter((one) => one !== turn);
  },
  /** Calls back when a turn has ended. Returns what ends that. */
  onEnd(call: (turn: LiveTurn) => Promise<void> | undefined): () => void {
    whenOver.add(call);
    return () => whenOver.delete(call);
  },
  /** The connection was lost: nothing is known of turns that no stream tells the end of. */
  forget(session: string, followed: ReadonlySet<string>) {
    ended = new Set();
    all = all.filter((turn) => turn.session !== session || turn.isStreamed || followed.has(turn.run));
  },
};

/** Takes an event of a stream. */
export function applyRunEvent(event: RunEvent) {
  const { runId, sessionId } = event;
  if (!runId || event.event.case === 'accepted' || event.event.case === 'done') return;
  const turn = turns.get(runId, sessionId);
  if (!turn) return;
  const { case: kind, value } = event.event;
  // A stream that begins within a step tells nothing of the step's text: the page's connection does.
  if (kind === 'stepStarted') turn.beginStep(event.step, value.again, event.messageId);
  else if (kind === 'text') turn.addText(value.text, event.messageId);
  else if (kind === 'thinking') turn.addThinking(value.text, event.messageId);
  else if (kind === 'toolStarted') turn.setTool(value.callId, value.tool, 'running');
  else if (kind === 'toolEnded') turn.setTool(value.callId, '', value.failed ? 'failed' : 'done');
  else if (kind === 'stepProgress') turn.progress = value;
}

type Data = Record<string, unknown>;

const record = (value: unknown): Data => (typeof value === 'object' && value !== null ? (value as Data) : {});
const text = (value: unknown): string => (typeof value === 'string' ? value : '');

/** Takes an event of the page's connection, which tells of the turns of all sessions. */
export function applyLiveEvent(event: LiveEvent, session: string) {
  const run = text(event.data['runId']);
  if (!run) return;
  if (event.type === 'live.chat') applyChat(event.data, run, session);
  else if (event.type === 'live.agent') applyAgent(event.data, run, session);
}

function applyChat(payload: Data, run: string, session: string) {
  const turn = turns.get(run, session);
  if (!turn || turn.isStreamed) return;
  if (payload['state'] !== 'delta') {
    void turns.end(run);
    return;
  }
  const content = record(payload['message'])['content'];
  turn.setText(Array.isArray(content) ? text(record(content[0])['text']) : '');
}

function applyAgent(payload: Data, run: string, session: string) {
  const data = record(payload['data']);
  const phase = text(data['phase']);
  const stream = text(payload['stream']);
  if (stream === 'lifecycle' && phase !== 'start') return;
  const turn = turns.get(run, session);
  if (!turn || turn.isStreamed) return;
  if (stream === 'thinking') turn.thinking = text(data['text']);
  else if (stream === 'tool') {
    const state = phase === 'start' ? 'running' : data['isError'] === true ? 'failed' : 'done';
    turn.setTool(text(data['toolCallId']), text(data['name']), state);
  } else if (stream === 'step') {
    const number = (name: string) => Number(data[name] ?? 0);
    turn.progress = {
      behavior: text(data['behavior']),
      step: number('step'),
      todo: text(data['todo']),
      todosDone: number('todosDone'),
      todos: number('todos'),
      costMicros: BigInt(Math.round(number('costMicros'))),
    };
  }
}
