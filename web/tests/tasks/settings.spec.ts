// Tasks of owners: budgets, colleagues, keys, the audit log, and data that is taken out.
import { readFile } from 'node:fs/promises';
import { Code, ConnectError } from '@connectrpc/connect';
import type { Page } from '@playwright/test';
import { Agents, Keys } from '../../src/api/gen/holdfast/gateway/v1/control_pb';
import { Audit } from '../../src/api/gen/holdfast/gateway/v1/audit_pb';
import { Messages } from '../../src/api/gen/holdfast/gateway/v1/messages_pb';
import { Budgets } from '../../src/api/gen/holdfast/gateway/v1/models_pb';
import { Session } from '../api';
import { Conversation } from '../conversation';
import { expect } from '../fixtures';
import { Person } from './person';
import { task, type TaskArguments } from './task';

const AGENT = 'main';

const session = ({ mesh, tenant }: TaskArguments) => mesh.session(tenant.key);

/** Code of the status with which a call is refused; undefined if it is not. */
async function refusal(call: Promise<unknown>): Promise<Code | undefined> {
  try {
    await call;
    return undefined;
  } catch (error) {
    return ConnectError.from(error).code;
  }
}

/** What a person has downloaded. */
async function downloaded(page: Page, press: () => Promise<void>): Promise<{ name: string; text: string }> {
  const begun = page.waitForEvent('download');
  await press();
  const download = await begun;
  return { name: download.suggestedFilename(), text: await readFile(await download.path(), 'utf8') };
}

/** An agent has used up its tokens of the day. */
async function useUpBudget(args: TaskArguments) {
  const signedIn = await session(args);
  await signedIn.client(Budgets).setBudget({ agent: AGENT, tokens: 1n });
  await ask(args, 'The first question.');
}

async function ask(args: TaskArguments, text: string) {
  const signedIn = await session(args);
  for await (const event of signedIn.client(Messages).stream({ agent: AGENT, text })) void event;
}

task('raise a budget that has stopped an agent', { role: 'owner', maxClicks: 12, prepare: useUpBudget }, async (args) => {
  const { person, page, mesh } = args;
  const conversation = new Conversation(page, mesh);
  await person.open('Chat');
  await person.write(conversation.field, 'The second question.');
  await page.keyboard.press('Enter');
  await conversation.expectSaid('budget');
  await expect(conversation.log).not.toContainText('echo: The second question.');

  await person.open('Usage');
  await person.showTab('Budgets');
  const budget = page.getByRole('region', { name: 'Of the agent main' });
  await expect(budget).toContainText('/ 1');
  await person.press(budget.getByRole('button', { name: 'Change' }));
  const dialog = page.getByRole('dialog', { name: 'Change' });
  await person.write(dialog.getByLabel('Tokens a day'), '1000000');
  await person.press(dialog.getByRole('button', { name: 'Save' }));
  await expect(budget).toContainText('/ 1,000,000');
  const { budgets } = await (await session(args)).client(Budgets).listBudgets({});
  expect(budgets).toMatchObject([{ agent: AGENT, tokens: 1_000_000n }]);

  await person.open('Chat');
  await person.write(conversation.field, 'The third question.');
  await page.keyboard.press('Enter');
  await conversation.expectSaid('echo: The third question.');
});

