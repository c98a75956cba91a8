// Tasks of somebody who talks to an agent.
import type { Locator } from '@playwright/test';
import { Approvals } from '../../src/api/gen/holdfast/gateway/v1/approvals_pb';
import { Files } from '../../src/api/gen/holdfast/gateway/v1/files_pb';
import { Messages } from '../../src/api/gen/holdfast/gateway/v1/messages_pb';
import { Models } from '../../src/api/gen/holdfast/gateway/v1/models_pb';
import { Policies } from '../../src/api/gen/holdfast/gateway/v1/policies_pb';
import { Sessions } from '../../src/api/gen/holdfast/gateway/v1/sessions_pb';
import type { Session } from '../api';
import { answers, Conversation } from '../conversation';
import { expect, test } from '../fixtures';
import { longText } from '../model';
import { task, type TaskArguments } from './task';

const AGENT = 'main';
/** A picture of one red pixel. */
const PICTURE = Buffer.from('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC', 'base64');

test.describe.configure({ timeout: 120_000 });

/** Entries of a conversation's journal. */
async function entriesOf(session: Session, id: string) {
  return (await session.client(Sessions).getHistory({ session: id, limit: 1000 })).entries;
}

/** Says something by the API, and waits for the answer. Returns the session's id. */
async function say(session: Session, target: string, text: string): Promise<string> {
  let id = '';
  for await (const event of session.client(Messages).stream({ agent: AGENT, session: target, text })) id = event.sessionId;
  return id;
}

/** Opens the list of conversations, which a phone has behind a button. */
async function openList({ person, page }: TaskArguments): Promise<void> {
  if (person.means === 'touch') await person.press(page.getByRole('button', { name: 'Conversations' }));
}

/** Opens the menu of the conversation that is shown, and chooses an action. */
async function chooseAction({ person, page }: TaskArguments, action: string): Promise<void> {
  await person.press(page.getByRole('region', { name: 'Conversation', exact: true }).getByRole('button', { name: /^Actions of / }));
  await person.press(page.getByRole('menuitem', { name: action }));
}

task('ask an agent something', { role: 'member', maxClicks: 2 }, async ({ person, page, mesh }) => {
  const conversation = new Conversation(page, mesh);
  await person.write(conversation.field, 'What is on today?');
  await page.keyboard.press('Enter');
  await conversation.expectSaid('echo: What is on today?');
});

task('begin with a link that signs in once', { isSignedOut: true, maxClicks: 2 }, async ({ person, page, mesh, tenant }) => {
  const conversation = new Conversation(page, mesh);
  await page.goto(await mesh.signInLink(tenant, 'member'));
  await person.write(conversation.field, 'Hello, who are you?');
  await person.press(page.getByRole('button', { name: 'Send', exact: true }));
  await conversation.expectSaid('echo: Hello, who are you?');

  expect(page.url()).not.toContain('#');
  const session = await mesh.session(tenant.key);
  await expect(page.getByRole('heading', { name: 'Hello, who are you?', level: 1 })).toBeVisible();
  expect(await answers(session, await conversation.session())).toEqual(['echo: Hello, who are you?']);
});

/** Two calls of two conversations wait. */
async function prepareWaiting({ mesh, tenant }: TaskArguments): Promise<void> {
  const session = await mesh.session(tenant.key);
  await session.client(Policies).putPolicy({ document: JSON.stringify({ approvals: { tools: { write: 'always' } } }) });
  const write = (path: string) => ({ text: 'May I?', calls: [{ tool: 'write', input: { path, content: 'I help.' } }] });
  await mesh.model.answer('Change your role', write('notes/role.md'), { text: 'The turn went on.' });
  await Promise.all(['one', 'two'].map((target) => session.client(Messages).send({ agent: AGENT, session: target, text: 'Change your role' })));
  await expect.poll(async () => (await session.client(Approvals).listApprovals({ state: 'pending' })).approvals.length, { timeout: 30_000 }).toBe(2);
}

