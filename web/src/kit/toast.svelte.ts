// Short notices of what came of an action.

export type Toast = {
  text: string;
  kind?: 'ok' | 'bad' | 'info';
  action?: { label: string; run: () => void };
};

type Shown = Toast & { id: number };

/** Time for which a notice is shown. Errors and notices with an action stay until they are closed. */
const SHOWN_MS = 5000;

const MAX_SHOWN_NOTICES = 4;

let shown = $state.raw<Shown[]>([]);
let hosts = $state.raw<string[]>([]);
let last = 0;

export const toasts = {
  /** Notices that a host shows: all in the newest host, which is in front of the others. */
  shownBy(host: string): Shown[] {
    return hosts.at(-1) === host ? shown : [];
  },
};

/** Adds a host. Returns what removes it. */
export function addToastHost(id: string): () => void {
  hosts = [...hosts, id];
  return () => (hosts = hosts.filter((host) => host !== id));
}

export function toast(notice: Toast) {
  last += 1;
  const id = last;
  const others = shown.filter(({ text }) => text !== notice.text);
  shown = [...others, { ...notice, id }].slice(-MAX_SHOWN_NOTICES);
  if (notice.kind !== 'bad' && !notice.action) setTimeout(() => closeToast(id), SHOWN_MS);
}

export function closeToast(id: number) {
  shown = shown.filter((one) => one.id !== id);
}
