// Times, amounts and sizes as people read them, in the language of the page.
import type { Timestamp } from '@bufbuild/protobuf/wkt';
import { language } from './i18n.svelte';

/** A time as the API has it, or as JavaScript has it. */
export type Moment = Timestamp | Date | number | string | undefined;

export function toDate(moment: Moment): Date | undefined {
  if (moment === undefined || moment === '') return undefined;
  if (moment instanceof Date) return moment;
  if (typeof moment === 'object') return new Date(Number(moment.seconds) * 1000 + moment.nanos / 1e6);
  const date = new Date(moment);
  return Number.isNaN(date.getTime()) ? undefined : date;
}

/** Date and time; only the time for today. */
export function time(moment: Moment, form: 'short' | 'full' = 'short'): string {
  const date = toDate(moment);
  if (!date) return '';
  if (form === 'full') {
    return date.toLocaleString(language.locale, { dateStyle: 'medium', timeStyle: 'long' });
  }
  const isToday = date.toDateString() === new Date().toDateString();
  const clock = { hour: '2-digit', minute: '2-digit' } as const;
  return isToday
    ? date.toLocaleTimeString(language.locale, clock)
    : date.toLocaleString(language.locale, { month: 'short', day: 'numeric', ...clock });
}

export function day(moment: Moment): string {
  return toDate(moment)?.toLocaleDateString(language.locale, { dateStyle: 'medium' }) ?? '';
}

const UNITS: [Intl.RelativeTimeFormatUnit, number][] = [
  ['year', 31_536_000],
  ['month', 2_592_000],
  ['day', 86_400],
  ['hour', 3600],
  ['minute', 60],
  ['second', 1],
];

/** Such as "5 min. ago" or "in 2 hr.". */
export function ago(moment: Moment, now: number = Date.now()): string {
  const date = toDate(moment);
  if (!date) return '';
  const seconds = Math.round((date.getTime() - now) / 1000);
  const [unit, length] = UNITS.find(([, length]) => Math.abs(seconds) >= length) ?? ['second', 1];
  const form = new Intl.RelativeTimeFormat(language.locale, { numeric: 'auto', style: 'short' });
  return form.format(Math.trunc(seconds / length), unit);
}

/** A length of time in milliseconds. */
export function duration(milliseconds: number | bigint | undefined): string {
  if (milliseconds === undefined) return '';
  const ms = Number(milliseconds);
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.round((ms % 60_000) / 1000)} s`;
  if (minutes < 2880) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.floor(minutes / 1440)} d ${Math.floor((minutes % 1440) / 60)} h`;
}

/** Time between two moments. */
export function between(from: Moment, to: Moment): string {
  const [start, end] = [toDate(from), toDate(to)];
  return start && end ? duration(end.getTime() - start.getTime()) : '';
}

/** An amount in millionths of a US dollar. */
export function money(micros: number | bigint | undefined): string {
  const dollars = Number(micros ?? 0) / 1e6;
  const digits = dollars !== 0 && Math.abs(dollars) < 0.1 ? 4 : 2;
  return new Intl.NumberFormat(language.locale, {
    style: 'currency',
    currency: 'USD',
    currencyDisplay: 'narrowSymbol',
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  }).format(dollars);
}

export function number(value: number | bigint | undefined): string {
  return new Intl.NumberFormat(language.locale).format(value ?? 0);
}

/** Such as 12.3K. */
export function short(value: number | bigint | undefined): string {
  const form = { notation: 'compact', maximumFractionDigits: 1 } as const;
  return new Intl.NumberFormat(language.locale, form).format(value ?? 0);
}

export function percent(part: number): string {
  return new Intl.NumberFormat(language.locale, { style: 'percent', maximumFractionDigits: 1 }).format(part);
}

export function bytes(value: number | bigint | undefined): string {
  let size = Number(value ?? 0);
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let unit = 0;
  while (size >= 1000 && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${size.toFixed(unit === 0 || size >= 100 ? 0 : 1)} ${units[unit]}`;
}