task('decide about calls that wait', { role: 'approver', maxClicks: 5, prepare: prepareWaiting }, async ({ person, page, mesh, tenant }) => {
  await person.open('Inbox');
  const waiting = page.getByRole('button', { name: 'Deny' });
  await expect(waiting).toHaveCount(2);
  await person.press(waiting.first());
  await person.press(page.getByRole('dialog').getByRole('button', { name: 'Deny' }));
  await expect(waiting).toHaveCount(1);
  await person.press(page.getByRole('button', { name: 'Allow once' }));
  await expect(page.getByText('No tool call waits for a decision')).toBeVisible();

  const session = await mesh.session(tenant.key);
  const { approvals } = await session.client(Approvals).listApprovals({});
  expect(approvals.map(({ state }) => state).sort()).toEqual(['allowed_once', 'denied']);
});

const SCRIPT = ['mkdir -p report', 'echo "1 apple" > report/list.txt', 'echo "2 pears" >> report/list.txt'].join('\n');

/** Every command of the tenant needs an approval; the agent wants to run one. */
async function prepareCommand({ mesh, tenant }: TaskArguments): Promise<void> {
  const session = await mesh.session(tenant.key);
  await session.client(Policies).putPolicy({ document: JSON.stringify({ exec: { ask: 'always' } }) });
  const exec = { tool: 'exec', input: { command: SCRIPT } };
  await mesh.model.answer('Write the list of fruit', { text: 'I write it with a command.', calls: [exec] }, { text: 'The list of fruit is done.' });
}

/** The file that the command writes, in the folder of its conversation; empty if it did not run. */
async function writtenList(session: Session): Promise<string> {
  const { files } = await session.client(Files).listFiles({ agent: AGENT });
  const path = files.map(({ path }) => path).find((path) => path.endsWith('/report/list.txt'));
  if (!path) return '';
  const { content } = await session.client(Files).readFile({ agent: AGENT, path });
  return new TextDecoder().decode(content);
}

task('approve a command after reading it', { role: 'approver', maxClicks: 3, prepare: prepareCommand }, async ({ person, page, mesh, tenant }) => {
  const conversation = new Conversation(page, mesh);
  const session = await mesh.session(tenant.key);
  await person.write(conversation.field, 'Write the list of fruit');
  await page.keyboard.press('Enter');

  const call = conversation.log.getByRole('group', { name: 'Everything that will run' });
  const allow = conversation.log.getByRole('button', { name: 'Allow once' });
  await expect(allow).toBeVisible({ timeout: 30_000 });
  const { approvals } = await session.client(Approvals).listApprovals({});
  expect(approvals.map(({ state }) => state)).toEqual(['pending']);
  for (const line of SCRIPT.split('\n')) expect(approvals[0]!.subject).toContain(line);
  await expect(call).toHaveText(approvals[0]!.subject, { useInnerText: true });
  await expect(call).toBeInViewport({ ratio: 1 });
  await expectWhole(call);
  expect(await writtenList(session)).toBe('');

  await person.press(allow);
  await conversation.expectSaid('The list of fruit is done.', 30);
  expect(await writtenList(session)).toBe('1 apple\n2 pears\n');
  const { approval } = await session.client(Approvals).getApproval({ approval: approvals[0]!.id });
  expect(approval?.state).toBe('allowed_once');
});

/** Fails if a part of a text has to be scrolled to. */
async function expectWhole(text: Locator): Promise<void> {
  const hidden = await text.evaluate(({ scrollWidth, clientWidth, scrollHeight, clientHeight }) => [scrollWidth - clientWidth, scrollHeight - clientHeight]);
  expect(Math.max(...hidden), 'pixels outside of the frame').toBeLessThanOrEqual(1);
}

task('deny a command and say why', { role: 'approver', maxClicks: 4, prepare: prepareCommand }, async ({ person, page, mesh, tenant }) => {
  const conversation = new Conversation(page, mesh);
  const session = await mesh.session(tenant.key);
  const reason = 'The list belongs on paper';
  await person.write(conversation.field, 'Write the list of fruit');
  await page.keyboard.press('Enter');

  await person.press(conversation.log.getByRole('button', { name: 'Deny' }));
  await person.write(conversation.log.getByLabel('Reason'), reason);
  await page.keyboard.press('Enter');
  const result = async () => (await entriesOf(session, await conversation.session())).find(({ kind }) => kind === 'returned')?.text;
  await expect.poll(result, { timeout: 30_000 }).toContain(reason);

  expect(await writtenList(session)).toBe('');
  const { approvals } = await session.client(Approvals).listApprovals({});
  expect(approvals.map(({ state, reason: why }) => [state, why])).toEqual([['denied', reason]]);
});

