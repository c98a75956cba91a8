// The tree of a run: its steps, calls, behaviours, subagents and their runs, with times and amounts.
import type { Approval } from '$api/gen/holdfast/gateway/v1/approvals_pb';
import type { ModelCall, TraceDelivery, TraceStep, TraceSubagent, TraceToolCall } from '$api/gen/holdfast/gateway/v1/runs_pb';
import type { Entry, Run } from '$api/gen/holdfast/gateway/v1/sessions_pb';
import type { WorkTask } from '$api/gen/holdfast/gateway/v1/work_pb';
import { toDate, type Moment } from '$lib/format';
import { isOpen } from './status';
import type { Trace } from './trace';

/** Costs in millionths of a US dollar; tokens are those in and out. */
export type Amount = { cost: number; tokens: number };

export type NodeData =
  | { kind: 'run'; run: Run; trace: Trace | undefined }
  | { kind: 'behavior'; task: WorkTask }
  | { kind: 'step'; step: TraceStep }
  | { kind: 'model'; call: ModelCall; step: TraceStep; runId: string }
  | { kind: 'tool'; call: TraceToolCall; approvals: Approval[] }
  | { kind: 'task'; task: WorkTask }
  | { kind: 'subagent'; subagent: TraceSubagent }
  | { kind: 'message'; entry: Entry }
  | { kind: 'delivery'; delivery: TraceDelivery }
  /** What the run does now, of which nothing is recorded yet. */
  | { kind: 'now' };

export type TreeNode = {
  id: string;
  data: NodeData;
  /** As in status.ts; empty if it has none. */
  status: string;
  /** In milliseconds; absent if it is not known. */
  start: number | undefined;
  /** Absent while it lasts. */
  end: number | undefined;
  /** With its children. */
  total: Amount;
  children: TreeNode[];
  /** Its children are read when it is opened. */
  isLazy: boolean;
};

/** What was read so far: traces by the id of their run, runs of subagents by the id of their session. */
export type Source = { traces: ReadonlyMap<string, Trace>; subagentRuns: ReadonlyMap<string, Run[]> };

const ms = (moment: Moment) => toDate(moment)?.getTime();

type Given = Partial<Pick<TreeNode, 'status' | 'start' | 'end' | 'children' | 'isLazy'>> & { own?: Partial<Amount> };

function node(id: string, data: NodeData, given: Given = {}): TreeNode {
  const { own = {}, children = [], status = '', isLazy = false } = given;
  const total = { cost: own.cost ?? 0, tokens: own.tokens ?? 0 };
  for (const child of children) {
    total.cost += child.total.cost;
    total.tokens += child.total.tokens;
  }
  return { id, data, status, start: given.start, end: given.end, total, children, isLazy };
}

function span(children: TreeNode[]): { start: number | undefined; end: number | undefined } {
  const starts = children.flatMap(({ start }) => start ?? []);
  const ends = children.flatMap(({ end }) => end ?? []);
  const lasts = children.some(({ start, end }) => start !== undefined && end === undefined);
  return {
    start: starts.length ? Math.min(...starts) : undefined,
    end: ends.length && !lasts ? Math.max(...ends) : undefined,
  };
}

export function buildTree(run: Run, source: Source): TreeNode {
  const trace = source.traces.get(run.id);
  const children = trace ? runParts(trace, source) : [];
  // Costs beside the steps, such as those of a summary, are the run's own.
  const subagents = sumOf(children, 'subagent');
  const all = children.reduce(
    (sum, { total }) => ({ cost: sum.cost + total.cost, tokens: sum.tokens + total.tokens }),
    { cost: 0, tokens: 0 },
  );
  const usage = Number(run.usage?.inputTokens ?? 0) + Number(run.usage?.outputTokens ?? 0);
  return node(run.id, { kind: 'run', run, trace }, {
    status: run.status,
    start: ms(run.startedAt),
    end: isOpen(run.status) ? undefined : ms(run.finishedAt),
    children,
    isLazy: !trace,
    own: {
      cost: Math.max(0, Number(run.costMicros) - (all.cost - subagents.cost)),
      tokens: Math.max(0, usage - (all.tokens - subagents.tokens)),
    },
  });
}

/** Amounts of all nodes of a kind, at any depth. */
function sumOf(nodes: TreeNode[], kind: NodeData['kind']): Amount {
  const sum = { cost: 0, tokens: 0 };
  for (const { data, total, children } of nodes) {
    const part = data.kind === kind ? total : sumOf(children, kind);
    sum.cost += part.cost;
    sum.tokens += part.tokens;
  }
  return sum;
}

function runParts(trace: Trace, source: Source): TreeNode[] {
  const { run } = trace;
  const places = placeSubagents(trace);
  const subagents = (place: string) => (places.get(place) ?? []).map((subagent) => subagentNode(subagent, run.id, source));
  const steps = trace.steps.map((step) => stepNode(step, trace, subagents));
  const parts = [...behaviorNodes(trace, steps), ...subagents('')];
  const now = nowNode(run, steps);
  return [
    ...trace.messages.map((entry) =>
      node(`${run.id}/message/${entry.seq}`, { kind: 'message', entry }, { start: ms(entry.createdAt), end: ms(entry.createdAt) }),
    ),
    ...parts.sort((one, other) => (one.start ?? Infinity) - (other.start ?? Infinity)),
    ...(now ? [now] : []),
    ...trace.deliveries.map((delivery) =>
      node(`${run.id}/delivery/${delivery.id}`, { kind: 'delivery', delivery }, { status: delivery.state }),
    ),
  ];
}