task('invite a colleague who may only look', { role: 'owner', maxClicks: 8 }, async (args) => {
  const { person, page, newPage } = args;
  await person.open('Settings');
  await person.showTab('People');
  await person.press(page.getByRole('button', { name: 'Invite' }));
  const form = page.getByRole('dialog', { name: 'Invite somebody' });
  await person.write(form.getByLabel('Name'), 'Berta');
  await person.pick(form.getByRole('radio', { name: 'Read everything' }));
  await person.press(form.getByRole('button', { name: 'Make the link' }));
  const shown = page.getByRole('dialog', { name: 'Link' });
  const link = await shown.getByRole('group', { name: 'Link' }).last().innerText();
  await person.press(shown.getByRole('button', { name: 'Done' }));

  const other = await newPage();
  const colleague = new Person(other, person.means);
  await other.goto(link.trim());
  await expect(other.locator('#content')).toBeVisible();
  await colleague.open('Agents');
  await colleague.openRow(other.getByRole('grid', { name: 'Agents' }), AGENT);
  await expect(other.getByRole('heading', { level: 1, name: AGENT })).toBeVisible();
  await colleague.open('Agents');
  await expect(other.getByRole('button', { name: 'New agent' })).toHaveCount(0);
  await colleague.open('Channels');
  await expect(other.getByText('No channel is connected')).toBeVisible();
  await expect(other.getByRole('link', { name: 'Connect a channel' })).toHaveCount(0);
  await colleague.open('Settings');
  await expect(other.getByRole('tab')).toHaveText(['This browser', 'Export']);
  await expect(other.getByRole('main')).toContainText('Berta');

  // What the page does not show is refused as well.
  const asColleague = await Session.ofPage(other);
  expect(await refusal(asColleague.client(Agents).listAgents({}))).toBe(undefined);
  expect(await refusal(asColleague.client(Messages).send({ text: 'Hello' }))).toBe(Code.PermissionDenied);
  expect(await refusal(asColleague.client(Agents).createAgent({ agent: { name: 'intruder' } }))).toBe(Code.PermissionDenied);
  expect(await refusal(asColleague.client(Keys).listKeys({}))).toBe(Code.PermissionDenied);
});

task('create a key with the fewest rights, and revoke it', { role: 'owner', maxClicks: 11 }, async (args) => {
  const { person, page, mesh } = args;
  await person.open('Settings');
  await person.showTab('API keys');
  await person.press(page.getByRole('button', { name: 'New key' }));
  const form = page.getByRole('dialog', { name: 'New key' });
  await person.write(form.getByLabel('Name'), 'report');
  await person.toggle(form.getByRole('checkbox', { name: 'chat', checked: true }));
  await person.press(form.getByRole('button', { name: 'New key' }));
  const shown = page.getByRole('dialog', { name: 'The key' });
  const secret = (await shown.getByRole('group', { name: 'The key' }).last().innerText()).trim();
  await person.press(shown.getByRole('button', { name: 'Done' }));
  const row = page.getByRole('grid', { name: 'API keys' }).getByRole('row').filter({ hasText: 'report' });
  await expect(row).toContainText('Active');

  const agents = (await mesh.command(['agents', 'list'], secret)) as { name: string }[];
  expect(agents).toMatchObject([{ name: AGENT }]);
  await expect(mesh.command(['chat', 'Hello'], secret)).rejects.toThrow(/scope/);
  const { keys } = await (await session(args)).client(Keys).listKeys({});
  expect(keys.find(({ name }) => name === 'report')?.scopes).toEqual(['read']);

  await person.press(row.getByRole('button', { name: 'Revoke' }));
  await person.press(page.getByRole('dialog', { name: 'Revoke the key report?' }).getByRole('button', { name: 'Revoke' }));
  await expect(row).toContainText('Revoked');
  await expect
    .poll(() => mesh.command(['agents', 'list'], secret).then(() => 'accepted', (error: Error) => error.message), { timeout: 15_000 })
    .toMatch(/revoked|not valid|unknown key|no key/i);
});

