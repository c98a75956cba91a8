// Scopes of keys and links, in words.
import { me } from '$api/session.svelte';
import { t } from './text';

export const SCOPES = ['read', 'chat', 'approve', 'admin', 'events', 'platform'] as const;
export type Scope = (typeof SCOPES)[number];

export function scopeText(scope: string): string {
  return SCOPES.includes(scope as Scope) ? t(`scope_${scope as Scope}`) : scope;
}

/** Scopes that the person may give: their own. A person with a role has all but `platform`. */
export function ownScopes(): Scope[] {
  return me.role ? SCOPES.filter((scope) => scope !== 'platform') : SCOPES.filter((scope) => me.scopes.includes(scope));
}

/** What invited people may do. */
export const INVITATIONS: { id: 'viewer' | 'member' | 'operator' | 'full'; scopes: Scope[] }[] = [
  { id: 'viewer', scopes: ['read'] },
  { id: 'member', scopes: ['read', 'chat'] },
  { id: 'operator', scopes: ['read', 'chat', 'approve'] },
  { id: 'full', scopes: [] },
];
