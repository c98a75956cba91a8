// Comparison of two runs: their numbers, and their steps side by side.
import { diffArrays } from 'diff';
import type { TraceStep } from '$api/gen/holdfast/gateway/v1/runs_pb';
import { lengthOfRun } from './runs';
import type { Trace } from './trace';

export type StepPair = { a: TraceStep | undefined; b: TraceStep | undefined };

/** Steps that call the same tools are the same steps of two runs. */
function signature({ calls, model }: TraceStep): string {
  return calls.length ? calls.map(({ call }) => call?.tool ?? '').join(',') : model ? 'answer' : 'none';
}

/** Steps in order: equal ones beside each other; those between are paired by their place. */
export function alignSteps(a: TraceStep[], b: TraceStep[]): StepPair[] {
  const pairs: StepPair[] = [];
  let [left, right]: [TraceStep[], TraceStep[]] = [[], []];
  let [nextA, nextB] = [0, 0];
  const flush = () => {
    for (let at = 0; at < Math.max(left.length, right.length); at += 1) pairs.push({ a: left[at], b: right[at] });
    [left, right] = [[], []];
  };
  for (const { count, added, removed } of diffArrays(a.map(signature), b.map(signature))) {
    const length = count ?? 0;
    if (removed) left.push(...a.slice(nextA, nextA + length));
    else if (added) right.push(...b.slice(nextB, nextB + length));
    else {
      flush();
      for (let at = 0; at < length; at += 1) pairs.push({ a: a[nextA + at], b: b[nextB + at] });
    }
    if (!added) nextA += length;
    if (!removed) nextB += length;
  }
  flush();
  return pairs;
}

export type Figure = 'steps' | 'toolCalls' | 'failedCalls' | 'attempts' | 'tokensIn' | 'tokensCached' | 'tokensOut' | 'cost' | 'latency';

export function figuresOf({ run, steps }: Trace): Record<Figure, number> {
  const calls = steps.flatMap((step) => step.calls);
  return {
    steps: steps.length,
    toolCalls: calls.length,
    failedCalls: calls.filter(({ call }) => call?.state === 'failed').length,
    attempts: steps.reduce((sum, { model }) => sum + (model?.attempts ?? 0), 0),
    tokensIn: Number(run.usage?.inputTokens ?? 0),
    tokensCached: Number(run.usage?.cachedTokens ?? 0),
    tokensOut: Number(run.usage?.outputTokens ?? 0),
    cost: Number(run.costMicros),
    latency: lengthOfRun(run, Date.now()) ?? 0,
  };
}

export const FIGURES: Figure[] = ['latency', 'cost', 'tokensIn', 'tokensCached', 'tokensOut', 'steps', 'toolCalls', 'failedCalls', 'attempts'];
