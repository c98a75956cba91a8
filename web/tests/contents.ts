// Contents of a tenant beside those of `tests/src/bin/seed`: settings of every kind, and a few
// conversations that an agent has held with the scripted model, with all that a real turn leaves.
import { create } from '@bufbuild/protobuf';
import { Agents, Keys, Providers, Routing } from '../src/api/gen/holdfast/gateway/v1/control_pb';
import { Connections } from '../src/api/gen/holdfast/gateway/v1/connections_pb';
import { Economy, HitPointSettingsSchema } from '../src/api/gen/holdfast/gateway/v1/economy_pb';
import { EventWebhooks } from '../src/api/gen/holdfast/gateway/v1/events_pb';
import { Files } from '../src/api/gen/holdfast/gateway/v1/files_pb';
import { McpServers } from '../src/api/gen/holdfast/gateway/v1/mcp_pb';
import { Messages, Outcome } from '../src/api/gen/holdfast/gateway/v1/messages_pb';
import { Nodes } from '../src/api/gen/holdfast/gateway/v1/nodes_pb';
import { Plans } from '../src/api/gen/holdfast/gateway/v1/plans_pb';
import { Policies } from '../src/api/gen/holdfast/gateway/v1/policies_pb';
import { Sessions } from '../src/api/gen/holdfast/gateway/v1/sessions_pb';
import { Chains } from '../src/api/gen/holdfast/gateway/v1/subagents_pb';
import { Work } from '../src/api/gen/holdfast/gateway/v1/work_pb';
import { Workspaces } from '../src/api/gen/holdfast/gateway/v1/workspaces_pb';
import type { Session } from './api';
import type { Model, ScriptedReply } from './model';

/** One of the agents that the seed makes, which has all of it. */
const AGENT = 'assistant';
/** Folder of the files of a program's conversation, whose name follows. */
const OF_PERSON = 'people/api=';
const encode = (text: string) => new TextEncoder().encode(text);

/** Adds the contents to a tenant with the agents of the seed. */
export async function addContents(session: Session, model: Model): Promise<void> {
  await makeAccess(session);
  await makeRouting(session);
  await makeAgentSettings(session);
  await talk(session, model);
}

/** Adds plans to the installation; no tenant has one, so that no test meets a limit. */
export async function addPlans(platform: Session): Promise<void> {
  const plans = platform.client(Plans);
  const team = { callsPerMinute: 600n, sessions: 5_000n, tokensPerDay: 20_000_000n, microsPerMonth: 500_000_000n, storageBytes: 10_000_000_000n };
  await plans.putPlan({ plan: { name: 'team', description: 'Up to 20 people', limits: team } });
  await plans.putPlan({ plan: { name: 'trial', description: 'Two weeks', limits: { ...team, sessions: 100n, tokensPerDay: 1_000_000n, microsPerMonth: 20_000_000n } } });
}

/** Who may call the tenant, and what it may call. */
async function makeAccess(session: Session) {
  const keys = session.client(Keys);
  await keys.createKey({ name: 'website', scopes: ['chat'], lifetimeSeconds: 90n * 86_400n });
  await keys.createKey({ name: 'dashboard', scopes: ['read', 'events'] });
  const webhooks = session.client(EventWebhooks);
  await webhooks.createEventWebhook({ webhook: { name: 'crm', url: 'https://crm.example.com/holdfast', filter: { types: ['run.', 'message.accepted'] } } });
  await webhooks.createEventWebhook({ webhook: { name: 'pager', url: 'https://pager.example.com/events', filter: { types: ['run.failed', 'delivery.failed'] } } });
  await session.client(Providers).putProvider({ provider: { name: 'local', kind: 'ollama', baseUrl: 'http://127.0.0.1:11434' } });
  const servers = session.client(McpServers);
  await servers.putMcpServer({ server: { name: 'tickets', transport: 'http', url: 'https://tickets.example.com/mcp', enabled: true }, secrets: { Authorization: 'Bearer secret' } });
  await servers.putMcpServer({ server: { name: 'calendar', transport: 'http', url: 'https://calendar.example.com/mcp', agents: [AGENT] } });
  const connections = session.client(Connections);
  const calendar = { url: 'https://dav.example.com/calendars/anna/', user: 'anna' };
  await connections.putConnection({ connection: { name: 'home', kind: 'caldav', settings: JSON.stringify(calendar) }, secret: 'secret' });
  await session.client(Nodes).createNode({ name: 'office-mac' });
}

