// Names and pictures of the nodes of a run's tree.
import Bot from '@lucide/svelte/icons/bot';
import Brain from '@lucide/svelte/icons/brain';
import CornerDownRight from '@lucide/svelte/icons/corner-down-right';
import Layers from '@lucide/svelte/icons/layers';
import ListTree from '@lucide/svelte/icons/list-tree';
import LoaderCircle from '@lucide/svelte/icons/loader-circle';
import MessageSquare from '@lucide/svelte/icons/message-square';
import Route from '@lucide/svelte/icons/route';
import Send from '@lucide/svelte/icons/send';
import Wrench from '@lucide/svelte/icons/wrench';
import type { Component } from 'svelte';
import { t } from './text';
import type { NodeData, TreeNode } from './tree';

export const icons: Record<NodeData['kind'], Component> = {
  run: ListTree,
  behavior: Route,
  step: Layers,
  model: Brain,
  tool: Wrench,
  task: CornerDownRight,
  subagent: Bot,
  message: MessageSquare,
  delivery: Send,
  now: LoaderCircle,
};

export function kindLabel({ data }: TreeNode): string {
  if (data.kind === 'task') return taskKind(data.task.kind);
  return t(`kind_${data.kind}`);
}

function taskKind(kind: string): string {
  const known = { model: 'kind_model', tool: 'kind_tool', action: 'kind_action', result: 'kind_result' } as const;
  return kind in known ? t(known[kind as keyof typeof known]) : kind;
}

export function nodeLabel(node: TreeNode): string {
  const { data } = node;
  switch (data.kind) {
    case 'run':
      return t('runOf', { agent: data.run.agent });
    case 'behavior':
      return data.task.name;
    case 'step':
      return t('stepNumber', { number: data.step.number + 1 });
    case 'model':
      return data.call.model || t('kind_model');
    case 'tool':
      return data.call.call?.tool ?? '';
    case 'task':
      return data.task.name || taskKind(data.task.kind);
    case 'subagent':
      return data.subagent.label || t('kind_subagent');
    case 'message':
      return t('kind_message');
    case 'delivery':
      return t('deliveryTo', { channel: data.delivery.channel });
    case 'now':
      return t('kind_now');
  }
}

/** Characters of a text beside the name of a node. */
const MAX_CHARACTERS = 120;

/** What distinguishes a node from others of its name. */
export function nodeDetail({ data }: TreeNode): string {
  switch (data.kind) {
    case 'run':
      return data.run.model;
    case 'behavior':
      return t('stepNumber', { number: data.task.step });
    case 'step':
      return data.step.calls.map(({ call }) => call?.tool ?? '').join(', ') || line(data.step.text || (data.step.notes[0]?.text ?? ''));
    case 'model':
      return data.call.attempts > 1 ? t('attemptsCount', { count: data.call.attempts }) : '';
    case 'tool':
      return data.call.input === '{}' ? '' : line(data.call.input);
    case 'task':
      return line(data.task.error || data.task.result);
    case 'subagent':
      return '';
    case 'message':
      return line(data.entry.text);
    case 'delivery':
      return line(data.delivery.reason);
    case 'now':
      return '';
  }
}

function line(text: string): string {
  return text.slice(0, MAX_CHARACTERS).replace(/\s+/g, ' ').trim();
}
