// Checks a page by the rules of WCAG 2.2 AA that a program can check.
import axe, { type AxeResults } from 'axe-core';
import { expect, type Page } from '@playwright/test';

const TAGS = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];

/** Fails for each violation, with its element and what to do, and goes on: the other pages are checked too. */
export async function expectAccessible(page: Page, name: string): Promise<void> {
  await page.evaluate(axe.source);
  const results = await page.evaluate(async (tags): Promise<AxeResults> => {
    const { axe } = window as unknown as { axe: typeof import('axe-core') };
    return axe.run(document, { runOnly: { type: 'tag', values: tags } });
  }, TAGS);
  const violations = results.violations.flatMap(({ id, help, nodes }) =>
    nodes.map(({ target, failureSummary }) => `${id}: ${help}: ${target.join(' ')}: ${failureSummary ?? ''}`),
  );
  expect.soft(violations, `accessibility of ${name}`).toEqual([]);
}