async function makeRouting(session: Session) {
  const routing = session.client(Routing);
  await routing.createBinding({ binding: { channel: 'telegram', account: '*', agent: 'support' } });
  await routing.createBinding({ binding: { channel: 'slack', account: '*', peerKind: 'channel', peerId: 'C0123ABCD', agent: 'coder' } });
  await routing.createBinding({ binding: { channel: 'widget', account: '*', agent: 'support' } });
  const rules = [
    { agent: 'legal', pattern: '(?i)contract|合同', tools: ['read', 'web_fetch'], toolsGiven: true },
    { agent: 'analyst', pattern: '(?i)report|周报' },
    { agent: 'coder', channel: 'slack', pattern: '(?i)error|故障' },
  ];
  await routing.putRules({ rules });
  for (const [channel, peer, canonical] of [['telegram', '5551234', 'anna'], ['slack', 'U012AB3CD', 'anna'], ['telegram', '5559876', 'marco']]) {
    await routing.putIdentity({ identity: { channel: channel!, peer: peer!, canonical: canonical! } });
  }
}

async function makeAgentSettings(session: Session) {
  const files = session.client(Files);
  const notes = '# Week\n\n- Monday: call the bank\n- Tuesday: 提交周报\n- Friday: release\n';
  await files.writeFile({ agent: AGENT, path: `${OF_PERSON}lisbon/notes/week.md`, content: encode(notes), reason: 'plan of the week' });
  await files.writeFile({ agent: AGENT, path: `${OF_PERSON}lisbon/notes/week.md`, content: encode(`${notes}- Saturday: train to Lisbon at 07:12\n`), reason: 'the trip was booked' });
  await files.writeFile({ agent: AGENT, path: `${OF_PERSON}signups/reports/signups.csv`, content: encode('day,visits,signups\nMon,12418,181\nTue,11902,164\nWed,13377,201\n') });
  const policy = { profile: 'coding', also_allow: ['web_search'], deny: ['group:automation'], by_provider: { ollama: { deny: ['group:web'] } } };
  await session.client(Policies).putPolicy({ agent: 'coder', document: JSON.stringify(policy, null, 2) });
  const workspaces = session.client(Workspaces);
  await workspaces.createWorkspace({ agent: AGENT, name: 'trip', kind: 'folder' });
  await workspaces.createWorkspace({ agent: AGENT, name: 'reports', kind: 'git' });
  const steps = ['offers', 'risks'].map((name) => ({ name, bundle: 'read', prompt: `Look at the ${name} in {{input}}` }));
  const report = { name: 'report', bundle: 'files', write: ['reports'], prompt: 'Recommend one.\n\n{{results}}' };
  const spec = { description: 'Two readers compare offers, a third recommends one.', stages: [{ steps }, { steps: [report] }] };
  await session.client(Chains).putChain({ chain: { name: 'compare-offers', spec: JSON.stringify(spec) } });
  const { agent } = await session.client(Agents).getAgent({ agent: AGENT });
  await session.client(Agents).updateAgent({ agent: { ...agent!, hitPoints: create(HitPointSettingsSchema, { max: 20_000 }) } });
  const limits = { isAuthorized: true, perPayment: '5', perDay: '20', perTask: '10', perSubagent: '5', payees: ['trains.example'] };
  await session.client(Economy).setWalletLimits({ agent: AGENT, limits });
  await session.client(Economy).fundWallet({ agent: AGENT, amount: '50', source: 'budget of the team' });
}

