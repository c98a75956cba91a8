// Names of conversations, whose ids are all that runs have of them.
import { sessions } from '$api/clients';
import type { Session } from '$api/gen/holdfast/gateway/v1/sessions_pb';
import { sessionTitle } from '$lib/session-title';
import { SvelteMap } from 'svelte/reactivity';

const known = new SvelteMap<string, Session>();
const asked = new Set<string>();
const queue: string[] = [];
let workers = 0;

const MAX_WORKERS = 4;

/** What people call the conversation: its title; its id until that is known. */
export function sessionName(id: string): string {
  const session = known.get(id);
  if (session === undefined && id && !asked.has(id)) {
    asked.add(id);
    queue.push(id);
    if (workers < MAX_WORKERS) void work();
  }
  return session ? sessionTitle(session) : id;
}

/** Names that came with another answer. */
export function knowNames(sessions: Session[]) {
  for (const session of sessions) {
    asked.add(session.id);
    known.set(session.id, session);
  }
}

async function work() {
  workers += 1;
  // The state is not changed while a component is rendered.
  await Promise.resolve();
  for (let id = queue.shift(); id !== undefined; id = queue.shift()) {
    try {
      const { session } = await sessions.getSession({ session: id });
      if (session) known.set(id, session);
    } catch {
      // A deleted conversation has no name any more.
    }
  }
  workers -= 1;
}
