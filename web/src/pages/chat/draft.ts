// Text that was written and not sent, for each person and conversation of the tab.
import { me } from '$api/session.svelte';

const keyOf = (target: string) => `holdfast.chat.draft.${me.tenantId}.${me.id}.${target}`;

export function readDraft(target: string): string {
  return sessionStorage.getItem(keyOf(target)) ?? '';
}

export function keepDraft(target: string, text: string) {
  if (text) sessionStorage.setItem(keyOf(target), text);
  else sessionStorage.removeItem(keyOf(target));
}
