// What the parts of the pages of agents share.
import { agents, behaviors, files, policies } from '$api/clients';
import { AgentSchema, type Agent, type UpdateAgentResponse } from '$api/gen/holdfast/gateway/v1/control_pb';
import { create } from '@bufbuild/protobuf';

/** Properties of each tab of an agent. */
export type TabProps = {
  agent: Agent;
  /** Reads the agent anew. */
  onchange: () => Promise<void>;
};

const STATE_KINDS = { running: 'info', sleeping: 'ok', disabled: 'warn', archived: 'quiet' } as const;

export function stateKind(agentState: string): 'info' | 'ok' | 'warn' | 'quiet' {
  return STATE_KINDS[agentState as keyof typeof STATE_KINDS] ?? 'quiet';
}

/** Whether a name is one that agents may have. */
export function isAgentName(name: string): boolean {
  return /^[A-Za-z0-9_-]{1,64}$/.test(name);
}

export type BehaviorDocument = { name: string; source: string };

export type NewAgent = {
  /** Settings to begin with; absent are the defaults. */
  settings: Agent | undefined;
  name: string;
  description: string;
  behaviors: BehaviorDocument[];
};

/** Creates an agent and its behaviours. Returns it with the warnings of all calls. */
export async function createAgent({ settings, name, description, behaviors: documents }: NewAgent): Promise<{ agent: Agent; warnings: string[] }> {
  const wanted = { ...(settings ?? create(AgentSchema)), id: '', did: '', isDefault: false, name, description };
  const { agent, warnings } = await agents.createAgent({ agent: wanted });
  for (const document of documents) {
    const answer = await behaviors.putBehavior({ ...document, agent: name });
    warnings.push(...answer.warnings);
  }
  return { agent: agent!, warnings };
}

/** Changes the settings of an agent as they are now. Fails if somebody changes them in the same moment. */
export async function changeAgent(id: string, change: (agent: Agent) => Agent): Promise<UpdateAgentResponse> {
  const { agent } = await agents.getAgent({ agent: id });
  return agents.updateAgent({ agent: change(agent!), baseVersion: agent!.version });
}

/** Documents of the behaviours that are the agent's own. */
export async function ownBehaviors(agent: string): Promise<BehaviorDocument[]> {
  const answer = await behaviors.listBehaviors({ agent });
  const own = answer.behaviors.filter(({ layer }) => layer === 'agent');
  const read = await Promise.all(own.map(({ name }) => behaviors.getBehavior({ agent, name })));
  return read.flatMap(({ behavior }) => (behavior ? [{ name: behavior.name, source: behavior.source }] : []));
}

/** Copies the tool policy of one agent to another. */
export async function copyPolicy(from: string, to: string): Promise<void> {
  const { policy } = await policies.getPolicy({ agent: from });
  if (policy && policy.version > 0n) await policies.putPolicy({ agent: to, document: policy.document });
}

/** Copies the newest files of one agent to another. */
export async function copyFiles(from: string, to: string, reason: string): Promise<void> {
  const { archive } = await files.exportFiles({ agent: from });
  if (archive.length > 0) await files.importFiles({ agent: to, archive, reason, requestId: crypto.randomUUID() });
}
