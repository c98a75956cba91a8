// Tool calls that wait in a person's conversations.
import { approvals, sessions } from '$api/clients';
import type { Approval } from '$api/gen/holdfast/gateway/v1/approvals_pb';
import type { Session } from '$api/gen/holdfast/gateway/v1/sessions_pb';
import type { ShownPerson } from './shown-person';

export type PendingApproval = { approval: Approval; /** Undefined if the caller may not see it. */ session: Session | undefined };

const PAGE_SIZE = 200;

/** Without a person's id: all that the caller may see. */
export async function pendingApprovals({ id }: ShownPerson): Promise<PendingApproval[]> {
  const pending = await allPending(id);
  const conversations = await findSessions(id, new Set(pending.map(({ sessionId }) => sessionId)));
  return pending.map((approval) => ({ approval, session: conversations.get(approval.sessionId) }));
}

async function allPending(person: string): Promise<Approval[]> {
  const all: Approval[] = [];
  let pageToken = '';
  do {
    const answer = await approvals.listApprovals({ person, state: 'pending', limit: PAGE_SIZE, pageToken });
    all.push(...answer.approvals);
    pageToken = answer.nextPageToken;
  } while (pageToken);
  return all;
}

/** The wanted ones of a person's conversations, by id. Reads pages until all are found. */
async function findSessions(person: string, wanted: Set<string>): Promise<Map<string, Session>> {
  const found = new Map<string, Session>();
  let pageToken = '';
  while (found.size < wanted.size) {
    const answer = await sessions.listSessions({ person, limit: PAGE_SIZE, pageToken });
    for (const session of answer.sessions) if (wanted.has(session.id)) found.set(session.id, session);
    pageToken = answer.nextPageToken;
    if (!pageToken) break;
  }
  return found;
}
