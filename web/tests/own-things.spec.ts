// What a person of the role member sees: Chat, what is their own, and their settings.
import type { Page } from '@playwright/test';
import { Files } from '../src/api/gen/holdfast/gateway/v1/files_pb';
import { Memories } from '../src/api/gen/holdfast/gateway/v1/memories_pb';
import { Policies } from '../src/api/gen/holdfast/gateway/v1/policies_pb';
import { Schedules } from '../src/api/gen/holdfast/gateway/v1/schedules_pb';
import { Conversation } from './conversation';
import { expect, test } from './fixtures';
import type { Mesh, Tenant } from './mesh';

const AGENT = 'main';

let tenant: Tenant;
let people = 0;

test.beforeAll(async ({ mesh }) => {
  tenant = await mesh.tenant(`own-things-${Date.now()}`);
});

/** Signs a page in as a new member, and opens a page of the console. */
async function signInMember(page: Page, mesh: Mesh, path = '') {
  people += 1;
  await page.goto(await mesh.invitationLink(tenant, `Mia ${people}`, 'member'));
  await expect(page.locator('#content')).toBeVisible();
  if (path) await page.goto(`${mesh.url}/console${path}`);
}

const encode = (text: string) => new TextEncoder().encode(text);
const rowOf = (page: Page, grid: string, text: string) => page.getByRole('grid', { name: grid, exact: true }).getByRole('row').filter({ hasText: text });

test('the navigation of a member has Chat, Yours and Settings', async ({ page, mesh }) => {
  await signInMember(page, mesh);

  await expect(page.getByRole('navigation', { name: 'Pages' }).getByRole('listitem')).toHaveText(['Chat', 'Yours', 'Settings']);
  await expect(page.getByLabel('Message', { exact: true })).toBeVisible();

  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Yours' }).click();
  await expect(page.getByRole('heading', { level: 1, name: 'Yours' })).toBeVisible();
  await expect(page.getByRole('tab')).toHaveText(['Memory', 'Reminders', 'Files', 'Approvals']);

  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Settings' }).click();
  await expect(page.getByRole('tab')).toHaveText(['This browser', 'Your accounts']);

  await page.goto(`${mesh.url}/console/memory`);
  await expect(page.getByText('This page is not for you')).toBeVisible();
});

