// Pictures of every page in .holdfast/pictures, with HOLDFAST_TEST_PICTURES=1. `tests/pictures.py`
// makes those of docs/console-tour.md from them.
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { details, platformDetails } from './details';
import { test } from './fixtures';
import { openOverlay, OVERLAYS } from './overlays';
import { PAGES } from './routes';
import { showRoute } from './settled';

const FOLDER = join(fileURLToPath(import.meta.url), '../../../.holdfast/pictures');
const WINDOWS = [
  { suffix: '', size: { width: 1440, height: 900 }, colorScheme: 'light' },
  { suffix: '-dark', size: { width: 1440, height: 900 }, colorScheme: 'dark' },
  { suffix: '-phone', size: { width: 390, height: 844 }, colorScheme: 'light' },
] as const;

test.skip(process.env['HOLDFAST_TEST_PICTURES'] !== '1', 'pictures are taken on request');
test.use({ timezoneId: 'UTC' });
// Of a page by its name, such as HOLDFAST_TEST_PICTURE=agent-.
const only = process.env['HOLDFAST_TEST_PICTURE'] ?? '';

for (const { suffix, size, colorScheme } of WINDOWS) {
  test(`pictures${suffix}`, async ({ page, signIn, mesh }) => {
    test.setTimeout(1_800_000);
    const tenant = await mesh.seededTenant('full');
    await page.setViewportSize(size);
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    const take = (name: string) => page.screenshot({ path: join(FOLDER, `${name}${suffix}.png`), animations: 'disabled' });
    await signIn(page, { role: 'owner', tenant });
    const { things, routes } = await details(await mesh.session(tenant.key));
    for (const route of [...PAGES.filter(({ right }) => right !== 'platform'), ...routes].filter(isWanted)) {
      await showRoute(page, mesh.url, route);
      await take(route.name);
    }
    for (const overlay of OVERLAYS.filter(isWanted)) {
      await openOverlay(page, mesh.url, overlay, things);
      await take(overlay.name);
    }
    await signIn(page, { role: 'platform' });
    const ofInstallation = [...PAGES.filter(({ right }) => right === 'platform'), ...(await platformDetails(await mesh.session(mesh.key)))];
    for (const route of ofInstallation.filter(isWanted)) {
      await showRoute(page, mesh.url, route);
      await take(route.name);
    }
  });
}

function isWanted({ name }: { name: string }): boolean {
  return name.startsWith(only);
}
