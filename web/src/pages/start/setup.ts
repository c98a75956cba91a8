// State of the first steps in a tenant, by what an owner reads.
import { channels, credentials, people, providers, sessions, signIns } from '$api/clients';
import type { Provider } from '$api/gen/holdfast/gateway/v1/control_pb';
import type { Credential } from '$api/gen/holdfast/gateway/v1/models_pb';
import { me } from '$api/session.svelte';
import { KINDS } from '../chat/session-rows';

export type SetupState = {
  hasModel: boolean;
  /** The person signs in at a provider, or has linked an account. */
  hasIdentity: boolean;
  hasChannel: boolean;
  /** Somebody else is there or invited. */
  hasColleague: boolean;
  hasConversation: boolean;
};

const USABLE_STATES = ['ready', 'cooling'];

export async function readSetup(): Promise<SetupState> {
  const [models, keys, own, accounts, all, invitations, conversations] = await Promise.all([
    providers.listProviders({}),
    credentials.listCredentials({}),
    me.person ? people.getPerson({}) : undefined,
    channels.listAccounts({}),
    people.listPeople({ limit: 10 }),
    signIns.listInvitations({}),
    sessions.listSessions({ kinds: KINDS.people, limit: 1 }),
  ]);
  return {
    hasModel: models.providers.some((provider) => isUsable(provider, keys.credentials)),
    hasIdentity: own?.identities.some(({ kind }) => kind === 'account' || kind === 'sign_in') ?? false,
    hasChannel: accounts.accounts.some(({ enabled }) => enabled),
    hasColleague: invitations.invitations.length > 0 || all.people.some(({ id, disabledAt }) => id !== me.person && !disabledAt),
    hasConversation: conversations.sessions.length > 0,
  };
}

/** The demo needs no key, and is no model. Servers of one's own need none, either. */
function isUsable({ name, kind, baseUrl, hasKey }: Provider, keys: Credential[]): boolean {
  if (kind === 'demo') return false;
  const own = keys.filter(({ provider }) => provider === name);
  if (own.length > 0) return own.some(({ state }) => USABLE_STATES.includes(state));
  return hasKey || kind === 'ollama' || baseUrl !== '';
}

/** Whether the start page has something to show. */
export function needsSetup({ hasModel, hasConversation }: SetupState): boolean {
  return !hasModel || !hasConversation;
}
