// Commands that an agent's conversation understands, as docs/channels.md lists them.
import { t } from './text';

export type ChatCommand = { name: string; /** What follows the name. */ usage: string; about: () => string };

export const commands: ChatCommand[] = [
  { name: '/help', usage: '', about: () => t('cmdHelp') },
  { name: '/status', usage: '', about: () => t('cmdStatus') },
  { name: '/stop', usage: '', about: () => t('cmdStop') },
  { name: '/new', usage: '', about: () => t('cmdNew') },
  { name: '/reset', usage: '', about: () => t('cmdReset') },
  { name: '/compact', usage: 'keep …', about: () => t('cmdCompact') },
  { name: '/pause', usage: '', about: () => t('cmdPause') },
  { name: '/resume', usage: '', about: () => t('cmdResume') },
  { name: '/model', usage: 'openai:gpt-5', about: () => t('cmdModel') },
  { name: '/think', usage: 'off | low | medium | high', about: () => t('cmdThink') },
  { name: '/reasoning', usage: 'off | on | stream', about: () => t('cmdReasoning') },
  { name: '/verbose', usage: 'off | on | full', about: () => t('cmdVerbose') },
  { name: '/elevated', usage: 'off | on | ask | full', about: () => t('cmdElevated') },
  { name: '/queue', usage: 'steer | followup | collect | interrupt', about: () => t('cmdQueue') },
  { name: '/timezone', usage: 'Europe/Oslo', about: () => t('cmdTimezone') },
  { name: '/chain', usage: '…', about: () => t('cmdChain') },
  { name: '/skill', usage: '…', about: () => t('cmdSkill') },
  { name: '/approve', usage: '…', about: () => t('cmdApprove') },
  { name: '/deny', usage: '…', about: () => t('cmdDeny') },
  { name: '/list', usage: 'agents | models | channels | skills', about: () => t('cmdList') },
];

/** Commands whose names begin as the text does; none behind the name. */
export function matching(text: string): ChatCommand[] {
  if (!/^\/[a-z]*$/i.test(text)) return [];
  return commands.filter(({ name }) => name.startsWith(text.toLowerCase()));
}
