// Words for routing: who answers, and why.
import type { Agent, Binding, ModelRoute } from '$api/gen/holdfast/gateway/v1/control_pb';
import { t } from './text';

export const PEER_KINDS = ['direct', 'group', 'channel'] as const;

export function peerKinds(): { value: string; label: string }[] {
  return PEER_KINDS.map((value) => ({ value, label: t(value) }));
}

export function agentOptions(agents: Agent[] | undefined): { value: string; label: string; hint: string }[] {
  return (agents ?? []).map(({ name, description }) => ({ value: name, label: name, hint: description }));
}

/** What a binding is for, in words. */
export function conditionOf({ account, peerKind, peerId, guild, team }: Binding): string {
  const parts = [
    account === '*' ? t('anyAccount') : t('accountIs', { name: account || 'default' }),
    peerId ? t('peerIs', { kind: PEER_KINDS.some((one) => one === peerKind) ? t(peerKind as (typeof PEER_KINDS)[number]) : peerKind, id: peerId }) : '',
    guild ? t('guildIs', { id: guild }) : '',
    team ? t('teamIs', { id: team }) : '',
  ];
  return parts.filter(Boolean).join(', ');
}

/** The agents that answer, in words. */
export function answererOf(agent: string, also: string[], byModel: ModelRoute | undefined): string {
  if (byModel) return t('modelChooses', { agents: byModel.among.join(', ') || t('allAgents'), agent });
  return [agent, ...also].join(', ');
}

const REASONS: Record<string, Parameters<typeof t>[0]> = {
  'binding.peer': 'byPeer',
  'binding.peer.parent': 'byParent',
  'binding.guild': 'byGuild',
  'binding.team': 'byTeam',
  'binding.account': 'byAccount',
  'binding.channel': 'byChannel',
  default: 'byDefault',
};

/** Why an agent answers, in words. */
export function reasonOf(matchedBy: string): string {
  const rule = /^rule\.(\d+)$/.exec(matchedBy)?.[1];
  if (rule) return t('byRule', { place: rule });
  const known = REASONS[matchedBy];
  return known ? t(known) : matchedBy;
}

/** Names that are separated by commas or lines. */
export function namesOf(text: string): string[] {
  return text.split(/[,\n]/).map((name) => name.trim()).filter(Boolean);
}
