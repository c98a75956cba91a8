// A task that a person does in the console. Its clicks, keys and time are written to
// test-results/tasks.md.
import type { Page } from '@playwright/test';
import type { Mesh, Tenant } from '../mesh';
import { test, type SignInOptions } from '../fixtures';
import { addTask } from './table';

const COUNT = 'countInput';

export type TaskArguments = {
  page: Page;
  mesh: Mesh;
  tenant: Tenant;
};

export type TaskOptions = SignInOptions & {
  /** A tenant with contents instead of one of its own. */
  seeded?: boolean;
  /** More clicks than this fail the task. */
  maxClicks?: number;
  /** Longer than this fails the task. */
  maxSeconds?: number;
  /** What has to be there before the person begins; it is neither counted nor timed. */
  prepare?: (args: TaskArguments) => Promise<void>;
};

let tenants = 0;

/** Declares a task: `task('stop a run that goes on', async ({ page }) => …)`. */
export function task(name: string, options: TaskOptions, run: (args: TaskArguments) => Promise<void>) {
  test(name, async ({ page, mesh, signIn }, testInfo) => {
    tenants += 1;
    const tenant = options.tenant ?? (options.seeded ? await mesh.seededTenant('small') : await mesh.tenant(`task-${Date.now()}-${tenants}`));
    const counts = { click: 0, keydown: 0 };
    await page.exposeFunction(COUNT, (kind: keyof typeof counts) => {
      counts[kind] += 1;
    });
    await page.addInitScript((count) => {
      for (const kind of ['click', 'keydown']) {
        const listen = (event: Event) => {
          if (event.isTrusted && !(event as KeyboardEvent).repeat) (window as unknown as Record<string, (kind: string) => void>)[count]!(kind);
        };
        addEventListener(kind, listen, { capture: true });
      }
    }, COUNT);
    const args = { page, mesh, tenant };
    await options.prepare?.(args);
    await signIn(page, { ...options, tenant });
    Object.assign(counts, { click: 0, keydown: 0 });

    const begun = performance.now();
    await run(args);
    const seconds = (performance.now() - begun) / 1000;

    addTask({ task: name, project: testInfo.project.name, clicks: counts.click, keys: counts.keydown, seconds });
    const { maxClicks = Infinity, maxSeconds = Infinity } = options;
    test.expect(counts.click, 'clicks').toBeLessThanOrEqual(maxClicks);
    test.expect(seconds, 'seconds').toBeLessThanOrEqual(maxSeconds);
  });
}
