// The pages of the console: where they are, who sees them, and what loads them.
import type { Component } from 'svelte';
import { can, me, type Right } from '$api/session.svelte';
import { isStartHidden } from '$lib/start-page';
import { t } from './text';
import Activity from '@lucide/svelte/icons/activity';
import Bot from '@lucide/svelte/icons/bot';
import Brain from '@lucide/svelte/icons/brain';
import Calendar from '@lucide/svelte/icons/calendar-clock';
import ChartNoAxesColumn from '@lucide/svelte/icons/chart-no-axes-column';
import Cpu from '@lucide/svelte/icons/cpu';
import Inbox from '@lucide/svelte/icons/inbox';
import ListTree from '@lucide/svelte/icons/list-tree';
import MessageSquare from '@lucide/svelte/icons/message-square';
import Network from '@lucide/svelte/icons/network';
import Plug from '@lucide/svelte/icons/plug';
import Settings from '@lucide/svelte/icons/settings';
import Rocket from '@lucide/svelte/icons/rocket';
import Sparkles from '@lucide/svelte/icons/sparkles';
import UserRound from '@lucide/svelte/icons/user-round';

/** A page gets the parts of the path behind its own name. */
export type PageComponent = Component<{ parts: string[] }>;

export type Page = {
  name: string;
  label: () => string;
  icon: Component;
  group: 'talk' | 'build' | 'run';
  /** Who sees it; the gateway decides about each call. Absent: everybody who is signed in. */
  right?: Right;
  /** Only for people without the right `read`, who find there what others find on its pages. */
  isForOwnThings?: boolean;
  /** It has no space around it. */
  flush?: boolean;
  /** Letter that opens it after `g`. */
  key: string;
  load: () => Promise<{ default: PageComponent }>;
};

export const pages: Page[] = [
  { name: 'chat', label: () => t('chat'), icon: MessageSquare, group: 'talk', right: 'chat', flush: true, key: 'c', load: () => import('../pages/chat/index.svelte') },
  { name: 'mine', label: () => t('mine'), icon: UserRound, group: 'talk', right: 'chat', isForOwnThings: true, key: 'y', load: () => import('../pages/mine/index.svelte') },
  { name: 'inbox', label: () => t('inbox'), icon: Inbox, group: 'talk', right: 'read', key: 'i', load: () => import('../pages/inbox/index.svelte') },
  { name: 'now', label: () => t('now'), icon: Activity, group: 'talk', right: 'read', key: 'n', load: () => import('../pages/now/index.svelte') },
  { name: 'runs', label: () => t('runs'), icon: ListTree, group: 'talk', right: 'read', key: 'r', load: () => import('../pages/runs/index.svelte') },
  { name: 'agents', label: () => t('agents'), icon: Bot, group: 'build', right: 'read', key: 'a', load: () => import('../pages/agents/index.svelte') },
  { name: 'schedules', label: () => t('schedules'), icon: Calendar, group: 'build', right: 'read', key: 's', load: () => import('../pages/schedules/index.svelte') },
  { name: 'channels', label: () => t('channels'), icon: Plug, group: 'build', right: 'read', key: 'h', load: () => import('../pages/channels/index.svelte') },
  { name: 'memory', label: () => t('memory'), icon: Brain, group: 'build', right: 'read', key: 'm', load: () => import('../pages/memory/index.svelte') },
  { name: 'skills', label: () => t('skills'), icon: Sparkles, group: 'build', right: 'read', key: 'k', load: () => import('../pages/skills/index.svelte') },
  { name: 'models', label: () => t('models'), icon: Cpu, group: 'build', right: 'read', key: 'o', load: () => import('../pages/models/index.svelte') },
  { name: 'usage', label: () => t('usage'), icon: ChartNoAxesColumn, group: 'run', right: 'read', key: 'u', load: () => import('../pages/usage/index.svelte') },
  { name: 'mesh', label: () => t('mesh'), icon: Network, group: 'run', right: 'platform', key: 'x', load: () => import('../pages/mesh/index.svelte') },
  { name: 'settings', label: () => t('settings'), icon: Settings, group: 'run', key: ',', load: () => import('../pages/settings/index.svelte') },
];

/** First steps of an owner, at the address without a page's name. */
const start: Page = { name: 'start', label: () => t('start'), icon: Rocket, group: 'talk', right: 'own', key: '', load: () => import('../pages/start/index.svelte') };

/** Page of a name in the address. Without a name: the first steps for owners who have not hidden them, else Chat. */
export function pageOf(name: string | undefined): Page | undefined {
  if (name === undefined && can('own') && !isStartHidden(me.tenantId)) return start;
  return pages.find((page) => page.name === (name ?? 'chat'));
}

/** Whether whoever is signed in sees the page. */
export function isVisible({ right, isForOwnThings }: Page): boolean {
  if (right && !can(right)) return false;
  return !isForOwnThings || (me.person !== '' && !can('read'));
}
