// Pages of one thing of a tenant, such as a run, and the tabs of pages.
import { Agents, Channels, Tenants } from '../src/api/gen/holdfast/gateway/v1/control_pb';
import { Knowledge } from '../src/api/gen/holdfast/gateway/v1/memories_pb';
import { People } from '../src/api/gen/holdfast/gateway/v1/people_pb';
import { Schedules } from '../src/api/gen/holdfast/gateway/v1/schedules_pb';
import { Sessions } from '../src/api/gen/holdfast/gateway/v1/sessions_pb';
import { Work } from '../src/api/gen/holdfast/gateway/v1/work_pb';
import type { Session } from './api';
import type { Route } from './routes';

/** Tabs of pages, by the name of the page. */
const TABS: Record<string, string[]> = {
  inbox: ['approvals', 'questions', 'deliveries', 'letters', 'proposals'],
  schedules: ['calendar', 'reminders', 'heartbeats'],
  channels: ['bindings', 'rules', 'identities', 'explain', 'connect'],
  memory: ['knowledge', 'proposals', 'erasures'],
  skills: ['find', 'changes', 'mcp', 'connections', 'nodes'],
  models: ['keys', 'catalogue'],
  usage: ['budgets', 'limits'],
  settings: ['keys', 'people', 'sign-ins', 'devices', 'webhooks', 'audit', 'security', 'export'],
};

/** Tabs of an agent, with what its address has behind `?`. */
const AGENT_TABS = [
  'overview',
  'files',
  'tools',
  'tools?view=policy',
  'tools?view=tenant',
  'tools?view=rules',
  'skills',
  'behaviors',
  'todos',
  'worklog',
  'worklog?view=tasks',
  'worklog?view=ledger',
  'workspace',
  'economy',
  'subagents',
];

/** Tabs of a person. */
const PERSON_TABS = ['identities', 'conversations', 'memory', 'reminders', 'jobs', 'files', 'approvals', 'sign-ins', 'cost'];

/** Names of things that a tenant may lack. */
export type Thing = 'agent' | 'todos' | 'conversation' | 'run' | 'job' | 'account' | 'article' | 'person';

export type Things = Awaited<ReturnType<typeof findThings>>;

export type Details = {
  things: Things;
  routes: Route[];
  /** Things that there are none of, so that their pages are not among the routes. */
  missing: Thing[];
};

/** Finds a tenant's things and their pages. */
export async function details(session: Session): Promise<Details> {
  const things = await findThings(session);
  const missing = (Object.keys(things) as Thing[]).filter((thing) => !things[thing]);
  const routes: Route[] = Object.entries(TABS).flatMap(([page, tabs]) => tabs.map((tab) => read(`${page}-${tab}`, `/${page}/${tab}`)));
  const { agent, todos, conversation, run, job, account, article, person } = things;
  if (agent) {
    routes.push(read('memory-search', `/memory/memories?agent=${agent}&search=${encodeURIComponent('window seat')}`));
    routes.push(...AGENT_TABS.map((tab) => read(`agent-${tab.replace('?view=', '-')}`, `/agents/${agent}/${tab}`)));
    routes.push(read('agent-file', `/agents/${agent}/files?file=${encodeURIComponent('people/api=lisbon/notes/week.md')}`), read('agent-behavior', `/agents/${agent}/behaviors?behavior=plan`));
  }
  if (todos) {
    for (const tab of ['todos', 'worklog', 'worklog?view=tasks']) routes.push(read(`agent-session-${tab.replace('?view=', '-')}`, `/agents/${todos.agent}/${tab}${tab.includes('?') ? '&' : '?'}session=${todos.session}`));
  }
  if (conversation) {
    routes.push({ name: 'conversation', path: `/chat/${conversation}`, right: 'chat' }, read('runs-conversation', `/runs/session/${conversation}`));
  }
  if (run) {
    routes.push(read('run', `/runs/${run.id}`), read('run-timeline', `/runs/${run.id}?view=timeline`), read('run-journal', `/runs/${run.id}?view=journal`));
    routes.push(read('runs-compare', `/runs/compare?a=${run.id}&b=${run.other}`));
  }
  if (job) routes.push(read('schedules-job', `/schedules/jobs/${job}`));
  if (account) routes.push(read('channels-account', `/channels/accounts/${account}`));
  if (article) routes.push(read('memory-article', `/memory/knowledge/${article}`));
  if (person) routes.push(...PERSON_TABS.map((tab) => read(`person-${tab}`, `/settings/people/${person}/${tab}`)));
  return { things, routes, missing };
}

/** Pages of the installation, for the role `platform`. */
export async function platformDetails(session: Session): Promise<Route[]> {
  const { tenants } = await session.client(Tenants).listTenants({});
  const name = tenants[0]!.name;
  const paths = ['tenants', 'plans', 'events', `tenants/${name}`, `events/${name}`];
  return paths.map((path) => ({ name: `mesh-${path.replace(/\/.*/, '-one')}`, path: `/mesh/${path}`, right: 'platform' }));
}

const read = (name: string, path: string): Route => ({ name, path, right: 'read' });

async function findThings(session: Session) {
  const sessions = session.client(Sessions);
  const [{ agents }, { runs }, { jobs }, { accounts }, { articles }, { people }, { sessions: newest }] = await Promise.all([
    session.client(Agents).listAgents({}),
    sessions.listRuns({ limit: 100 }),
    session.client(Schedules).listJobs({ limit: 1 }),
    session.client(Channels).listAccounts({}),
    session.client(Knowledge).listArticles({ limit: 1 }),
    session.client(People).listPeople({ limit: 1 }),
    sessions.listSessions({ limit: 100 }),
  ]);
  // The run with the most steps shows the most.
  const [first, second] = [...runs].sort((a, b) => b.steps - a.steps);
  return {
    agent: agents.find(({ name }) => name !== 'main')?.name,
    todos: await withTodos(session),
    conversation: newest.find(({ turns }) => turns > 1n)?.id ?? newest[0]?.id,
    run: first && second ? { id: first.id, other: second.id } : undefined,
    job: jobs[0]?.id,
    account: accounts[0]?.id,
    article: articles[0]?.id,
    person: people[0]?.id,
  } satisfies Record<Thing, unknown>;
}

/** A conversation with a list of todos. */
async function withTodos(session: Session) {
  const { sessions } = await session.client(Sessions).listSessions({ kind: 'api', limit: 200 });
  const lists = await Promise.all(sessions.map(({ id }) => session.client(Work).listTodos({ session: id, limit: 1 })));
  const found = sessions[lists.findIndex(({ todos }) => todos.length > 0)];
  return found && { session: found.id, agent: found.agent };
}
