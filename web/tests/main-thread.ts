// Tasks of a page's main thread, in time that the processor spent on them: other programs of the machine
// do not count.
import type { Page } from '@playwright/test';

export type Task = {
  /** Time of the processor, in milliseconds. */
  time: number;
  /** What most of it was spent on, with the time. */
  parts: string[];
};

export type MainThread = {
  /** The longest tasks first. */
  longest: Task[];
  count: number;
  /** Time of all tasks, in milliseconds. */
  total: number;
};

type TraceEvent = { name: string; ph: string; pid: number; tid: number; ts: number; dur?: number; tdur?: number };

const CATEGORIES = ['toplevel', 'devtools.timeline', 'disabled-by-default-devtools.timeline', 'v8', 'blink.user_timing'];

/** Tasks that are returned. */
const MAX_TASKS = 10;

/** Records the tasks of the main thread of a page while something is done. */
export async function mainThread(page: Page, during: () => Promise<void>): Promise<MainThread> {
  const browser = page.context().browser()!;
  // A mark in the trace tells which of the browser's threads is the page's.
  const mark = `page-${Math.random()}`;
  await browser.startTracing(page, { categories: CATEGORIES });
  let trace: Buffer;
  try {
    await page.evaluate((name) => void performance.mark(name), mark);
    await during();
  } finally {
    trace = await browser.stopTracing();
  }
  return tasksOf((JSON.parse(trace.toString('utf8')) as { traceEvents: TraceEvent[] }).traceEvents, mark);
}

function tasksOf(events: TraceEvent[], mark: string): MainThread {
  const marked = events.find(({ name }) => name === mark);
  if (!marked) throw new Error('the trace has nothing of the page');
  const own = events.filter(({ ph, pid, tid }) => ph === 'X' && pid === marked.pid && tid === marked.tid);
  own.sort((one, other) => one.ts - other.ts || (other.dur ?? 0) - (one.dur ?? 0));
  // A task is what is inside nothing else; its parts follow it.
  const tasks: TraceEvent[][] = [];
  let end = 0;
  for (const event of own) {
    if (event.ts < end) tasks.at(-1)!.push(event);
    else tasks.push([event]);
    end = Math.max(end, event.ts + (event.dur ?? 0));
  }
  const time = ([task]: TraceEvent[]) => (task?.tdur ?? 0) / 1000;
  tasks.sort((one, other) => time(other) - time(one));
  return {
    longest: tasks.slice(0, MAX_TASKS).map((task) => ({ time: time(task), parts: partsOf(task) })),
    count: tasks.length,
    total: tasks.reduce((sum, task) => sum + time(task), 0),
  };
}

function partsOf(task: TraceEvent[]): string[] {
  const times = new Map<string, number>();
  for (const { name, tdur = 0 } of task.slice(1)) times.set(name, (times.get(name) ?? 0) + tdur / 1000);
  const most = [...times].sort(([, one], [, other]) => other - one);
  return most.slice(0, 8).map(([name, time]) => `${name} ${time.toFixed(1)}`);
}
