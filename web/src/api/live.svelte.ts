// What happens in the tenant, as it happens: one WebSocket for each tab.
//
// Two sources come through it. The durable log (`events.log`) is read from a cursor on, so nothing is
// missed while the connection is gone. Turns in progress (`chat`, `agent`) are told only while it is
// open; what they said is in the journal.
import { signedOut } from './session.svelte';
import { endWaitingCalls } from './silence';
import { sessionId } from './token';

export type LiveEvent = {
  /**
   * Type of the log (`run.ended`), or `live.chat`, `live.agent`, `live.approval` of turns in progress,
   * or `reset`: anything may have changed.
   */
  type: string;
  session: string;
  agent: string;
  data: Record<string, unknown>;
};

type Listener = { types: string[]; call: (event: LiveEvent) => void };

type Frame = { type?: string; id?: string; ok?: boolean; event?: string; payload?: Record<string, unknown>; error?: { message?: string } };

/** Pauses before connecting again, in milliseconds. */
const PAUSES = [250, 500, 1000, 2000, 5000, 10_000];

/** Without a frame for so long the gateway is asked for one, in milliseconds. */
const ASK_AFTER = 10_000;

/** Longest wait for a frame that must come: the first, and the one that was asked for. */
const ANSWER_TIMEOUT = 10_000;

/** Pause before the log is asked for again, when the gateway refused it, in milliseconds. */
const REFUSED_PAUSE = 30_000;

const listeners = new Set<Listener>();
let socket: WebSocket | undefined;
let cursor = '';
let attempt = 0;
let silence: ReturnType<typeof setTimeout> | undefined;
/** A request waits for its answer. */
let isAsked = false;
let wanted = false;
let state = $state<'connecting' | 'open' | 'away'>('connecting');
let requests = 0;

export const live = {
  /** `away`: events are late until the connection is there again. */
  get state() {
    return state;
  },
};

/** Calls back for events whose type begins with one of `types`, while the component lives. */
export function onEvent(types: string[], call: (event: LiveEvent) => void) {
  $effect(() => listen(types, call));
}

