// Attacks of other sites, and with what somebody has found or stolen.
import type { Page } from '@playwright/test';
import { Agents } from '../src/api/gen/holdfast/gateway/v1/control_pb';
import { Files } from '../src/api/gen/holdfast/gateway/v1/files_pb';
import { People } from '../src/api/gen/holdfast/gateway/v1/people_pb';
import { postSignIn, Session } from './api';
import { expect, test } from './fixtures';
import { CREATE_AGENT, createAgent, GET_CALLER, REFUSED, statusOf, stolen } from './forged';
import type { Mesh } from './mesh';
import { OtherSite } from './origins';

async function agentNames(mesh: Mesh): Promise<string[]> {
  const session = await mesh.session(mesh.key);
  return (await session.client(Agents).listAgents({})).agents.map(({ name }) => name);
}

test('the cookie is out of reach of scripts and of other sites', async ({ page, context, signIn }) => {
  await signIn(page);

  const cookies = await context.cookies();

  expect(cookies.length).toBe(1);
  expect(cookies[0]).toMatchObject({ httpOnly: true, sameSite: 'Strict' });
  expect(await page.evaluate(() => document.cookie)).toBe('');
  const stores = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }]));
  expect(stores).not.toContain(cookies[0]!.value);
});

test('the pages forbid frames, inline scripts and requests elsewhere', async ({ mesh }) => {
  for (const path of ['/console/', '/console/agents/main', '/console/nothing']) {
    const answer = await fetch(mesh.url + path);
    const policy = answer.headers.get('content-security-policy') ?? '';
    for (const part of ["default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"]) {
      expect(policy.split(/;\s*/), path).toContain(part);
    }
    expect(policy).not.toMatch(/unsafe|\*/);
    expect(answer.headers.get('x-content-type-options')).toBe('nosniff');
    expect(answer.headers.get('referrer-policy')).toBe('no-referrer');
  }
});

test('another site cannot show the console in a frame', async ({ page, context, signIn, watcher, mesh }) => {
  watcher.allow(/^request: http:\/\/127\.0\.0\.1/, /frame-ancestors|refused to frame|Refused to frame|Framing/i, /404/);
  await signIn(page);
  const site = await OtherSite.start(`<iframe src="${mesh.url}/console/" width="900" height="600"></iframe>`);

  const other = await context.newPage();
  await other.goto(site.url);
  await other.waitForLoadState('networkidle');

  const frames = other.frames().filter((frame) => frame !== other.mainFrame());
  expect(frames.length).toBe(1);
  expect(await frames[0]!.locator('#app').count()).toBe(0);
  await site.stop();
});

test('another site cannot change anything with the cookie', async ({ page, context, signIn, watcher, mesh }) => {
  watcher.allow(/.*/);
  await signIn(page);
  const { id } = await stolen(page, context);
  const body = [...createAgent('made-by-another-site')];
  const site = await OtherSite.start('<form method="post" enctype="text/plain"><input name="a" value="b"></form>');

  const other = await context.newPage();
  await other.goto(site.url);
  await other.evaluate(
    async ({ url, path, id, body }) => {
      const bytes = new Uint8Array(body);
      const send = (init: RequestInit) => fetch(url + path, { method: 'POST', credentials: 'include', body: bytes, ...init }).catch(() => undefined);
      await send({ mode: 'no-cors' });
      await send({ mode: 'no-cors', headers: { 'content-type': 'text/plain' } });
      await send({ mode: 'cors', headers: { 'content-type': 'application/grpc-web+proto', 'x-holdfast-session': id } });
      await send({ mode: 'no-cors', headers: { 'content-type': 'application/grpc-web+proto', 'x-holdfast-session': id } });
      navigator.sendBeacon(url + path, bytes);
      // Ends the sign-in of somebody else.
      await fetch(`${url}/console/sign-out`, { method: 'POST', mode: 'no-cors', credentials: 'include' }).catch(() => undefined);
    },
    { url: mesh.url, path: CREATE_AGENT, id, body },
  );
  await other.evaluate((action) => {
    const form = document.querySelector('form')!;
    form.action = action;
    form.submit();
  }, mesh.url + CREATE_AGENT);
  await other.waitForLoadState('networkidle');

  expect(await agentNames(mesh)).not.toContain('made-by-another-site');
  await page.reload();
  await expect(page.locator('#content'), 'the sign-in goes on').toBeVisible();
  await site.stop();
});

