// The list of conversations: those with people first, runs of jobs below the job's name, one's own in view.
import { Schedules } from '../src/api/gen/holdfast/gateway/v1/schedules_pb';
import { Conversation } from './conversation';
import { expect, test } from './fixtures';

const NAME = 'Water the garden';

test('runs of a job are below its name, and not among the conversations of people', async ({ page, signIn, mesh }) => {
  const tenant = await mesh.tenant('jobs');
  const schedules = (await mesh.session(tenant.key)).client(Schedules);
  const job = {
    name: NAME,
    schedule: { kind: 'every', every_ms: 86_400_000 },
    payload: { kind: 'agentTurn', message: 'Look at the weather', deliver: false },
    session_target: 'isolated',
  };
  const { job: added } = await schedules.addJob({ agent: 'main', job: JSON.stringify(job) });
  for (const count of [1, 2]) {
    await schedules.runJob({ job: added!.id, mode: 'force' });
    await expect.poll(async () => (await schedules.listJobRuns({ job: added!.id })).runs.length).toBe(count);
  }

  await signIn(page, { role: 'owner', tenant, path: '/chat' });
  const list = page.getByRole('navigation', { name: 'Conversations' });
  const whose = page.getByLabel('Whose conversations');
  await expect(list.getByText('No conversations yet')).toBeVisible();
  await whose.selectOption('With people');
  await expect(list.getByRole('button', { name: NAME })).toHaveCount(0);

  await whose.selectOption('Of jobs and tasks');
  const head = list.getByRole('button', { name: NAME });
  await expect(head).toContainText('2 runs');
  await expect(list.getByRole('link')).toHaveCount(0);
  await head.click();
  await expect(list.getByRole('link', { name: NAME })).toHaveCount(2);
  await expect(list).not.toContainText('job_');

  await page.goto(`${mesh.url}/console/runs`);
  await expect(page.locator('#content')).toContainText(NAME);
  await expect(page.locator('#content')).not.toContainText('cron:job_');
});

test('a conversation that has just begun is in view and marked, whatever was scrolled to', async ({ signedIn, mesh }) => {
  const conversation = new Conversation(signedIn, mesh);
  for (let count = 0; count < 14; count += 1) {
    await conversation.begin();
    await conversation.send(`filler ${count}`);
    await conversation.expectSaid('echo: ');
  }
  await conversation.begin();
  const list = signedIn.getByRole('list', { name: 'Conversations' });
  await list.evaluate((element) => (element.scrollTop = element.scrollHeight));
  await expect.poll(() => list.evaluate((element) => element.scrollTop)).toBeGreaterThan(0);

  await conversation.send('this one is new');
  await conversation.expectSaid('echo: ');

  const open = list.locator('a[aria-current="page"]');
  await expect(open).toHaveCount(1);
  await expect(open).toBeInViewport();
});
