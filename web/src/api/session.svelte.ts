// Who is signed in, and what they may do.
import { people } from './clients';
import { isSignedOut, sentence } from './errors';
import { clearTab, forgetSessionId, SESSION_HEADER, sessionId, setSessionId } from './token';

/** A permission as docs/people-and-roles.md has them: what each call needs. */
export type Right = 'read' | 'chat' | 'approve' | 'manage' | 'own' | 'platform';

const RIGHTS_OF_ROLES: Record<string, Right[]> = {
  guest: [],
  viewer: ['read'],
  member: ['chat'],
  approver: ['chat', 'approve'],
  operator: ['read', 'chat', 'approve', 'manage'],
  owner: ['read', 'chat', 'approve', 'manage', 'own'],
};

/** Scope of a key that has the permission. */
const SCOPES: Record<Right, string> = {
  read: 'read',
  chat: 'chat',
  approve: 'approve',
  manage: 'admin',
  own: 'owner',
  platform: 'platform',
};

export type Identity = {
  id: string;
  name: string;
  tenant: string;
  tenantId: string;
  /** Of a person; empty for a key. */
  role: string;
  /** Of a key, or of a sign-in that is limited to them. */
  scopes: string[];
  /** `per_…` of whoever is signed in; empty: a key that is nobody's. */
  person: string;
  /** What the names of the caller's own conversations begin with; empty for the tenant's programs. */
  nameSpace: string;
};

type State = 'unknown' | 'signedIn' | 'signedOut' | 'unreachable';

let state = $state<State>('unknown');
let identity = $state.raw<Identity>();
let failure = $state.raw<unknown>();

export const me = {
  get state(): State {
    return state;
  },
  /** Why the gateway cannot be reached. */
  get failure(): unknown {
    return failure;
  },
  get name(): string {
    return identity?.name ?? '';
  },
  get id(): string {
    return identity?.id ?? '';
  },
  get tenant(): string {
    return identity?.tenant ?? '';
  },
  get tenantId(): string {
    return identity?.tenantId ?? '';
  },
  get role(): string {
    return identity?.role ?? '';
  },
  get scopes(): string[] {
    return identity?.scopes ?? [];
  },
  get person(): string {
    return identity?.person ?? '';
  },
  get nameSpace(): string {
    return identity?.nameSpace ?? '';
  },
};

/** Whether the caller may. The gateway decides; this is for what is shown. */
export function can(right: Right): boolean {
  if (!identity) return false;
  const { role, scopes } = identity;
  // No role includes the operation of the installation.
  if (right === 'platform') return scopes.includes(SCOPES.platform);
  if (role && !RIGHTS_OF_ROLES[role]?.includes(right)) return false;
  // A person's sign-in may be limited to scopes, too.
  return (role !== '' && scopes.length === 0) || scopes.includes(SCOPES[right]);
}

/** Asks the gateway who is signed in. */
export async function identify(): Promise<void> {
  if (!sessionId()) {
    state = 'signedOut';
    return;
  }
  try {
    const answer = await people.getCaller({});
    const { id, name, tenant, tenantId, role, scopes, person, nameSpace } = answer;
    identity = { id, name, tenant, tenantId, role, scopes, person, nameSpace };
    failure = undefined;
    state = 'signedIn';
  } catch (error) {
    if (isSignedOut(error)) signedOut();
    else [state, failure] = ['unreachable', error];
  }
}

/** Shows the sign-in page in this tab. The sign-in goes on in other tabs. */
export function signInToAnotherTenant() {
  setSessionId('');
  identity = undefined;
  state = 'signedOut';
}

/** The gateway has refused the sign-in of this tab. */
export function signedOut() {
  forgetSessionId(sessionId());
  identity = undefined;
  state = 'signedOut';
}

export type SignInMethods = { key: boolean; oidc: { name: string; start: string }[] };

export async function signInMethods(): Promise<SignInMethods> {
  const answer = await fetch('/console/sign-in/methods');
  if (!answer.ok) throw new Error(await said(answer));
  return (await answer.json()) as SignInMethods;
}

/** Signs in with an API key or the token of a one-time link. */
export async function signIn(credential: { key: string } | { link: string }): Promise<void> {
  const answer = await fetch('/console/sign-in', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(credential),
  });
  if (!answer.ok) throw new Error(await said(answer));
  const { session } = (await answer.json()) as { session: string };
  setSessionId(session);
  await identify();
}

export async function signOut(): Promise<void> {
  const id = sessionId();
  const answer = await fetch('/console/sign-out', { method: 'POST', headers: { [SESSION_HEADER]: id } });
  // A sign-in that has ended already is refused.
  if (!answer.ok && answer.status !== 401) throw new Error(await said(answer));
  signedOut();
  clearTab();
}

async function said(answer: Response): Promise<string> {
  try {
    const body = (await answer.json()) as { error?: { message?: string } };
    if (body.error?.message) return sentence(body.error.message);
  } catch {
    // The answer of a proxy; its status says enough.
  }
  return `${answer.status} ${answer.statusText}`;
}

/**
 * Takes what the address brings after `#`: a one-time link, or the sign-in that an identity provider
 * has completed. It is removed from the address at once. Throws why a link cannot be used.
 *
 * Somebody else may have made the link to have a person work in the wrong tenant. So `mayUseLink` is
 * asked before a link replaces a sign-in.
 */
export async function takeFromAddress(mayUseLink: () => Promise<boolean>): Promise<void> {
  const given = new URLSearchParams(location.hash.slice(1));
  const [link, session, error] = [given.get('link'), given.get('session'), given.get('error')];
  if (link === null && session === null && error === null) return;
  history.replaceState(history.state, '', location.pathname + location.search);
  if (link) {
    if (state === 'unknown' && sessionId()) await identify();
    const isReplaced = state === 'signedIn' || state === 'unreachable';
    if (!isReplaced || (await mayUseLink())) await signIn({ link });
  } else if (session) setSessionId(session);
  else throw new Error(sentence(error ?? ''));
}
