// Tasks of somebody for whom things wait: messages that were given up, questions, proposals, calls.
import { create } from '@bufbuild/protobuf';
import { Approvals } from '../../src/api/gen/holdfast/gateway/v1/approvals_pb';
import { Behaviors } from '../../src/api/gen/holdfast/gateway/v1/behaviors_pb';
import { Agents, BehaviorSettingsSchema } from '../../src/api/gen/holdfast/gateway/v1/control_pb';
import { Files } from '../../src/api/gen/holdfast/gateway/v1/files_pb';
import { Messages } from '../../src/api/gen/holdfast/gateway/v1/messages_pb';
import { Operations } from '../../src/api/gen/holdfast/gateway/v1/operations_pb';
import { Policies } from '../../src/api/gen/holdfast/gateway/v1/policies_pb';
import { Proposals } from '../../src/api/gen/holdfast/gateway/v1/proposals_pb';
import { answers, Conversation } from '../conversation';
import { expect, test } from '../fixtures';
import { eventually } from '../processes';
import { task, type TaskArguments } from './task';

const AGENT = 'main';

const session = ({ mesh, tenant }: TaskArguments) => mesh.session(tenant.key);

test.describe('with dead letters', () => {
  // A tenant is filled for each.
  test.describe.configure({ timeout: 180_000 });

  task('accept all dead letters again', { role: 'owner', seeded: 'own', maxClicks: 5 }, async (args) => {
    const { person, page } = args;
    const signedIn = await session(args);
    const { letters } = await signedIn.client(Operations).listDeadLetters({});
    expect(letters.length).toBeGreaterThan(1);

    await person.open('Inbox');
    await person.showTab(/^Dead letters/);
    const list = page.getByRole('grid', { name: 'Dead letters' });
    await expect(list.getByRole('row').filter({ hasText: 'the runner ended five times' })).toHaveCount(letters.length);
    await person.toggle(list.getByRole('checkbox', { name: 'Select all loaded rows' }));
    await person.press(page.getByRole('button', { name: `Accept ${letters.length} again` }));
    await expect(page.getByText('No message was given up')).toBeVisible({ timeout: 20_000 });

    expect((await signedIn.client(Operations).listDeadLetters({})).letters).toEqual([]);
    for (const { sessionId, text } of letters) {
      await expect.poll(async () => (await answers(signedIn, sessionId)).at(-1), { timeout: 20_000 }).toContain(text.slice(0, 40));
    }
  });
});

const QUESTION = 'Which colour shall the roof have?';

/** An agent that works in steps asks something and waits. */
async function askThePerson(args: TaskArguments) {
  const signedIn = await session(args);
  await signedIn.client(Behaviors).putBehavior({ agent: AGENT, source: 'name: builder\nprocess_rule: Ask for the colour, then end.\n' });
  const { agent } = await signedIn.client(Agents).getAgent({ agent: AGENT });
  await signedIn.client(Agents).updateAgent({ agent: { ...agent!, behaviors: create(BehaviorSettingsSchema, { default: 'builder' }) } });
  const step = (result: object) => ({ text: JSON.stringify(result) });
  await args.mesh.model.answer('Paint the roof', step({ reply: QUESTION, next_behavior: 'WAIT', wait_details: { note: 'the colour of the roof' } }));
  await args.mesh.model.answer('In dark red', step({ reply: 'It will be dark red.', next_behavior: 'END' }));
  await signedIn.client(Messages).send({ agent: AGENT, text: 'Paint the roof, please.' });
  await eventually('the agent asks', async () => (await signedIn.client(Operations).getInboxCounts({})).questions === 1);
}

task('answer the question of an agent', { role: 'owner', maxClicks: 8, prepare: askThePerson }, async (args) => {
  const { person, page, mesh } = args;
  await person.open('Inbox');
  await person.showTab(/^Questions/);
  await person.openRow(page.getByRole('grid', { name: 'Questions' }), 'the colour of the roof');
  const conversation = new Conversation(page, mesh);
  await conversation.expectSaid(QUESTION);
  await person.write(conversation.field, 'In dark red, please.');
  await page.keyboard.press('Enter');
  await conversation.expectSaid('It will be dark red.');

  await person.open('Inbox');
  await person.showTab(/^Questions/);
  await expect(page.getByText('No agent waits for an answer')).toBeVisible();
  expect((await (await session(args)).client(Operations).getInboxCounts({})).questions).toBe(0);
});

const CHANGES = { identity: 'I am a careful builder.', objectives: 'Never ask twice.' };

/** The agent proposes changes of its file `self.md`. */
async function proposeChanges(args: TaskArguments) {
  const messages = (await session(args)).client(Messages);
  for (const [at, [section, text]] of Object.entries(CHANGES).entries()) {
    const input = { action: 'propose', section, text, goal: `a better ${section}`, risk: 'none', benefit: 'less work' };
    await args.mesh.model.answer(`Improve your ${section}`, { calls: [{ tool: 'self', input }] }, { text: 'I have proposed it.' });
    await messages.send({ agent: AGENT, text: `Improve your ${section}.` });
    // One by one, or a turn could take both messages.
    await eventually(`the change of ${section} is proposed`, async () => (await proposals(args)).length === at + 1);
  }
}

