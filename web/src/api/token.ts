// Which of the browser's sign-ins this tab uses. The id is public; the secret is in a cookie that
// scripts cannot read.

const KEY = 'holdfast.session';

/** Header that names the sign-in whose cookie counts. */
export const SESSION_HEADER = 'x-holdfast-session';

/** Id of the sign-in of this tab; a new tab begins with the newest one. */
export function sessionId(): string {
  const own = sessionStorage.getItem(KEY);
  if (own !== null) return own;
  const last = localStorage.getItem(KEY) ?? '';
  if (last) sessionStorage.setItem(KEY, last);
  return last;
}

export function setSessionId(id: string) {
  sessionStorage.setItem(KEY, id);
  if (id) localStorage.setItem(KEY, id);
}

/** Forgets a sign-in that has ended. */
export function forgetSessionId(id: string) {
  sessionStorage.setItem(KEY, '');
  if (localStorage.getItem(KEY) === id) localStorage.removeItem(KEY);
}

/** Forgets what the tab keeps for the person, such as drafts. */
export function clearTab() {
  sessionStorage.clear();
  sessionStorage.setItem(KEY, '');
}
