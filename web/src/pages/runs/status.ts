// States of runs, tool calls and subagents: their names and their badges.
import { t } from './text';

export type BadgeKind = 'ok' | 'warn' | 'bad' | 'info' | 'quiet';

const KINDS: Record<string, BadgeKind> = {
  running: 'info',
  requested: 'quiet',
  waiting_approval: 'warn',
  completed: 'ok',
  ok: 'ok',
  OK: 'ok',
  interrupted: 'quiet',
  cancelled: 'quiet',
  abandoned: 'quiet',
  failed: 'bad',
  FAILED: 'bad',
  error: 'bad',
  timeout: 'bad',
  dead: 'bad',
  pending: 'warn',
  allowed_once: 'ok',
  allowed_always: 'ok',
  denied: 'bad',
  expired: 'quiet',
  sending: 'info',
  sent: 'ok',
  unknown: 'warn',
};

const LABELS = {
  running: 'statusRunning',
  requested: 'statusRequested',
  waiting_approval: 'statusWaitingApproval',
  completed: 'statusCompleted',
  ok: 'statusCompleted',
  OK: 'statusCompleted',
  interrupted: 'statusInterrupted',
  cancelled: 'statusCancelled',
  abandoned: 'statusAbandoned',
  failed: 'statusFailed',
  FAILED: 'statusFailed',
  error: 'statusFailed',
  timeout: 'statusTimeout',
  dead: 'statusDead',
  pending: 'statusPending',
  allowed_once: 'statusAllowedOnce',
  allowed_always: 'statusAllowedAlways',
  denied: 'statusDenied',
  expired: 'statusExpired',
  sending: 'statusSending',
  sent: 'statusSent',
  unknown: 'statusUnknown',
} as const;

/** Statuses that a list of runs can be filtered by. */
export const RUN_STATUSES = ['running', 'waiting_approval', 'completed', 'failed', 'cancelled', 'interrupted', 'dead'] as const;

export function statusKind(status: string): BadgeKind {
  return KINDS[status] ?? 'quiet';
}

export function statusLabel(status: string): string {
  const key = (LABELS as Record<string, (typeof LABELS)[keyof typeof LABELS]>)[status];
  return key ? t(key) : status;
}

export function isOpen(status: string): boolean {
  return status === 'running' || status === 'waiting_approval';
}
