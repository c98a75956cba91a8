// Kinds of memories in words.
import { t } from './text';

/** Kinds that lists can be limited to. */
export const KINDS = ['memory', 'fact', 'value', 'event'] as const;
export const TYPES = ['preference', 'fact', 'event', 'commitment'] as const;

export function kindText(kind: string): string {
  return kind === 'note' || KINDS.includes(kind as (typeof KINDS)[number]) ? t(`kind_${kind as 'note'}`) : kind;
}

export function typeText(type: string): string {
  return TYPES.includes(type as (typeof TYPES)[number]) ? t(type as (typeof TYPES)[number]) : type;
}
