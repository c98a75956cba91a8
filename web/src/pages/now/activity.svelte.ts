// What runs or waits in the tenant, as the gateway streams it.
import { Code, ConnectError } from '@connectrpc/connect';
import { runs } from '$api/clients';
import type { Activity } from '$api/gen/holdfast/gateway/v1/runs_pb';
import { untrack } from 'svelte';

export type ActivityRequest = { agent?: string; doing?: string[]; limit?: number };

/** Pauses before the stream is opened again after a failure, in milliseconds. */
const PAUSES = [500, 1000, 3000, 10_000];

/** Answers that another attempt does not change. */
const FINAL = [Code.PermissionDenied, Code.Unauthenticated, Code.InvalidArgument, Code.NotFound, Code.Unimplemented];

/** Follows the activities that `request` asks for; `undefined` follows none. Only in components. */
export function watchActivity(request: () => ActivityRequest | undefined) {
  let items = $state.raw<Activity[]>();
  let isCut = $state(false);
  let error = $state.raw<unknown>();
  let restarts = $state(0);

  $effect(() => {
    void restarts;
    const wanted = request();
    items = undefined;
    error = undefined;
    if (!wanted) return;
    const ended = new AbortController();
    untrack(() => void follow(wanted, ended.signal));
    return () => ended.abort();
  });

  async function follow(wanted: ActivityRequest, signal: AbortSignal) {
    for (let failures = 0; !signal.aborted; ) {
      try {
        for await (const answer of runs.watchActivity(wanted, { signal })) {
          if (signal.aborted) return;
          [items, isCut, error, failures] = [answer.activities, answer.isCut, undefined, 0];
        }
      } catch (thrown) {
        if (signal.aborted) return;
        error = thrown;
        if (FINAL.includes(ConnectError.from(thrown).code)) return;
      }
      await new Promise((resolve) => setTimeout(resolve, PAUSES[Math.min(failures, PAUSES.length - 1)]));
      failures += 1;
    }
  }

  return {
    /** `undefined` until the first answer. */
    get items() {
      return items;
    },
    /** There are more than the limit. */
    get isCut() {
      return isCut;
    },
    get error() {
      return error;
    },
    restart() {
      restarts += 1;
    },
  };
}
