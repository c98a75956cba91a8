// Scopes of keys and links, in words.
import { can, me } from '$api/session.svelte';
import { t } from './text';

export const SCOPES = ['guest', 'chat', 'read', 'approve', 'admin', 'owner', 'events', 'platform'] as const;
export type Scope = (typeof SCOPES)[number];

export function scopeText(scope: string): string {
  return SCOPES.includes(scope as Scope) ? t(`scope_${scope as Scope}`) : scope;
}

/** Scopes that the person may give: their own. A person with a role has all, `platform` only as an operator of the installation. */
export function ownScopes(): Scope[] {
  return me.role ? SCOPES.filter((scope) => scope !== 'platform' || can('platform')) : SCOPES.filter((scope) => me.scopes.includes(scope));
}

const ROLES = ['guest', 'viewer', 'member', 'approver', 'operator', 'owner'] as const;

/** Roles that the person may give: an owner gives any, an operator those below. */
export function rolesToGive(): readonly (typeof ROLES)[number][] {
  return me.role === 'operator' ? ROLES.slice(0, ROLES.indexOf('operator')) : ROLES;
}
