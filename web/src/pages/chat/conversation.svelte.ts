// One conversation that is shown: its session, its journal, and what is on its way.
import { approvals, runs, sessions } from '$api/clients';
import { isMissing } from '$api/errors';
import type { Approval } from '$api/gen/holdfast/gateway/v1/approvals_pb';
import type { Session } from '$api/gen/holdfast/gateway/v1/sessions_pb';
import { listen, type LiveEvent } from '$api/live.svelte';
import { can, me } from '$api/session.svelte';
import { inTurn } from '$lib/load.svelte';
import { forksOf } from './branches';
import { parseEntry, type JournalEntry } from './entries';
import { Journal } from './journal.svelte';
import { outbox, type OutgoingMessage } from './outbox.svelte';
import { rowsOf } from './rows';
import { applyLiveEvent, turns, type LiveTurn } from './turns.svelte';

/** Characters of the first message that name a new conversation. */
const MAX_LABEL = 60;

/** Keys of conversations that were begun in a console: of a person, or of a key. */
const NEW_KEY = /^agent:[^:]+:api:(=[^/]+\/)?c-/;

/** Approvals that are read; more never wait in one session. */
const MAX_APPROVALS = 50;

export class Conversation {
  session = $state.raw<Session>();
  journal = $state.raw<Journal>();
  /** Nothing was written in it yet. */
  isNew = $state(false);
  error = $state.raw<unknown>();
  approvals = $state.raw<Approval[]>([]);
  family = $state.raw<Session[]>([]);
  /** Grows when the canvas has changed. */
  canvasVersion = $state(0);
  /** What running turns have heard, of which the journal has nothing yet, by run. */
  heard = $state.raw<ReadonlyMap<string, JournalEntry[]>>(new Map());
  #asked = new Set<string>();

  /** `target` is an id or a key; `at` an entry to show first. */
  constructor(
    readonly target: string,
    readonly at: number | undefined,
  ) {}

