// Every page for every role: none fails, and what is not allowed is not shown.
import { details, platformDetails } from './details';
import { expect, test } from './fixtures';
import { ROLES, type Mesh, type Role, type Tenant } from './mesh';
import { may, PAGES, type Route } from './routes';
import { settled } from './settled';

/** Roles whose pages of single things are opened too: those with the least and the most rights. */
const WITH_DETAILS: Role[] = ['viewer', 'owner', 'platform'];

for (const role of Object.keys(ROLES) as Role[]) {
  test(`pages of a ${role}`, async ({ page, signIn, seeded, mesh }) => {
    test.setTimeout(600_000);
    // The scope of operators of the installation is that of its first tenant's key.
    const tenant = role === 'platform' ? mesh.ownTenant : seeded;
    await signIn(page, { role, tenant });
    const isPhone = (page.viewportSize()?.width ?? 0) < 760;
    if (isPhone) await page.getByRole('button', { name: 'Menu' }).click();

    for (const route of PAGES) {
      const link = page.getByRole('navigation', { name: 'Pages' }).locator(`a[href="/console${route.path}"]`);
      await expect(link).toHaveCount(may(role, route) ? 1 : 0);
    }
    const routes = WITH_DETAILS.includes(role) ? [...PAGES, ...(await detailsFor(mesh, tenant))] : PAGES;
    for (const route of routes) {
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
      await expect(content.getByRole('alert'), `${route.path} shows no error`).toHaveCount(0);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      expect(wide, `${route.path} does not scroll sideways`).toBeLessThanOrEqual(0);
    }
  });
}

/** Pages of the things of a tenant; the first one has those of the installation instead. */
async function detailsFor(mesh: Mesh, tenant: Tenant): Promise<Route[]> {
  const session = await mesh.session(tenant.key);
  if (tenant.key === mesh.key) return platformDetails(session);
  const { routes, missing } = await details(session);
  expect(missing, 'things that the tenant lacks').toEqual([]);
  return routes;
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
