// Tasks of somebody who looks after what an agent works on.
import { longText } from '../model';
import { Agents } from '../../src/api/gen/holdfast/gateway/v1/control_pb';
import { Economy } from '../../src/api/gen/holdfast/gateway/v1/economy_pb';
import { Sessions } from '../../src/api/gen/holdfast/gateway/v1/sessions_pb';
import { Subagents } from '../../src/api/gen/holdfast/gateway/v1/subagents_pb';
import { Work } from '../../src/api/gen/holdfast/gateway/v1/work_pb';
import { Workspaces } from '../../src/api/gen/holdfast/gateway/v1/workspaces_pb';
import { expect } from '../fixtures';
import { AGENT, openAgent, session, talk } from './agent';
import { task, type TaskArguments } from './task';

const MAIN = `agent:${AGENT}:main`;

async function makeTodos(args: TaskArguments) {
  const id = await talk(args, 'Plan the party.');
  const items = ['Write the invitations', 'Order the cake'].map((title) => ({ title }));
  await (await session(args)).client(Work).applyTodos({ session: id, operations: JSON.stringify([{ op: 'init', items }]) });
}

task('add an urgent todo, mark another as done, and read of both in the worklog', { role: 'owner', maxClicks: 17, prepare: makeTodos }, async (args) => {
  const { person, page } = args;
  await openAgent(args, 'Todos');
  await person.press(page.getByRole('button', { name: 'Add a todo' }));
  const form = page.getByRole('dialog', { name: 'Add a todo' });
  await person.write(form.getByRole('textbox', { name: /^Title/ }), 'Book the hall');
  await person.write(form.getByRole('spinbutton', { name: 'Priority' }), '-5');
  await person.press(form.getByRole('button', { name: 'Add a todo' }));
  await expect(page.getByRole('button', { name: /Book the hall/ })).toBeVisible();

  await person.press(page.getByRole('button', { name: /Write the invitations/ }));
  const todo = page.getByRole('dialog', { name: /Write the invitations/ });
  await person.choose(todo.getByLabel('New status'), 'Complete');
  await person.write(todo.getByRole('textbox', { name: /^Reason/ }), 'I sent them myself.');
  await person.press(todo.getByRole('button', { name: 'Set status' }));
  await expect(todo.getByText('Complete', { exact: true }).first()).toBeVisible();
  await person.write(todo.getByRole('spinbutton', { name: 'New priority' }), '3');
  await person.press(todo.getByRole('button', { name: 'Set priority' }));
  await expect(todo.getByText('3', { exact: true })).toBeVisible();
  await page.keyboard.press('Escape');
  const column = page.getByRole('group', { name: /^Complete/ });
  await expect(column.getByRole('button', { name: /Write the invitations/ })).toBeVisible();

  const { todos } = await (await session(args)).client(Work).listTodos({ session: MAIN, limit: 10 });
  const state = todos.map(({ title, status, priority }) => ({ title, status, priority }));
  expect(state).toEqual([
    { title: 'Write the invitations', status: 'COMPLETE', priority: 3 },
    { title: 'Order the cake', status: 'WAIT', priority: 0 },
    { title: 'Book the hall', status: 'WAIT', priority: -5 },
  ]);
  await person.showTab('Worklog');
  const changes = page.getByRole('grid', { name: 'Worklog' }).getByRole('row').filter({ hasText: 'TodoChange' });
  await expect(changes.filter({ hasText: 'T001 is COMPLETE: I sent them myself.' })).toBeVisible();
  await expect(changes.filter({ hasText: 'T003' })).toContainText('added');
});

task('make a workspace, let a conversation work in it, and look at its files', { role: 'owner', prepare: async (args) => void (await talk(args, 'Hello.')) }, async (args) => {
  const { person, page } = args;
  await openAgent(args, 'Workspaces');
  await person.press(page.getByRole('button', { name: 'New workspace' }));
  const form = page.getByRole('dialog', { name: 'New workspace' });
  await person.write(form.getByRole('textbox', { name: /^Name/ }), 'party');
  await person.press(form.getByRole('button', { name: 'New workspace' }));
  const row = page.getByRole('grid', { name: 'Workspaces' }).getByRole('row').filter({ hasText: 'party' });
  await expect(row).toContainText('Ready');
  await person.choose(page.getByLabel('Workspace', { exact: true }), 'party');
  await person.press(page.getByRole('button', { name: 'Bind' }));
  await expect(page.getByText('It works in party.')).toBeVisible();
  const signedIn = await session(args);
  const { workspaces } = await signedIn.client(Workspaces).listWorkspaces({ agent: AGENT });
  const { session: main } = await signedIn.client(Sessions).getSession({ session: MAIN });
  expect(main?.workspace).toBe(workspaces.find(({ name }) => name === 'party')?.id);

  await person.press(row.getByRole('link', { name: /party/ }));
  await expect(page.getByRole('tree', { name: 'Files' }).getByRole('treeitem', { name: 'party' })).toBeVisible();
  await expect(page.getByRole('heading', { name: /party\/to_agent\.md/ })).toBeVisible();
  await expect(page.getByRole('textbox', { name: /to_agent\.md/ })).toContainText(/\w/);
});