task('create a key for a web page and one agent', { role: 'owner', maxClicks: 10 }, async (args) => {
  const { person, page, mesh } = args;
  await person.open('Settings');
  await person.showTab('API keys');
  await person.press(page.getByRole('button', { name: 'New key' }));
  const form = page.getByRole('dialog', { name: 'New key' });
  await person.write(form.getByLabel('Name'), 'website');
  await person.choose(form.getByLabel('Agent'), AGENT);
  await expect(form.getByRole('checkbox')).toHaveCount(2);
  await person.write(form.getByLabel('Web pages'), 'https://Example.com/\nhttps://shop.example.com');
  await person.press(form.getByRole('button', { name: 'New key' }));
  const shown = page.getByRole('dialog', { name: 'The key' });
  const secret = (await shown.getByRole('group', { name: 'The key' }).last().innerText()).trim();
  await person.press(shown.getByRole('button', { name: 'Done' }));

  const row = page.getByRole('grid', { name: 'API keys' }).getByRole('row').filter({ hasText: 'website' });
  await expect(row).toContainText(AGENT);
  await expect(row).toContainText('https://example.com, https://shop.example.com');
  const { keys } = await (await session(args)).client(Keys).listKeys({});
  expect(keys.find(({ name }) => name === 'website')).toMatchObject({
    scopes: ['chat'],
    agent: AGENT,
    origins: ['https://example.com', 'https://shop.example.com'],
  });
  await expect(mesh.command(['chat', 'Hello'], secret)).rejects.toThrow(/origins/);
});

/** Somebody with a key of their own changes an agent. */
async function changeAgent(args: TaskArguments) {
  const signedIn = await session(args);
  const { secret } = await signedIn.client(Keys).createKey({ name: 'trainee', scopes: ['read', 'admin'] });
  const trainee = await Session.begin(args.mesh.url, { key: secret });
  const { agent } = await trainee.client(Agents).getAgent({ agent: AGENT });
  await trainee.client(Agents).updateAgent({ agent: { ...agent!, description: 'Knows all about roofs.' } });
}

task('find who has changed an agent', { role: 'owner', maxClicks: 5, prepare: changeAgent }, async (args) => {
  const { person, page } = args;
  await person.open('Settings');
  await person.showTab('Audit log');
  await person.write(page.getByLabel('Actions that begin with'), 'agent.');
  const list = page.getByRole('grid', { name: 'Audit log' });
  await expect(list.getByRole('row').filter({ hasText: 'key.' })).toHaveCount(0);
  await person.openRow(list, 'trainee');
  const details = page.getByRole('dialog');
  await expect(details).toContainText('trainee');
  await expect(details.getByRole('row', { name: /^description/ })).toContainText('Knows all about roofs.');

  const { events } = await (await session(args)).client(Audit).listAuditEvents({ action: 'agent.' });
  expect(events[0]).toMatchObject({ actorName: 'trainee', method: 'Agents/UpdateAgent', outcome: 'ok' });
});

task('take usage and an agent out as files', { role: 'owner', maxClicks: 8, prepare: (args) => ask(args, 'Count me.') }, async (args) => {
  const { person, page } = args;
  await person.open('Usage');
  const sums = await downloaded(page, () => person.press(page.getByRole('button', { name: 'Export as CSV' })));
  expect(sums.name).toBe('usage-agent-30.csv');
  expect(sums.text).toMatch(/^Agent,Turns,Failed,[^\r]*\r\nmain,1,0,[^\r]*\r\n$/);

  await person.open('Settings');
  await person.showTab('Export');
  const rows = await downloaded(page, () => person.press(page.getByRole('button', { name: 'Download' })));
  const { lines } = await (await session(args)).client(Budgets).getUsage({ days: 1, groupBy: ['agent'] });
  const [head, ...days] = rows.text.trim().split('\r\n').map((line) => line.split(','));
  const table = days.map((cells) => Object.fromEntries(cells.map((cell, column) => [head![column]!, cell])));
  // What is stored has a row without a model.
  const used = table.filter(({ model }) => model);
  expect(used).toMatchObject([{ agent: AGENT, model: 'scripted:one', messages: '1', 'input tokens': String(lines[0]!.inputTokens) }]);

  const agent = await downloaded(page, () => person.press(page.getByRole('main').getByRole('button', { name: AGENT, exact: true })));
  expect(agent.name).toMatch(/\.ya?ml$/);
  expect(agent.text).toContain(AGENT);
});
