// Rows of the list of conversations: runs of a job below the job, branches below their conversation.
import type { Session } from '$api/gen/holdfast/gateway/v1/sessions_pb';
import { jobOf } from '$lib/session-title';

export type ListRow =
  | { kind: 'session'; id: string; session: Session; isBelow: boolean }
  | { kind: 'job'; id: string; job: string; count: number; isOpen: boolean };

/** Which conversations are shown, by their kinds. */
export const KINDS = {
  people: ['main', 'dm', 'group', 'topic', 'api', 'global'],
  jobs: ['cron', 'heartbeat', 'work', 'subagent'],
  all: [],
} satisfies Record<string, string[]>;

/** The rows of `sessions`, in their order. The runs of a job are shown if it is among `openJobs`. */
export function listRows(sessions: readonly Session[], openJobs: ReadonlySet<string>): ListRow[] {
  const known = new Set(sessions.map(({ id }) => id));
  const below = new Map<string, Session[]>();
  for (const session of sessions) {
    const job = jobOf(session.key)?.id;
    const above = job ? `job:${job}` : known.has(session.branchOf) ? session.branchOf : '';
    below.set(above, [...(below.get(above) ?? []), session]);
  }
  const rows: ListRow[] = [];
  const add = (session: Session, isBelow: boolean) => {
    rows.push({ kind: 'session', id: session.id, session, isBelow });
    for (const branch of below.get(session.id) ?? []) add(branch, true);
  };
  const jobs = new Set<string>();
  for (const session of sessions) {
    const job = jobOf(session.key)?.id;
    if (!job) {
      if (!known.has(session.branchOf)) add(session, false);
      continue;
    }
    if (jobs.has(job)) continue;
    jobs.add(job);
    const runs = below.get(`job:${job}`) ?? [];
    const isOpen = openJobs.has(job);
    rows.push({ kind: 'job', id: `job:${job}`, job, count: runs.length, isOpen });
    if (isOpen) runs.forEach((run) => add(run, true));
  }
  return rows;
}