test('a call needs the cookie, its id and an origin of its own', async ({ page, context, signIn, mesh }) => {
  await signIn(page);
  const { id, cookie } = await stolen(page, context);
  const right = { 'x-holdfast-session': id, cookie, origin: mesh.url, 'sec-fetch-site': 'same-origin' };
  expect(await statusOf(mesh, GET_CALLER, right)).toBe('grpc 0');

  const wrong: Record<string, Record<string, string>> = {
    'no cookie': { 'x-holdfast-session': id, origin: mesh.url },
    'no id': { cookie, origin: mesh.url },
    'the id of another': { ...right, 'x-holdfast-session': `${id.slice(0, -1)}${id.endsWith('0') ? '1' : '0'}` },
    'another origin': { ...right, origin: 'https://evil.example', 'sec-fetch-site': 'cross-site' },
    'another port': { ...right, origin: 'http://127.0.0.1:1', 'sec-fetch-site': 'same-site' },
    'an opaque origin': { ...right, origin: 'null', 'sec-fetch-site': 'cross-site' },
  };
  for (const [what, headers] of Object.entries(wrong)) {
    expect(await statusOf(mesh, GET_CALLER, headers), what).toMatch(REFUSED);
  }
});

test('another site cannot open the WebSocket with the cookie', async ({ page, context, signIn, watcher, mesh }) => {
  watcher.allow(/.*/);
  await signIn(page);
  const { id } = await stolen(page, context);
  const site = await OtherSite.start('');
  const other = await context.newPage();
  await other.goto(site.url);
  const url = `${mesh.url.replace(/^http/, 'ws')}/console/ws?session=${id}`;
  const connect = (from: Page) =>
    from.evaluate(
      (url) =>
        new Promise<string>((resolve) => {
          const socket = new WebSocket(url);
          socket.onmessage = () => resolve('open');
          socket.onclose = () => resolve('closed');
        }),
      url,
    );

  expect(await connect(page)).toBe('open');
  expect(await connect(other)).toBe('closed');
  await site.stop();
});

test('another site that opens the console has no hold of its window', async ({ page, context, signIn, watcher, mesh }) => {
  watcher.allow(/^request: http:\/\/127\.0\.0\.1/, /404/);
  await signIn(page);
  const site = await OtherSite.start('<button>Open</button>');
  const other = await context.newPage();
  await other.goto(site.url);
  await other.evaluate((url) => {
    document.querySelector('button')!.onclick = () => ((window as unknown as { opened: Window | null }).opened = window.open(url));
  }, `${mesh.url}/console/settings`);

  const opening = context.waitForEvent('page');
  await other.getByRole('button').click();
  const opened = await opening;
  await expect(opened.locator('#content')).toBeVisible();

  expect(await opened.evaluate(() => window.opener)).toBeNull();
  await expect.poll(() => other.evaluate(() => (window as unknown as { opened: Window }).opened.closed)).toBe(true);
  await site.stop();
});

test('no script but the console\'s own can become a service worker, and none is one', async ({ signedIn: page, mesh, watcher }) => {
  watcher.allow(/worker-src/);
  const allowed: string[] = [];
  page.on('response', (response) => response.headers()['service-worker-allowed'] !== undefined && allowed.push(response.url()));
  const script = 'onfetch = (event) => event.respondWith(new Response("taken"))';
  const { agent } = await (await mesh.session(mesh.key)).client(Agents).getAgent({ agent: 'main' });
  await (await mesh.session(mesh.key)).client(Files).writeFile({ agent: agent!.id, path: 'sw.js', content: new TextEncoder().encode(script) });
  await page.goto(`${mesh.url}/console/agents/main/files?file=sw.js`);
  await expect(page.getByRole('textbox', { name: /sw\.js/ })).toContainText('respondWith');
  expect(await page.evaluate(() => navigator.serviceWorker.getRegistrations().then(({ length }) => length))).toBe(0);

  const outcomes = await page.evaluate(async (script) => {
    const own = document.querySelector<HTMLScriptElement>('script[src]')!.src;
    const blob = URL.createObjectURL(new Blob([script], { type: 'text/javascript' }));
    const data = `data:text/javascript,${encodeURIComponent(script)}`;
    const ofPeople = ['/console/agents/main/files/sw.js', '/console/agents/main/files?file=sw.js', '/console/sw.js', '/sw.js', '/docs/sw.js', '/console/frame.html', blob, data];
    const attempts = [...ofPeople.map((url) => [url, undefined] as const), [own, '/console/'] as const, [own, '/'] as const];
    const register = ([url, scope]: readonly [string, string | undefined]) =>
      navigator.serviceWorker.register(url, { ...(scope ? { scope } : {}) }).then(() => `${url} for ${scope} was registered`, () => 'refused');
    return Promise.all(attempts.map(register));
  }, script);

  expect(new Set(outcomes)).toEqual(new Set(['refused']));
  expect(await page.evaluate(() => navigator.serviceWorker.getRegistrations().then(({ length }) => length))).toBe(0);
  expect(allowed).toEqual([]);
});

