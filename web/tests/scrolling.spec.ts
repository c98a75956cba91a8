// A conversation of 100,000 entries scrolls smoothly and is read in parts. With HOLDFAST_TEST_FULL=1; else
// it has 2,000 entries.
import { expect, test } from './fixtures';
import { idleFrames, scrollFrames } from './frames';

const amount = process.env['HOLDFAST_TEST_FULL'] === '1' ? 'full' : 'small';
/** Share of frames that may be late beyond those that are late although nothing happens. */
const LATE_SHARE = 0.2;
/** Rows of a list in the page at most. */
const MOST_ROWS = 200;

test('the longest conversation scrolls without long frames', async ({ page, signIn, mesh }, testInfo) => {
  test.setTimeout(300_000);
  const tenant = await mesh.seededTenant(amount);
  await signIn(page, { role: 'owner', tenant, path: `/chat/${tenant.longSession}` });
  const list = page.getByRole('list', { name: 'Messages', exact: true });
  await expect(list.getByRole('listitem').first()).toBeVisible({ timeout: 20_000 });

  const idle = await idleFrames(page);
  const frames = await scrollFrames(page, list, { turns: 150, pixels: -1500 });

  await testInfo.attach('frames', { body: JSON.stringify({ idle, frames }), contentType: 'application/json' });
  console.log(`scrolling (${amount}): ${JSON.stringify({ idle, frames })}`);
  expect(frames.long / frames.count).toBeLessThan(idle.long / idle.count + LATE_SHARE);
  expect(await list.getByRole('listitem').count()).toBeLessThan(MOST_ROWS);
});

test('the list of conversations is read to its end by scrolling', async ({ page, signIn, mesh }) => {
  test.setTimeout(300_000);
  const tenant = await mesh.seededTenant(amount);
  await signIn(page, { role: 'owner', tenant, path: '/chat' });
  const list = page.getByRole('list', { name: 'Conversations' });
  await expect(list.getByRole('listitem').first()).toBeVisible({ timeout: 20_000 });
  const first = await list.innerText();

  await list.hover();
  for (let turn = 0; turn < 40; turn += 1) {
    await page.mouse.wheel(0, 4000);
    await page.waitForTimeout(30);
  }

  expect(await list.innerText()).not.toBe(first);
  expect(await list.getByRole('listitem').count()).toBeLessThan(MOST_ROWS);
});
