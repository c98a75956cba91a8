// What people call a conversation.
import type { Session } from '$api/gen/holdfast/gateway/v1/sessions_pb';
import { time } from './format';
import { texts } from './i18n.svelte';
import { jobName } from './job-names.svelte';

const t = texts({
  en: { main: 'Main conversation', job: 'Job', heartbeat: 'Heartbeat', work: 'Work on todos' },
  zh: { main: '主对话', job: '任务', heartbeat: '心跳', work: '处理待办' },
});

/** Beginning of a conversation's name that says whose it is, such as `=per_…/`. */
const NAME_SPACE = /^=[^/]*\//;

type Named = Pick<Session, 'id' | 'key' | 'label' | 'summary'>;

/** The job whose run a conversation is, by its key, and when that began. */
export function jobOf(key: string): { id: string; at: Date | undefined } | undefined {
  const [, , kind, id, run] = key.split(':');
  if (kind !== 'cron' || !id) return undefined;
  const seconds = Number(run);
  return { id, at: seconds > 0 ? new Date(seconds * 1000) : undefined };
}

/** The job's name, or what a job is called whose name is not known. */
export function jobTitle(id: string): string {
  return jobName(id) ?? t('job');
}

/** Its label, or for a job its name and time, or the beginning of its summary, or the part of its key behind the agent. */
export function sessionTitle({ id, key, label, summary }: Named): string {
  if (label) return label;
  const job = jobOf(key);
  if (job) return job.at ? `${jobTitle(job.id)} · ${time(job.at)}` : jobTitle(job.id);
  const [, , kind = '', ...rest] = key.split(':');
  const first = summary.split('\n')[0]?.slice(0, 80);
  if (first) return first;
  if (kind === 'main' || kind === 'heartbeat' || kind === 'work') return t(kind);
  const name = (kind === 'api' ? rest : [kind, ...rest]).join(':').replace(NAME_SPACE, '');
  return name === 'main' ? t('main') : name || id;
}
