import type { Page } from '@playwright/test';
import { Session } from './api';
import { Conversation } from './conversation';
import { expect, test } from './fixtures';

const content = (page: Page) => page.locator('#content');
const keyField = (page: Page) => page.getByLabel('API key');

test('a one-time link signs in, and leaves the address at once', async ({ page, mesh, watcher }) => {
  void watcher;
  const link = await mesh.signInLink(mesh.ownTenant, 'owner', '/console/agents');

  await page.goto(link);

  await expect(content(page)).toBeVisible();
  expect(page.url()).toBe(`${mesh.url}/console/agents`);
});

test('a link works in a tab that shows the sign-in page', async ({ page, mesh, watcher }) => {
  void watcher;
  await page.goto(`${mesh.url}/console/`);
  await expect(keyField(page)).toBeVisible();

  await page.goto(await mesh.signInLink(mesh.ownTenant, 'owner'));

  await expect(content(page)).toBeVisible();
});

for (const isOpen of [false, true]) {
  test(`a link asks first where somebody is signed in already, ${isOpen ? 'in a tab with the console' : 'in a new tab'}`, async ({ page, context, signIn, mesh }) => {
    const other = await mesh.tenant(`link-${Date.now()}`);
    await signIn(page);
    const tab = isOpen ? page : await context.newPage();
    const question = tab.getByRole('dialog', { name: 'Sign in with this link?' });
    const tenant = tab.getByRole('banner').first();
    const address = '/console/agents';
    if (isOpen) await tab.goto(mesh.url + address);

    const link = await mesh.signInLink(other, 'owner', address);
    await tab.goto(link);
    await expect(question).toBeVisible();
    expect(tab.url()).toBe(mesh.url + address);
    await expect(tenant).toContainText(mesh.ownTenant.name);
    await question.getByRole('button', { name: 'Stay signed in' }).click();
    await expect(question).toBeHidden();
    await tab.reload();
    await expect(content(tab)).toBeVisible();
    await expect(tenant).toContainText(mesh.ownTenant.name);

    // The link was not used up.
    await tab.goto(link);
    await question.getByRole('button', { name: 'Sign in with the link' }).click();
    await expect(tenant).toContainText(other.name);
    await expect(question).toBeHidden();
    await tab.reload();
    await expect(tenant).toContainText(other.name);
  });
}

test('a sign-in goes on if the link that should replace it was used before', async ({ page, signIn, mesh, watcher }) => {
  watcher.allow(/status of 401/);
  await signIn(page);
  const token = await mesh.linkToken(mesh.ownTenant, 'owner');
  await Session.begin(mesh.url, { link: token });

  await page.goto(`${mesh.url}/console/agents#link=${encodeURIComponent(token)}`);
  await page.getByRole('button', { name: 'Sign in with the link' }).click();

  await expect(page.getByText('The link was used before')).toBeVisible();
  await expect(content(page)).toBeVisible();
  await page.reload();
  await expect(content(page)).toBeVisible();
});

test('a key signs in, and a reload keeps the sign-in', async ({ page, mesh, watcher }) => {
  void watcher;
  await page.goto(`${mesh.url}/console/`);
  await keyField(page).fill(mesh.key);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await expect(content(page)).toBeVisible();

  await page.reload();

  await expect(content(page)).toBeVisible();
  await expect(page.getByText(mesh.ownTenant.name, { exact: true })).toBeVisible();
});

test('a wrong key is refused in words, and the page stays', async ({ page, mesh, watcher }) => {
  watcher.allow(/status of 401/);
  await page.goto(`${mesh.url}/console/`);

  await page.getByRole('button', { name: 'Sign in' }).click();
  await expect(page.getByText('Enter a key.')).toBeVisible();
  await keyField(page).fill('hf_no_key_of_anybody');
  await page.getByRole('button', { name: 'Sign in' }).click();

  await expect(page.getByText(/key/i).and(page.locator('[role="alert"], .error, [id$="-error"]')).first()).toBeVisible();
  await expect(keyField(page)).toBeEditable();
});

test('a link that was used already signs nobody in', async ({ page, newPage, mesh, watcher }) => {
  watcher.allow(/status of 401/);
  const link = await mesh.signInLink(mesh.ownTenant, 'owner');
  await page.goto(link);
  await expect(content(page)).toBeVisible();

  const other = await newPage();
  await other.goto(link);

  await expect(other.getByRole('alert')).toContainText('The link was used before');
  await expect(keyField(other)).toBeVisible();
  await expect(content(other)).toBeHidden();
});

