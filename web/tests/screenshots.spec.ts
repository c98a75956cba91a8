// Pictures of every page for docs/console, with HOLDFAST_TEST_PICTURES=1.
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from './fixtures';
import { PAGES } from './routes';
import { settled } from './settled';

const FOLDER = join(fileURLToPath(import.meta.url), '../../../docs/console');
const WINDOWS = [
  { suffix: '', size: { width: 1440, height: 900 }, colorScheme: 'light' },
  { suffix: '-dark', size: { width: 1440, height: 900 }, colorScheme: 'dark' },
  { suffix: '-phone', size: { width: 390, height: 844 }, colorScheme: 'light' },
] as const;

test.skip(process.env['HOLDFAST_TEST_PICTURES'] !== '1', 'pictures are taken on request');

for (const { suffix, size, colorScheme } of WINDOWS) {
  test(`pictures${suffix}`, async ({ page, signIn, mesh }) => {
    test.setTimeout(600_000);
    const tenant = await mesh.seededTenant('full');
    await page.setViewportSize(size);
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    await signIn(page, { role: 'owner', tenant });
    for (const route of await pictures(mesh.url)) {
      await page.goto(route.url);
      await expect(page.locator('#content').getByRole('heading').first()).toBeVisible();
      await settled(page);
      await page.screenshot({ path: join(FOLDER, `${route.name}${suffix}.png`), animations: 'disabled' });
    }
  });
}

async function pictures(origin: string) {
  return PAGES.filter(({ right }) => right !== 'platform').map(({ name, path }) => ({ name, url: `${origin}/console${path}` }));
}
