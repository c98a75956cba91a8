// Fixtures of all tests: a mesh, signed-in pages, and watchers that fail a test for what a page must
// never do.
import { test as base, expect, type Browser, type BrowserContext, type Page, type TestInfo } from '@playwright/test';
import { Mesh, type Role, type SeededTenant, type Tenant } from './mesh';
import { Watcher } from './watcher';

export type SignInOptions = {
  role?: Role;
  tenant?: Tenant;
  /** Below /console. */
  path?: string;
};

type WorkerFixtures = {
  mesh: Mesh;
  /** A tenant with the small amount of contents. */
  seeded: SeededTenant;
};

type Fixtures = {
  /** Fails the test for errors in the console of a page, violations of its policy, and foreign requests. */
  watcher: Watcher;
  /** Signs a page in by a one-time link. */
  signIn: (page: Page, options?: SignInOptions) => Promise<void>;
  /** The page, signed in as the first tenant's owner of everything. */
  signedIn: Page;
  /** Another window, such as of another person. */
  newPage: () => Promise<Page>;
};

export const test = base.extend<Fixtures, WorkerFixtures>({
  mesh: [
    async ({}, use, { parallelIndex }) => {
      const mesh = await Mesh.get(parallelIndex);
      await use(mesh);
      await mesh.proxy.stop();
    },
    { scope: 'worker', timeout: 180_000 },
  ],

  seeded: [
    async ({ mesh }, use) => {
      await use(await mesh.seededTenant('small'));
    },
    { scope: 'worker', timeout: 180_000 },
  ],

  watcher: async ({ mesh, context }, use, testInfo) => {
    const watcher = new Watcher(mesh.url);
    await watcher.watch(context);
    await use(watcher);
    // A test that failed has told the reason already; what it saw may say why.
    if (testInfo.status === testInfo.expectedStatus) expect(watcher.problems, 'what the pages did').toEqual([]);
    else if (watcher.problems.length > 0) await testInfo.attach('problems', { body: watcher.problems.join('\n') });
  },

  // Each page is watched, whatever a test does with it.
  page: async ({ watcher, page }, use) => {
    void watcher;
    await use(page);
  },

  signIn: async ({ mesh, watcher }, use) => {
    void watcher;
    await use((page, options) => signIn(mesh, page, options));
  },

  signedIn: async ({ page, signIn }, use) => {
    await signIn(page);
    await use(page);
  },

  newPage: async ({ browser, watcher }, use, testInfo) => {
    const contexts: BrowserContext[] = [];
    await use(async () => {
      const context = await newContext(browser, testInfo.project.use);
      contexts.push(context);
      await watcher.watch(context);
      return context.newPage();
    });
    await Promise.all(contexts.map((context) => context.close()));
  },
});

function newContext(browser: Browser, { viewport, locale, timezoneId, hasTouch, isMobile }: TestInfo['project']['use']) {
  return browser.newContext({
    viewport: viewport ?? null,
    locale: locale ?? 'en-GB',
    timezoneId: timezoneId ?? 'UTC',
    hasTouch: hasTouch ?? false,
    isMobile: isMobile ?? false,
  });
}

async function signIn(mesh: Mesh, page: Page, { role = 'platform', tenant = mesh.ownTenant, path = '/' }: SignInOptions = {}) {
  // A link asks before it replaces a sign-in.
  for (const tab of page.context().pages().filter((one) => one.url().startsWith(mesh.url))) {
    await tab.evaluate(() => localStorage.removeItem('holdfast.session'));
    if (tab === page) await tab.evaluate(() => sessionStorage.removeItem('holdfast.session'));
  }
  // A page that differs only behind `#` would not be loaded.
  await page.goto('about:blank');
  await page.goto(await mesh.signInLink(tenant, role, `/console${path}`));
  await expect(page.locator('#content')).toBeVisible();
}

export { expect };
