// A tenant whose contents attack whoever looks at them: everything that people, models, tools and
// platforms can write.
import { Agents, Channels } from '../src/api/gen/holdfast/gateway/v1/control_pb';
import { Files } from '../src/api/gen/holdfast/gateway/v1/files_pb';
import { Knowledge, Memories } from '../src/api/gen/holdfast/gateway/v1/memories_pb';
import { Messages, Outcome } from '../src/api/gen/holdfast/gateway/v1/messages_pb';
import { Schedules } from '../src/api/gen/holdfast/gateway/v1/schedules_pb';
import { Sessions } from '../src/api/gen/holdfast/gateway/v1/sessions_pb';
import { Skills } from '../src/api/gen/holdfast/gateway/v1/skills_pb';
import { Work } from '../src/api/gen/holdfast/gateway/v1/work_pb';
import { Workspaces } from '../src/api/gen/holdfast/gateway/v1/workspaces_pb';
import type { Session } from './api';
import { FILE_NAMES, MARKDOWN, SHORT, SVG, TEXTS } from './hostile';
import type { Mesh, Tenant } from './mesh';

const AGENT = 'hostile';
const encode = (text: string) => new TextEncoder().encode(text);

export type HostileTenant = Tenant & {
  agent: string;
  /** Ids of conversations: one that ended well, one that failed, one that waits for an approval. */
  sessions: string[];
};

export async function makeHostileTenant(mesh: Mesh): Promise<HostileTenant> {
  const tenant = await mesh.tenant(`hostile-${Date.now()}`);
  const session = await mesh.session(tenant.key);
  const description = TEXTS.join(' ').slice(0, 2000);
  await session.client(Agents).createAgent({
    agent: { name: AGENT, description, instructions: MARKDOWN.slice(0, 20_000), approvalTimeoutS: 86_400 },
  });
  await makeThings(session);
  return { ...tenant, agent: AGENT, sessions: await talk(mesh, session) };
}

async function makeThings(session: Session) {
  const text = TEXTS.join('\n');
  for (const [number, path] of FILE_NAMES.entries()) {
    await session.client(Files).writeFile({ agent: AGENT, path: `media/${path}`, content: encode(number === 2 ? SVG : MARKDOWN), reason: SHORT });
  }
  const job = {
    name: SHORT,
    description: text.slice(0, 1500),
    schedule: { kind: 'every', every_ms: 86_400_000 },
    session_target: 'isolated',
    payload: { kind: 'agentTurn', message: text, deliver: false },
  };
  await session.client(Schedules).addJob({ agent: AGENT, job: JSON.stringify(job) });
  await session.client(Schedules).addReminder({ user: 'owner', time: 'in 20 hours', content: SHORT });
  await session.client(Memories).saveMemory({ agent: AGENT, text, type: 'fact', tags: ['"><b>tag</b>'], source: SHORT });
  await session.client(Memories).setMemoryValue({ agent: AGENT, key: 'hostile.value', value: JSON.stringify({ [SHORT]: TEXTS }) });
  await session.client(Knowledge).ingestArticle({ title: SHORT, content: encode(MARKDOWN), mediaType: 'text/markdown', author: SHORT, source: `javascript:pwned('source')` });
  const skill = `---\nname: hostile\ndescription: ${JSON.stringify(TEXTS.slice(0, 3).join(' '))}\nhomepage: javascript:pwned('homepage')\n---\n\n${MARKDOWN.slice(0, 8000)}\n`;
  await session.client(Skills).putSkill({ files: [{ path: 'SKILL.md', content: encode(skill) }] });
  await session.client(Channels).createAccount({
    account: { channel: 'widget', name: 'hostile', enabled: true, settings: JSON.stringify({ origins: [], allow: ['*'], title: SHORT, greeting: text.slice(0, 500) }) },
    secrets: JSON.stringify({ secret: '0123456789abcdef0123456789abcdef' }),
  });
  await session.client(Workspaces).createWorkspace({ agent: AGENT, name: 'hostile', kind: 'folder' });
}

async function talk(mesh: Mesh, session: Session): Promise<string[]> {
  const read = { tool: 'read', input: { path: `media/${FILE_NAMES[0]}` } };
  await mesh.model.answer('hostile answer', { text: TEXTS[1]!, calls: [read] }, { text: MARKDOWN });
  await mesh.model.answer('hostile failure', { text: TEXTS[0]!, calls: [{ tool: `<img src=x onerror=pwned('tool')>`, input: { text: MARKDOWN } }] }, { status: 400 });
  await mesh.model.answer('hostile approval', { text: MARKDOWN, calls: [{ tool: 'write', input: { path: 'role.md', content: MARKDOWN } }] });
  const ids: string[] = [];
  for (const kind of ['answer', 'failure', 'approval']) {
    const events = session.client(Messages).stream({ agent: AGENT, session: `hostile-${kind}`, text: `hostile ${kind}\n\n${MARKDOWN}` });
    for await (const { sessionId, event } of events) {
      if (ids.at(-1) !== sessionId) ids.push(sessionId);
      if (event.case === 'done' && kind === 'answer' && event.value.outcome !== Outcome.COMPLETED) throw new Error(`a turn failed: ${event.value.reason}`);
      // It waits for as long as the agent's setting says.
      if (event.case === 'approvalRequested') break;
    }
    await session.client(Sessions).updateSession({ session: ids.at(-1)!, label: SHORT });
  }
  const items = TEXTS.slice(0, 3).map((title) => ({ title, description: MARKDOWN.slice(0, 4000) }));
  await session.client(Work).applyTodos({ session: ids[0]!, operations: JSON.stringify([{ op: 'init', items }]) });
  return ids;
}
