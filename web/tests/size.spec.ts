// What a first visit costs: bytes, requests, and time. Written to test-results/size.md.
import { mkdirSync, writeFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import type { Page } from '@playwright/test';
import { expect, test } from './fixtures';
import { PAGES } from './routes';

/** Limits of a first visit. */
const MAX_KILOBYTES = 200;
const MAX_REQUESTS = 10;

/** Pages with tabs read the chosen one apart. */
const MAX_REQUESTS_WITH_TABS = 14;

/** Where people arrive. */
const FIRST_PAGES = ['sign-in', 'chat'];

type Visit = { name: string; kilobytes: number; files: number; calls: number; painted: number; usable: number };

/** Follows what a page asks for. Returns what it has asked for so far. */
function follow(page: Page) {
  const files: Promise<number>[] = [];
  let calls = 0;
  page.on('response', (response) => {
    const { pathname } = new URL(response.url());
    if (/^\/console\/(api|sign-in)/.test(pathname)) calls += 1;
    // The gateway of tests serves files as they are; a built one has them compressed.
    else files.push(response.body().then((body) => gzipSync(body).length));
  });
  return async () => {
    const sizes = await Promise.all(files);
    return { kilobytes: sizes.reduce((sum, size) => sum + size, 0) / 1000, files: sizes.length, calls };
  };
}

/** When the first contents were painted, in milliseconds after the beginning. */
function painted(page: Page): Promise<number> {
  return page.evaluate(
    () =>
      new Promise<number>((resolve) => {
        const observer = new PerformanceObserver((list) => {
          const found = list.getEntriesByName('first-contentful-paint')[0];
          if (found) resolve(found.startTime);
        });
        observer.observe({ type: 'paint', buffered: true });
      }),
  );
}

function writeTable(visits: Visit[]) {
  const rows = visits.map(({ name, kilobytes, files, calls, painted, usable }) =>
    `| ${name} | ${kilobytes.toFixed(0)} | ${files} | ${calls} | ${painted.toFixed(0)} | ${usable.toFixed(0)} |`);
  const head = '| page | kB compressed | files | calls | first contents, ms | usable, ms |\n|---|---:|---:|---:|---:|---:|';
  mkdirSync('test-results', { recursive: true });
  writeFileSync('test-results/size.md', `${head}\n${rows.join('\n')}\n`);
}

test('the first visit of each page is small', async ({ newPage, mesh }) => {
  test.setTimeout(120_000);
  const visits: Visit[] = [];
  for (const [name, path] of [['sign-in', ''], ...PAGES.map(({ name, path }) => [name, path] as const)] as const) {
    const page = await newPage();
    const link = await mesh.signInLink(mesh.ownTenant, 'platform', `/console${path}`);
    const cost = follow(page);
    await page.goto(path ? link : `${mesh.url}/console/`);
    const usable = path ? page.locator('#content').getByRole('heading').first() : page.getByLabel('API key');
    await expect(usable).toBeVisible();
    visits.push({ name, painted: await painted(page), usable: await page.evaluate(() => performance.now()), ...(await cost()) });
    await page.context().close();
  }
  writeTable(visits);

  for (const { name, kilobytes, files } of visits) {
    expect.soft(kilobytes, `kB of ${name}, compressed`).toBeLessThanOrEqual(MAX_KILOBYTES);
    const limit = FIRST_PAGES.includes(name) ? MAX_REQUESTS : MAX_REQUESTS_WITH_TABS;
    expect.soft(files, `requests of ${name} for files`).toBeLessThanOrEqual(limit);
  }
});
