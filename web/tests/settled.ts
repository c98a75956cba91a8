// Waits until a page has loaded. It follows events for as long as it is open, so that its network is
// never idle.
import { expect, type Page } from '@playwright/test';
import type { Route } from './routes';

/** Time without a change after which a page counts as loaded, in milliseconds. */
const QUIET = 400;
/** Pages that change all the time are taken as they are after so many milliseconds. */
const LONGEST = 15_000;

export async function settled(page: Page): Promise<void> {
  await page.evaluate(
    ({ quiet, longest }) =>
      new Promise<void>((resolve) => {
        const done = () => {
          // What still loads counts as a change.
          if (document.querySelector('[data-loading]')) {
            timer = setTimeout(done, quiet);
            return;
          }
          stop();
        };
        const stop = () => {
          clearTimeout(timer);
          clearTimeout(end);
          observer.disconnect();
          resolve();
        };
        let timer = setTimeout(done, quiet);
        const end = setTimeout(stop, longest);
        const observer = new MutationObserver(() => {
          clearTimeout(timer);
          timer = setTimeout(done, quiet);
        });
        observer.observe(document, { subtree: true, childList: true, characterData: true });
      }),
    { quiet: QUIET, longest: LONGEST },
  );
}

/** Opens a page and waits until it has loaded. */
export async function showRoute(page: Page, origin: string, { path }: Pick<Route, 'path'>): Promise<void> {
  await page.goto(`${origin}/console${path}`);
  await expect(page.locator('#content').getByRole('heading').first()).toBeVisible();
  await settled(page);
}
