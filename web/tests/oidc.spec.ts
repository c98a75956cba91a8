// Sign-in of people at an identity provider, and what each role sees and may do.
import { randomUUID } from 'node:crypto';
import { Code, ConnectError } from '@connectrpc/connect';
import type { Page } from '@playwright/test';
import { Agents, Channels, Keys } from '../src/api/gen/holdfast/gateway/v1/control_pb';
import { Messages } from '../src/api/gen/holdfast/gateway/v1/messages_pb';
import { People } from '../src/api/gen/holdfast/gateway/v1/people_pb';
import { Session } from './api';
import { expect, test } from './fixtures';
import { GROUPS, IdentityProvider, PROVIDER_NAME, type Member } from './identity-provider';
import type { Mesh, Tenant } from './mesh';

type PersonRole = (typeof GROUPS)[keyof typeof GROUPS];

/** Tabs of the page Settings, and calls that are accepted, by role. */
const RIGHTS: Record<PersonRole, { tabs: string[]; calls: string[] }> = {
  viewer: { tabs: ['This browser', 'Export'], calls: ['read'] },
  member: { tabs: ['This browser', 'Your accounts'], calls: ['read', 'chat'] },
  operator: { tabs: ['This browser', 'Your accounts', 'Devices', 'Webhooks', 'Export'], calls: ['read', 'chat', 'manage'] },
  owner: {
    tabs: ['This browser', 'Your accounts', 'API keys', 'People', 'Sign-ins', 'Devices', 'Webhooks', 'Audit log', 'Export'],
    calls: ['read', 'chat', 'manage', 'own'],
  },
};

let provider: IdentityProvider;
let tenant: Tenant;

test.beforeAll(async ({ mesh }) => {
  provider = await IdentityProvider.start(mesh.provider);
  tenant = await mesh.tenant(`people-${Date.now()}`);
});

test.afterAll(() => provider.stop());

test.beforeEach(({ watcher }) => {
  provider.members = [];
  watcher.allow(new RegExp(`^request: ${provider.url}/`));
});

/** Somebody who can sign in from now on. */
function member(name: string, ...groups: (keyof typeof GROUPS | 'strangers')[]): Member {
  const added = { sub: randomUUID(), name, org: tenant.name, groups };
  provider.members.push(added);
  return added;
}

async function goToProvider(page: Page, mesh: Mesh) {
  await page.goto(`${mesh.url}/console/`);
  await page.getByRole('link', { name: `Sign in with ${PROVIDER_NAME}` }).click();
  await expect(page.getByRole('heading', { name: 'Who are you?' })).toBeVisible();
}

async function signInAs(page: Page, mesh: Mesh, { name }: Member) {
  await goToProvider(page, mesh);
  await page.getByRole('link', { name }).click();
}

/** The address to which the provider sends this browser back, without going there. */
async function answerOfProvider(page: Page, { name }: Member): Promise<URL> {
  const href = await page.getByRole('link', { name }).getAttribute('href');
  const answer = await fetch(new URL(href!, provider.url), { redirect: 'manual' });
  return new URL(answer.headers.get('location')!);
}

async function expectSignedIn(page: Page) {
  await expect(page.locator('#content')).toBeVisible();
  await expect(page.getByRole('banner')).toContainText(tenant.name);
}

/** Fails unless the page tells why nobody is signed in. Cookies of sign-ins that have ended may be left. */
async function expectRefused(page: Page, text: string, oldCookies = 0) {
  await expect(page.getByRole('alert')).toContainText(text);
  await expect(page.getByLabel('API key')).toBeVisible();
  await expect(page.locator('#content')).toBeHidden();
  expect(await page.context().cookies()).toHaveLength(oldCookies);
}

async function acceptedCalls(session: Session): Promise<string[]> {
  const calls = {
    read: () => session.client(Agents).listAgents({}),
    chat: () => session.client(Messages).send({ text: 'Hello' }),
    manage: () => session.client(Agents).createAgent({ agent: { name: `agent-${randomUUID().slice(0, 8)}` } }),
    own: () => session.client(Keys).listKeys({}),
  };
  const accepted = [];
  for (const [right, call] of Object.entries(calls)) {
    const code = await call().then(() => undefined, (error: unknown) => ConnectError.from(error).code);
    if (code === undefined) accepted.push(right);
    else expect(code, right).toBe(Code.PermissionDenied);
  }
  return accepted;
}

for (const [group, role] of Object.entries(GROUPS) as [keyof typeof GROUPS, PersonRole][]) {
  test(`a person of the role ${role} sees and does what it may`, async ({ page, mesh }) => {
    await signInAs(page, mesh, member(`Robin ${role}`, group));
    await expectSignedIn(page);

    const { tabs, calls } = RIGHTS[role];
    const path = (rest: string) => page.goto(`${mesh.url}/console${rest}`);
    await path('/settings');
    await expect(page.getByRole('tab')).toHaveText(tabs);
    await expect(page.getByRole('main')).toContainText(`Robin ${role}`);
    await expect(page.getByRole('main').getByText(role, { exact: true })).toBeVisible();
    await path('/channels');
    await expect(page.getByText(role === 'member' ? 'This page is not for you' : 'No channel is connected')).toBeVisible();
    await expect(page.getByRole('link', { name: 'Connect a channel' })).toHaveCount(calls.includes('manage') ? 1 : 0);
    await path('/chat');
    await expect(calls.includes('chat') ? page.getByLabel('Message', { exact: true }) : page.getByText('This page is not for you')).toBeVisible();
    await path('/mesh');
    await expect(page.getByText('It is for operators of the installation')).toBeVisible();

    expect(await acceptedCalls(await Session.ofPage(page))).toEqual(calls);
  });
}

