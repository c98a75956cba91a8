// Contents that imitate something, that are very large, or that a browser would run if it opened them.
import { readFileSync } from 'node:fs';
import { Messages } from '../src/api/gen/holdfast/gateway/v1/messages_pb';
import { Sessions } from '../src/api/gen/holdfast/gateway/v1/sessions_pb';
import type { Session } from './api';
import { expect, test } from './fixtures';
import { EVIL, SVG } from './hostile';
import { mainThread } from './main-thread';
import type { Tenant } from './mesh';

/** Longest time that the page may be busy with a message of the greatest size, in milliseconds. */
const MAX_BUSY = 500;

let tenant: Tenant;
let session: Session;

test.beforeAll(async ({ mesh }) => {
  tenant = await mesh.tenant(`contents-${Date.now()}`);
  session = await mesh.session(tenant.key);
});

type File = { name: string; mediaType: string; content: Uint8Array<ArrayBuffer> };

const encode = (text: string) => new TextEncoder().encode(text);

/** Sends a message and waits for its answer. Returns the id of the session. */
async function talk(text: string, files: File[] = []): Promise<string> {
  const attachments = files.map((file) => ({ ...file, kind: 'document' }));
  let id = '';
  for await (const event of session.client(Messages).stream({ session: crypto.randomUUID(), text, attachments })) id = event.sessionId || id;
  return id;
}

const chat = (id: string) => ({ role: 'owner' as const, tenant, path: `/chat/${id}` });

/** Texts of links that look like `good.example`, and one that says nothing. */
const LOOKALIKES = [
  'https://good.example/path', 'good.example', 'www.good.example', 'good\u3002example', 'good\uff0eexample', 'good\u2024example', 'good.\u200bexample', 'g\u00adood.example',
  '\uff47\uff4f\uff4f\uff44.example', 'g\u043e\u043ed.example', 'GOOD.EXAMPLE', 'go\u0301od.example', '\u202eelpmaxe.doog\u202c', '`good.example`', '**good**.example', '*g*ood.example',
  'good&#46;example', 'good\\.example', `${'\u00a0'.repeat(600)}good.example`,
];

test('a link whose text names another host shows where it leads', async ({ page, signIn, mesh }) => {
  await mesh.model.answer('Where is it?', { text: LOOKALIKES.map((text, number) => `${number}: [${text}](${EVIL}/${number})`).join('\n\n') });
  await signIn(page, chat(await talk('Where is it?')));
  const log = page.getByRole('list', { name: 'Messages', exact: true });
  await expect(log.locator('a[target="_blank"]')).toHaveCount(LOOKALIKES.length);

  for (const number of LOOKALIKES.keys()) {
    const paragraph = log.getByRole('paragraph').filter({ has: page.locator(`a[href="${EVIL}/${number}"]`) });
    await expect.soft(paragraph, LOOKALIKES[number]).toContainText(`(${new URL(EVIL).host})`);
  }
});

test('text that turns the order around stays in its own place', async ({ page, signIn, mesh }) => {
  await mesh.model.answer('Which file?', { text: `[invoice\u202efdp.exe](${EVIL}/a) behind` });
  await signIn(page, chat(await talk('Which file?')));
  const log = page.getByRole('list', { name: 'Messages', exact: true });
  const link = log.locator(`a[href="${EVIL}/a"]`);
  await expect(link).toBeVisible();

  // What is behind the link is right of it, as it was written.
  const places = await link.evaluate((element) => {
    const range = document.createRange();
    range.setStart(element.closest('p')!, 0);
    range.selectNodeContents(element.closest('p')!);
    const walker = document.createTreeWalker(element.closest('p')!, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      if (node.textContent?.includes('behind')) range.selectNode(node);
    }
    return { link: element.getBoundingClientRect().right, behind: range.getBoundingClientRect().right };
  });
  expect(places.behind).toBeGreaterThan(places.link);
});

for (const [what, piece] of [['one word', 'W'], ['short lines', 'word\n'], ['quotes', '> '], ['cells', '|a']] as const) {
  test(`a message and an answer of the greatest size in ${what} do not hold the page up`, async ({ page, signIn, mesh }) => {
    const text = piece.repeat(Math.floor(250_000 / piece.length));
    await mesh.model.answer(text.slice(0, 1000), { text, pieces: 1 });
    const id = await talk(text);
    await signIn(page, { role: 'owner', tenant, path: '/settings' });
    await expect(page.locator('#content').getByRole('heading').first()).toBeVisible();
    // The parts of the page that are loaded once do not count.
    await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Chat' }).click();
    const row = page.getByRole('list', { name: 'Conversations' }).locator(`a[href$="${id}"]`);
    await expect(row).toBeVisible();

    const { longest } = await mainThread(page, async () => {
      await row.click();
      await expect(page.getByRole('list', { name: 'Messages', exact: true }).getByRole('button', { name: /^Show all/ }).first()).toBeVisible({ timeout: 20_000 });
    });

    expect(longest[0]!.time, longest[0]!.parts.join(', ')).toBeLessThan(MAX_BUSY);
  });
}