test('an owner has no page Yours', async ({ page, signIn }) => {
  await signIn(page, { role: 'owner', tenant, path: '/mine' });

  await expect(page.getByText('This page is not for you')).toBeVisible();
  await expect(page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Yours' })).toHaveCount(0);
});

test('a member saves, finds and forgets a memory, and sees none of others', async ({ page, mesh }) => {
  const others = 'The code of the safe is 4711.';
  const own = 'The bicycle is in the cellar.';
  await (await mesh.session(tenant.key)).client(Memories).saveMemory({ agent: AGENT, user: 'api:somebody', text: others });
  await signInMember(page, mesh, '/mine/memory');
  await expect(page.getByText('Nothing is remembered')).toBeVisible();

  await page.getByRole('button', { name: 'Save a memory' }).click();
  const form = page.getByRole('dialog', { name: 'Save a memory' });
  await expect(form.getByLabel('Person')).toHaveCount(0);
  await form.getByRole('textbox', { name: /^Text/ }).fill(own);
  await form.getByRole('button', { name: 'Save' }).click();
  await expect(rowOf(page, 'Memory', own)).toBeVisible();

  await page.getByRole('searchbox', { name: 'Search by meaning and words' }).fill('bicycle');
  await rowOf(page, 'Memory', own).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Forget' }).click();
  await page.getByRole('dialog', { name: 'Forget this?' }).getByRole('button', { name: 'Forget' }).click();
  // Until its call is answered the details are above the page, which takes no keys.
  await expect(page.getByRole('dialog')).toHaveCount(0);
  await page.getByRole('searchbox', { name: 'Search by meaning and words' }).fill('');
  await expect(page.getByText('Nothing is remembered')).toBeVisible();
  await expect(page.locator('#content')).not.toContainText(others);
});

test('a member adds and cancels a reminder, and sees none of others', async ({ page, mesh }) => {
  const others = 'Pay the rent';
  const own = 'Water the plants';
  await (await mesh.session(tenant.key)).client(Schedules).addReminder({ agent: AGENT, user: 'owner', time: 'in 60 minutes', content: others });
  await signInMember(page, mesh, '/mine/reminders');
  await expect(page.getByText('There is no reminder')).toBeVisible();

  await page.getByRole('button', { name: 'New reminder' }).click();
  const form = page.getByRole('dialog', { name: 'New reminder' });
  await form.getByRole('textbox', { name: /^What to remind of/ }).fill(own);
  await form.getByRole('textbox', { name: /^When/ }).fill('in 30 minutes');
  await form.getByRole('button', { name: 'Save' }).click();
  const row = rowOf(page, 'Reminders', own);
  await expect(row).toBeVisible();
  await expect(row).not.toContainText('per_');

  await row.getByRole('button', { name: 'Cancel' }).click();
  await expect(page.getByText('There is no reminder')).toBeVisible();
  await expect(page.locator('#content')).not.toContainText(others);
});

test('a member uploads, reads and deletes their own files, and only reads common ones', async ({ page, mesh }) => {
  const files = (await mesh.session(tenant.key)).client(Files);
  await files.writeFile({ agent: AGENT, path: 'shared/house.md', content: encode('The house has two floors.') });
  await files.writeFile({ agent: AGENT, path: 'private.md', content: encode('Of the owner alone.') });
  await signInMember(page, mesh, '/mine/files');
  const common = rowOf(page, 'Files', 'shared/house.md');
  await expect(common).toContainText('Read-only');

  await page.locator('#content input[type="file"]').setInputFiles({ name: 'list.txt', mimeType: 'text/plain', buffer: Buffer.from('milk and bread') });
  const own = rowOf(page, 'Files', 'list.txt');
  await expect(own).toBeVisible();
  await expect(own).not.toContainText('Read-only');
  await expect(page.locator('#content')).not.toContainText('private.md');

  await common.click();
  const details = page.getByRole('dialog', { name: 'shared/house.md' });
  await expect(details).toContainText('The house has two floors.');
  await expect(details.getByRole('button', { name: 'Delete' })).toHaveCount(0);
  await page.keyboard.press('Escape');

  await own.click();
  const opened = page.getByRole('dialog', { name: 'list.txt' });
  await expect(opened).toContainText('milk and bread');
  const [download] = await Promise.all([page.waitForEvent('download'), opened.getByRole('button', { name: 'Download' }).click()]);
  expect(download.suggestedFilename()).toBe('list.txt');
  await opened.getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('dialog', { name: 'Delete list.txt?' }).getByRole('button', { name: 'Delete' }).click();
  await expect(own).toHaveCount(0);
  await expect(common).toBeVisible();
});

test('a member sees the calls that wait in their conversations, and does not decide', async ({ page, newPage, mesh }) => {
  await (await mesh.session(tenant.key)).client(Policies).putPolicy({ document: JSON.stringify({ approvals: { tools: { write: 'always' } } }) });
  const write = { tool: 'write', input: { path: 'plan.txt', content: 'first the roof' } };
  await mesh.model.answer('Write the plan', { text: 'I write it.', calls: [write] }, { text: 'The plan is written.' });
  await signInMember(page, mesh);
  const conversation = new Conversation(page, mesh);
  await conversation.begin();
  await conversation.send('Write the plan');
  await conversation.expectSaid('I write it.');

  await page.goto(`${mesh.url}/console/mine/approvals`);
  const call = page.getByRole('region', { name: `${AGENT} · write` });
  await expect(call).toContainText('plan.txt', { timeout: 20_000 });
  await expect(page.locator('#content')).toContainText('People with the role approver, operator or owner decide');
  await expect(call.getByRole('button', { name: /^(Allow|Deny)/ })).toHaveCount(0);

  const other = await newPage();
  await signInMember(other, mesh, '/mine/approvals');
  await expect(other.getByText('No tool call waits for a decision')).toBeVisible();

  await call.getByRole('link').click();
  await expect(conversation.log).toContainText('Write the plan');
});
