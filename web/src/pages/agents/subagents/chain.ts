// Definitions of chains.
import type { Chain } from '$api/gen/holdfast/gateway/v1/subagents_pb';

export const EXAMPLE = JSON.stringify(
  { description: '', stages: [{ steps: [{ name: 'research', prompt: '{input}' }] }] },
  null,
  2,
);

export function descriptionOf({ spec }: Chain): string {
  try {
    const { description } = JSON.parse(spec) as { description?: unknown };
    return typeof description === 'string' ? description : '';
  } catch {
    return '';
  }
}

export function pretty(spec: string): string {
  try {
    return JSON.stringify(JSON.parse(spec), null, 2);
  } catch {
    return spec;
  }
}

/** Why a text is no JSON; empty if it is. */
export function jsonProblem(text: string): string {
  try {
    JSON.parse(text);
    return '';
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
