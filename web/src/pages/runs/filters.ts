// Filters of the list of runs, as they are in the query of the address.
import { timestampFromDate } from '@bufbuild/protobuf/wkt';

export type Filters = {
  agent: string;
  status: string;
  model: string;
  /** A length such as `24h`; empty is all. */
  within: string;
  /** As fields for a date and time write them: `2026-01-31T08:00`. They count if `within` is `custom`. */
  from: string;
  to: string;
  /** US dollars. */
  cost: string;
  channel: string;
  q: string;
};

export const FILTER_NAMES = ['agent', 'status', 'model', 'within', 'from', 'to', 'cost', 'channel', 'q'] as const;

export const LENGTHS: Record<string, number> = { '1h': 1, '24h': 24, '7d': 168, '30d': 720 };

export function readFilters(query: URLSearchParams): Filters {
  return Object.fromEntries(FILTER_NAMES.map((name) => [name, query.get(name) ?? ''])) as Filters;
}

function date(text: string): Date | undefined {
  const read = text ? new Date(text) : undefined;
  return read && !Number.isNaN(read.getTime()) ? read : undefined;
}

/** Beginning and end of the time that is shown. */
export function period({ within, from, to }: Filters): { since?: Date; until?: Date } {
  if (within === 'custom') {
    const [since, until] = [date(from), date(to)];
    return { ...(since && { since }), ...(until && { until }) };
  }
  const hours = LENGTHS[within];
  return hours ? { since: new Date(Date.now() - hours * 3_600_000) } : {};
}

/** Millionths of a US dollar; 0 if the text is no amount. */
export function costMicros(cost: string): bigint {
  const dollars = Number(cost);
  return Number.isFinite(dollars) && dollars > 0 ? BigInt(Math.round(dollars * 1e6)) : 0n;
}

/** The request for ended runs and those that wait for an approval. */
export function listRequest(filters: Filters) {
  const { since, until } = period(filters);
  return {
    agent: filters.agent,
    status: filters.status,
    model: filters.model,
    channel: filters.channel,
    minCostMicros: costMicros(filters.cost),
    ...(since && { since: timestampFromDate(since) }),
    ...(until && { until: timestampFromDate(until) }),
  };
}

/** Running turns have no model and no cost yet, and have not ended. */
export function includesRunning(filters: Filters): boolean {
  const { status, model, cost, channel, within, to } = filters;
  return (!status || status === 'running') && !model && !cost && !channel && !(within === 'custom' && to);
}
