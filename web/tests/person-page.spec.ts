// The page of a person for owners: by what they are known, what is theirs, and merging two records.
import { Code, ConnectError } from '@connectrpc/connect';
import type { Page } from '@playwright/test';
import { Files } from '../src/api/gen/holdfast/gateway/v1/files_pb';
import { Memories } from '../src/api/gen/holdfast/gateway/v1/memories_pb';
import { People } from '../src/api/gen/holdfast/gateway/v1/people_pb';
import { Schedules } from '../src/api/gen/holdfast/gateway/v1/schedules_pb';
import { Session } from './api';
import { Conversation } from './conversation';
import { expect, test } from './fixtures';
import type { Mesh, Tenant } from './mesh';

const AGENT = 'main';
const TABS = ['Known by', 'Record', 'Conversations', 'Memory', 'Reminders', 'Jobs', 'Files', 'Approvals', 'Sign-ins', 'Cost'];

let tenant: Tenant;

test.beforeAll(async ({ mesh }) => {
  tenant = await mesh.tenant(`persons-${Date.now()}`);
});

async function signInPerson(page: Page, mesh: Mesh, name: string): Promise<Session> {
  await page.goto(await mesh.invitationLink(tenant, name, 'member'));
  await expect(page.locator('#content')).toBeVisible();
  return Session.ofPage(page);
}

async function openPerson(page: Page, mesh: Mesh, name: string) {
  await page.goto(`${mesh.url}/console/settings/people`);
  await page.getByRole('grid', { name: 'People' }).getByRole('row').filter({ hasText: name }).getByRole('link', { name: 'Show' }).click();
  await expect(page.getByRole('heading', { level: 1, name, exact: true })).toBeVisible();
}

const showTab = (page: Page, name: string) => page.getByRole('tab', { name, exact: true }).click();
const grid = (page: Page, name: string) => page.getByRole('grid', { name, exact: true });

test('an owner sees what is a person’s, without ids, and ends their sign-in', async ({ page, newPage, signIn, mesh, watcher }) => {
  test.setTimeout(120_000);
  watcher.allow(/status of 401/, /WebSocket connection to/);
  const hers = await newPage();
  const berta = await signInPerson(hers, mesh, 'Berta');
  const conversation = new Conversation(hers, mesh);
  await conversation.begin();
  await conversation.send('Hello from Berta');
  await conversation.expectSaid('echo: Hello from Berta');
  await berta.client(Memories).saveMemory({ agent: AGENT, text: 'Berta likes tea.' });
  await berta.client(Schedules).addReminder({ agent: AGENT, time: 'in 60 minutes', content: 'Call the bank' });
  await berta.client(Files).writeFile({ agent: AGENT, path: 'notes/week.md', content: new TextEncoder().encode('# Week') });

  await signIn(page, { role: 'owner', tenant });
  await openPerson(page, mesh, 'Berta');
  await expect(page.getByRole('tab')).toHaveText(TABS);
  await expect(grid(page, 'Known by')).toContainText('Invitation');
  await showTab(page, 'Conversations');
  await expect(grid(page, 'Conversations').getByRole('row').filter({ hasText: AGENT })).toHaveCount(1);
  await showTab(page, 'Memory');
  await expect(grid(page, 'Memory')).toContainText('Berta likes tea.');
  await showTab(page, 'Reminders');
  await expect(grid(page, 'Reminders')).toContainText('Call the bank');
  await showTab(page, 'Files');
  await expect(grid(page, 'Files')).toContainText('notes/week.md');
  for (const name of TABS) {
    await showTab(page, name);
    await expect(page.getByRole('tab', { name, exact: true })).toHaveAttribute('aria-selected', 'true');
    await expect(page.locator('#content').getByRole('alert')).toHaveCount(0);
    await expect(page.locator('#content')).not.toContainText('per_');
  }

  await showTab(page, 'Record');
  await page.getByLabel('Language of answers').selectOption('nb');
  await page.getByLabel('Role').selectOption('approver');
  await page.getByRole('button', { name: 'Save' }).click();
  await expect(page.locator('#content').getByText('approver', { exact: true }).first()).toBeVisible();
  await expect.poll(async () => (await berta.client(People).getPerson({})).person).toMatchObject({ role: 'approver', language: 'nb', name: 'Berta' });

  await showTab(page, 'Sign-ins');
  await grid(page, 'Sign-ins').getByRole('button', { name: 'End' }).click();
  await expect(page.getByText('Nobody is signed in to the console')).toBeVisible();
  const refusal = () => berta.client(People).getCaller({}).then(() => undefined, (error: unknown) => ConnectError.from(error).code);
  await expect.poll(refusal, { timeout: 15_000 }).toBe(Code.Unauthenticated);
});

test('an owner merges two records of one person', async ({ page, newPage, signIn, mesh, watcher }) => {
  watcher.allow(/status of 401/, /WebSocket connection to/);
  await signInPerson(await newPage(), mesh, 'Carl');
  const second = await signInPerson(await newPage(), mesh, 'Carl at home');
  await second.client(Memories).saveMemory({ agent: AGENT, text: 'Carl has a dog.' });
  await signIn(page, { role: 'owner', tenant });
  await openPerson(page, mesh, 'Carl at home');

  await page.getByRole('button', { name: 'Merge into another person' }).click();
  const form = page.getByRole('dialog', { name: 'Merge into another person' });
  await form.getByRole('combobox', { name: 'The person who stays' }).fill('Carl');
  await page.getByRole('option', { name: /^Carl\b(?! at home)/ }).click();
  await form.getByRole('button', { name: 'Merge' }).click();
  const question = page.getByRole('dialog', { name: 'Merge Carl at home into Carl?' });
  await expect(question).toContainText('with the role of Carl');
  await question.getByRole('button', { name: 'Merge' }).click();

  await expect(page.getByRole('heading', { level: 1, name: 'Carl', exact: true })).toBeVisible({ timeout: 20_000 });
  await expect(grid(page, 'Known by').getByRole('row').filter({ hasText: 'Merged person' })).toHaveCount(1);
  await showTab(page, 'Memory');
  await expect(async () => {
    await page.reload();
    await expect(grid(page, 'Memory')).toContainText('Carl has a dog.', { timeout: 3000 });
  }).toPass({ timeout: 20_000 });
});
