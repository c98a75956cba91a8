// Tasks of somebody who looks after what agents do at certain times.
import { timestampDate } from '@bufbuild/protobuf/wkt';
import { Heartbeats } from '../../src/api/gen/holdfast/gateway/v1/heartbeats_pb';
import { Schedules } from '../../src/api/gen/holdfast/gateway/v1/schedules_pb';
import { expect } from '../fixtures';
import { AGENT, session } from './agent';
import { task } from './task';

/** A time of the clock that the pages have, `2027-01-05 09:30`. */
function onClock(at: Date): string {
  const [day, time] = new Intl.DateTimeFormat('sv-SE', { dateStyle: 'short', timeStyle: 'short', timeZone: 'Europe/Berlin' }).format(at).split(' ');
  return `${day} ${time}`;
}

task(
  'move a reminder to another time',
  {
    role: 'owner',
    maxClicks: 7,
    prepare: async (args) => {
      const schedules = (await session(args)).client(Schedules);
      for (const content of ['Water the plants', 'Call the bank']) await schedules.addReminder({ user: 'owner', time: 'in 20 hours', content });
    },
  },
  async (args) => {
    const { person, page } = args;
    const wanted = `${onClock(new Date(Date.now() + 3 * 86_400_000)).split(' ')[0]} 09:30`;
    await person.open('Schedules');
    await person.showTab('Reminders');
    const reminder = page.getByRole('grid', { name: 'Reminders' }).getByRole('row').filter({ hasText: 'Water the plants' });
    await person.press(reminder.getByRole('button', { name: 'Move' }));
    const form = page.getByRole('dialog', { name: 'Move' });
    await person.write(form.getByRole('textbox', { name: /^When/ }), wanted);
    await person.press(form.getByRole('button', { name: 'Save' }));
    await expect(form).toBeHidden();
    await expect(reminder).toContainText('09:30');
    const { reminders } = await (await session(args)).client(Schedules).listReminders({ user: 'owner' });
    expect(reminders.map(({ content }) => content).toSorted()).toEqual(['Call the bank', 'Water the plants']);
    const moved = reminders.find(({ content }) => content === 'Water the plants');
    expect(onClock(timestampDate(moved!.at!))).toBe(wanted);
  },
);

task(
  'run a job now, read its log, and pause it',
  {
    role: 'owner',
    maxClicks: 6,
    prepare: async (args) => {
      const job = {
        name: 'Morning news',
        schedule: { kind: 'cron', expr: '0 8 * * *', tz: 'Europe/Berlin' },
        session_target: 'isolated',
        payload: { kind: 'agentTurn', message: 'What is new?', deliver: false },
      };
      await (await session(args)).client(Schedules).addJob({ agent: AGENT, job: JSON.stringify(job) });
    },
  },
  async (args) => {
    const { person, page } = args;
    await person.open('Schedules');
    await person.openRow(page.getByRole('grid', { name: 'Jobs' }), 'Morning news');
    const job = page.getByRole('dialog', { name: 'Morning news' });
    await expect(job).toContainText('What is new?');
    await expect(job.getByText('It has not run yet.')).toBeVisible();
    await person.press(job.getByRole('button', { name: 'Run now' }));
    const log = job.getByRole('grid', { name: 'Log' });
    await expect(log.getByRole('gridcell', { name: 'OK' })).toBeVisible({ timeout: 30_000 });
    await person.press(job.getByRole('button', { name: 'Pause' }));
    await expect(job.getByRole('button', { name: 'Resume' })).toBeVisible();
    const schedules = (await session(args)).client(Schedules);
    const { jobs } = await schedules.listJobs({});
    expect(jobs).toMatchObject([{ name: 'Morning news', state: 'paused' }]);
    const { runs } = await schedules.listJobRuns({ job: jobs[0]!.id });
    expect(runs).toMatchObject([{ status: 'ok', origin: 'forced' }]);

    await person.openRow(log, 'OK');
    await expect(page).toHaveURL(new RegExp(`/runs/${runs[0]!.runId}`));
    await expect(page.locator('#content')).toContainText('What is new?');
  },
);

task('turn the heartbeat of an agent off', { role: 'owner', maxClicks: 4 }, async (args) => {
  const { person, page } = args;
  const enabled = async () => (await (await session(args)).client(Heartbeats).getHeartbeat({ agent: AGENT })).enabled;
  expect(await enabled()).toBe(true);
  await person.open('Schedules');
  await person.showTab('Heartbeats');
  const heartbeat = page.getByRole('switch', { name: 'On' });
  await expect(heartbeat).toBeChecked();
  await person.toggle(heartbeat);
  await expect(heartbeat).not.toBeChecked();
  await expect(page.getByText('Saved', { exact: true })).toBeVisible();
  expect(await enabled()).toBe(false);
});
