// Names of agents and keys, whose ids are all that some answers have of them.
import { SvelteMap } from 'svelte/reactivity';
import { agents, keys } from '$api/clients';
import { can } from '$api/session.svelte';

/** Ids that are still unknown are looked for again after so long, in milliseconds. */
const ASK_AGAIN_AFTER = 30_000;

type Named = { id: string; name: string };

const SOURCES: Record<string, () => Promise<Named[]>> = {
  agt: async () => (await agents.listAgents({})).agents,
  key: async () => (can('own') ? (await keys.listKeys({})).keys : []),
};

const names = new SvelteMap<string, string>();
const askedAt = new Map<string, number>();

/** The name of an agent or a key by its id. Other texts, and ids until their names are known, stay as they are. */
export function nameOf(id: string): string {
  const known = names.get(id);
  const kind = id.split('_')[0] ?? '';
  if (known === undefined && SOURCES[kind] && (askedAt.get(kind) ?? 0) < Date.now() - ASK_AGAIN_AFTER) {
    askedAt.set(kind, Date.now());
    void learn(SOURCES[kind]);
  }
  return known ?? id;
}

async function learn(list: () => Promise<Named[]>) {
  try {
    for (const { id, name } of await list()) names.set(id, name);
  } catch {
    // Without names, ids are shown.
  }
}