task(
  'tell a subagent something while it works',
  {
    role: 'owner',
    prepare: async (args) => {
      await args.mesh.model.answer('count the stars', { text: longText(200), pieces: 200, pace_ms: 300 });
      await args.mesh.model.answer('have them counted', { text: '', calls: [{ tool: 'sessions_spawn', input: { task: 'count the stars', label: 'counter' } }] }, { text: 'It has begun.' });
      await talk(args, 'have them counted');
    },
  },
  async (args) => {
    const { person, page } = args;
    await openAgent(args, 'Subagents');
    await person.openRow(page.getByRole('grid', { name: 'Subagents' }), 'counter');
    const subagent = page.getByRole('dialog', { name: 'counter' });
    await expect(subagent).toContainText('count the stars');
    await person.write(subagent.getByLabel('Message'), 'Only the bright ones.');
    await person.press(subagent.getByRole('button', { name: 'Send' }));
    await expect(subagent.getByLabel('Message')).toHaveValue('');
    const signedIn = await session(args);
    const [counter] = (await signedIn.client(Subagents).listSubagents({ session: MAIN })).subagents;
    const { session: working } = await signedIn.client(Sessions).getSession({ session: counter!.sessionId });
    expect(working?.waiting, 'its task, and the message').toBe(2n);

    await person.press(subagent.getByRole('button', { name: 'Stop' }));
    await person.press(page.getByRole('dialog', { name: /^Stop/ }).getByRole('button', { name: 'Stop' }));
    await expect(subagent).toBeHidden();
    await expect
      .poll(async () => (await signedIn.client(Subagents).listSubagents({ session: MAIN })).subagents.map(({ status }) => status))
      .not.toContain('running');
  },
);

task('look at the canvas of a conversation', {
  role: 'viewer',
  prepare: async (args) => {
    const present = { tool: 'canvas', input: { action: 'present', title: 'Seats', markdown: '| guest | table |\n|---|---|\n| Ann | 3 |\n' } };
    await args.mesh.model.answer('show me the seats', { text: '', calls: [present] }, { text: 'Here they are.' });
    const id = await talk(args, 'show me the seats');
    const { surfaces } = await (await session(args)).client(Sessions).getCanvas({ session: id });
    expect(surfaces, 'the agent has made the canvas').toHaveLength(1);
  },
}, async (args) => {
  const { page } = args;
  await openAgent(args, 'Workspaces');
  const canvas = page.getByRole('region', { name: 'Canvas' });
  await expect(canvas.getByRole('row').filter({ hasText: 'Ann' })).toContainText('3');
});

task('turn hit points on and give an agent money', { role: 'owner', maxClicks: 9 }, async (args) => {
  const { person, page } = args;
  await openAgent(args, 'Economy');
  const points = page.getByRole('region', { name: 'Hit points' });
  await expect(points).toContainText('Work costs this agent no hit points.');
  await person.press(points.getByRole('button', { name: 'Turn on' }));
  await expect(points.getByRole('progressbar', { name: 'Level' })).toHaveAttribute('aria-valuetext', /^10,000 \/ 10,000$/);
  const wallet = page.getByRole('region', { name: 'Wallet' });
  await person.press(wallet.getByRole('button', { name: 'Add money' }));
  const form = page.getByRole('dialog', { name: 'Add money' });
  await person.write(form.getByRole('textbox', { name: /^Amount/ }), '25.00');
  await person.write(form.getByLabel('Where it comes from'), 'the purse');
  await person.press(form.getByRole('button', { name: 'Add money' }));
  await expect(wallet).toContainText('25');
  await expect(page.getByRole('grid', { name: 'Payments and incomes' }).getByRole('row').filter({ hasText: 'the purse' })).toBeVisible();
  const signedIn = await session(args);
  const [{ agent }, { hitPoints }, { wallet: stored }] = await Promise.all([
    signedIn.client(Agents).getAgent({ agent: AGENT }),
    signedIn.client(Economy).getHitPoints({ agent: AGENT }),
    signedIn.client(Economy).getWallet({ agent: AGENT }),
  ]);
  expect(agent?.hitPoints?.floor).toBe(100);
  expect(hitPoints).toMatchObject({ isOn: true, state: 'enabled' });
  expect(Number(stored?.balance)).toBe(25);
});
