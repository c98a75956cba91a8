// Checks a page by the rules of WCAG 2.2 AA that a program can check.
import axe, { type AxeResults, type RunOptions } from 'axe-core';
import { expect, type Page } from '@playwright/test';

const TAGS = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];

/** The only rule whose results depend on the theme. */
const CONTRAST = 'color-contrast';

/** Fails for each violation in either theme, with its element and what to do, and goes on: the other pages are checked too. */
export async function expectAccessible(page: Page, name: string): Promise<void> {
  await page.evaluate(axe.source);
  await showTheme(page, 'light');
  const inLight = await violations(page, { runOnly: { type: 'tag', values: TAGS } });
  expect.soft(inLight, `accessibility of ${name}`).toEqual([]);
  await showTheme(page, 'dark');
  const inDark = await violations(page, { runOnly: { type: 'rule', values: [CONTRAST] } });
  expect.soft(inDark, `contrast of ${name} in the dark theme`).toEqual([]);
}

/** Changes the theme, and renders what is outside of the window in it. */
async function showTheme(page: Page, theme: 'light' | 'dark'): Promise<void> {
  await page.emulateMedia({ colorScheme: theme });
  await expect(page.locator('html')).toHaveAttribute('data-theme', theme);
  await page.evaluate(() => {
    // What is not rendered, as it is outside of the window, would keep its former colours.
    for (const element of document.querySelectorAll<HTMLElement>('*')) {
      if (getComputedStyle(element).contentVisibility === 'auto') element.style.contentVisibility = 'visible';
    }
  });
}

async function violations(page: Page, options: RunOptions): Promise<string[]> {
  const results = await page.evaluate(async (options): Promise<AxeResults> => {
    const { axe } = window as unknown as { axe: typeof import('axe-core') };
    return axe.run(document, options);
  }, options);
  return results.violations.flatMap(({ id, help, nodes }) =>
    nodes.map(({ target, failureSummary }) => `${id}: ${help}: ${target.join(' ')}: ${failureSummary ?? ''}`),
  );
}