task('stop an answer and go on', { role: 'member', maxClicks: 4 }, async ({ person, page, mesh, tenant }) => {
  const conversation = new Conversation(page, mesh);
  await mesh.model.answer('Tell me everything', { text: longText(1000), pieces: 500, pace_ms: 100 });
  await person.write(conversation.field, 'Tell me everything');
  await page.keyboard.press('Enter');
  await conversation.expectSaid('word5 ');

  await person.press(page.getByRole('button', { name: 'Stop', exact: true }));
  await conversation.expectSaid('Stopped');
  await expect(page.getByRole('button', { name: 'Stop', exact: true })).toBeHidden();
  await person.write(conversation.field, 'Only in one word');
  await page.keyboard.press('Enter');
  await conversation.expectSaid('echo: Only in one word');

  await expect(conversation.log).not.toContainText('word900');
  const session = await mesh.session(tenant.key);
  const { runs } = await session.client(Sessions).listRuns({ session: await conversation.session() });
  expect(runs.map(({ status }) => status)).toEqual(['completed', 'cancelled']);
});

task('edit a message, ask for another answer, and go back', { role: 'member', maxClicks: 10 }, async ({ person, page, mesh, tenant }) => {
  const conversation = new Conversation(page, mesh);
  const { log } = conversation;
  await person.write(conversation.field, 'A poem about rain');
  await page.keyboard.press('Enter');
  await conversation.expectSaid('echo: A poem about rain');
  const first = await sessionId(mesh, tenant.key, conversation);

  await person.press(log.getByRole('button', { name: 'Edit message' }));
  await person.write(log.getByLabel('Edit message'), 'A poem about snow');
  await page.keyboard.press('Enter');
  await conversation.expectSaid('echo: A poem about snow');
  await expect(log).not.toContainText('rain');
  await expect(log).toContainText('2 / 2');

  await mesh.model.answer('A poem about snow', { text: 'White and silent.' });
  await person.press(log.getByRole('button', { name: 'Answer again' }));
  await conversation.expectSaid('White and silent.');
  await expect(log).toContainText('3 / 3');

  await person.press(log.getByRole('button', { name: 'Previous branch' }));
  await conversation.expectSaid('echo: A poem about snow');
  await person.press(log.getByRole('button', { name: 'Previous branch' }));
  await conversation.expectSaid('echo: A poem about rain');
  await expect(log).toContainText('1 / 3');
  await expect(log).not.toContainText('snow');

  const session = await mesh.session(tenant.key);
  const { sessions } = await session.client(Sessions).listBranches({ session: first });
  expect(await Promise.all(sessions.map(({ id }) => answers(session, id)))).toEqual([
    ['echo: A poem about rain'],
    ['echo: A poem about snow'],
    ['White and silent.'],
  ]);
  expect(await sessionId(mesh, tenant.key, conversation)).toBe(first);
});

/** Id of the conversation that is shown, whose address may have its key. */
async function sessionId(mesh: TaskArguments['mesh'], key: string, conversation: Conversation): Promise<string> {
  const session = await mesh.session(key);
  return (await session.client(Sessions).getSession({ session: await conversation.session() })).session!.id;
}

const SAID = ['We meet in Lisbon', 'The dentist is at nine', 'My bicycle is a penny-farthing from my aunt', 'It rains again'];

task(
  'find a conversation by a word, and copy its link',
  {
    role: 'member',
    maxClicks: 7,
    async prepare({ mesh, tenant, page }) {
      await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
      const session = await mesh.session(tenant.key);
      for (const [number, text] of SAID.entries()) {
        const id = await say(session, `talk-${number}`, text);
        await session.client(Sessions).updateSession({ session: id, label: `Talk ${number}` });
      }
    },
  },
  async (args) => {
    const { person, page, mesh, tenant } = args;
    const conversation = new Conversation(page, mesh);
    await openList(args);
    await person.write(page.getByRole('searchbox', { name: 'Search conversations' }), 'penny-farthing');
    await person.press(page.getByRole('tab', { name: 'Messages' }));
    const hits = page.getByRole('navigation', { name: 'Conversations' }).getByRole('link');
    await expect(hits).toHaveCount(2);
    await person.press(hits.filter({ hasText: 'My bicycle' }).first());
    await expect(conversation.log.getByText(SAID[2]!, { exact: true })).toBeInViewport();
    await chooseAction(args, 'Copy link');
    await expect(page.getByText('Link copied')).toBeVisible();

    const session = await mesh.session(tenant.key);
    const { sessions } = await session.client(Sessions).listSessions({ search: 'Talk 2' });
    const link = await page.evaluate(() => navigator.clipboard.readText());
    expect(link).toBe(`${mesh.url}/console/chat/${sessions[0]!.id}`);
    await page.goto(link);
    await conversation.expectSaid(`echo: ${SAID[2]}`);
  },
);