test('signing out ends the sign-in for good', async ({ page, signIn, mesh }) => {
  await signIn(page);
  const cookies = await page.context().cookies();

  await page.getByRole('button', { name: /^Signed in as/ }).click();
  await page.getByRole('menuitem', { name: 'Sign out' }).click();

  await expect(keyField(page)).toBeVisible();
  // A copy of the cookie is worth nothing.
  await page.context().addCookies(cookies);
  await page.goto(`${mesh.url}/console/`);
  await expect(keyField(page)).toBeVisible();
});

test('after the sign-out nothing of the tenant is shown, kept or in a cache', async ({ page, signIn, mesh, watcher }) => {
  watcher.allow(/net::ERR_CACHE_MISS/);
  const tenant = await mesh.tenant(`left-${Date.now()}`);
  const asked = new Set<string>();
  page.on('request', (request) => asked.add(request.url()));
  await signIn(page, { role: 'owner', tenant });
  const conversation = new Conversation(page, mesh);
  await conversation.begin();
  await conversation.send('The secret is xylophone');
  await conversation.expectSaid('echo: The secret is xylophone');
  const ofConversation = page.url();
  await conversation.field.fill('A draft about a xylophone');
  for (const name of ['Agents', 'Runs', 'Settings']) {
    await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name }).click();
    await expect(page.getByRole('heading', { level: 1 })).toBeVisible();
  }

  await page.getByRole('button', { name: /^Signed in as/ }).click();
  await page.getByRole('menuitem', { name: 'Sign out' }).click();
  await expect(keyField(page)).toBeVisible();

  const expectNothing = async () => {
    await expect(keyField(page)).toBeVisible();
    expect(await page.content()).not.toMatch(new RegExp(`xylophone|${tenant.name}`));
  };
  for (let step = 0; step < 4; step += 1) {
    await page.goBack();
    await expectNothing();
  }
  await page.goForward();
  await expectNothing();
  await page.goto(ofConversation);
  await expectNothing();
  const stores = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }]));
  expect(stores).not.toMatch(/xylophone|holdfast\.chat/);

  const calls = [...asked].filter((url) => url.includes('/console/api/'));
  expect(calls.length).toBeGreaterThan(5);
  expect(await page.evaluate(() => caches.keys())).toEqual([]);
  const cached = await page.evaluate(async (urls) => {
    const find = (url: string) => fetch(url, { mode: 'same-origin', cache: 'only-if-cached' }).then(({ ok }) => ok, () => false);
    const found = await Promise.all(urls.map(find));
    return urls.filter((_, at) => found[at]);
  }, calls);
  expect(cached).toEqual([]);
});

test('a page that comes back from the history does not outlive its sign-in', async ({ page, signIn, mesh, watcher }) => {
  watcher.allow(/status of 401/, /WebSocket/);
  await signIn(page);
  const { id, cookie } = await Session.ofPage(page);
  const headers = { 'x-holdfast-session': id, cookie, origin: mesh.url };
  expect((await fetch(`${mesh.url}/console/sign-out`, { method: 'POST', headers })).status).toBe(204);

  // Tests have no cache of whole pages; a page from it gets this event.
  await page.evaluate(() => dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true })));

  await expect(keyField(page)).toBeVisible();
});

test('two tenants are signed in in two tabs of one browser', async ({ page, context, signIn, mesh }) => {
  const other = await mesh.tenant(`tabs-${Date.now()}`);
  await signIn(page);
  const tab = await context.newPage();
  await signIn(tab, { tenant: other, role: 'owner' });

  for (const [each, tenant] of [[page, mesh.ownTenant], [tab, other]] as const) {
    await each.reload();
    await expect(each.getByRole('banner')).toContainText(tenant.name);
    await each.goto(`${mesh.url}/console/settings`);
    await expect(each.getByRole('banner')).toContainText(tenant.name);
  }
});

test('the language of the browser counts until another is chosen', async ({ browser, mesh, watcher }) => {
  const context = await browser.newContext({ locale: 'zh-CN' });
  await watcher.watch(context);
  const page = await context.newPage();
  await page.goto(`${mesh.url}/console/`);
  await expect(page.getByRole('heading', { name: '登录 Holdfast' })).toBeVisible();

  await page.getByRole('button', { name: 'English' }).click();
  await page.reload();

  await expect(page.getByRole('heading', { name: 'Sign in to Holdfast' })).toBeVisible();
  await expect(page.locator('html')).toHaveAttribute('lang', 'en');
  await context.close();
});