/** The same outside of components. Returns what ends it. */
export function listen(types: string[], call: (event: LiveEvent) => void): () => void {
  const listener = { types, call };
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function emit(event: LiveEvent) {
  for (const { types, call } of [...listeners]) {
    if (event.type === 'reset' || types.some((type) => event.type.startsWith(type))) call(event);
  }
}

/** Connects, and stays connected until `stopLive`. */
export function startLive() {
  if (wanted) return;
  wanted = true;
  connect();
  addEventListener('online', hurry);
  document.addEventListener('visibilitychange', hurry);
}

export function stopLive() {
  wanted = false;
  clearTimeout(silence);
  removeEventListener('online', hurry);
  document.removeEventListener('visibilitychange', hurry);
  const open = socket;
  socket = undefined;
  cursor = '';
  open?.close();
}

function hurry() {
  if (!wanted || document.visibilityState !== 'visible') return;
  if (!socket) connect();
  // After a sleep of the machine a connection may look open.
  else if (socket.readyState === WebSocket.OPEN) ask(socket);
}

function connect() {
  if (!wanted || socket) return;
  const scheme = location.protocol === 'https:' ? 'wss:' : 'ws:';
  isAsked = false;
  const own = new WebSocket(`${scheme}//${location.host}/console/ws?session=${encodeURIComponent(sessionId())}`);
  socket = own;
  own.onmessage = (message) => {
    if (own !== socket) return;
    const frame = JSON.parse(String(message.data)) as Frame;
    // Frames that nobody asked for tell nothing of the way to the gateway.
    if (!isAsked || frame.type === 'res') {
      isAsked = false;
      clearTimeout(silence);
      silence = setTimeout(() => ask(own), ASK_AFTER);
    }
    receive(own, frame);
  };
  own.onclose = (event) => {
    if (own !== socket) return;
    socket = undefined;
    clearTimeout(silence);
    lost(event);
  };
  expectFrame(own);
}

/** Asks for any answer. */
function ask(own: WebSocket) {
  if (own !== socket || isAsked) return;
  isAsked = true;
  expectFrame(own);
  send(own, 'sessions.subscribe', {});
}

/** Gives a connection up on which nothing comes, and all calls that wait with it. */
function expectFrame(own: WebSocket) {
  clearTimeout(silence);
  silence = setTimeout(() => {
    if (own !== socket) return;
    socket = undefined;
    own.close();
    endWaitingCalls();
    lost();
  }, ANSWER_TIMEOUT);
}

function lost(event?: CloseEvent) {
  if (!wanted) return;
  state = 'away';
  if (event?.code === 1008 && /credential|signed/i.test(event.reason)) {
    signedOut();
    return;
  }
  const wait = PAUSES[Math.min(attempt, PAUSES.length - 1)]!;
  attempt += 1;
  setTimeout(connect, wait * (0.75 + Math.random() / 2));
}

function send(own: WebSocket, method: string, params: unknown) {
  requests += 1;
  own.send(JSON.stringify({ type: 'req', id: `${method}#${requests}`, method, params }));
}

function receive(own: WebSocket, frame: Frame) {
  if (frame.event === 'connect.challenge') {
    const client = { id: 'holdfast-console', version: '1', platform: 'web', mode: 'webchat' };
    const scopes = ['operator.read', 'operator.write', 'operator.approvals'];
    send(own, 'connect', { minProtocol: 4, maxProtocol: 4, client, caps: ['tool-events'], role: 'operator', scopes });
  } else if (frame.type === 'res') answered(own, frame);
  else if (frame.event) event(frame.event, frame.payload ?? {});
}

function answered(own: WebSocket, frame: Frame) {
  const method = frame.id?.split('#')[0];
  if (method === 'connect' && frame.ok) {
    const missed = attempt > 0 && !cursor;
    attempt = 0;
    state = 'open';
    subscribe(own);
    if (missed) emit({ type: 'reset', session: '', agent: '', data: {} });
  } else if (method === 'events.log.subscribe') {
    if (!frame.ok) return subscribeAgain(own);
    cursor = String(frame.payload?.['cursor'] ?? cursor);
    // Turns in progress told nothing while the connection was gone.
    emit({ type: 'live.connected', session: '', agent: '', data: {} });
  }
}

/**
 * Subscribes anew after the gateway has refused or ended the log: the cursor is too old, or the tenant
 * has too many open consoles. Without a cursor the pause is long. Each time everything is read again.
 */
function subscribeAgain(own: WebSocket) {
  const again = () => {
    if (own !== socket) return;
    emit({ type: 'reset', session: '', agent: '', data: {} });
    subscribe(own);
  };
  const isOld = cursor !== '';
  cursor = '';
  if (isOld) again();
  else setTimeout(again, REFUSED_PAUSE * (0.75 + Math.random() / 2));
}

function subscribe(own: WebSocket) {
  send(own, 'sessions.subscribe', {});
  send(own, 'events.log.subscribe', { subscription: 'console', ...(cursor ? { cursor } : { start: 'now' }) });
}

function event(name: string, payload: Record<string, unknown>) {
  const text = (key: string) => String(payload[key] ?? '');
  if (name === 'events.log') logged(payload);
  else if (name === 'chat' || name === 'agent' || name === 'session.message') {
    emit({ type: `live.${name}`, session: text('sessionKey'), agent: text('agentId'), data: payload });
  } else if (name.startsWith('exec.approval.')) {
    emit({ type: 'live.approval', session: text('sessionKey'), agent: '', data: payload });
  } else if (name === 'sessions.changed') {
    emit({ type: 'live.sessions', session: text('sessionKey'), agent: '', data: payload });
  } else if (name.startsWith('device.pair.')) {
    emit({ type: 'live.device', session: '', agent: '', data: payload });
  }
}

function logged(payload: Record<string, unknown>) {
  if (payload['error']) {
    if (socket) subscribeAgain(socket);
    return;
  }
  cursor = String(payload['cursor'] ?? cursor);
  const event = payload['event'] as Record<string, unknown> | undefined;
  if (!event) return;
  const text = (...names: string[]) => String(names.map((name) => event[name]).find((value) => value !== undefined) ?? '');
  emit({
    type: text('type'),
    session: text('session', 'sessionId', 'session_id'),
    agent: text('agent', 'agentId', 'agent_id'),
    data: (event['data'] ?? {}) as Record<string, unknown>,
  });
}
