// Tasks of somebody who looks at what agents did, and what it cost.
import type { Locator, Page } from '@playwright/test';
import { Messages } from '../../src/api/gen/holdfast/gateway/v1/messages_pb';
import { Models } from '../../src/api/gen/holdfast/gateway/v1/models_pb';
import { Runs } from '../../src/api/gen/holdfast/gateway/v1/runs_pb';
import { Sessions, type Run } from '../../src/api/gen/holdfast/gateway/v1/sessions_pb';
import type { Session } from '../api';
import { expect, test } from '../fixtures';
import { longText } from '../model';
import { task } from './task';

const AGENT = 'main';
/** What a step of the expensive answer reads, so that the prompt of the next one is long. */
const REPORT = longText(3000).replace(/(word\d*0) /g, '$1\n');

test.describe.configure({ timeout: 120_000 });

/** Says something by the API, and waits for the answer. Returns the run. */
async function say(session: Session, target: string, text: string): Promise<Run> {
  let runId = '';
  for await (const event of session.client(Messages).stream({ agent: AGENT, session: target, text })) runId = event.runId || runId;
  return (await session.client(Sessions).getRun({ runId })).run!;
}

/** Runs in the list. */
function rowsOf(page: Page): Locator {
  return page.getByRole('grid', { name: 'Runs' }).getByRole('row').filter({ has: page.getByRole('gridcell') });
}

task(
  'find why an answer cost so much',
  {
    role: 'viewer',
    maxClicks: 9,
    async prepare({ mesh, tenant }) {
      const session = await mesh.session(tenant.key);
      const card = { context: 200_000, max_output: 8192, prices: { input: 3000, output: 15_000 } };
      await session.client(Models).putModel({ model: 'scripted:one', card: JSON.stringify(card) });
      await mesh.model.answer(
        'Summarise the report',
        { text: 'I store it first.', calls: [{ tool: 'write', input: { path: 'report.txt', content: REPORT } }] },
        { text: 'Now I read it.', calls: [{ tool: 'read', input: { path: 'report.txt' } }] },
        { text: 'It counts words.' },
      );
      await say(session, 'small', 'Good morning');
      await say(session, 'large', 'Summarise the report');
      await say(session, 'small', 'Good night');
    },
  },
  async ({ person, page, mesh, tenant }) => {
    const session = await mesh.session(tenant.key);
    const { runs } = await session.client(Sessions).listRuns({});
    const expensive = runs.reduce((most, run) => (run.costMicros > most.costMicros ? run : most));

    await person.open('Usage');
    const agents = page.getByRole('grid', { name: /agent/i }).getByRole('row').filter({ hasText: AGENT });
    await person.press(agents);
    await expect(rowsOf(page)).toHaveCount(3);
    const sort = page.getByRole('grid', { name: 'Runs' }).getByRole('button', { name: /^Cost/ });
    await person.press(sort);
    await person.press(sort);
    await expect(sort.locator('xpath=..')).toHaveAttribute('aria-sort', 'descending');
    await person.press(rowsOf(page).first());
    await expect(page).toHaveURL(new RegExp(`/console/runs/${expensive.id}`));

    const tree = page.getByRole('tree', { name: 'Steps and calls of the run' });
    await person.choose(page.getByLabel('Sort by'), 'Tokens, most first');
    const { steps } = await session.client(Runs).getRunTrace({ runId: expensive.id });
    const last = steps.at(-1)!;
    const most = tree.locator('[aria-level="2"]').first();
    await expect(most).toHaveAccessibleName(new RegExp(`Step ${steps.length},`));
    await person.press(tree.getByRole('treeitem', { name: /^Model call/ }).first());
    const details = page.getByRole('region', { name: 'Details' }).or(page.getByRole('dialog'));
    await expect(details).toContainText(Number(last.model!.usage!.inputTokens).toLocaleString('en-GB'));
    await person.press(details.getByRole('tab', { name: 'Prompt' }));
    const sent = details.getByRole('group', { name: 'Tool' });
    await expect(sent.last()).toContainText('word2999', { timeout: 30_000 });

    const prompt = await session.client(Runs).renderPrompt({ runId: expensive.id, seq: last.model!.seq });
    const read = prompt.messages.filter(({ role }) => role === 'tool').at(-1)!;
    expect(await sent.last().textContent()).toBe(read.text);
  },
);

task(
  'compare two runs',
  {
    role: 'viewer',
    maxClicks: 7,
    async prepare({ mesh, tenant }) {
      const session = await mesh.session(tenant.key);
      await mesh.model.answer('Name a river', { text: 'The river is the Elbe.' });
      await say(session, 'first', 'Name a river');
      await mesh.model.answer('Name a river', { text: 'Let me see.', calls: [{ tool: 'session_status', input: {} }] }, { text: 'The river is the Danube.' });
      await say(session, 'second', 'Name a river');
      await say(session, 'third', 'Nothing to do with it');
    },
  },
  async ({ person, page, mesh, tenant }) => {
    const session = await mesh.session(tenant.key);
    const { runs } = await session.client(Sessions).listRuns({});
    const [danube, elbe] = [runs[1]!, runs[2]!];

    await person.open('Runs');
    await expect(rowsOf(page)).toHaveCount(3);
    await person.select(rowsOf(page).nth(2));
    await person.select(rowsOf(page).nth(1));
    await person.press(page.getByRole('button', { name: 'Compare two selected' }));

    const { searchParams } = new URL(page.url());
    expect([searchParams.get('a'), searchParams.get('b')]).toEqual([elbe.id, danube.id]);
    const figures = page.getByRole('table', { name: 'Numbers' });
    await expect(figures.getByRole('row', { name: /^Steps/ })).toHaveText(/1\s*2\s*\+1/);
    const [before, after] = [elbe, danube].map(({ usage }) => Number(usage!.inputTokens).toLocaleString('en-GB'));
    await expect(figures.getByRole('row', { name: /^Tokens in/ })).toContainText(`${before}`);
    await expect(figures.getByRole('row', { name: /^Tokens in/ })).toContainText(`${after}`);
    const answer = page.getByRole('group', { name: 'Answer' });
    await expect(answer).toContainText('The river is the Elbe.');
    await expect(answer).toContainText('The river is the Danube.');

    await person.press(page.getByRole('button', { name: /^Step 1 \/ 2/ }));
    await person.press(page.getByRole('button', { name: 'Compare prompts' }));
    await expect(page.getByRole('group', { name: 'Prompt' })).toContainText('session_status', { timeout: 30_000 });
  },
);