async function proposals(args: TaskArguments) {
  return (await (await session(args)).client(Proposals).listAgentProposals({ limit: 10 })).proposals;
}

task('apply one proposal of an agent and reject another', { role: 'owner', maxClicks: 9, prepare: proposeChanges }, async (args) => {
  const { person, page } = args;
  await person.open('Inbox');
  await person.showTab(/^Proposals/);
  const list = page.getByRole('grid', { name: 'Proposals' });
  const dialog = page.getByRole('dialog', { name: `${AGENT} · self` });
  await person.openRow(list, 'a better identity');
  await expect(dialog.getByText(CHANGES.identity)).toBeVisible();
  await person.press(dialog.getByRole('button', { name: 'Apply' }));
  await expect(list.getByText('a better identity')).toBeHidden();

  await person.openRow(list, 'a better objectives');
  await person.write(dialog.getByLabel('Why, for the agent'), 'Ask as often as needed.');
  await person.press(dialog.getByRole('button', { name: 'Reject' }));
  await expect(page.getByText('No agent proposes a change of itself')).toBeVisible();

  const states = Object.fromEntries((await proposals(args)).map(({ goal, state, reason }) => [goal, [state, reason]]));
  expect(states).toMatchObject({ 'a better identity': ['applied', ''], 'a better objectives': ['rejected', 'Ask as often as needed.'] });
  const { content } = await (await session(args)).client(Files).readFile({ agent: AGENT, path: 'self.md' });
  const file = new TextDecoder().decode(content);
  expect(file).toContain(CHANGES.identity);
  expect(file).not.toContain(CHANGES.objectives);
});

const WAITING = 4;

/** Calls of several conversations wait for a decision. */
async function askForApprovals(args: TaskArguments) {
  const signedIn = await session(args);
  await signedIn.client(Policies).putPolicy({ document: JSON.stringify({ approvals: { tools: { write: 'always' } } }) });
  for (let number = 1; number <= WAITING; number += 1) {
    const input = { path: 'notes/role.md', content: `You are the builder number ${number}.\n` };
    await args.mesh.model.answer(`Take the role ${number}`, { calls: [{ tool: 'write', input }] }, { text: `I took the role ${number}.` });
    await signedIn.client(Messages).send({ agent: AGENT, session: `role-${number}`, text: `Take the role ${number}.` });
  }
  await eventually('all of them wait', async () => (await pending(args)).length === WAITING);
}

async function pending(args: TaskArguments) {
  return (await (await session(args)).client(Approvals).listApprovals({ state: 'pending' })).approvals;
}

task('allow several waiting calls at once', { role: 'approver', maxClicks: 5, prepare: askForApprovals }, async (args) => {
  const { person, page } = args;
  const waiting = await pending(args);
  await person.open('Inbox');
  await expect(page.getByRole('button', { name: 'Allow once' })).toHaveCount(WAITING);
  await person.toggle(page.getByRole('checkbox', { name: 'Select all' }));
  await person.press(page.getByRole('button', { name: `Allow ${WAITING} once` }));
  const question = page.getByRole('dialog', { name: `Allow ${WAITING} calls?` });
  await person.press(question.getByRole('button', { name: 'Allow once' }));
  await expect(page.getByText('No tool call waits for a decision')).toBeVisible();

  const signedIn = await session(args);
  for (const { id, sessionId } of waiting) {
    const { approval } = await signedIn.client(Approvals).getApproval({ approval: id });
    expect(approval?.state).toBe('allowed_once');
    await expect.poll(async () => (await answers(signedIn, sessionId)).at(-1), { timeout: 20_000 }).toMatch(/^I took the role/);
  }
});

task('deny a waiting call, and several at once, and say why', { role: 'approver', maxClicks: 9, prepare: askForApprovals }, async (args) => {
  const { person, page } = args;
  const reasons = ['The role stays as it is', 'No builders are needed'];
  const waiting = await pending(args);
  await person.open('Inbox');
  const deny = page.getByRole('button', { name: 'Deny', exact: true });
  await expect(deny).toHaveCount(WAITING);
  const dialog = page.getByRole('dialog');

  await person.press(deny.first());
  await person.write(dialog.getByLabel('Reason'), reasons[0]!);
  await page.keyboard.press('Enter');
  await expect(deny).toHaveCount(WAITING - 1);

  await person.toggle(page.getByRole('checkbox', { name: 'Select all' }));
  await person.press(page.getByRole('button', { name: `Deny ${WAITING - 1}` }));
  await expect(dialog).toHaveAccessibleName(`Deny ${WAITING - 1} calls?`);
  await person.write(dialog.getByLabel('Reason'), reasons[1]!);
  await page.keyboard.press('Enter');
  await expect(page.getByText('No tool call waits for a decision')).toBeVisible();

  // The model reads the reason as the result of its call.
  const signedIn = await session(args);
  const told: (string | undefined)[] = [];
  for (const { sessionId } of waiting) {
    const results = () => answers(signedIn, sessionId, 'returned');
    await expect.poll(async () => (await results()).length, { timeout: 20_000 }).toBe(1);
    const [text] = await results();
    told.push(reasons.find((reason) => text!.includes(reason)));
  }
  expect(told.sort()).toEqual([reasons[1], reasons[1], reasons[1], reasons[0]]);
});