test('a person who is refused by an owner is signed out, and can sign in when accepted again', async ({ page, newPage, mesh, watcher }) => {
  watcher.allow(/status of 401/, /WebSocket connection to/);
  const [owner, mia] = [member('Olga Owner', 'admins'), member('Mia Member', 'staff')];
  const hers = await newPage();
  await signInAs(hers, mesh, mia);
  await expectSignedIn(hers);
  const session = await Session.ofPage(hers);
  await signInAs(page, mesh, owner);
  await expectSignedIn(page);

  await page.goto(`${mesh.url}/console/settings/people`);
  const row = page.getByRole('grid', { name: 'People' }).getByRole('row').filter({ hasText: mia.name });
  await row.getByRole('button', { name: 'Refuse' }).click();
  await page.getByRole('dialog', { name: `Refuse ${mia.name}?` }).getByRole('button', { name: 'Refuse' }).click();
  await expect(row).toContainText('Refused');

  const refusal = () => session.client(People).getCaller({}).then(() => undefined, (error: unknown) => ConnectError.from(error).code);
  await expect.poll(refusal, { timeout: 15_000 }).toBe(Code.Unauthenticated);
  // Her page may have noticed by itself already.
  await hers.getByRole('link', { name: 'Yours' }).click({ timeout: 5000 }).catch(() => undefined);
  await expect(hers.getByLabel('API key')).toBeVisible();
  await expect(hers.locator('#content')).toBeHidden();
  await signInAs(hers, mesh, mia);
  await expectRefused(hers, 'You may not sign in to this tenant', 1);

  await row.getByRole('button', { name: 'Accept again' }).click();
  await expect(row).toContainText('Active');
  await expect(async () => {
    await signInAs(hers, mesh, mia);
    await expectSignedIn(hers);
  }).toPass({ timeout: 20_000 });
});

test('a role that changes at the provider counts from the next sign-in on', async ({ page, mesh }) => {
  const kim = member('Kim', 'readers');
  await signInAs(page, mesh, kim);
  await expectSignedIn(page);
  expect(await acceptedCalls(await Session.ofPage(page))).toEqual(RIGHTS.viewer.calls);

  kim.groups = ['support', 'readers'];
  await signInAs(await signedOut(page), mesh, kim);
  await expectSignedIn(page);
  expect(await acceptedCalls(await Session.ofPage(page))).toEqual(RIGHTS.operator.calls);
});

async function signedOut(page: Page): Promise<Page> {
  await page.getByRole('button', { name: /^Signed in as/ }).click();
  await page.getByRole('menuitem', { name: 'Sign out' }).click();
  await expect(page.getByLabel('API key')).toBeVisible();
  return page;
}

test('an answer with a wrong state signs nobody in', async ({ page, mesh }) => {
  const eve = member('Eve', 'admins');
  await goToProvider(page, mesh);
  const back = await answerOfProvider(page, eve);
  back.searchParams.set('state', 'x'.repeat(43));

  await page.goto(back.href);

  await expectRefused(page, 'The answer is of another sign-in');
});

test('an answer that belongs to another browser signs nobody in', async ({ page, newPage, mesh }) => {
  const eve = member('Eve', 'admins');
  await goToProvider(page, mesh);
  const back = await answerOfProvider(page, eve);

  const other = await newPage();
  await other.goto(back.href);

  await expectRefused(other, 'The sign-in was not begun in this browser');
});

test('somebody without a role, and somebody whom the provider refuses, is told so', async ({ page, mesh }) => {
  await signInAs(page, mesh, member('Sam Stranger', 'strangers'));
  await expectRefused(page, 'None of your groups');

  await goToProvider(page, mesh);
  await page.getByRole('link', { name: 'Refuse' }).click();
  await expectRefused(page, 'access_denied');
});

test('a person sees nothing of another tenant', async ({ page, mesh }) => {
  const other = await mesh.tenant(`others-${Date.now()}`);
  const channels = (await mesh.session(other.key)).client(Channels);
  await channels.createAccount({ account: { channel: 'webhook', name: 'only-there', settings: '{}' }, secrets: JSON.stringify({ secret: randomUUID() }) });
  await signInAs(page, mesh, member('Olaf', 'admins'));
  await expectSignedIn(page);

  await page.goto(`${mesh.url}/console/channels`);

  await expect(page.getByText('No channel is connected')).toBeVisible();
  await expect(page.getByText('only-there')).toHaveCount(0);
});
