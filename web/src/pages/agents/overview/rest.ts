// Settings of an agent that have no form of their own, as JSON.
import { fromJson, toJson, type JsonObject } from '@bufbuild/protobuf';
import { AgentSchema, type Agent } from '$api/gen/holdfast/gateway/v1/control_pb';

/** Fields that the editor shows. */
export const REST = ['tools', 'no_tools', 'context', 'bundles', 'heartbeat', 'channels', 'behaviors', 'hit_points', 'self_improve'];

const whole = (agent: Agent) => toJson(AgentSchema, agent, { useProtoFieldName: true }) as JsonObject;

export function restOf(agent: Agent): string {
  const fields = Object.entries(whole(agent)).filter(([name]) => REST.includes(name));
  return JSON.stringify(Object.fromEntries(fields), null, 2);
}

/** The agent with these settings in place of its own. Throws what is wrong with the text. */
export function withRest(agent: Agent, text: string): Agent {
  const given: unknown = JSON.parse(text);
  if (typeof given !== 'object' || given === null || Array.isArray(given)) throw new Error('{}');
  const unknown = Object.keys(given).find((name) => !REST.includes(name));
  if (unknown !== undefined) throw new Error(`"${unknown}": ${REST.join(', ')}`);
  const kept = Object.entries(whole(agent)).filter(([name]) => !REST.includes(name));
  return fromJson(AgentSchema, { ...Object.fromEntries(kept), ...(given as JsonObject) });
}