task('send a file and a picture', { role: 'member', maxClicks: 4 }, async ({ person, page, mesh, tenant }) => {
  const conversation = new Conversation(page, mesh);
  const sent = [
    { name: 'notes.txt', mimeType: 'text/plain', buffer: Buffer.from('milk, bread and an umbrella') },
    { name: 'pixel.png', mimeType: 'image/png', buffer: PICTURE },
  ];
  const composer = page.getByRole('group', { name: 'New message' });
  const chosen = page.waitForEvent('filechooser');
  await person.press(composer.getByRole('button', { name: 'Attach files' }));
  await (await chosen).setFiles(sent);
  for (const { name } of sent) await expect(composer.getByText(name)).toBeVisible();
  if (person.means === 'mouse') {
    sent.push({ name: 'pasted.png', mimeType: 'image/png', buffer: PICTURE }, { name: 'dropped.txt', mimeType: 'text/plain', buffer: Buffer.from('dropped') });
    await give(conversation.field, 'paste', sent[2]!);
    await give(conversation.field, 'drop', sent[3]!);
    await expect(composer.getByText('dropped.txt')).toBeVisible();
  }
  await person.write(conversation.field, 'What is in these?');
  await page.keyboard.press('Enter');
  await conversation.expectSaid('echo: ', 30);
  await expect(conversation.log.getByRole('img', { name: 'pixel.png' })).toBeVisible();
  await expect(conversation.log.getByRole('button', { name: /notes\.txt/ })).toBeVisible();

  const session = await mesh.session(tenant.key);
  const entries = await entriesOf(session, await conversation.session());
  const { attachments } = JSON.parse(entries.find(({ kind }) => kind === 'heard')!.detail) as { attachments: { name: string; file: { hash: string } }[] };
  expect(attachments.map(({ name }) => name)).toEqual(sent.map(({ name }) => name));
  for (const [index, { file }] of attachments.entries()) {
    const { content } = await session.client(Files).readAttachment({ agent: AGENT, hash: file.hash });
    expect(Buffer.from(content)).toEqual(sent[index]!.buffer);
  }
});

/** Pastes or drops a file. */
async function give(target: Locator, how: 'paste' | 'drop', { name, mimeType, buffer }: { name: string; mimeType: string; buffer: Buffer }): Promise<void> {
  const file = { name, mimeType, base64: buffer.toString('base64') };
  await target.evaluate(
    (element, { how, file }) => {
      const content = Uint8Array.from(atob(file.base64), (letter) => letter.charCodeAt(0));
      const data = new DataTransfer();
      data.items.add(new File([content], file.name, { type: file.mimeType }));
      const event = how === 'paste' ? new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true }) : new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true });
      element.dispatchEvent(event);
    },
    { how, file },
  );
}

