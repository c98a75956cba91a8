// Waits until a page has loaded. It follows events for as long as it is open, so that its network is
// never idle.
import type { Page } from '@playwright/test';

/** Time without a change after which a page counts as loaded, in milliseconds. */
const QUIET = 400;
/** Pages that change all the time are taken as they are after so many milliseconds. */
const LONGEST = 5000;

export async function settled(page: Page): Promise<void> {
  await page.evaluate(
    ({ quiet, longest }) =>
      new Promise<void>((resolve) => {
        const done = () => {
          clearTimeout(timer);
          clearTimeout(end);
          observer.disconnect();
          resolve();
        };
        let timer = setTimeout(done, quiet);
        const end = setTimeout(done, longest);
        const observer = new MutationObserver(() => {
          clearTimeout(timer);
          timer = setTimeout(done, quiet);
        });
        observer.observe(document, { subtree: true, childList: true, characterData: true });
      }),
    { quiet: QUIET, longest: LONGEST },
  );
}
