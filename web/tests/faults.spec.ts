// The gateway and runners are killed, Postgres is restarted, and the network is cut or silent: the page
// goes on by itself, and shows what the journal has.
import type { Page } from '@playwright/test';
import { Agents } from '../src/api/gen/holdfast/gateway/v1/control_pb';
import { answers, Conversation } from './conversation';
import { expect, test } from './fixtures';
import type { Mesh } from './mesh';
import { longText } from './model';
import { SlowPage } from './slow-page';
import { AWAY } from './watcher';

/** How long the network is cut, in seconds; a full minute on request. */
const CUT = Number(process.env['HOLDFAST_TEST_CUT_SECONDS'] ?? 15);

/** Longest time until a page notices that nothing comes, and until it goes on, in milliseconds. */
const NOTICE = 40_000;

test.describe.configure({ timeout: (CUT + 150) * 1000 });

test.beforeEach(({ watcher }) => watcher.allow(AWAY));

test.afterEach(async ({ mesh }) => {
  mesh.proxy.mend();
  await mesh.ready();
});

const lost = (page: Page) => page.getByText('The connection to the gateway is lost.');

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

/** A conversation that has begun. Returns its id. */
async function begun(conversation: Conversation): Promise<string> {
  await conversation.begin();
  await conversation.send('first message');
  await conversation.expectSaid('echo: first message');
  return conversation.session();
}

/** Fails unless the message was taken in once and its answer is shown once. Nobody presses anything. */
async function expectAnsweredOnce(conversation: Conversation, mesh: Mesh, id: string, text: string) {
  await expect(conversation.log.getByText(`echo: ${text}`)).toHaveCount(1, { timeout: 60_000 });
  const session = await mesh.session(mesh.key);
  expect(await answers(session, id, 'heard')).toEqual(['first message', text]);
  expect(await answers(session, id)).toEqual(['echo: first message', `echo: ${text}`]);
  // The message itself, and that in the answer.
  await expect(conversation.log.getByText(text)).toHaveCount(2);
}

test('the gateway is killed while an answer is written', async ({ signedIn, mesh }) => {
  const conversation = new Conversation(signedIn, mesh);
  const text = await beginLongAnswer(conversation, mesh);

  await mesh.killGateway();

  await expectJournal(conversation, mesh, text);
});

test('the runners are killed while an answer is written', async ({ signedIn, mesh }) => {
  const conversation = new Conversation(signedIn, mesh);
  const text = await beginLongAnswer(conversation, mesh);

  await mesh.killRunners();

  await expectJournal(conversation, mesh, text);
});

test('the runners are killed while a tool is called', async ({ signedIn, mesh }) => {
  const conversation = new Conversation(signedIn, mesh);
  const slow = await SlowPage.start();
  const fetchIt = { tool: 'web_fetch', input: { url: slow.url } };
  await mesh.model.answer('Fetch the slow page', { text: 'I fetch it.', calls: [fetchIt] }, { text: 'The page is fetched.' });
  await conversation.begin();
  await conversation.send('Fetch the slow page');
  await slow.asked();

  await mesh.killRunners();
  slow.release();

  await conversation.expectSaid('The page is fetched.', 90);
  const session = await mesh.session(mesh.key);
  expect(await answers(session, await conversation.session())).toEqual(['I fetch it.', 'The page is fetched.']);
  await expect(conversation.log.getByText('I fetch it.')).toHaveCount(1);
  await expect(conversation.log.getByText('The page is fetched.')).toHaveCount(1);
  await expect(conversation.log.getByText('web_fetch', { exact: true })).toHaveCount(1);
  await slow.stop();
});

test('the network is cut while an answer is written', async ({ signedIn, mesh }) => {
  const conversation = new Conversation(signedIn, mesh);
  const text = await beginLongAnswer(conversation, mesh);

  mesh.proxy.cut();
  await expect(lost(signedIn)).toBeVisible({ timeout: 15_000 });
  await signedIn.waitForTimeout(CUT * 1000);
  mesh.proxy.mend();

  await expect(lost(signedIn)).toBeHidden({ timeout: NOTICE });
  await expectJournal(conversation, mesh, text);
});

for (const forgets of [false, true]) {
  test(`the network is silent while an answer is written, and then ${forgets ? 'has forgotten the connections' : 'goes on'}`, async ({ signedIn, mesh }) => {
    const conversation = new Conversation(signedIn, mesh);
    const text = await beginLongAnswer(conversation, mesh);

    mesh.proxy.freeze();
    await expect(lost(signedIn)).toBeVisible({ timeout: NOTICE });
    mesh.proxy.mend({ forgets });

    await expect(lost(signedIn)).toBeHidden({ timeout: NOTICE });
    await expectJournal(conversation, mesh, text);
  });
}

test('a message that is sent while the network is cut arrives once', async ({ signedIn, mesh }) => {
  const conversation = new Conversation(signedIn, mesh);
  const id = await begun(conversation);

  mesh.proxy.cut();
  await conversation.send('sent while away');
  await expect(lost(signedIn)).toBeVisible({ timeout: 15_000 });
  mesh.proxy.mend();

  await expectAnsweredOnce(conversation, mesh, id, 'sent while away');
});

for (const direction of ['up', 'down'] as const) {
  test(`a message arrives once although nothing comes ${direction === 'up' ? 'to the gateway' : 'back from it'}`, async ({ signedIn, mesh }) => {
    const conversation = new Conversation(signedIn, mesh);
    const id = await begun(conversation);

    mesh.proxy.freeze(direction);
    await conversation.send('sent into silence');
    await expect(lost(signedIn)).toBeVisible({ timeout: NOTICE });
    mesh.proxy.mend({ forgets: true });

    await expectAnsweredOnce(conversation, mesh, id, 'sent into silence');
  });
}

