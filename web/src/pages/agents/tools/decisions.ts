// Decisions of the tool policy in words.
import type { ToolDecision } from '$api/gen/holdfast/gateway/v1/policies_pb';
import { t } from './text';

const KINDS = { allow: 'ok', deny: 'bad', approval: 'warn' } as const;
const WORDS = { allow: 'allowed', deny: 'denied', approval: 'needsApproval' } as const;

export const decisionKind = ({ decision }: ToolDecision) => KINDS[decision as keyof typeof KINDS] ?? 'quiet';

export function decisionWord({ decision }: ToolDecision): string {
  const key = WORDS[decision as keyof typeof WORDS];
  return key ? t(key) : decision;
}

const LAYERS = {
  profile: 'layerProfile',
  provider_profile: 'layerProviderProfile',
  global: 'layerGlobal',
  global_provider: 'layerGlobalProvider',
  agent: 'layerAgent',
  agent_provider: 'layerAgentProvider',
  chat: 'layerChat',
  sandbox: 'layerSandbox',
  subagent: 'layerSubagent',
  visibility: 'layerVisibility',
  catalog: 'layerCatalog',
} as const;

/** The layer that decided, as in "layer 5: the policy of the agent". */
export function layerText({ layer, number }: ToolDecision): string {
  if (!layer) return '';
  const key = LAYERS[layer as keyof typeof LAYERS];
  const words = key ? t(key) : layer;
  return number > 0 ? t('layer', { number, words }) : words;
}

/** Why a tool may be used, or why not. */
export function whyText(one: ToolDecision): string {
  const layer = layerText(one);
  if (one.decision === 'allow') return [t('noLayerDenies'), layer].filter(Boolean).join(' · ');
  // A denial by a list is told in the language of the page, other reasons as the gateway has them.
  const entry = one.entry && one.list ? t('byEntry', { entry: one.entry, list: one.list }) : one.reason || (one.list && t('notInList', { list: one.list }));
  if (one.decision === 'approval') return [t('asksPerson'), layer, entry].filter(Boolean).join(' · ');
  return [layer ? t('deniedBy', { layer }) : t('denied'), entry].filter(Boolean).join(' · ');
}