  readonly id = $derived.by(() => this.session?.id ?? '');
  readonly forks = $derived.by(() => forksOf(this.id, this.family));
  readonly rows = $derived.by(() => rowsOf(this.journal?.entries ?? [], this.forks));
  readonly outgoing = $derived.by(() => outbox.of(this.target, this.id, this.session?.key ?? '').filter((one) => !this.#isInJournal(one)));
  readonly turns = $derived.by(() => turns.of(this.id));
  readonly isBusy = $derived.by(
    () =>
      this.turns.some(({ isOver }) => !isOver) ||
      this.approvals.some(({ state }) => state === 'pending') ||
      this.outgoing.some(({ error, isDead }) => !error && !isDead) ||
      ['RUNNING', 'READY'].includes(this.session?.state ?? ''),
  );

  /** Begins to read and listen. Returns what ends it. */
  start(): () => void {
    outbox.restore();
    void this.read();
    const ends = [
      listen(['live.', 'message.', 'run.', 'approval.', 'session.'], (event) => this.#onEvent(event)),
      turns.onEnd((turn) => (turn.session === this.id ? this.#turnEnded(turn) : undefined)),
      outbox.onAnswer((message) => (message.isOf(this.target, this.id) ? this.#refresh() : undefined)),
      outbox.onRunEvent((event) => {
        if (!this.id) void this.read();
        if (event.sessionId !== this.id) return;
        const kind = event.event.case;
        if (kind === 'canvasChanged') this.canvasVersion += 1;
        else if (kind === 'approvalRequested') this.readApprovals();
        else if (kind !== 'text' && kind !== 'thinking') this.refreshSoon();
      }),
    ];
    return () => ends.forEach((end) => end());
  }

  /** Reads the session, and with it all else the first time. */
  readonly read = inTurn(async () => {
    try {
      const { session } = await sessions.getSession({ session: this.target });
      this.session = session;
      if (session) void this.#name(session);
      [this.isNew, this.error] = [false, undefined];
      if (!session || this.journal) return;
      this.journal = new Journal(session.id);
      this.readApprovals();
      void this.readBranches();
      await this.journal.open(this.at);
      // A quick answer was there before anything was read.
      void this.#name(session);
    } catch (thrown) {
      if (isMissing(thrown) && this.target.startsWith('agent:')) this.isNew = true;
      else this.error = thrown;
    }
  });

  readonly refreshSoon = inTurn(() => this.#refresh());

  readonly readApprovals = inTurn(async () => {
    if (!this.id) return;
    const before = this.approvals;
    const answer = await approvals.listApprovals({ sessionId: this.id, limit: MAX_APPROVALS }).catch(() => undefined);
    if (!answer) return;
    // One that was decided stays while the page is open, so that nothing moves under the pointer.
    const shown = new Set(before.map(({ id }) => id));
    this.approvals = answer.approvals.filter(({ state, id }) => state === 'pending' || shown.has(id)).reverse();
  });

  /** Names a conversation that a console has begun after its first message. */
  async #name({ id, key, label, turns }: Session) {
    if (label || turns > 1 || !NEW_KEY.test(key) || !can('chat')) return;
    const text = this.outgoing[0]?.text ?? this.journal?.entries.find(({ kind }) => kind === 'heard')?.text ?? '';
    const next = text.trim().split('\n')[0]!.slice(0, MAX_LABEL);
    if (!next || next.startsWith('/')) return;
    const answer = await sessions.updateSession({ session: id, label: next }).catch(() => undefined);
    if (answer?.session) this.session = answer.session;
  }

  async readBranches() {
    const answer = await sessions.listBranches({ session: this.target }).catch(() => undefined);
    this.family = answer?.sessions ?? [];
  }

  async #refresh() {
    const { journal } = this;
    if (!journal) return;
    const last = journal.entries.at(-1)?.seq ?? 0;
    await journal.refresh();
    for (const entry of journal.entries.filter(({ seq, kind }) => seq > last && kind === 'thought')) {
      this.turns.find(({ run }) => run === entry.run)?.journaled(entry.text);
    }
  }

  async #turnEnded(turn: LiveTurn) {
    this.canvasVersion += 1;
    this.read();
    this.readApprovals();
    await this.#refresh();
    this.heard = new Map([...this.heard].filter(([run]) => run !== turn.run));
  }

  #onEvent(event: LiveEvent) {
    if (event.type === 'live.connected' || event.type === 'reset') {
      turns.forget(this.id, new Set(outbox.of(this.target, this.id).map(({ run }) => run)));
      this.#asked.clear();
      this.read();
      this.refreshSoon();
      this.readApprovals();
      return;
    }
    if (event.type === 'live.approval' || event.type.startsWith('approval.')) return this.readApprovals();
    if (!this.session || ![this.id, this.session.key, shownKey(this.session.key)].includes(event.session)) return;
    if (event.type === 'live.chat' || event.type === 'live.agent') this.#onTurn(event);
    else {
      if (event.type === 'run.ended') void turns.end(String(event.data['run'] ?? ''));
      this.read();
      this.refreshSoon();
    }
  }

  #onTurn(event: LiveEvent) {
    applyLiveEvent(event, this.id);
    const stream = event.data['stream'];
    if (stream === 'canvas') this.canvasVersion += 1;
    // A round of tools is in the journal before and after its calls.
    if (stream === 'tool' || stream === 'step') this.refreshSoon();
    for (const { run } of this.turns) void this.#readHeard(run);
  }

  /** Reads what a turn has heard that others began: the journal has it only after the first step. */
  async #readHeard(run: string) {
    if (this.#asked.has(run) || this.outgoing.some((message) => message.run === run)) return;
    this.#asked.add(run);
    const answer = await runs.getRunTrace({ runId: run, limit: 1 }).catch(() => undefined);
    const entries = answer?.messages.map(parseEntry) ?? [];
    const heard = entries.length > 0 ? entries : await this.#beginningOfMessage(run);
    if (heard.length > 0) this.heard = new Map([...this.heard, [run, heard]]);
  }

  /** The message that is answered, as far as the list of activities tells it. */
  async #beginningOfMessage(run: string): Promise<JournalEntry[]> {
    const answer = await runs.listActivity({ agent: this.session?.agent ?? '', limit: 200 }).catch(() => undefined);
    const text = answer?.activities.find(({ session }) => session?.id === this.id)?.message ?? '';
    return text ? [{ seq: 0, run, kind: 'heard', text, detail: {}, at: undefined }] : [];
  }

  #isInJournal(message: OutgoingMessage): boolean {
    if (message.seq === 0 || message.isDead) return message.text === '' && message.files.length === 0;
    return this.journal?.entries.some(({ kind, detail }) => kind === 'heard' && detail.seq === message.seq) ?? false;
  }
}

/** Key of a session as the events of the connection have it. */
function shownKey(key: string): string {
  return key.replace(/^(agent:[^:]+):api:/, '$1:');
}

/** Key of a new conversation of the caller with an agent. */
export function newKey(agent: string): string {
  return `agent:${agent}:api:${me.nameSpace}c-${crypto.randomUUID().slice(0, 13)}`;
}
