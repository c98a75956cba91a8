// The gateway and runners are killed, and the network is cut: the page goes on by itself and shows what
// the journal has.
import { answers, Conversation } from './conversation';
import { expect, test } from './fixtures';
import type { Mesh } from './mesh';
import { longText } from './model';
import { AWAY } from './watcher';

/** How long the network is cut, in seconds; a full minute on request. */
const CUT = Number(process.env['HOLDFAST_TEST_CUT_SECONDS'] ?? 15);

test.describe.configure({ timeout: (CUT + 120) * 1000 });

test.afterEach(async ({ mesh }) => {
  mesh.proxy.mend();
  await mesh.ready();
});

/** Sends a message whose answer takes some seconds, and waits until it is being written. */
async function beginLongAnswer(conversation: Conversation, mesh: Mesh): Promise<string> {
  const text = longText(200);
  await mesh.model.answer('Tell me a long story', { text, pieces: 100, pace_ms: 80 });
  await conversation.begin();
  await conversation.send('Tell me a long story');
  await conversation.expectSaid('word5 ');
  return text;
}

/** Fails unless the page shows each answer of the journal once, and nothing else of them. */
async function expectJournal(conversation: Conversation, mesh: Mesh, text: string) {
  await expect(conversation.log).toContainText('word199', { timeout: 60_000 });
  const id = await conversation.session();
  const session = await mesh.session(mesh.key);
  await expect.poll(() => answers(session, id), { timeout: 30_000 }).toEqual([text]);
  await expect(async () => {
    const shown = (await conversation.log.innerText()).replace(/\s+/g, ' ');
    expect(shown.split('word0 ').length - 1, 'the answer is shown once').toBe(1);
    expect(shown).toContain(text);
  }).toPass({ timeout: 30_000 });
  await conversation.send('Are you still there?');
  await conversation.expectSaid('echo: ', 30);
}

test('the gateway is killed while an answer is written', async ({ signedIn, mesh, watcher }) => {
  watcher.allow(AWAY);
  const conversation = new Conversation(signedIn, mesh);
  const text = await beginLongAnswer(conversation, mesh);

  await mesh.killGateway();

  await expectJournal(conversation, mesh, text);
});

test('the runners are killed while an answer is written', async ({ signedIn, mesh, watcher }) => {
  watcher.allow(AWAY);
  const conversation = new Conversation(signedIn, mesh);
  const text = await beginLongAnswer(conversation, mesh);

  await mesh.killRunners();

  await expectJournal(conversation, mesh, text);
});

test('the network is cut while an answer is written', async ({ signedIn, mesh, watcher }) => {
  watcher.allow(AWAY);
  const conversation = new Conversation(signedIn, mesh);
  const text = await beginLongAnswer(conversation, mesh);

  mesh.proxy.cut();
  await expect(signedIn.getByText('The connection to the gateway is lost.')).toBeVisible({ timeout: 15_000 });
  await signedIn.waitForTimeout(CUT * 1000);
  mesh.proxy.mend();

  await expect(signedIn.getByText('The connection to the gateway is lost.')).toBeHidden({ timeout: 30_000 });
  await expectJournal(conversation, mesh, text);
});

test('a message that is sent while the network is cut arrives once', async ({ signedIn, mesh, watcher }) => {
  watcher.allow(AWAY);
  const conversation = new Conversation(signedIn, mesh);
  await conversation.begin();
  await conversation.send('first message');
  await conversation.expectSaid('echo: first message');
  const id = await conversation.session();

  mesh.proxy.cut();
  await conversation.send('sent while away');
  await signedIn.waitForTimeout(3000);
  mesh.proxy.mend();

  const session = await mesh.session(mesh.key);
  // It is sent again by itself, or the page keeps the text and offers that.
  const again = signedIn.getByRole('button', { name: /again|retry|send/i });
  await expect(async () => {
    if ((await conversation.log.getByText('echo: sent while away').count()) === 0 && (await again.first().isEnabled())) await again.first().click();
    await expect(conversation.log.getByText('echo: sent while away')).toHaveCount(1, { timeout: 3000 });
  }).toPass({ timeout: 40_000 });
  const said = await answers(session, id);
  expect(said.filter((text) => text.includes('sent while away')).length).toBe(1);
});

test('a page that is opened while the gateway is away loads by itself once it is back', async ({ page, signIn, mesh, watcher }) => {
  watcher.allow(AWAY);
  await signIn(page, { path: '/settings' });
  await expect(page.locator('#content').getByRole('heading').first()).toBeVisible();

  mesh.proxy.cut();
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Schedules' }).click();
  await page.waitForTimeout(3000);
  mesh.proxy.mend();

  await expect(async () => {
    const retry = page.getByRole('button', { name: /try again|reload/i });
    if (await retry.first().isVisible()) await retry.first().click();
    await expect(page.getByRole('heading', { name: 'Schedules', level: 1 })).toBeVisible({ timeout: 3000 });
    await expect(page.locator('#content').getByRole('alert')).toHaveCount(0);
  }).toPass({ timeout: 40_000 });
});
