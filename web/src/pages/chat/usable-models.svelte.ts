// Models that a conversation can be answered by.
import { models, providers } from '$api/clients';
import { can } from '$api/session.svelte';
import { load } from '$lib/load.svelte';

const providerOf = (id: string) => id.split(':')[0] ?? '';

/**
 * Models of providers with a key, and of those that are in use: others would be refused. Not everybody
 * may read which have a key. Only while a component is made.
 */
export function usableModels(inUse: () => string[]) {
  const known = load(() => models.listModels({}));
  const own = load(() => (can('own') ? providers.listProviders({}) : undefined));
  const usable = $derived.by(() => {
    const usedNow = new Set(inUse().map(providerOf));
    const withKey = new Set(own.data?.providers.map(({ name }) => name));
    return (known.data?.models ?? []).filter((one) => one.isOwn || usedNow.has(providerOf(one.model)) || withKey.has(providerOf(one.model)));
  });
  return {
    get all() {
      return usable;
    },
  };
}
