// Calls that wait for an answer while nothing comes from the gateway.
//
// A network that fails silently keeps its connections open, and a call on one would wait for minutes. The
// page's WebSocket notices the silence (`live.svelte.ts`) and ends all calls, which are then made again
// where that changes nothing.
import { Code, ConnectError } from '@connectrpc/connect';

/** Longest wait for the answer of a call that only reads, in milliseconds. */
const READ_TIMEOUT = 30_000;

let silence = new AbortController();

const unavailable = () => new ConnectError('the gateway does not answer', Code.Unavailable);

/** Ends the calls that wait. */
export function endWaitingCalls() {
  const ended = silence;
  silence = new AbortController();
  ended.abort(unavailable());
}

/**
 * Makes a call with a signal that ends it when the gateway is silent, or after some time if it only
 * `reads`.
 */
export async function untilSilence<T>(signal: AbortSignal, reads: boolean, call: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const late = new AbortController();
  const timer = reads ? setTimeout(() => late.abort(unavailable()), READ_TIMEOUT) : undefined;
  try {
    return await call(AbortSignal.any([signal, silence.signal, late.signal]));
  } finally {
    clearTimeout(timer);
  }
}
