// Every page for every role: none fails, and what is not allowed is not shown.
import { expect, test } from './fixtures';
import { ROLES, type Role } from './mesh';
import { may, PAGES } from './routes';
import { settled } from './settled';

for (const role of Object.keys(ROLES) as Role[]) {
  test(`pages of a ${role}`, async ({ page, signIn, seeded, mesh }) => {
    test.setTimeout(120_000);
    // The scope of operators of the installation is that of its first tenant's key.
    const tenant = role === 'platform' ? mesh.ownTenant : seeded;
    await signIn(page, { role, tenant });
    const isPhone = (page.viewportSize()?.width ?? 0) < 760;
    if (isPhone) await page.getByRole('button', { name: 'Menu' }).click();

    for (const route of PAGES) {
      const link = page.getByRole('navigation', { name: 'Pages' }).locator(`a[href="/console${route.path}"]`);
      await expect(link).toHaveCount(may(role, route) ? 1 : 0);
    }
    for (const route of PAGES) {
      await page.goto(`${mesh.url}/console${route.path}`);
      const content = page.locator('#content');
      await expect(content).toBeVisible();
      const refusal = content.getByText('This page is not for you');
      if (may(role, route)) {
        await expect(content.getByRole('heading').first()).toBeVisible();
        await expect(refusal).toHaveCount(0);
      } else {
        await expect(refusal).toBeVisible();
      }
      await expect(page.getByText('This page failed')).toHaveCount(0);
      await settled(page);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      expect(wide, `${route.path} does not scroll sideways`).toBeLessThanOrEqual(0);
    }
  });
}

test('an unknown address says so and leads back', async ({ page, signIn, mesh }) => {
  await signIn(page, { path: '/no-such-page/at/all' });

  await expect(page.getByText('There is no such page')).toBeVisible();
  await page.getByRole('button', { name: 'Go to Chat' }).click();

  expect(page.url()).toBe(`${mesh.url}/console/chat`);
});

test('every page is reached by keyboard alone', async ({ page, signIn, mesh, isMobile }) => {
  test.skip(isMobile, 'a phone has no keyboard');
  await signIn(page);

  for (const route of PAGES) {
    await page.keyboard.press('Control+k');
    const label = await page.locator(`nav a[href="/console${route.path}"] span`).first().innerText();
    await page.getByRole('combobox', { name: 'Search or run a command' }).fill(`Go to ${label}`);
    await page.keyboard.press('Enter');
    await expect(page).toHaveURL(new RegExp(`^${mesh.url}/console${route.path}`));
    await expect(page.locator('#content').getByRole('heading').first()).toBeVisible();
  }
});