test('names of fields cannot change the objects of the page', async ({ page, signIn, mesh }) => {
  const polluted = JSON.parse('{"__proto__":{"polluted":"a"},"constructor":{"prototype":{"polluted":"b"}},"path":"x.txt"}') as unknown;
  let deep: unknown = 'end';
  for (let depth = 0; depth < 100; depth += 1) deep = depth % 2 ? [deep] : { __proto__: null, a: deep };
  const surface = [
    { surfaceUpdate: { surfaceId: 'main', components: [{ id: '__proto__', component: { Text: { text: { path: '/__proto__/polluted' } } } }, { id: 'root', component: { Column: { children: { explicitList: ['__proto__', 'constructor'] } } } }] } },
    { dataModelUpdate: { surfaceId: 'main', path: '/__proto__', contents: [{ key: 'polluted', valueString: 'c' }, { key: '__proto__', valueMap: [{ key: 'polluted', valueString: 'd' }] }] } },
    { beginRendering: { surfaceId: 'main', root: 'root' } },
  ];
  await mesh.model.answer(
    'Pollute',
    { text: 'One', calls: [{ tool: 'read', input: polluted }, { tool: 'read', input: { path: 'x.txt', deep } }, { tool: 'canvas', input: { action: 'present', messages: surface } }] },
    { text: 'Polluted?' },
  );
  await signIn(page, chat(await talk('Pollute')));
  const log = page.getByRole('list', { name: 'Messages', exact: true });
  await expect(log).toContainText('Polluted?');
  for (const summary of await log.locator('summary').all()) await summary.click();
  await page.getByRole('button', { name: 'Canvas' }).click();
  await expect(page.getByRole('complementary', { name: 'Canvas' })).toBeVisible();

  expect(await page.evaluate(() => ({}) as Record<string, unknown>)).toEqual({});
  expect(await page.evaluate(() => [({} as Record<string, unknown>)['polluted'], ([] as unknown as Record<string, unknown>)['polluted']])).toEqual([undefined, undefined]);
});

test('files that browsers would run are only saved, under a name that tells what they are', async ({ page, signIn, watcher }) => {
  void watcher;
  const files = [
    { name: 'picture.svg', mediaType: 'image/svg+xml', content: encode(SVG) },
    { name: 'page.html', mediaType: 'text/html', content: encode(`<script>parent.pwned('html')</script>`) },
    { name: 'picture\u202egnp.html', mediaType: 'image/png', content: encode(`<script>parent.pwned('disguised')</script>`) },
  ];
  await signIn(page, chat(await talk('files', files)));
  const saving = page.getByRole('list', { name: 'Messages', exact: true }).locator('li').filter({ hasText: /picture|page/ }).getByRole('button');
  await expect(saving).toHaveCount(files.length);
  await expect(page.locator('#content img')).toHaveCount(0);
  const address = page.url();

  for (const [number, { content }] of files.entries()) {
    const [download] = await Promise.all([page.waitForEvent('download'), saving.nth(number).click()]);
    expect(download.suggestedFilename()).not.toMatch(/[\p{Cf}\p{Cc}/\\]/u);
    expect(readFileSync(await download.path())).toEqual(Buffer.from(content));
  }
  expect(page.url()).toBe(address);
  expect(page.context().pages().length).toBe(1);
});

test('a conversation shows nothing of another tenant by its id', async ({ page, signIn, mesh, watcher }) => {
  void watcher;
  const id = await talk('a secret of this tenant');
  const other = await mesh.tenant(`curious-${Date.now()}`);

  await signIn(page, { role: 'owner', tenant: other, path: `/chat/${id}` });

  await expect(page.locator('#content')).toContainText('There is no such conversation');
  await expect(page.locator('body')).not.toContainText('a secret of this tenant');
  const foreign = await mesh.session(other.key);
  await expect(foreign.client(Sessions).getHistory({ session: id })).rejects.toThrow(/not_found/);
});