test('a message arrives once although the gateway is killed while it is sent', async ({ signedIn, mesh }) => {
  const conversation = new Conversation(signedIn, mesh);
  const id = await begun(conversation);
  const isSent = signedIn.waitForRequest(/Messages\/Stream$/);

  await conversation.send('sent to the dying');
  await isSent;
  await mesh.killGateway();

  await expectAnsweredOnce(conversation, mesh, id, 'sent to the dying');
});

/** How long Postgres is away, in milliseconds. */
const RESTART = 5000;

test('Postgres is restarted while an answer is written', async ({ signedIn, mesh }) => {
  const conversation = new Conversation(signedIn, mesh);
  const text = await beginLongAnswer(conversation, mesh);
  const services = mesh.services();

  await mesh.withoutPostgres(() => signedIn.waitForTimeout(RESTART));

  await expectJournal(conversation, mesh, text);
  expect(mesh.services(), 'no service has ended').toEqual(services);
});

test('a message that is sent while Postgres is restarted arrives once', async ({ signedIn, mesh }) => {
  const conversation = new Conversation(signedIn, mesh);
  const id = await begun(conversation);
  const services = mesh.services();

  await mesh.withoutPostgres(async () => {
    await conversation.send('sent without a database');
    await signedIn.waitForTimeout(RESTART);
  });

  await expectAnsweredOnce(conversation, mesh, id, 'sent without a database');
  expect(mesh.services(), 'no service has ended').toEqual(services);
});

/** Opens the page Schedules by its link, and fails unless it has loaded by itself after `during`. */
async function openSchedules(page: Page, during: () => Promise<void>) {
  const content = page.locator('#content');
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Schedules' }).click();
  await during();
  await expect(page.getByRole('heading', { name: 'Schedules', level: 1 })).toBeVisible({ timeout: NOTICE });
  await expect(content.getByRole('alert')).toHaveCount(0, { timeout: NOTICE });
  await expect(content.getByRole('button', { name: 'New job' }).first()).toBeVisible();
}

for (const visit of ['for the first time', 'again'] as const) {
  for (const fault of ['cut', 'freeze'] as const) {
    test(`a page that is opened ${visit} while the network is ${fault === 'cut' ? 'cut' : 'silent'} loads by itself`, async ({ page, signIn, mesh }) => {
      await signIn(page, { path: '/settings' });
      await expect(page.locator('#content').getByRole('heading').first()).toBeVisible();
      if (visit === 'again') {
        await openSchedules(page, async () => undefined);
        await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Settings' }).click();
      }

      mesh.proxy[fault]();
      await openSchedules(page, async () => {
        await expect(lost(page)).toBeVisible({ timeout: NOTICE });
        // Until the page has given up what it waits for; calls into silence wait for longer.
        if (fault === 'cut') await expect(page.locator('#content').getByRole('alert').first()).toBeVisible({ timeout: NOTICE });
        mesh.proxy.mend({ forgets: true });
      });
    });
  }
}

/** Refuses the page's next subscriptions to the log of events, as many as `left` says, and counts the granted ones. */
async function refuseEvents(page: Page, left: number) {
  const refusals = { left, granted: 0 };
  await page.routeWebSocket(/\/console\/ws/, (socket) => {
    const server = socket.connectToServer();
    server.onMessage((message) => {
      const { id, ok } = JSON.parse(String(message)) as { id?: string; ok?: boolean };
      if (ok && id?.startsWith('events.log.subscribe')) refusals.granted += 1;
      socket.send(message);
    });
    socket.onMessage((message) => {
      const { id, method } = JSON.parse(String(message)) as { id: string; method: string };
      if (method !== 'events.log.subscribe' || refusals.left === 0) return server.send(message);
      refusals.left -= 1;
      socket.send(JSON.stringify({ type: 'res', id, ok: false, error: { code: 'UNAVAILABLE', message: 'refused' } }));
    });
  });
  return refusals;
}

/** Fails unless the open list of agents shows a new one within `seconds`. */
async function expectNewAgent(page: Page, mesh: Mesh, seconds: number) {
  const name = `new-${Date.now()}`;
  await (await mesh.session(mesh.key)).client(Agents).createAgent({ agent: { name } });
  await expect(page.getByText(name).first()).toBeVisible({ timeout: seconds * 1000 });
}

test('a page that gets no events, since too many are open, reads again at intervals', async ({ page, signIn, mesh }) => {
  const refusals = await refuseEvents(page, 2);
  await signIn(page, { path: '/agents' });
  await expect.poll(() => refusals.left).toBeLessThan(2);

  await expectNewAgent(page, mesh, 60);
});

test('a page whose place in the events is too old goes on from now', async ({ page, signIn, mesh }) => {
  const refusals = await refuseEvents(page, 0);
  await signIn(page, { path: '/agents' });
  await expect.poll(() => refusals.granted).toBe(1);
  await expectNewAgent(page, mesh, 20);
  refusals.left = 1;

  mesh.proxy.cut();
  await expect(lost(page)).toBeVisible({ timeout: NOTICE });
  mesh.proxy.mend();

  await expect.poll(() => refusals.left, { timeout: NOTICE }).toBe(0);
  await expectNewAgent(page, mesh, 20);
});
