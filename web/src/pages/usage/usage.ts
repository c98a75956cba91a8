// Sums of the usage of agents, models, channels and people.
import type { UsageLine } from '$api/gen/holdfast/gateway/v1/models_pb';

export type Dimension = 'agent' | 'model' | 'channel' | 'person';

export type Total = {
  name: string;
  turns: number;
  completed: number;
  failed: number;
  read: number;
  cached: number;
  written: number;
  micros: number;
  p50: number;
  p95: number;
};

/** Series that a plot shows; the rest is summed up. */
const SERIES = 6;

export function nameOf(line: UsageLine, dimension: Dimension, none: string): string {
  return (dimension === 'person' ? line.personName || line.person : line[dimension]) || none;
}

export function totalOf(line: UsageLine, name: string): Total {
  return {
    name,
    turns: Number(line.runs),
    completed: Number(line.completed),
    failed: Number(line.failed),
    read: Number(line.inputTokens),
    cached: Number(line.cachedTokens),
    written: Number(line.outputTokens),
    micros: Number(line.micros),
    p50: Number(line.p50Ms),
    p95: Number(line.p95Ms),
  };
}

export function sum(totals: Total[]): Omit<Total, 'name' | 'p50' | 'p95'> {
  const of = (key: keyof Total) => totals.reduce((all, one) => all + Number(one[key]), 0);
  return { turns: of('turns'), completed: of('completed'), failed: of('failed'), read: of('read'), cached: of('cached'), written: of('written'), micros: of('micros') };
}

/** Days or hours of the time, each as the API writes it. */
export function slots(days: number, now: Date = new Date()): string[] {
  const [step, count, length] = days === 1 ? [3_600_000, 24, 13] : [86_400_000, days, 10];
  return Array.from({ length: count }, (_, index) => new Date(now.getTime() - (count - 1 - index) * step).toISOString().slice(0, length));
}

/** Start of a slot. */
export function momentOf(slot: string): Date {
  return new Date(slot.length > 10 ? `${slot}:00:00Z` : `${slot}T00:00:00Z`);
}

/** One series for each of the largest names, with one value for each slot, and one for all others. */
export function seriesOf(
  lines: UsageLine[],
  all: string[],
  nameOfLine: (line: UsageLine) => string,
  valueOf: (line: UsageLine) => number,
  others: string,
): { label: string; values: number[] }[] {
  const sums = new Map<string, number>();
  for (const line of lines) sums.set(nameOfLine(line), (sums.get(nameOfLine(line)) ?? 0) + valueOf(line));
  const largest = [...sums].sort(([, a], [, b]) => b - a).map(([name]) => name);
  const named = largest.length > SERIES ? largest.slice(0, SERIES - 1) : largest;
  const labels = largest.length > named.length ? [...named, others] : named;
  const values = new Map(labels.map((label) => [label, all.map(() => 0)]));
  const places = new Map(all.map((slot, index) => [slot, index]));
  for (const line of lines) {
    const [place, name] = [places.get(line.day), nameOfLine(line)];
    if (place === undefined) continue;
    values.get(named.includes(name) ? name : others)![place]! += valueOf(line);
  }
  return labels.map((label) => ({ label, values: values.get(label)! }));
}
