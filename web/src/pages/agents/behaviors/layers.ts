// Layers of behaviours: built in, of the tenant, of an agent.
import { behaviors } from '$api/clients';
import { isMissing } from '$api/errors';
import type { Behavior } from '$api/gen/holdfast/gateway/v1/behaviors_pb';
import { t } from './text';

const WORDS = { 'built-in': 'builtIn', tenant: 'tenant', agent: 'agent' } as const;

export function layerWord(layer: string): string {
  const key = WORDS[layer as keyof typeof WORDS];
  return key ? t(key) : layer;
}

export type Layer = 'agent' | 'tenant';

/** The name that calls take for a layer: that of the agent, or an empty one. */
export const ownerOf = (layer: Layer, agent: string) => (layer === 'agent' ? agent : '');

/** Versions of a behaviour in a layer, newest first; none if the layer never had it. */
export async function versionsIn(layer: Layer, agent: string, name: string): Promise<Behavior[]> {
  try {
    return (await behaviors.listBehaviorVersions({ agent: ownerOf(layer, agent), name })).versions;
  } catch (error) {
    if (isMissing(error)) return [];
    throw error;
  }
}

/** Version in use of a behaviour in a layer; 0 if it has none. */
export async function versionIn(layer: Layer, agent: string, name: string): Promise<bigint> {
  if (!name) return 0n;
  const versions = await versionsIn(layer, agent, name);
  return versions.find(({ isCurrent }) => isCurrent)?.version ?? 0n;
}
