// Hostile contents on every page: nothing of it runs, and nothing is loaded from elsewhere.
import type { Page } from '@playwright/test';
import { details } from './details';
import { expect, test } from './fixtures';
import { makeHostileTenant, type HostileTenant } from './hostile-tenant';
import { PAGES } from './routes';
import { settled } from './settled';

let tenant: HostileTenant;

test.beforeAll(async ({ mesh }) => {
  tenant = await makeHostileTenant(mesh);
});

/** Fails for elements that only hostile contents bring. */
async function expectHarmless(page: Page, name: string) {
  const found = await page.evaluate(() => {
    const all = (selector: string) => [...document.querySelectorAll(selector)];
    const problems: string[] = [];
    const report = (what: string, elements: Element[]) => {
      for (const element of elements) problems.push(`${what}: ${element.outerHTML.slice(0, 200)}`);
    };
    report('a script', all('script').filter((script) => !(script as HTMLScriptElement).src.startsWith(`${location.origin}/console/`)));
    report('a handler', all('[onerror], [onload], [onclick], [onmouseover]'));
    report('an element of contents', all('base, object, embed, meta[http-equiv="refresh"], form[action]'));
    report('a frame without a sandbox', all('iframe:not([sandbox])'));
    report('a frame with a sandbox of this origin', all('iframe[sandbox*="allow-same-origin"]'));
    const links = all('a[href]') as HTMLAnchorElement[];
    report('a link that runs', links.filter(({ protocol }) => !['http:', 'https:', 'mailto:'].includes(protocol)));
    report('a link that tells where it was', links.filter((link) => link.origin !== location.origin && !/noopener.*noreferrer|noreferrer.*noopener/.test(link.rel)));
    const foreign = ({ src }: HTMLImageElement) => !src.startsWith(`${location.origin}/`) && !src.startsWith('blob:') && !/^data:image\/(png|jpeg|gif|webp);/.test(src);
    report('a picture from elsewhere', (all('img') as HTMLImageElement[]).filter(foreign));
    const root = document.documentElement;
    if (root.scrollWidth > root.clientWidth) problems.push(`it scrolls sideways: ${root.scrollWidth} px of ${root.clientWidth}`);
    return problems;
  });
  expect(found, name).toEqual([]);
}

async function visit(page: Page, url: string) {
  await page.goto(url);
  await expect(page.locator('#content')).toBeVisible();
  await settled(page);
  await expectHarmless(page, url);
}

for (const route of PAGES.filter(({ right }) => right !== 'platform')) {
  test(`hostile contents on ${route.path}`, async ({ page, signIn, mesh }) => {
    await signIn(page, { role: 'owner', tenant });
    await visit(page, `${mesh.url}/console${route.path}`);
    // What is behind the rows and tabs of the page.
    const content = page.locator('#content');
    const targets = content.locator('a[href^="/console/"], [role="tab"], [role="row"] a, summary, button[aria-expanded="false"]');
    for (let number = 0; number < Math.min(await targets.count(), 20); number += 1) {
      const target = targets.nth(number);
      if (!(await target.isVisible())) continue;
      await target.click({ timeout: 5000 });
      await settled(page);
      await expectHarmless(page, `${page.url()} by ${number}`);
      if (page.url() !== `${mesh.url}/console${route.path}`) await visit(page, `${mesh.url}/console${route.path}`);
      else await page.keyboard.press('Escape');
    }
  });
}

test('hostile contents on the pages of things', async ({ page, signIn, mesh }) => {
  test.setTimeout(600_000);
  const { routes, missing } = await details(await mesh.session(tenant.key));
  expect(missing, 'things that the tenant lacks').toEqual([]);
  await signIn(page, { role: 'owner', tenant });
  for (const { path } of routes) await visit(page, `${mesh.url}/console${path}`);
});

test('hostile conversations are shown as they were written', async ({ page, signIn, mesh }) => {
  await signIn(page, { role: 'owner', tenant });
  for (const session of tenant.sessions) {
    await visit(page, `${mesh.url}/console/chat/${session}`);
    await expect(page.locator('#content')).toContainText(`<script>pwned('script')</script>`);
  }
});

test('hostile names in the address are only text', async ({ page, signIn, mesh }) => {
  await signIn(page, { role: 'owner', tenant });
  const name = encodeURIComponent(`<img src=x onerror="pwned('address')">`);
  for (const path of ['chat', 'agents', 'runs', 'skills', 'nothing']) {
    await visit(page, `${mesh.url}/console/${path}/${name}?search=${name}&tab=${name}`);
  }
});
