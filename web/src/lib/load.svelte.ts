// State of answers of the gateway in components.
import { isAway } from '$api/errors';
import { onEvent } from '$api/live.svelte';
import { untrack } from 'svelte';

/** Waits shorter than this show nothing, in milliseconds. */
const SHOW_AFTER = 300;

/** Pause before a call that could not reach the gateway is made again, in milliseconds. */
const TRY_AGAIN_AFTER = 5000;

export type Loaded<T> = {
  /** The newest answer; the one before stays while another is awaited. */
  readonly data: T | undefined;
  readonly error: unknown;
  /** An answer is awaited for longer than people notice. */
  readonly loading: boolean;
  reload(): Promise<void>;
  /** Replaces the answer, such as after a change that returned the new state. */
  set(data: T): void;
};

/**
 * Awaits an answer, again when a value that `call` reads changes, and when an event of one of the
 * types in `on` comes (beginnings of types). Only while a component is made.
 */
export function load<T>(call: () => Promise<T> | undefined, options: { on?: string[]; every?: number } = {}): Loaded<T> {
  let data = $state.raw<T>();
  let error = $state.raw<unknown>();
  let loading = $state(false);
  let newest = 0;

  async function run(promise: Promise<T> | undefined) {
    newest += 1;
    const own = newest;
    if (!promise) {
      data = undefined;
      return;
    }
    const timer = setTimeout(() => (loading = own === newest), SHOW_AFTER);
    try {
      const answer = await promise;
      if (own === newest) [data, error] = [answer, undefined];
    } catch (thrown) {
      if (own === newest) error = thrown;
    } finally {
      clearTimeout(timer);
      if (own === newest) loading = false;
    }
  }

  // A call of a component that is gone would read values of it that do not change any more.
  let isGone = false;
  $effect(() => () => (isGone = true));
  const reload = async () => {
    if (!isGone) await run(untrack(call));
  };
  $effect(() => {
    const promise = call();
    untrack(() => void run(promise));
  });
  whileAway(() => error, reload);
  if (options.on) onEvent(options.on, inTurn(reload));
  const { every } = options;
  if (every) {
    $effect(() => {
      const timer = setInterval(() => document.visibilityState === 'visible' && void reload(), every);
      return () => clearInterval(timer);
    });
  }
  return {
    get data() {
      return data;
    },
    get error() {
      return error;
    },
    get loading() {
      return loading;
    },
    reload,
    set(next) {
      newest += 1;
      [data, error, loading] = [next, undefined, false];
    },
  };
}

/** Calls again by itself while the gateway cannot be reached, and at once when it is back. */
export function whileAway(error: () => unknown, again: () => unknown) {
  $effect(() => {
    if (!isAway(error())) return;
    const timer = setTimeout(again, TRY_AGAIN_AFTER);
    return () => clearTimeout(timer);
  });
  onEvent(['live.connected'], () => isAway(error()) && void again());
}

/** Many events in a short time lead to one call, and one more behind it. */
export function inTurn(call: () => Promise<unknown> | void, pause = 250): () => void {
  let waits = false;
  let wanted = false;
  return function next() {
    if (waits) {
      wanted = true;
      return;
    }
    waits = true;
    void Promise.resolve(call()).finally(() =>
      setTimeout(() => {
        waits = false;
        if (wanted) {
          wanted = false;
          next();
        }
      }, pause),
    );
  };
}
