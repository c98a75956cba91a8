// Branches of a conversation: where they part, and which of them is shown.
import type { Session } from '$api/gen/holdfast/gateway/v1/sessions_pb';

/** Conversations that go on in different ways behind the same entry, oldest first. */
export type Fork = { sessions: string[]; index: number };

/** The forks on the way of a session, by the last entry that the conversations share. */
export function forksOf(current: string, family: readonly Session[]): Map<number, Fork> {
  const byId = new Map(family.map((session) => [session.id, session]));
  const forks = new Map<number, Fork>();
  const points = new Set(family.filter(({ branchOf }) => byId.has(branchOf)).map(({ branchSeq }) => Number(branchSeq)));
  for (const point of points) {
    const own = ownerOf(current, point + 1, byId);
    const shares = (id: string) => point === 0 || ownerOf(id, point, byId) === ownerOf(current, point, byId);
    const ways = new Set(family.filter(({ id }) => shares(id)).map(({ id }) => ownerOf(id, point + 1, byId)));
    if (ways.size < 2) continue;
    const order = family.filter(({ id }) => ways.has(id)).map(({ id }) => id);
    forks.set(point, { sessions: order, index: order.indexOf(own) });
  }
  return forks;
}

/** The session in which an entry of a branch was written. */
function ownerOf(id: string, seq: number, byId: ReadonlyMap<string, Session>): string {
  let session = byId.get(id);
  for (let depth = 0; session && depth < byId.size; depth += 1) {
    const parent = byId.get(session.branchOf);
    if (!parent || seq > Number(session.branchSeq)) break;
    session = parent;
  }
  return session?.id ?? id;
}
