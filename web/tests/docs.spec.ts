// The console leads to the documentation: each page to its own, and texts to the pages they name.
import { readFileSync } from 'node:fs';
import { docsAddress, docsByRoute, docsFor } from '../src/lib/docs';
import { expect, test } from './fixtures';
import { PAGES } from './routes';

const summary = readFileSync(new URL('../../docs/SUMMARY.md', import.meta.url), 'utf8');
const inBook = new Set([...summary.matchAll(/\(([^)]+)\.md\)/g)].map(([, page]) => page));

test('every route has a page of the book', () => {
  for (const [route, page] of Object.entries(docsByRoute)) expect(inBook, route).toContain(page);
  for (const { name } of PAGES) expect(Object.keys(docsByRoute)).toContain(name);
  expect(docsFor(['agents', 'main', 'tools'])).toBe(docsAddress('policy'));
  expect(docsFor(['channels', 'telegram'])).toBe(docsAddress('channels'));
  expect(docsFor(['no-such-page'])).toBe('/docs/');
});

test('help opens the page of the book that explains the page', async ({ page, signIn, mesh }) => {
  await signIn(page, { path: '/settings/people' });

  const help = page.getByRole('banner').getByRole('link', { name: 'Help on this page' });
  await expect(help).toHaveAttribute('href', docsAddress('people-and-roles'));
  const opened = page.waitForEvent('popup');
  await help.click();
  await expect((await opened).getByRole('heading', { name: 'People and roles' }).first()).toBeVisible();

  await page.getByRole('button', { name: 'Invite' }).click();
  const named = page.locator('#content').getByRole('link', { name: 'docs/people-and-roles.md' });
  await expect(named).toHaveAttribute('href', docsAddress('people-and-roles'));
  await page.keyboard.press('Escape');
  const index = page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Documentation' });
  await expect(index).toHaveAttribute('href', '/docs/');

  await page.goto(`${mesh.url}/console/agents/main/tools`);
  await expect(help).toHaveAttribute('href', docsAddress('policy'));
});
