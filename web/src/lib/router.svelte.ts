// Routes of the console by the path of the address, below /console.

const BASE = '/console';

export type Route = {
  /** Such as `/agents/main/files`. */
  readonly path: string;
  readonly query: URLSearchParams;
};

function read(): Route {
  const path = location.pathname.startsWith(BASE) ? location.pathname.slice(BASE.length) : '/';
  return { path: path || '/', query: new URLSearchParams(location.search) };
}

let current = $state.raw(read());
let guard: (() => boolean) | undefined;
/** Number of the entry that is shown in the history of the tab; each entry has its own as its state. */
let place = placeOf(history.state) ?? 0;

function placeOf(state: unknown): number | undefined {
  const number = (state as { place?: unknown } | null)?.place;
  return typeof number === 'number' ? number : undefined;
}

export const route = {
  get path(): string {
    return current.path;
  },
  get query(): URLSearchParams {
    return current.query;
  },
  /** Parts of the path, decoded: `['agents', 'main', 'files']`. */
  get parts(): string[] {
    return current.path.split('/').filter(Boolean).map(decode);
  },
};

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Address of a path; parts are encoded: `` path`/agents/${name}/files` ``. */
export function path(strings: TemplateStringsArray, ...parts: (string | number | bigint)[]): string {
  return strings.map((text, index) => text + (index < parts.length ? encodeURIComponent(String(parts[index])) : '')).join('');
}

/** Address for the `href` of a link to a path of the console. */
export function href(to: string): string {
  return BASE + to;
}

/** Goes to a path of the console. */
export function go(to: string, options: { replace?: boolean } = {}) {
  if (guard && !guard()) return;
  const address = href(to);
  if (options.replace) history.replaceState({ place }, '', address);
  else history.pushState({ place: (place += 1) }, '', address);
  current = read();
}

/** Changes the query of the address without a new entry in the history; empty values are removed. */
export function setQuery(values: Record<string, string | undefined>) {
  const query = new URLSearchParams(current.query);
  for (const [name, value] of Object.entries(values)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  const text = query.toString();
  history.replaceState({ place }, '', location.pathname + (text ? `?${text}` : ''));
  current = read();
}

/** Asks `mayLeave` before the page is left, by links and by the browser's buttons too. Returns what ends that. */
export function guardLeaving(mayLeave: () => boolean): () => void {
  guard = mayLeave;
  return () => {
    if (guard === mayLeave) guard = undefined;
  };
}

/** The browser has gone to another entry of its history. It goes back there if the page may not be left. */
function onHistory(event: PopStateEvent) {
  const next = read();
  // An entry without a number is new: somebody changed the address behind its `#`.
  const to = placeOf(event.state) ?? place + 1;
  const leaves = next.path !== current.path || next.query.toString() !== current.query.toString();
  if (leaves && guard && !guard()) {
    history.go(place - to);
    return;
  }
  place = to;
  history.replaceState({ place }, '');
  current = next;
}

/** Handles clicks on links to the console and the buttons of the browser. Once, by the application. */
export function startRouter() {
  history.replaceState({ place }, '');
  addEventListener('popstate', onHistory);
  document.addEventListener('click', (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
    const link = (event.target as Element | null)?.closest?.('a');
    if (!link || link.target || link.hasAttribute('download') || link.origin !== location.origin) return;
    if (!link.pathname.startsWith(`${BASE}/`)) return;
    event.preventDefault();
    go(link.pathname.slice(BASE.length) + link.search);
  });
}
