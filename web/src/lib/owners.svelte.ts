// Names of agents, keys and people, whose ids are all that some answers have of them.
import { SvelteMap } from 'svelte/reactivity';
import { agents, keys, people } from '$api/clients';
import { can, me } from '$api/session.svelte';

/** Ids that are still unknown are looked for again after so long, in milliseconds. */
const ASK_AGAIN_AFTER = 30_000;

type Named = { id: string; name: string };

const SOURCES: Record<string, (id: string) => Promise<Named[]>> = {
  agt: async () => (await agents.listAgents({})).agents,
  key: async () => (can('own') ? (await keys.listKeys({})).keys : []),
  // Lists lack people who were merged into others.
  per: async (id) => (can('own') ? [(await people.getPerson({ id })).person].filter((one) => one !== undefined) : []),
};

const names = new SvelteMap<string, string>();
const askedAt = new Map<string, number>();

/** The name of an agent, a key or a person by its id, with or without `person:` before it. Other texts, and ids until their names are known, stay as they are. */
export function nameOf(given: string): string {
  const id = given.replace(/^person:/, '');
  if (id !== '' && id === me.person) return me.name;
  const known = names.get(id);
  const kind = id.split('_')[0] ?? '';
  const source = SOURCES[kind];
  // People are asked for one by one, the others all at once.
  const question = kind === 'per' ? id : kind;
  if (known === undefined && source && (askedAt.get(question) ?? 0) < Date.now() - ASK_AGAIN_AFTER) {
    askedAt.set(question, Date.now());
    void learn(() => source(id));
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
