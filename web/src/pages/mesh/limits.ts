// Limits of plans, as forms and lists have them.
import type { PlanLimits } from '$api/gen/holdfast/gateway/v1/plans_pb';
import { bytes, money, number } from '$lib/format';
import { t } from './text';

/** Names of the limits in the API's answers, and the fields of `PlanLimits`. */
export const LIMITS = [
  { field: 'callsPerMinute', name: 'calls_per_minute' },
  { field: 'concurrentCalls', name: 'concurrent_calls' },
  { field: 'sessions', name: 'sessions' },
  { field: 'parallelRuns', name: 'parallel_runs' },
  { field: 'tokensPerDay', name: 'tokens_per_day' },
  { field: 'microsPerMonth', name: 'micros_per_month' },
  { field: 'storageBytes', name: 'storage_bytes' },
  { field: 'commandsPerDay', name: 'commands_per_day' },
] as const;

type Field = (typeof LIMITS)[number]['field'];
export type LimitForm = Record<Field, string>;

/** Units that forms have instead of the API's: dollars and megabytes. */
const UNITS: Partial<Record<Field, number>> = { microsPerMonth: 1e6, storageBytes: 1e6 };

export function limitLabel(name: string): string {
  const known = LIMITS.find((limit) => limit.name === name || limit.field === name);
  return known ? t(known.field) : name.replaceAll('_', ' ');
}

export function limitText(name: string, value: bigint): string {
  if (name.includes('micros')) return money(value);
  return name.includes('torage') ? bytes(value) : number(value);
}

export function limitForm(limits: PlanLimits | undefined): LimitForm {
  const entries = LIMITS.map(({ field }) => {
    const value = limits?.[field];
    return [field, value === undefined ? '' : String(Number(value) / (UNITS[field] ?? 1))];
  });
  return Object.fromEntries(entries) as LimitForm;
}

/** Limits of a filled form; empty fields are no limits. */
export function limitsOf(form: LimitForm): Partial<Record<Field, bigint>> {
  const entries = LIMITS.filter(({ field }) => form[field].trim() !== '').map(({ field }) => [field, BigInt(Math.round(Number(form[field]) * (UNITS[field] ?? 1)))]);
  return Object.fromEntries(entries) as Partial<Record<Field, bigint>>;
}

/** The limits that are set, in words. */
export function limitsText(limits: PlanLimits | undefined): string {
  return LIMITS.flatMap(({ field, name }) => (limits?.[field] === undefined ? [] : [`${t(field)}: ${limitText(name, limits[field])}`])).join(', ');
}
