// Requests that the console's page does not send: of other sites, other hosts and other tenants.
import { request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { Agents } from '../src/api/gen/holdfast/gateway/v1/control_pb';
import { Session } from './api';
import { expect, test } from './fixtures';
import { CREATE_AGENT, createAgent, GET_CALLER, REFUSED, statusOf, stolen } from './forged';
import type { Mesh } from './mesh';

/** Types that forms and scripts of other sites can send, and those of gRPC-web. */
const TYPES = [
  'text/plain',
  'application/x-www-form-urlencoded',
  'multipart/form-data; boundary=x',
  'application/json',
  'application/grpc',
  'application/grpc-web',
  'application/grpc-web+proto',
  'application/grpc-web-text',
  'application/grpc-web-text+proto',
  'application/octet-stream',
];

/** How browsers mark requests of other sites: newer ones by both, older ones by one of them. */
const FOREIGN: Record<string, string>[] = [
  { origin: 'https://evil.example', 'sec-fetch-site': 'cross-site' },
  { origin: 'https://evil.example' },
  { 'sec-fetch-site': 'cross-site' },
  { 'sec-fetch-site': 'same-site' },
  { origin: 'null' },
];

/** Sends a request as it is: clients would shorten the path, and choose `Host` themselves. */
function raw(mesh: Mesh, head: string[]): Promise<{ status: number; headers: string }> {
  return new Promise((resolve, reject) => {
    const socket = connect(mesh.proxy.port, '127.0.0.1', () => socket.write(`${head.join('\r\n')}\r\nconnection: close\r\n\r\n`));
    let text = '';
    socket.on('data', (data) => (text += data.toString('latin1')));
    socket.on('error', reject);
    socket.on('close', () => resolve({ status: Number(text.split(' ')[1]), headers: text.split('\r\n\r\n')[0]!.toLowerCase() }));
  });
}

test('no type of body lets another site change anything', async ({ page, context, signIn, mesh }) => {
  await signIn(page);
  const { id, cookie } = await stolen(page, context);
  const name = `forged-${Date.now()}`;

  for (const type of TYPES) {
    for (const marks of FOREIGN) {
      const headers = { 'content-type': type, 'x-holdfast-session': id, cookie, ...marks };
      expect(await statusOf(mesh, CREATE_AGENT, headers, createAgent(name)), `${type} ${JSON.stringify(marks)}`).toMatch(REFUSED);
    }
    // A form of another site has no headers of ours; an old browser marks nothing.
    expect(await statusOf(mesh, CREATE_AGENT, { 'content-type': type, cookie }, createAgent(name)), type).toMatch(REFUSED);
  }

  const session = await mesh.session(mesh.key);
  expect((await session.client(Agents).listAgents({})).agents.map((agent) => agent.name)).not.toContain(name);
});

test('another site cannot sign its visitor in', async ({ mesh }) => {
  for (const type of TYPES) {
    for (const marks of FOREIGN) {
      const headers = { 'content-type': type, 'x-forwarded-for': '192.0.2.78', ...marks };
      const answer = await fetch(`${mesh.url}/console/sign-in`, { method: 'POST', headers, body: JSON.stringify({ key: mesh.key }) });
      expect(answer.status, `${type} ${JSON.stringify(marks)}`).toBe(403);
      expect(answer.headers.getSetCookie()).toEqual([]);
    }
  }
  const form = await fetch(`${mesh.url}/console/sign-in`, { method: 'POST', headers: { 'content-type': 'text/plain' }, body: JSON.stringify({ key: mesh.key }) });
  expect(form.status).toBe(400);
});

test('the cookie of one tenant is worth nothing with the id of another', async ({ mesh }) => {
  const other = await mesh.tenant(`forged-${Date.now()}`);
  const [own, foreign] = [await mesh.session(mesh.key), await Session.begin(mesh.url, { key: other.key })];
  const value = own.cookie.split('=').slice(1).join('=');
  const renamed = `${foreign.cookie.split('=')[0]}=${value}`;
  const call = (cookie: string, id: string) => statusOf(mesh, GET_CALLER, { origin: mesh.url, cookie, 'x-holdfast-session': id });

  expect(await call(own.cookie, own.id)).toBe('grpc 0');
  expect(await call(own.cookie, foreign.id)).toMatch(REFUSED);
  // The token of one sign-in under the name of the other is not that of the other.
  expect(await call(renamed, foreign.id)).toMatch(REFUSED);
  expect(await call(`${foreign.cookie}; ${own.cookie}`, 'x')).toMatch(REFUSED);
});

test('no address redirects to another site', async ({ mesh }) => {
  const host = new URL(mesh.url).host;
  const paths = [
    '/console//evil.example', '/console//evil.example/', '//evil.example/', '//evil.example/console', '/console/%2f%2fevil.example', '/console/\\evil.example',
    '/console?next=//evil.example', '/console/?next=//evil.example', '/docs//evil.example', '/docs/../..//evil.example', '/console/oidc/start?issuer=//evil.example',
    '/console/oidc/callback?error=x&state=//evil.example', '/console/oidc/callback?code=x&state=x&redirect_uri=//evil.example', '/?next=//evil.example',
  ];
  for (const path of paths) {
    const { headers } = await raw(mesh, [`GET ${path} HTTP/1.1`, `host: ${host}`, 'accept: text/html']);
    const location = headers.match(/\r\nlocation: (.*?)(?=\r\n|$)/)?.[1];
    if (location) expect(new URL(location, mesh.url).origin, `${path} -> ${location}`).toBe(mesh.url);
  }
  // The other `Host` of a request decides no address of others.
  const { headers } = await raw(mesh, ['GET /console HTTP/1.1', 'host: evil.example', 'x-forwarded-host: evil.example']);
  expect(headers).toContain('location: /console/');
});

test('a name of somebody else that leads to the gateway has no sign-in', async ({ page, context, signIn, mesh, watcher }) => {
  // Browsers resolve it to this machine, as a rebound name would be.
  const rebound = `http://rebound.localhost:${mesh.proxy.port}`;
  watcher.allow(/^request: http:\/\/rebound/, /status of 401/, /connect-src/, /Content Security Policy/);
  await signIn(page);
  const { id } = await stolen(page, context);
  const cookies: (string | undefined)[] = [];
  const other = await context.newPage();
  other.on('request', async (request) => cookies.push((await request.allHeaders())['cookie']));

  await other.goto(`${rebound}/console/#session=${id}`);

  await expect(other.getByLabel('API key')).toBeVisible();
  expect(cookies.filter(Boolean)).toEqual([]);
  // A page of that name cannot reach the console by its own name either.
  const status = await other.evaluate((url) => fetch(url, { method: 'POST', credentials: 'include' }).then(({ status }) => status, () => 'blocked'), mesh.url + GET_CALLER);
  expect(status).toBe('blocked');
});

test('nothing below the API answers to an address that is opened', async ({ page, context, signIn, mesh }) => {
  await signIn(page);
  const { id, cookie } = await stolen(page, context);
  for (const method of ['GET', 'HEAD', 'PUT', 'DELETE', 'OPTIONS', 'TRACE']) {
    for (const path of [GET_CALLER, `${GET_CALLER}?message=AAAAAAA%3D`, '/console/sign-out', '/console/sign-in']) {
      const status = await new Promise<number>((resolve, reject) => {
        const headers = { cookie, 'x-holdfast-session': id, origin: mesh.url };
        httpRequest(mesh.url + path, { method, headers }, (answer) => {
          answer.resume();
          resolve(answer.statusCode ?? 0);
          expect(answer.headers['access-control-allow-origin']).toBeUndefined();
        }).on('error', reject).end();
      });
      expect(status, `${method} ${path}`).toBeGreaterThanOrEqual(400);
    }
  }
  await page.reload();
  await expect(page.locator('#content'), 'the sign-in goes on').toBeVisible();
});

test('answers with contents of a tenant are not stored by the browser', async ({ page, signIn }) => {
  const stored: string[] = [];
  page.on('response', (response) => {
    const { pathname } = new URL(response.url());
    const isContent = pathname.startsWith('/console/api/') || pathname === '/console/sign-in';
    const canBeStored = response.request().method() === 'GET' || /max-age=[1-9]|public/.test(response.headers()['cache-control'] ?? '');
    if (isContent && canBeStored) stored.push(response.url());
  });

  await signIn(page, { path: '/agents' });
  await expect(page.locator('#content').getByRole('heading').first()).toBeVisible();

  expect(stored).toEqual([]);
});