function stepNode(step: TraceStep, trace: Trace, subagents: (place: string) => TreeNode[]): TreeNode {
  const id = `${trace.run.id}/${step.number}`;
  const model = step.model && modelNode(`${id}/model`, step.model, step, trace.run.id);
  const calls = step.calls.map((call, index) =>
    toolNode(`${id}/tool/${index}`, call, approvalsOf(call, trace.approvals), subagents(`${step.number}/${call.call?.id}`)),
  );
  const children = [...(model ? [model] : []), ...calls, ...subagents(String(step.number))];
  const noted = ms(step.notes[0]?.createdAt);
  const { start = noted, end } = span(children);
  const open = children.find(({ status }) => isOpen(status));
  const status = open?.status ?? (calls.some(({ status }) => status === 'failed') ? 'failed' : '');
  return node(id, { kind: 'step', step }, { start, end: end ?? (children.length ? undefined : noted), children, status });
}

function modelNode(id: string, call: ModelCall, step: TraceStep, runId: string): TreeNode {
  return node(id, { kind: 'model', call, step, runId }, {
    start: ms(call.startedAt),
    end: ms(call.endedAt),
    own: { cost: Number(call.costMicros), tokens: Number(call.usage?.inputTokens ?? 0) + Number(call.usage?.outputTokens ?? 0) },
  });
}

function toolNode(id: string, call: TraceToolCall, approvals: Approval[], children: TreeNode[]): TreeNode {
  const { requestedAt, startedAt, endedAt, state, costMicros } = call.call ?? {};
  const start = ms(startedAt) ?? ms(requestedAt);
  const lasts = state === 'running' || state === 'waiting_approval';
  const own = { cost: Number(costMicros ?? 0) };
  return node(id, { kind: 'tool', call, approvals }, { status: state ?? '', start, end: ms(endedAt) ?? (lasts ? undefined : start), own, children });
}

/** An approval does not name its call: it is of the same tool, asked after the model wanted the call. */
function approvalsOf({ call }: TraceToolCall, approvals: Approval[]): Approval[] {
  if (!call) return [];
  const [from, to] = [ms(call.requestedAt) ?? 0, ms(call.startedAt) ?? ms(call.endedAt) ?? Infinity];
  return approvals.filter(({ tool, askedAt }) => {
    const at = ms(askedAt) ?? 0;
    return tool === call.tool && at >= from - 1000 && at <= to + 1000;
  });
}

/** Subagents by what started them: `<step>/<call>`, else `<step>`, else the run itself (empty). */
function placeSubagents({ steps, subagents }: Trace): Map<string, TraceSubagent[]> {
  const places = new Map<string, TraceSubagent[]>();
  for (const subagent of subagents) {
    const { sessionId, startedAt } = subagent;
    let place = '';
    for (const step of steps) {
      const call = step.calls.find(({ output, call }) => output.includes(sessionId) || call?.details.includes(sessionId));
      if (call) place = `${step.number}/${call.call?.id}`;
      if (call) break;
      const begun = ms(step.model?.startedAt) ?? Infinity;
      if (begun <= (ms(startedAt) ?? 0)) place = String(step.number);
    }
    places.set(place, [...(places.get(place) ?? []), subagent]);
  }
  return places;
}

function subagentNode(subagent: TraceSubagent, parent: string, source: Source): TreeNode {
  const runs = source.subagentRuns.get(subagent.sessionId);
  const children = (runs ?? []).map((run) => buildTree(run, source));
  return node(`${parent}/subagent/${subagent.sessionId}`, { kind: 'subagent', subagent }, {
    status: subagent.status,
    start: ms(subagent.startedAt),
    end: subagent.status === 'running' ? undefined : ms(subagent.finishedAt),
    children,
    isLazy: !runs,
    own: { tokens: runs ? 0 : Number(subagent.tokens) },
  });
}

/** Times of a step and of its calls are read apart, in milliseconds. */
const CLOCK_TOLERANCE = 20;

/** Groups steps below the steps of behaviours in whose time they began. */
function behaviorNodes({ tasks, run }: Trace, steps: TreeNode[]): TreeNode[] {
  const left = new Set(steps);
  const groups = tasks
    .filter(({ kind }) => kind === 'step')
    .map((task) => {
      const [start, end] = [ms(task.startedAt), ms(task.finishedAt)];
      const inside = [...left].filter((step) => step.start !== undefined && start !== undefined && step.start >= start - CLOCK_TOLERANCE && step.start <= (end ?? Infinity));
      inside.forEach((step) => left.delete(step));
      const parts = tasks.filter(({ parentId, kind }) => parentId === task.id && (inside.length === 0 || kind === 'action' || kind === 'result'));
      const children = [...inside, ...parts.map((part) => taskNode(`${run.id}/task/${part.id}`, part))];
      return node(`${run.id}/task/${task.id}`, { kind: 'behavior', task }, { status: task.status, start, end, children });
    });
  return [...groups, ...left];
}

function taskNode(id: string, task: WorkTask): TreeNode {
  const own = { cost: Number(task.costMicros), tokens: Number(task.inputTokens) + Number(task.outputTokens) };
  return node(id, { kind: 'task', task }, { status: task.status, start: ms(task.startedAt), end: ms(task.finishedAt), own });
}

/** A running turn of which no recorded call lasts asks a model, or is between two steps. */
function nowNode(run: Run, steps: TreeNode[]): TreeNode | undefined {
  if (run.status !== 'running' || steps.some(({ status }) => isOpen(status))) return undefined;
  const ends = steps.flatMap(({ end }) => end ?? []);
  const start = ends.length ? Math.max(...ends) : ms(run.startedAt);
  return node(`${run.id}/now`, { kind: 'now' }, { status: 'running', start });
}
