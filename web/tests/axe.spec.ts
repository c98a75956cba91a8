// Accessibility of every page, with contents, in both themes.
import { expectAccessible } from './accessibility';
import { details, platformDetails } from './details';
import { expect, test } from './fixtures';
import { openOverlay, OVERLAYS } from './overlays';
import { PAGES, type Route } from './routes';
import { showRoute } from './settled';

test('the sign-in page is accessible', async ({ page, mesh, watcher }) => {
  void watcher;
  await page.goto(`${mesh.url}/console/`);
  await expect(page.getByRole('heading', { name: 'Sign in to Holdfast' })).toBeVisible();
  await expectAccessible(page, 'the sign-in page');
});

test('pages are accessible', async ({ page, signIn, seeded, mesh }) => {
  test.setTimeout(1_200_000);
  await page.emulateMedia({ reducedMotion: 'reduce' });
  const { routes, missing } = await details(await mesh.session(seeded.key));
  expect(missing, 'things that the tenant lacks').toEqual([]);
  await signIn(page, { role: 'owner', tenant: seeded });
  for (const route of [...PAGES.filter(({ right }) => right !== 'platform'), ...routes]) {
    await showRoute(page, mesh.url, route);
    await expectAccessible(page, route.path);
  }
});

test('pages of the installation are accessible', async ({ page, signIn, mesh }) => {
  test.setTimeout(300_000);
  await page.emulateMedia({ reducedMotion: 'reduce' });
  await signIn(page, { role: 'platform' });
  const routes: Route[] = [...PAGES.filter(({ right }) => right === 'platform'), ...(await platformDetails(await mesh.session(mesh.key)))];
  for (const route of routes) {
    await showRoute(page, mesh.url, route);
    await expectAccessible(page, route.path);
  }
});

test('dialogs, drawers and menus are accessible', async ({ page, signIn, seeded, mesh }) => {
  test.setTimeout(600_000);
  await page.emulateMedia({ reducedMotion: 'reduce' });
  const { things } = await details(await mesh.session(seeded.key));
  await signIn(page, { role: 'owner', tenant: seeded });
  for (const overlay of OVERLAYS) {
    await openOverlay(page, mesh.url, overlay, things);
    await expectAccessible(page, overlay.name);
  }
});
