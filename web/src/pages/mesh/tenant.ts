// States of tenants in words.
import { t } from './text';

const KINDS = { active: 'ok', suspended: 'warn', deleting: 'bad' } as const;

const isKnown = (state: string): state is keyof typeof KINDS => state in KINDS;

export function stateKind(state: string): 'ok' | 'warn' | 'bad' | 'quiet' {
  return isKnown(state) ? KINDS[state] : 'quiet';
}

export function stateText(state: string): string {
  return isKnown(state) ? t(state) : state;
}
