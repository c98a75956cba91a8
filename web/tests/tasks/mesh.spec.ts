// Tasks of operators of the installation.
import { Tenants } from '../../src/api/gen/holdfast/gateway/v1/control_pb';
import { Mesh as MeshReport } from '../../src/api/gen/holdfast/gateway/v1/mesh_pb';
import { Messages } from '../../src/api/gen/holdfast/gateway/v1/messages_pb';
import { Runs } from '../../src/api/gen/holdfast/gateway/v1/runs_pb';
import { Sessions } from '../../src/api/gen/holdfast/gateway/v1/sessions_pb';
import { expect, test } from '../fixtures';
import type { Tenant } from '../mesh';
import { eventually } from '../processes';
import { task, type TaskArguments } from './task';

const THINKING_MS = 120_000;

// The gateway notices a suspension within five seconds, and by keyboard there are many fields to pass.
test.describe.configure({ timeout: 120_000 });

let unique = 0;

/** A name that no other test has. */
function newName(kind: string): string {
  unique += 1;
  return `${kind}-${Date.now()}-${unique}`;
}

const session = ({ mesh, tenant }: TaskArguments) => mesh.session(tenant.key);

test.describe('while sessions wait', () => {
  let thinking: string;
  let waiting: Tenant;
  let end: () => Promise<unknown> = () => Promise.resolve();

  test.afterEach(() => end());

  /** A session of the operator is worked on; of another tenant, which has one turn at a time, a session waits. */
  async function keepBusy(args: TaskArguments) {
    const { mesh } = args;
    const own = await session(args);
    [thinking, waiting] = [newName('thinking'), await mesh.tenant(newName('waiting'))];
    await mesh.model.answer('Think about', { hang_ms: THINKING_MS });
    await own.client(Tenants).updateTenant({ tenant: { name: waiting.name, cap: 1 } });
    const other = await mesh.session(waiting.key);
    const sent = [[own, thinking], [other, 'first'], [other, 'second']] as const;
    for (const [one, name] of sent) await one.client(Messages).send({ session: name, text: `Think about ${name}.` });
    end = () => Promise.all(sent.map(([one, name]) => one.client(Messages).cancel({ session: name })));
    await eventually('one waits', async () => {
      const { queues } = await own.client(MeshReport).getMesh({});
      return queues.some(({ name, waiting }) => name === 'sessions' && waiting > 0n) && (await runnerOf(args));
    });
  }

  async function runnerOf(args: TaskArguments): Promise<string | undefined> {
    const { activities } = await (await session(args)).client(Runs).listActivity({ limit: 200 });
    return activities.find(({ session }) => session?.key.endsWith(thinking))?.runnerId;
  }

  task('find the oldest wait, and the runner of a session', { role: 'platform', maxClicks: 6, prepare: keepBusy }, async (args) => {
    const { person, page } = args;
    await person.open('Mesh');
    const queue = page.getByRole('table').filter({ hasText: 'Oldest wait' }).getByRole('row', { name: /^Sessions/ });
    await expect(queue.getByRole('cell').first()).toHaveText(/^[1-9]/);
    await expect(queue.getByRole('cell').nth(2)).toHaveText(/^\d.* (ms|s|min)$/);

    await person.open('Now');
    const row = page.getByRole('listitem').filter({ has: page.getByRole('link', { name: new RegExp(thinking) }) });
    await expect(row).toContainText(/runner \S+/);
    const shown = /runner (\S+)/.exec(await row.innerText())![1]!;
    expect(shown).toBe(await runnerOf(args));

    await person.open('Mesh');
    const runner = page.getByRole('region', { name: 'agent-runner' }).getByRole('listitem').filter({ hasText: shown });
    await expect(runner).toContainText('Running');
    await expect(runner.getByRole('progressbar', { name: 'Sessions' })).toHaveAttribute('aria-valuenow', /^[1-9]/);
    const { sessions } = await (await args.mesh.session(waiting.key)).client(Sessions).listSessions({ limit: 10 });
    expect(sessions.map(({ key }) => key.split(':').at(-1)).sort()).toEqual(['first', 'second']);
  });
});

task('create a tenant with a plan, suspend it, and resume it', { role: 'platform', maxClicks: 18 }, async (args) => {
  const { person, page, mesh } = args;
  const [plan, name] = [newName('plan'), newName('customer')];
  await person.open('Mesh');
  await person.showTab('Plans');
  await person.press(page.getByRole('button', { name: 'New plan' }));
  const planForm = page.getByRole('dialog', { name: 'New plan' });
  await person.write(planForm.getByLabel('Name'), plan);
  await person.write(planForm.getByLabel('Tokens a day'), '50000');
  await person.press(planForm.getByRole('button', { name: 'Save' }));
  await expect(page.getByRole('grid', { name: 'Plans' }).getByText(plan)).toBeVisible();

  await person.showTab('Tenants');
  await person.press(page.getByRole('button', { name: 'New tenant' }));
  const form = page.getByRole('dialog', { name: 'New tenant' });
  await person.write(form.getByLabel('Name'), name);
  await person.choose(form.getByLabel('Plan'), plan);
  await person.press(form.getByRole('button', { name: 'New tenant' }));
  const shown = page.getByRole('dialog', { name: 'First key of the tenant' });
  const secret = (await shown.getByRole('group', { name: 'First key of the tenant' }).last().innerText()).trim();
  await person.press(shown.getByRole('button', { name: 'Done' }));
  const tenants = (await session(args)).client(Tenants);
  expect((await tenants.getTenant({ tenant: name })).tenant).toMatchObject({ plan, state: 'active', limits: { tokensPerDay: 50_000n } });
  const call = () => mesh.command(['agents', 'list'], secret).then(() => 'accepted', (error: Error) => error.message);
  expect(await call()).toBe('accepted');

  await person.write(page.getByLabel('Search tenants'), name);
  await person.openRow(page.getByRole('grid', { name: 'Tenants' }), name);
  const details = page.getByRole('dialog', { name });
  await expect(details.getByText('50,000')).toBeVisible();
  await person.press(details.getByRole('button', { name: 'Suspend' }));
  await person.press(page.getByRole('dialog', { name: `Suspend ${name}?` }).getByRole('button', { name: 'Suspend' }));
  await expect(details.getByText('Suspended', { exact: true })).toBeVisible();
  await expect.poll(call, { timeout: 15_000 }).toContain('suspended');

  await person.press(details.getByRole('button', { name: 'Activate' }));
  await expect(details.getByText('Active', { exact: true })).toBeVisible();
  await expect.poll(call, { timeout: 15_000 }).toBe('accepted');
});
