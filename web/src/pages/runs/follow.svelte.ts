// A run with what belongs to it, read again while it lasts.
import { sessions } from '$api/clients';
import type { Run } from '$api/gen/holdfast/gateway/v1/sessions_pb';
import { onEvent } from '$api/live.svelte';
import { act } from '$lib/act';
import { inTurn, load } from '$lib/load.svelte';
import { untrack } from 'svelte';
import { isOpen } from './status';
import { readRunsOf, readTrace, type Trace } from './trace';
import { buildTree, type TreeNode } from './tree';

/** Time between two readings of a run that lasts, beside those after events, in milliseconds. */
const READ_EVERY = 3000;

/** Subagents whose runs are read at once, for their costs; others when they are opened. */
const MAX_EAGER_SUBAGENTS = 50;

export function followRun(runId: () => string) {
  const main = load(() => readTrace(runId()));
  const session = load(() => {
    const id = main.data?.run.sessionId;
    return id ? untrack(() => sessions.getSession({ session: id })) : undefined;
  });
  let others = $state.raw<ReadonlyMap<string, Trace>>(new Map());
  let subagentRuns = $state.raw<ReadonlyMap<string, Run[]>>(new Map());
  let liveText = $state('');

  const isLive = $derived(
    !!main.data && (isOpen(main.data.run.status) || main.data.subagents.some(({ status }) => status === 'running')),
  );
  const tree = $derived.by((): TreeNode | undefined => {
    const trace = main.data;
    return trace && buildTree(trace.run, { traces: new Map([...others, [trace.run.id, trace]]), subagentRuns });
  });

  $effect(() => {
    void runId();
    [others, subagentRuns, liveText] = [new Map(), new Map(), ''];
  });

  $effect(() => {
    const trace = main.data;
    if (trace) untrack(() => void readSubagents(trace));
  });

  /** Runs of subagents, and their traces that are shown and last. */
  async function readSubagents(trace: Trace) {
    for (const { sessionId, status } of trace.subagents.slice(0, MAX_EAGER_SUBAGENTS)) {
      if (subagentRuns.has(sessionId) && status !== 'running') continue;
      await readRuns(sessionId);
      if (main.data !== trace) return;
    }
    for (const shown of [...others.values()]) {
      if (isOpen(shown.run.status)) await readOther(shown.run.id);
    }
  }

  async function readRuns(sessionId: string) {
    try {
      subagentRuns = new Map(subagentRuns).set(sessionId, await readRunsOf(sessionId));
    } catch {
      // The node stays closed, and says why when it is opened.
    }
  }

  async function readOther(id: string) {
    const trace = await act(() => readTrace(id));
    if (trace) others = new Map(others).set(id, trace);
  }

  const refresh = inTurn(main.reload, 700);
  $effect(() => {
    if (!isLive) return;
    const timer = setInterval(() => document.visibilityState === 'visible' && refresh(), READ_EVERY);
    return () => clearInterval(timer);
  });
  onEvent(['run.', 'approval.', 'live.approval', 'live.agent', 'live.chat', 'live.connected'], (event) => {
    const own = session.data?.session;
    const isOwn = !event.session || event.session === own?.key || event.session === own?.id;
    if (isOwn && event.type === 'live.chat') liveText = textOf(event.data);
    // Pieces of text come often, and nothing is recorded with them.
    const isText = event.type === 'live.agent' && event.data['stream'] === 'assistant';
    if (isLive && !isText && event.type !== 'live.chat') refresh();
  });

  return {
    main,
    get session() {
      return session.data?.session;
    },
    get tree() {
      return tree;
    },
    get isLive() {
      return isLive;
    },
    /** Text of the step that runs, as it comes. */
    get liveText() {
      return liveText;
    },
    /** Reads the children of a node that has them apart. */
    async open({ data }: TreeNode) {
      if (data.kind === 'run') await readOther(data.run.id);
      if (data.kind === 'subagent') {
        const { sessionId } = data.subagent;
        const runs = await act(() => readRunsOf(sessionId));
        if (runs) subagentRuns = new Map(subagentRuns).set(sessionId, runs);
      }
    },
  };
}

/** The whole text of the step so far; empty when the turn has ended. */
function textOf(data: Record<string, unknown>): string {
  if (data['state'] !== 'delta') return '';
  const content = (data['message'] as { content?: unknown } | undefined)?.content;
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  return content.map((part: { text?: unknown }) => (typeof part.text === 'string' ? part.text : '')).join('');
}
