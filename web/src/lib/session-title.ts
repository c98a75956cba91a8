// What people call a conversation.
import type { Session } from '$api/gen/holdfast/gateway/v1/sessions_pb';
import { texts } from './i18n.svelte';

const t = texts({ en: { main: 'Main conversation' }, zh: { main: '主对话' } });

/** Its label, the beginning of its summary, or the part of its key behind the agent. */
export function sessionTitle({ id, key, label, summary }: Pick<Session, 'id' | 'key' | 'label' | 'summary'>): string {
  const ofKey = key.split(':').slice(2).join(':').replace(/^api:/, '');
  return label || summary.split('\n')[0]?.slice(0, 80) || (ofKey === 'main' ? t('main') : ofKey) || id;
}