test('each sign-in is a new one', async ({ mesh }) => {
  const sessions = [await Session.begin(mesh.url, { key: mesh.key }), await Session.begin(mesh.url, { key: mesh.key })];

  expect(sessions[0]!.id).not.toBe(sessions[1]!.id);
  expect(sessions[0]!.cookie).not.toBe(sessions[1]!.cookie);
});

test('a sign-in that somebody planted is not taken over', async ({ page, context, signIn, mesh, watcher }) => {
  watcher.allow(/status of 401/);
  const planted = await Session.begin(mesh.url, { key: mesh.key });

  // The attacker's id, whose cookie this browser does not have.
  await page.goto(`${mesh.url}/console/#session=${planted.id}`);
  await expect(page.getByLabel('API key')).toBeVisible();
  await signIn(page);

  const { id, cookie } = await stolen(page, context);
  expect(id).not.toBe(planted.id);
  expect(cookie).not.toBe(planted.cookie);
});

test('a stolen link is worth nothing once it was used, and its owner notices if it was stolen before', async ({ page, mesh, watcher }) => {
  watcher.allow(/status of 401/);
  const token = await mesh.linkToken(mesh.ownTenant, 'owner');
  const thief = await Session.begin(mesh.url, { link: token });
  expect((await thief.client(People).getCaller({})).tenant).toBe(mesh.ownTenant.name);

  await page.goto(`${mesh.url}/console/#link=${encodeURIComponent(token)}`);

  await expect(page.getByRole('alert')).toContainText('The link was used before');
  expect((await postSignIn(mesh.url, { link: token })).status).toBe(401);
});

test('a link is never sent in an address', async ({ page, mesh, watcher }) => {
  void watcher;
  const token = await mesh.linkToken(mesh.ownTenant, 'owner');
  const addresses: string[] = [];
  page.on('request', (request) => addresses.push(request.url(), request.headers()['referer'] ?? ''));

  await page.goto(`${mesh.url}/console/#link=${encodeURIComponent(token)}`);
  await expect(page.locator('#content')).toBeVisible();

  // The address of the page itself is not sent with what is behind `#`.
  const sent = addresses.map((address) => address.split('#')[0]!);
  expect(sent.filter((address) => address.includes(token))).toEqual([]);
  expect(await page.evaluate(() => history.length)).toBeLessThanOrEqual(2);
  expect(page.url()).not.toContain(token);
});

test('a revoked key ends the sign-ins that it began', async ({ page, mesh, watcher }) => {
  watcher.allow(/status of 401/, /WebSocket/);
  const { secret, id } = (await mesh.command(['keys', 'create', 'short-lived', '--scope', 'read'])) as { secret: string; id: string };
  await page.goto(`${mesh.url}/console/`);
  await page.getByLabel('API key').fill(secret);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await expect(page.locator('#content')).toBeVisible();

  await mesh.command(['keys', 'revoke', id]);

  await expect(async () => {
    await page.reload();
    await expect(page.getByLabel('API key')).toBeVisible({ timeout: 1000 });
  }).toPass({ timeout: 15_000 });
});

test('wrong keys are slowed down', async ({ mesh }) => {
  const statuses = new Set<number>();
  for (let attempt = 0; attempt < 200 && !statuses.has(429); attempt += 1) {
    statuses.add((await postSignIn(mesh.url, { key: `hf_${attempt}` }, '192.0.2.77')).status);
  }
  expect([...statuses].sort()).toEqual([401, 429]);
});
