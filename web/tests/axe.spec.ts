// Accessibility of every page, with contents, in both themes.
import { expectAccessible } from './accessibility';
import { expect, test } from './fixtures';
import { PAGES } from './routes';
import { settled } from './settled';

test('the sign-in page is accessible', async ({ page, mesh, watcher }) => {
  void watcher;
  await page.goto(`${mesh.url}/console/`);
  await expect(page.getByRole('heading', { name: 'Sign in to Holdfast' })).toBeVisible();
  await expectAccessible(page, 'the sign-in page');
});

for (const colorScheme of ['light', 'dark'] as const) {
  test(`pages are accessible in the ${colorScheme} theme`, async ({ page, signIn, seeded, mesh }) => {
    test.setTimeout(180_000);
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    await signIn(page, { role: 'owner', tenant: seeded });
    for (const route of PAGES.filter(({ right }) => right !== 'platform')) {
      await page.goto(`${mesh.url}/console${route.path}`);
      await expect(page.locator('#content').getByRole('heading').first()).toBeVisible();
      await settled(page);
      await expectAccessible(page, `${route.path} (${colorScheme})`);
    }
  });
}
