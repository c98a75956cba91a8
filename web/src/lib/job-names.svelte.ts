// Names of jobs, whose ids are all that the keys of their conversations have.
import { schedules } from '$api/clients';
import { can } from '$api/session.svelte';
import { SvelteMap } from 'svelte/reactivity';

const names = new SvelteMap<string, string>();
const missing = new Set<string>();
let isAsking = false;

/** The name of a job; undefined until it is known, and if the job was deleted. */
export function jobName(id: string): string | undefined {
  const name = names.get(id);
  if (name === undefined && !missing.has(id) && !isAsking && can('read')) void ask(id);
  return name;
}

async function ask(id: string) {
  isAsking = true;
  // The state is not changed while a component is rendered.
  await Promise.resolve();
  try {
    let after = '';
    do {
      const answer = await schedules.listJobs({ kind: 'all', limit: 200, after });
      for (const job of answer.jobs) {
        names.set(job.id, job.name);
        names.set(job.longId, job.name);
      }
      after = answer.next;
    } while (after && !names.has(id));
  } catch {
    // The titles have the time alone.
  }
  if (!names.has(id)) missing.add(id);
  isAsking = false;
}
