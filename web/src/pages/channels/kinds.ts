// What docs/channels.md says of each kind of channel.
import type { Account } from '$api/gen/holdfast/gateway/v1/control_pb';
import { t } from './text';

export type DeliveryClass = 'plain' | 'keyed' | 'reconcilable';

const CLASSES: Record<string, DeliveryClass> = {
  telegram: 'plain',
  irc: 'plain',
  webhook: 'keyed',
  discord: 'keyed',
  matrix: 'keyed',
  widget: 'keyed',
  slack: 'reconcilable',
  email: 'reconcilable',
  whatsapp: 'reconcilable',
};

const NAMES: Record<string, string> = {
  telegram: 'Telegram',
  irc: 'IRC',
  discord: 'Discord',
  slack: 'Slack',
  matrix: 'Matrix',
  whatsapp: 'WhatsApp',
};

/** Settings that a first connection needs, in the order of the form. All others follow as further settings. */
const MAIN = ['server', 'homeserver', 'address', 'imap', 'smtp', 'phone_number_id', 'nick', 'url', 'origins', 'allow', 'groups', 'channels', 'mode', 'tls', 'title', 'greeting'];

/** Settings without which no account of the kind works, although the schema has a default. */
const NEEDED: Record<string, string[]> = {
  irc: ['server', 'nick'],
  matrix: ['homeserver'],
  email: ['address', 'imap.host', 'smtp.host'],
  whatsapp: ['phone_number_id'],
};

/** Words of errors that are about the credential. */
const ABOUT_CREDENTIAL = /token|password|secret|api key|credential|unauthori[sz]ed|authenti|sign in|log ?in|\b401\b|\b403\b/i;

export function classOf(channel: string): DeliveryClass | undefined {
  return CLASSES[channel];
}

export function nameOf(channel: string): string {
  if (channel === 'email') return t('email');
  if (channel === 'widget') return t('widget');
  if (channel === 'webhook') return t('webhook');
  return NAMES[channel] ?? channel;
}

/** Place in the form; -1 is among the further settings. */
export function placeOf(path: string[]): number {
  return MAIN.indexOf(path[0] ?? '');
}

export function isNeeded(channel: string, field: string): boolean {
  return NEEDED[channel]?.includes(field) ?? false;
}

export type AccountState = 'disabled' | 'notServed' | 'working' | 'connecting' | 'failing';

export function stateOf(account: Account): AccountState {
  if (!account.enabled) return 'disabled';
  const known = account.status?.state;
  return known === 'working' || known === 'connecting' || known === 'failing' ? known : 'notServed';
}

export const BADGES = { disabled: 'quiet', notServed: 'warn', working: 'ok', connecting: 'info', failing: 'bad' } as const;

/**
 * The field that an error is about: `settings.imap.host`, `secrets.token`; else the first secret if
 * the error speaks of the credential. Empty if there is none.
 */
export function fieldOfError(text: string, secrets: string[]): string {
  const named = /`(settings|secrets)\.([\w.]+)`/.exec(text);
  if (named) return `${named[1]}.${named[2]}`;
  const secret = secrets.find((name) => text.includes(`\`${name}\``));
  const first = secret ?? (ABOUT_CREDENTIAL.test(text) ? secrets[0] : undefined);
  return first ? `secrets.${first}` : '';
}
