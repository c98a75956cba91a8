// Lists that are read page by page.
import { onEvent } from '$api/live.svelte';
import { untrack } from 'svelte';
import { inTurn, whileAway } from './load.svelte';

export type Paged<T> = {
  readonly items: T[];
  /** All pages are read. */
  readonly done: boolean;
  readonly loading: boolean;
  readonly error: unknown;
  /** Reads the next page. */
  more(): Promise<void>;
  /** Reads anew from the first page on. */
  reload(): Promise<void>;
  /** Changes items that are loaded. */
  update(change: (items: T[]) => T[]): void;
};

/**
 * Reads a list by page tokens. It begins anew when a value that `call` reads changes. Events of the
 * types in `on` read the first page again and put what is new at the head, by `key`.
 */
export function paged<T, R>(
  call: (pageToken: string) => Promise<R>,
  parts: (answer: R) => [items: T[], nextPageToken: string],
  options: { on?: string[]; key?: (item: T) => string } = {},
): Paged<T> {
  let isGone = false;
  $effect(() => () => (isGone = true));
  let items = $state.raw<T[]>([]);
  let done = $state(false);
  let loading = $state(false);
  let error = $state.raw<unknown>();
  let token = '';
  let newest = 0;
  /** What to do again after an error. */
  let failed: () => Promise<void>;

  async function read(promise: Promise<R>, keep: T[]) {
    newest += 1;
    const own = newest;
    loading = true;
    try {
      const [page, next] = parts(await promise);
      if (own !== newest) return;
      items = [...keep, ...page];
      token = next;
      done = next === '';
      error = undefined;
    } catch (thrown) {
      if (own === newest) error = thrown;
    } finally {
      if (own === newest) loading = false;
    }
  }

  async function more() {
    if (!done && !loading && !error) await next();
  }

  /** Reads the page behind what is loaded. */
  const next = () => {
    failed = next;
    return read(untrack(() => call(token)), items);
  };

  const reload = () => begin(untrack(() => call('')));

  function begin(promise: Promise<R>) {
    failed = reload;
    token = '';
    return read(promise, []);
  }

  async function refresh() {
    if (isGone) return;
    const { key } = options;
    if (!key || loading || items.length === 0) return reload();
    try {
      const [page, next] = parts(await untrack(() => call('')));
      const seen = new Set(page.map(key));
      items = [...page, ...items.filter((item) => !seen.has(key(item)))];
      if (items.length === page.length) [token, done] = [next, next === ''];
      error = undefined;
    } catch (thrown) {
      failed = refresh;
      error = thrown;
    }
  }

  $effect(() => {
    const promise = call('');
    untrack(() => void begin(promise));
  });
  whileAway(() => error, () => failed());
  if (options.on) onEvent(options.on, inTurn(refresh));
  return {
    get items() {
      return items;
    },
    get done() {
      return done;
    },
    get loading() {
      return loading;
    },
    get error() {
      return error;
    },
    more,
    reload,
    update(change) {
      items = change(items);
    },
  };
}