task(
  'change the model and the thinking of one conversation',
  {
    role: 'member',
    maxClicks: 10,
    async prepare({ mesh, tenant }) {
      const session = await mesh.session(tenant.key);
      await session.client(Models).putModel({ model: 'scripted:two', card: JSON.stringify({ context: 100_000, max_output: 4096, thinking: { by: 'effort' } }) });
    },
  },
  async ({ person, page, mesh, tenant }) => {
    const conversation = new Conversation(page, mesh);
    await person.write(conversation.field, 'Which model are you?');
    await page.keyboard.press('Enter');
    await conversation.expectSaid('echo: Which model are you?');
    await person.press(page.getByRole('button', { name: 'one', exact: true }));
    await person.press(page.getByRole('menuitem', { name: 'scripted:two' }));
    await conversation.expectSaid('Model: scripted:two');
    await person.press(page.getByTitle('Thinking'));
    await person.press(page.getByRole('menuitem', { name: 'high' }));
    await conversation.expectSaid('Thinking: high');
    await expect(page.getByRole('button', { name: 'two', exact: true })).toBeVisible();
    await expect(page.getByRole('button', { name: 'high', exact: true })).toBeVisible();
    await person.write(conversation.field, 'And now?');
    await page.keyboard.press('Enter');
    await conversation.expectSaid('echo: And now?');
    await person.press(conversation.log.getByRole('button', { name: 'Cost and model' }).last());
    await person.press(conversation.log.getByRole('link', { name: 'Open the run' }));
    await expect(page.getByRole('heading', { name: 'Run of main', level: 1 })).toBeVisible();
    await expect(page.locator('#content')).toContainText('scripted:two');

    const session = await mesh.session(tenant.key);
    const run = new URL(page.url()).pathname.split('/').at(-1)!;
    expect((await session.client(Sessions).getRun({ runId: run })).run?.model).toBe('scripted:two');
  },
);

task(
  'tag a conversation and see those with the tag',
  {
    role: 'owner',
    maxClicks: 7,
    async prepare({ mesh, tenant }) {
      const session = await mesh.session(tenant.key);
      for (const name of ['garden', 'office']) {
        const id = await say(session, name, `To ${name}`);
        await session.client(Sessions).updateSession({ session: id, label: `To ${name}` });
      }
    },
  },
  async (args) => {
    const { person, page, mesh, tenant } = args;
    const list = page.getByRole('navigation', { name: 'Conversations' });
    const menu = (name: string) => list.getByRole('button', { name: `Actions of ${name}` });
    await openList(args);
    await person.press(menu('To garden'));
    await person.press(page.getByRole('menuitem', { name: 'Tags' }));
    await person.write(page.getByRole('dialog').getByRole('textbox', { name: 'Tags' }), 'plants, tea');
    await page.keyboard.press('Enter');
    await person.press(list.getByRole('button', { name: 'tea', exact: true }));
    await expect(menu('To office')).toHaveCount(0);
    await expect(menu('To garden')).toHaveCount(1);
    await person.press(page.getByRole('button', { name: 'Tag: tea' }));
    await expect(menu('To office')).toHaveCount(1);

    const session = await mesh.session(tenant.key);
    const { sessions } = await session.client(Sessions).listSessions({ tag: 'plants' });
    expect(sessions.map(({ label, tags }) => ({ label, tags }))).toEqual([{ label: 'To garden', tags: ['plants', 'tea'] }]);
  },
);

task(
  'name a conversation, pin it, and delete another',
  {
    role: 'owner',
    maxClicks: 10,
    async prepare({ mesh, tenant }) {
      const session = await mesh.session(tenant.key);
      for (const name of ['keep', 'drop']) {
        const id = await say(session, name, `To ${name}`);
        await session.client(Sessions).updateSession({ session: id, label: `To ${name}` });
      }
    },
  },
  async (args) => {
    const { person, page, mesh, tenant } = args;
    const menu = (name: string) => page.getByRole('navigation', { name: 'Conversations' }).getByRole('button', { name: `Actions of ${name}` });
    await openList(args);
    await person.press(menu('To keep'));
    await person.press(page.getByRole('menuitem', { name: 'Rename' }));
    await person.write(page.getByRole('dialog').getByRole('textbox', { name: 'Name' }), 'The garden');
    await page.keyboard.press('Enter');
    await person.press(menu('The garden'));
    await person.press(page.getByRole('menuitem', { name: 'Pin' }));
    await expect(page.getByRole('link', { name: /^Pinned The garden/ })).toBeVisible();
    await person.press(menu('To drop'));
    await person.press(page.getByRole('menuitem', { name: 'Delete' }));
    await person.press(page.getByRole('dialog').getByRole('button', { name: 'Delete' }));
    await expect(menu('To drop')).toHaveCount(0);

    const session = await mesh.session(tenant.key);
    const { sessions } = await session.client(Sessions).listSessions({});
    expect(sessions.map(({ label, pinned }) => ({ label, pinned }))).toEqual([{ label: 'The garden', pinned: true }]);
  },
);
