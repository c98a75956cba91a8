// First steps of an owner: shown until there is a model and a conversation, or until they are hidden.
import type { Locator, Page } from '@playwright/test';
import { Providers } from '../src/api/gen/holdfast/gateway/v1/control_pb';
import { Messages } from '../src/api/gen/holdfast/gateway/v1/messages_pb';
import { expect, test as base } from './fixtures';
import type { Tenant } from './mesh';

let tenants = 0;

const heading = (page: Page, { name }: Tenant) => page.getByRole('heading', { level: 1, name: `Set up ${name}` });
const step = (page: Page, name: string): Locator => page.getByRole('list', { name: 'Steps' }).getByRole('region', { name, exact: true });

const test = base.extend<{ tenant: Tenant }>({
  tenant: async ({ mesh }, use) => {
    tenants += 1;
    await use(await mesh.tenant(`start-${Date.now()}-${tenants}`));
  },
});

test('a new tenant shows its owner four steps with their state', async ({ page, signIn, mesh, tenant }) => {
  await signIn(page, { role: 'owner', tenant });

  await expect(heading(page, tenant)).toBeVisible();
  await expect(page.getByRole('list', { name: 'Steps' }).getByRole('listitem')).toHaveCount(4);
  await expect(step(page, 'A model')).toContainText('Done');
  await expect(step(page, 'A channel')).toContainText('Open');
  await expect(step(page, 'A channel').getByRole('link', { name: 'Connect a channel' })).toHaveAttribute('href', '/console/channels/connect');
  await expect(step(page, 'Who you are').getByRole('link')).toHaveAttribute('href', '/console/settings/accounts');
  await expect(step(page, 'A colleague')).toContainText('Open');

  await mesh.invitationLink(tenant, 'Berta', 'member');
  const session = await mesh.session(tenant.key);
  await session.client(Providers).deleteProvider({ name: 'scripted' });
  await page.reload();
  await expect(step(page, 'A colleague')).toContainText('Done');
  await expect(step(page, 'A model')).toContainText('Open');
  await step(page, 'A model').getByRole('link', { name: 'Set up a model' }).click();
  await expect(page).toHaveURL(`${mesh.url}/console/models/providers`);
});

test('the steps go away once there is a conversation', async ({ page, signIn, mesh, tenant }) => {
  const session = await mesh.session(tenant.key);
  for await (const event of session.client(Messages).stream({ session: 'first', text: 'Hello' })) void event;

  await signIn(page, { role: 'owner', tenant });

  await expect(page).toHaveURL(`${mesh.url}/console/chat`);
  await expect(page.getByLabel('Message', { exact: true })).toBeVisible();
  await expect(heading(page, tenant)).toHaveCount(0);
});

test('the steps stay hidden in a browser where they were hidden', async ({ page, signIn, mesh, tenant }) => {
  await signIn(page, { role: 'owner', tenant });
  await page.getByRole('button', { name: 'Do not show this page' }).click();
  await expect(page).toHaveURL(`${mesh.url}/console/chat`);

  await page.goto(`${mesh.url}/console/`);

  await expect(page.getByLabel('Message', { exact: true })).toBeVisible();
  await expect(heading(page, tenant)).toHaveCount(0);
});

test('the steps are for owners only', async ({ page, mesh, tenant }) => {
  await page.goto(await mesh.invitationLink(tenant, 'Mia', 'member'));

  await expect(page.getByLabel('Message', { exact: true })).toBeVisible();
  await expect(heading(page, tenant)).toHaveCount(0);
});
