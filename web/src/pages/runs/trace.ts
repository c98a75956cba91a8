// A run with all its steps, and what belongs to it beside them.
import { approvals, runs, sessions, work } from '$api/clients';
import type { Approval } from '$api/gen/holdfast/gateway/v1/approvals_pb';
import type { TraceDelivery, TraceStep, TraceSubagent } from '$api/gen/holdfast/gateway/v1/runs_pb';
import type { Entry, Run } from '$api/gen/holdfast/gateway/v1/sessions_pb';
import type { WorkTask } from '$api/gen/holdfast/gateway/v1/work_pb';

export type Trace = {
  run: Run;
  messages: Entry[];
  steps: TraceStep[];
  subagents: TraceSubagent[];
  deliveries: TraceDelivery[];
  approvals: Approval[];
  /** Steps of behaviours with their parts; empty for an agent that works without. */
  tasks: WorkTask[];
  /** There are more steps than were read. */
  isCut: boolean;
};

const STEPS_PER_PAGE = 500;
const MAX_PAGES = 10;
const MAX_BEHAVIOR_STEPS = 200;
const MAX_APPROVALS = 200;

export async function readTrace(runId: string): Promise<Trace> {
  const first = await runs.getRunTrace({ runId, limit: STEPS_PER_PAGE });
  const run = first.run!;
  const steps = [...first.steps];
  let token = first.nextPageToken;
  for (let page = 1; token && page < MAX_PAGES; page += 1) {
    const next = await runs.getRunTrace({ runId, limit: STEPS_PER_PAGE, pageToken: token });
    steps.push(...next.steps);
    token = next.nextPageToken;
  }
  const [asked, tree] = await Promise.all([
    approvals.listApprovals({ sessionId: run.sessionId, limit: MAX_APPROVALS }),
    work.getTaskTree({ session: run.sessionId, steps: MAX_BEHAVIOR_STEPS }),
  ]);
  return {
    run,
    messages: first.messages,
    steps,
    subagents: first.subagents,
    deliveries: first.deliveries,
    approvals: asked.approvals.filter((approval) => approval.runId === run.id),
    tasks: tree.tasks.filter((task) => task.runId === run.id),
    isCut: token !== '',
  };
}

/** The runs of a subagent's session, oldest first. */
export async function readRunsOf(session: string): Promise<Run[]> {
  const { runs: newest } = await sessions.listRuns({ session, limit: 50 });
  return [...newest].reverse();
}