const PLAN = '# Trip to Lisbon\n\n| when | what |\n|---|---|\n| Thu 07:12 | train, platform 4 |\n| Thu 09:00 | workshop |\n| Thu 18:40 | train back |\n\nThe room at **Hotel do Parque** is booked.';

/** Conversations with the replies of the model to the message and to the results of its calls. */
const TALKS: { session: string; label: string; text: string; replies: ScriptedReply[] }[] = [
  {
    session: 'lisbon',
    label: 'Workshop in Lisbon',
    text: 'Plan my trip to the workshop in Lisbon on Thursday, and keep the plan in my notes.',
    replies: [
      {
        text: 'I look at the week and at what I know about your trips.',
        calls: [
          { tool: 'read', input: { path: 'notes/week.md' } },
          { tool: 'memory_search', input: { query: 'train and seat preferences' } },
        ],
        latency_ms: 700,
      },
      {
        text: 'The train at 07:12 fits. I ask a subagent to compare the hotels.',
        calls: [{ tool: 'sessions_spawn', input: { task: 'Compare the three hotels near the station.', label: 'hotels', wait: true } }],
        latency_ms: 900,
      },
      {
        text: 'Now I write the plan down.',
        calls: [
          { tool: 'write', input: { path: 'notes/lisbon.md', content: PLAN } },
          { tool: 'read', input: { path: 'notes/hotels.md' } },
          { tool: 'canvas', input: { action: 'present', title: 'Trip to Lisbon', markdown: PLAN } },
        ],
        latency_ms: 600,
      },
      {
        text: 'Your trip is planned:\n\n| when | what |\n|---|---|\n| Thu 07:12 | train, platform 4, window seat |\n| Thu 09:00 | workshop |\n| Thu 18:40 | train back |\n\nThe plan is in `notes/lisbon.md`, and beside this conversation.',
        latency_ms: 800,
      },
    ],
  },
  {
    session: 'hotels',
    label: '',
    text: 'Compare the three hotels near the station.',
    replies: [{ text: 'Hotel do Parque: €94 with breakfast, 300 m. The others are €110 and €118.', latency_ms: 500 }],
  },
  {
    session: 'signups',
    label: 'Sign-ups of this week',
    text: 'How did the sign-ups develop this week?',
    replies: [
      { text: 'I read the numbers.', calls: [{ tool: 'read', input: { path: 'reports/signups.csv' } }], latency_ms: 400 },
      { text: 'Wednesday was the best day: **201** sign-ups of 13,377 visits (1.5 %). Tuesday was the weakest with 164.', latency_ms: 500 },
    ],
  },
];

async function talk(session: Session, model: Model) {
  for (const { text, replies } of TALKS) await model.answer(text, ...replies);
  for (const { session: name, label, text } of TALKS.filter((one) => one.label)) {
    const id = await say(session, name, text);
    await session.client(Sessions).updateSession({ session: id, label });
  }
  const trip = await say(session, 'lisbon', 'Thank you. What do I have to pack?');
  const items = ['Book the train at 07:12', 'Book the room', 'Pack the adapter', 'Send the slides to Anna'].map((title) => ({ title }));
  const update = (code: string, to: string, reason: string) => ({ op: 'update', code, to_status: to, reason });
  const operations = [
    { op: 'init', mode: 'replace', items },
    update('T001', 'IN_PROGRESS', 'begun'),
    update('T001', 'COMPLETE', 'seat 61, by the window'),
    update('T001', 'DONE', 'the ticket has come'),
    update('T002', 'IN_PROGRESS', 'begun'),
  ];
  await session.client(Work).applyTodos({ session: trip, operations: JSON.stringify(operations) });
}

/** Says something to the agent and waits for the end of the turn. Returns the id of the session. */
async function say(session: Session, name: string, text: string): Promise<string> {
  for await (const { sessionId, event } of session.client(Messages).stream({ agent: AGENT, session: name, text })) {
    if (event.case !== 'done') continue;
    if (event.value.outcome !== Outcome.COMPLETED) throw new Error(`a turn failed: ${event.value.reason}`);
    return sessionId;
  }
  throw new Error('the turn did not end');
}
