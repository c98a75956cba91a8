// Jobs as docs/schedules.md has them, and what the form of a job holds.
import type { Job } from '$api/gen/holdfast/gateway/v1/schedules_pb';
import { duration, time } from '$lib/format';
import { language } from '$lib/i18n.svelte';
import { t } from './text';

type Schedule =
  | { kind: 'cron'; expr: string; tz?: string }
  | { kind: 'every'; every_ms: number; anchor_ms?: number }
  | { kind: 'at'; at_ms: number };

type Payload = { kind: string; message?: string; deliver?: boolean; event?: string; session?: string };

export type JobBody = {
  name?: string;
  description?: string;
  enabled?: boolean;
  schedule?: Schedule;
  payload?: Payload;
  session_target?: string;
};

export type JobForm = {
  name: string;
  description: string;
  agent: string;
  kind: 'cron' | 'every' | 'at';
  expression: string;
  zone: string;
  minutes: string;
  at: string;
  message: string;
  target: 'isolated' | 'main' | 'fixed';
  deliver: boolean;
};

/** Kind of the payload, by what the form calls the target. */
const PAYLOADS = { isolated: 'agentTurn', main: 'systemEvent', fixed: 'message' } as const;

export const STATES = { active: 'ok', paused: 'quiet', done: 'quiet', broken: 'bad' } as const;
export const RESULTS = { ok: 'ok', error: 'bad', skipped: 'quiet' } as const;

export function bodyOf(job: Job): JobBody {
  try {
    return JSON.parse(job.what || '{}') as JobBody;
  } catch {
    return {};
  }
}

/** The schedule in words. */
export function scheduleText(job: Job): string {
  const schedule = bodyOf(job).schedule;
  if (schedule?.kind === 'cron') return cronText(schedule.expr, schedule.tz ?? 'UTC');
  if (schedule?.kind === 'every') return t('everyTime', { length: duration(schedule.every_ms) });
  if (schedule?.kind === 'at') return time(schedule.at_ms);
  return job.kind;
}

/** One time of a day on some days of the week, in words; other cron expressions stay as they are. */
export function cronText(expression: string, zone: string): string {
  const [, minute, hour, days] = /^(\d{1,2}) (\d{1,2}) \* \* (\*|[0-7](?:[-,][0-7])*)$/.exec(expression.trim()) ?? [];
  if (!minute || !hour || !days) return `${expression} ${zone}`;
  const words = days === '*' ? t('everyDay') : days.replace(/[0-7]/g, weekday).replace('-', '–').replaceAll(',', ', ');
  return t('atTime', { time: `${hour.padStart(2, '0')}:${minute.padStart(2, '0')}`, days: words, zone });
}

/** Short name of a weekday; 0 and 7 are Sunday. */
function weekday(number: string): string {
  // 4 January 1970 was a Sunday.
  const date = new Date(Date.UTC(1970, 0, 4 + Number(number)));
  return date.toLocaleDateString(language.locale, { weekday: 'short', timeZone: 'UTC' });
}

/** A time as the field `datetime-local` has it. */
export function localTime(date: Date): string {
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

export function emptyForm(): JobForm {
  return {
    name: '',
    description: '',
    agent: '',
    kind: 'cron',
    expression: '0 9 * * 1-5',
    zone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    minutes: '60',
    at: localTime(new Date(Date.now() + 3_600_000)),
    message: '',
    target: 'isolated',
    deliver: true,
  };
}

export function formOf(job: Job): JobForm {
  const { schedule, payload, session_target: target, ...body } = bodyOf(job);
  const form = emptyForm();
  if (schedule?.kind === 'cron') [form.expression, form.zone] = [schedule.expr, schedule.tz ?? 'UTC'];
  if (schedule?.kind === 'every') form.minutes = String(schedule.every_ms / 60_000);
  if (schedule?.kind === 'at') form.at = localTime(new Date(schedule.at_ms));
  return {
    ...form,
    name: body.name ?? job.name,
    description: body.description ?? '',
    agent: job.agent,
    kind: schedule?.kind ?? 'cron',
    message: payload?.message ?? '',
    target: payload?.kind === 'message' ? 'fixed' : target === 'main' ? 'main' : 'isolated',
    deliver: payload?.deliver ?? true,
  };
}

/** Body of a job; what the form does not know is kept from `before`. */
export function jsonOf(form: JobForm, before: JobBody = {}): string {
  const schedule: Schedule =
    form.kind === 'cron'
      ? { kind: 'cron', expr: form.expression.trim(), tz: form.zone.trim() }
      : form.kind === 'every'
        ? { kind: 'every', every_ms: Math.round(Number(form.minutes) * 60_000) }
        : { kind: 'at', at_ms: new Date(form.at).getTime() };
  const kind = PAYLOADS[form.target];
  // Fields of another kind of payload would be refused.
  const kept = before.payload?.kind === kind ? before.payload : {};
  const isIsolated = form.target === 'isolated';
  const payload = { ...kept, kind, message: form.message, ...(isIsolated ? { deliver: form.deliver } : {}) };
  const target = isIsolated ? 'isolated' : 'main';
  return JSON.stringify({ name: form.name.trim(), description: form.description, schedule, payload, session_target: target });
}
