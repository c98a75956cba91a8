// Times, amounts and sizes as people read them, in the language of the page.
import type { Timestamp } from '@bufbuild/protobuf/wkt';
import { language, texts } from './i18n.svelte';

/** A time as the API has it, or as JavaScript has it. */
export type Moment = Timestamp | Date | number | string | undefined;

export function toDate(moment: Moment): Date | undefined {
  if (moment === undefined || moment === '') return undefined;
  if (moment instanceof Date) return moment;
  if (typeof moment === 'object') return new Date(Number(moment.seconds) * 1000 + moment.nanos / 1e6);
  const date = new Date(moment);
  return Number.isNaN(date.getTime()) ? undefined : date;
}

/** A form of texts in the language of the page. It is made once for a language: that takes long. */
function form<T>(make: (locale: string) => T): () => T {
  const made = new Map<string, T>();
  return () => {
    const { locale } = language;
    const known = made.get(locale) ?? make(locale);
    made.set(locale, known);
    return known;
  };
}

const CLOCK = { hour: '2-digit', minute: '2-digit' } as const;
const clockForm = form((locale) => new Intl.DateTimeFormat(locale, CLOCK));
const shortForm = form((locale) => new Intl.DateTimeFormat(locale, { month: 'short', day: 'numeric', ...CLOCK }));
const fullForm = form((locale) => new Intl.DateTimeFormat(locale, { dateStyle: 'medium', timeStyle: 'long' }));
const dayForm = form((locale) => new Intl.DateTimeFormat(locale, { dateStyle: 'medium' }));
const agoForm = form((locale) => new Intl.RelativeTimeFormat(locale, { numeric: 'auto', style: 'short' }));
const numberForm = form((locale) => new Intl.NumberFormat(locale));
const compactForm = form((locale) => new Intl.NumberFormat(locale, { notation: 'compact', maximumFractionDigits: 1 }));
const percentForm = form((locale) => new Intl.NumberFormat(locale, { style: 'percent', maximumFractionDigits: 1 }));
const [centForm, fineForm] = [2, 4].map((digits) =>
  form((locale) => {
    const fraction = { minimumFractionDigits: digits, maximumFractionDigits: digits };
    return new Intl.NumberFormat(locale, { style: 'currency', currency: 'USD', currencyDisplay: 'narrowSymbol', ...fraction });
  }),
) as [() => Intl.NumberFormat, () => Intl.NumberFormat];

/** Date and time; only the time for today. */
export function time(moment: Moment, form: 'short' | 'full' = 'short'): string {
  const date = toDate(moment);
  if (!date) return '';
  if (form === 'full') return fullForm().format(date);
  const isToday = date.toDateString() === new Date().toDateString();
  return (isToday ? clockForm() : shortForm()).format(date);
}

export function day(moment: Moment): string {
  const date = toDate(moment);
  return date ? dayForm().format(date) : '';
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
  return agoForm().format(Math.trunc(seconds / length), unit);
}

const t = texts({
  en: { ms: 'ms', s: 's', min: 'min', h: 'h', d: 'd' },
  zh: { ms: '毫秒', s: '秒', min: '分', h: '小时', d: '天' },
});

type Unit = Parameters<typeof t>[0];

/** A length of time in milliseconds. */
export function duration(milliseconds: number | bigint | undefined): string {
  if (milliseconds === undefined) return '';
  const ms = Number(milliseconds);
  if (ms < 1000) return amount(Math.round(ms), 'ms');
  if (ms < 60_000) return amount((ms / 1000).toFixed(ms < 10_000 ? 1 : 0), 's');
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return joined(amount(minutes, 'min'), Math.round((ms % 60_000) / 1000), 's');
  if (minutes < 2880) return joined(amount(Math.floor(minutes / 60), 'h'), minutes % 60, 'min');
  return joined(amount(Math.floor(minutes / 1440), 'd'), Math.floor((minutes % 1440) / 60), 'h');
}

const amount = (value: number | string, unit: Unit) => `${value} ${t(unit)}`;

/** An amount and its rest, which is left out if it is none. */
function joined(whole: string, rest: number, unit: Unit): string {
  return rest ? `${whole} ${amount(rest, unit)}` : whole;
}

/** Time between two moments. */
export function between(from: Moment, to: Moment): string {
  const [start, end] = [toDate(from), toDate(to)];
  return start && end ? duration(end.getTime() - start.getTime()) : '';
}

/** An amount in millionths of a US dollar. */
export function money(micros: number | bigint | undefined): string {
  const dollars = Number(micros ?? 0) / 1e6;
  const isSmall = dollars !== 0 && Math.abs(dollars) < 0.1;
  return (isSmall ? fineForm() : centForm()).format(dollars);
}

export function number(value: number | bigint | undefined): string {
  return numberForm().format(value ?? 0);
}

/** Such as 12.3K. */
export function short(value: number | bigint | undefined): string {
  // British English has a small letter for millions, which reads as thousandths.
  return compactForm().format(value ?? 0).replace(/m$/, 'M');
}

export function percent(part: number): string {
  return percentForm().format(part);
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
