// A task that a person does in the console. Its clicks, keys and time are written to
// test-results/tasks.md.
import type { Page } from '@playwright/test';
import type { Mesh, Tenant } from '../mesh';
import { test, type SignInOptions } from '../fixtures';
import { Person, type Means } from './person';
import { addTask } from './table';

const COUNT = 'countInput';

export type TaskArguments = {
  /** Uses the page; tasks do nothing to it by other means. */
  person: Person;
  page: Page;
  mesh: Mesh;
  tenant: Tenant;
  /** Another window, such as of another person. */
  newPage: () => Promise<Page>;
};

export type TaskOptions = SignInOptions & {
  /** A tenant with contents: the one that all tests read, or one that only this task has. */
  seeded?: boolean | 'own';
  /** More clicks than this, without the keyboard, fail the task. */
  maxClicks?: number;
  /** Longer than this fails the task. */
  maxSeconds?: number;
  /** The person signs in as a part of the task. */
  isSignedOut?: boolean;
  /** What has to be there before the person begins; it is neither counted nor timed. */
  prepare?: (args: TaskArguments) => Promise<void>;
};

let tenants = 0;

/** Declares a task: `task('stop a run that goes on', {}, async ({ person, page }) => …)`. */
export function task(name: string, options: TaskOptions, run: (args: TaskArguments) => Promise<void>) {
  test(name, async ({ page, mesh, signIn, newPage }, testInfo) => {
    const tenant = options.tenant ?? (await tenantFor(mesh, options));
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
    const args = { person: new Person(page, testInfo.project.metadata['means'] as Means), page, mesh, tenant, newPage };
    await mesh.model.forget();
    await options.prepare?.(args);
    if (!options.isSignedOut) await signIn(page, { ...options, tenant });
    Object.assign(counts, { click: 0, keydown: 0 });

    const begun = performance.now();
    await run(args);
    const seconds = (performance.now() - begun) / 1000;

    addTask({ task: name, project: testInfo.project.name, clicks: counts.click, keys: counts.keydown, seconds });
    const { maxClicks = Infinity, maxSeconds = Infinity } = options;
    if (args.person.means !== 'keyboard') test.expect(counts.click, 'clicks').toBeLessThanOrEqual(maxClicks);
    test.expect(seconds, 'seconds').toBeLessThanOrEqual(maxSeconds);
  });
}

function tenantFor(mesh: Mesh, { role, seeded }: TaskOptions): Promise<Tenant> | Tenant {
  // No other tenant has operators of the installation.
  if (role === 'platform') return mesh.ownTenant;
  if (seeded === true) return mesh.seededTenant('small');
  tenants += 1;
  const name = `task-${Date.now()}-${tenants}`;
  return seeded ? mesh.newSeededTenant(name) : mesh.tenant(name);
}
