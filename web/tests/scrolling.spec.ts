// Lists of any length scroll smoothly and are read in parts: a conversation of 100,000 entries, 5,000
// conversations and their runs. With HOLDFAST_TEST_FULL=1; else a twentieth of them. A table has 5,000 rows
// in any case.
import type { Locator, Page } from '@playwright/test';
import { Messages } from '../src/api/gen/holdfast/gateway/v1/messages_pb';
import { expect, test } from './fixtures';
import { mainThread } from './main-thread';
import type { Mesh, Tenant } from './mesh';

const isFull = process.env['HOLDFAST_TEST_FULL'] === '1';
const amount = isFull ? 'full' : 'small';
/** Longest task of the page while it scrolls, in milliseconds of the processor. */
const MAX_TASK = 50;
/** Rows of a list in the page at most. */
const MAX_ROWS = 200;

// Pictures of the page for traces of tests are taken on its main thread.
test.use({ trace: 'off', screenshot: 'off' });
test.describe.configure({ timeout: 300_000 });

const rowsOf = (list: Locator) => list.locator('[role="listitem"], [role="row"]');
const messages = (page: Page) => page.getByRole('list', { name: 'Messages', exact: true });

/** Turns the wheel over a list, and fails for long tasks and for too many rows in the page. */
async function expectSmooth(page: Page, list: Locator, pixels: number, turns = 120) {
  await expect(rowsOf(list).nth(3)).toBeVisible({ timeout: 20_000 });
  await list.hover();
  // What is compiled and loaded once does not count.
  await page.mouse.wheel(0, pixels);
  await page.waitForLoadState('load');
  const { longest, count, total } = await mainThread(page, async () => {
    for (let turn = 0; turn < turns; turn += 1) {
      await page.mouse.wheel(0, pixels);
      await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(resolve)));
    }
  });
  expect(await rowsOf(list).count()).toBeLessThan(MAX_ROWS);
  const [task] = longest;
  console.log(`scrolling (${amount}, ${pixels} px): longest task ${task!.time.toFixed(1)} ms, ${count} tasks in ${total.toFixed(0)} ms`);
  expect(total, 'the trace has the time of tasks').toBeGreaterThan(0);
  expect(task!.time, task!.parts.join(', ')).toBeLessThan(MAX_TASK);
}

for (const pixels of [-120, -1500]) {
  test(`the longest conversation scrolls without long tasks, ${-pixels} px at once`, async ({ page, signIn, mesh }) => {
    const tenant = await mesh.seededTenant(amount);
    await signIn(page, { role: 'owner', tenant, path: `/chat/${tenant.longSession}` });
    await expectSmooth(page, messages(page), pixels);
  });
}

test('the list of conversations scrolls without long tasks, and is read on', async ({ page, signIn, mesh }) => {
  const tenant = await mesh.seededTenant(amount);
  await signIn(page, { role: 'owner', tenant, path: '/chat' });
  const list = page.getByRole('list', { name: 'Conversations' });
  await expect(rowsOf(list).first()).toBeVisible({ timeout: 20_000 });
  const size = () => rowsOf(list).first().getAttribute('aria-setsize').then(Number);
  const before = await size();

  await expectSmooth(page, list, 1500);

  expect(await size()).toBeGreaterThan(before);
});

test('the table of runs scrolls without long tasks, and is read on', async ({ page, signIn, mesh }) => {
  const tenant = await mesh.seededTenant(amount);
  await signIn(page, { role: 'owner', tenant, path: '/runs' });

  await expectSmooth(page, page.getByRole('grid').first(), 1500);
});

const FAILED = 5000;

/** A tenant with as many replies that a platform has refused. */
async function tenantWithFailedDeliveries(mesh: Mesh): Promise<Tenant> {
  const tenant = await mesh.tenant(`deliveries-${Date.now()}`);
  for await (const { event } of (await mesh.session(tenant.key)).client(Messages).stream({ agent: 'main', text: 'Hello' })) {
    if (event.case === 'done') break;
  }
  await mesh.sql(`
    insert into session.deliveries
      (tenant_id, session_id, out_seq, delivery_id, run_id, channel, account_id, target, body, state, attempt, reason, created_at, finished_at)
    select s.tenant_id, s.session_id, 1000 + n, gen_random_uuid(), gen_random_uuid(), 'telegram', account.id,
      jsonb_build_object('channel', 'telegram', 'account', account.id, 'chat', 'chat ' || n),
      repeat('Reply ' || n || ' of the table. ', 1 + n % 9), 'dead', 8, 'the platform refused it: chat ' || n || ' was not found',
      now() - n * interval '1 minute', now() - n * interval '1 minute'
    from session.sessions s join control.tenants t using (tenant_id), generate_series(1, ${FAILED}) n, (select gen_random_uuid() id) account
    where t.name = '${tenant.name}'`);
  return tenant;
}

test(`a table of ${FAILED} rows scrolls without long tasks, while it is read and when it is whole`, async ({ page, signIn, mesh }) => {
  await signIn(page, { role: 'owner', tenant: await tenantWithFailedDeliveries(mesh), path: '/inbox/deliveries' });
  const table = page.getByRole('grid', { name: 'Failed deliveries' });
  const row = (number: number) => rowsOf(table).filter({ hasText: `chat ${number} was not found` });
  await expect(row(1)).toBeVisible();

  await expectSmooth(page, table, 1500);

  await expect(async () => {
    await table.press('End');
    await expect(row(FAILED)).toBeVisible({ timeout: 200 });
  }).toPass({ timeout: 120_000 });
  await expect(table).toHaveAttribute('aria-rowcount', String(FAILED + 1));
  await expectSmooth(page, table, -1500, 150);
  await expect(row(1)).toBeVisible();
});

test('the longest conversation is read to its beginning and back, with few entries at a time', async ({ page, signIn, mesh }) => {
  test.skip(!isFull, 'it needs more entries than are kept');
  const tenant = await mesh.seededTenant(amount);
  await signIn(page, { role: 'owner', tenant, path: `/chat/${tenant.longSession}` });
  const list = messages(page);
  const last = rowsOf(list).last();
  await expect(last).toBeVisible({ timeout: 20_000 });
  const newest = await last.innerText();
  await list.focus();

  const first = () => rowsOf(list).first().locator('[data-key]').getAttribute('data-key');
  for (let step = 0; step < 30; step += 1) {
    const before = await first();
    await page.keyboard.press('Home');
    await expect.poll(first).not.toBe(before);
  }
  expect(Number(await rowsOf(list).first().getAttribute('aria-setsize'))).toBeLessThanOrEqual(3000);

  // What was left out behind is read again on the way back.
  for (let part = 0; part < 3; part += 1) {
    const before = await rowsOf(list).last().innerText();
    await page.keyboard.press('End');
    await expect.poll(() => rowsOf(list).last().innerText()).not.toBe(before);
  }
  await page.getByRole('button', { name: /newest/i }).click();
  await expect.poll(() => rowsOf(list).last().innerText()).toBe(newest);
});
