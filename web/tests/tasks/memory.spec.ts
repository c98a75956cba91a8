// Tasks of somebody who looks after what agents know.
import { Knowledge, Memories } from '../../src/api/gen/holdfast/gateway/v1/memories_pb';
import { expect } from '../fixtures';
import { AGENT, session } from './agent';
import { task } from './task';

const WRONG = 'The key of the allotment is below the third flower pot.';
const RIGHT = 'The allotment is watered on Mondays.';

task(
  'search for a memory, read why it was found, and have it forgotten',
  {
    role: 'owner',
    maxClicks: 6,
    prepare: async (args) => {
      const memories = (await session(args)).client(Memories);
      for (const text of [WRONG, RIGHT, 'Ann prefers tea.']) await memories.saveMemory({ agent: AGENT, text, type: 'fact' });
    },
  },
  async (args) => {
    const { person, page } = args;
    const query = 'key of the allotment';
    await person.open('Memory');
    await person.write(page.getByRole('searchbox', { name: 'Search by meaning and words' }), query);
    const found = page.getByRole('grid', { name: 'Memories' });
    await expect(found.getByRole('row').filter({ hasText: WRONG })).toContainText('Meaning');
    await person.openRow(found, WRONG);
    const memory = page.getByRole('dialog');
    await expect(memory).toContainText(WRONG);
    await expect(memory.getByText(/^Why it was found: Meaning [\d.]+\s?%, Words (?!0\.00)\d/)).toBeVisible();
    await person.press(memory.getByRole('button', { name: 'Forget' }));
    await person.press(page.getByRole('dialog', { name: 'Forget this?' }).getByRole('button', { name: 'Forget' }));
    await expect(found.getByText(WRONG)).toHaveCount(0);
    await expect(found.getByText(RIGHT)).toHaveCount(1);
    const { found: left } = await (await session(args)).client(Memories).searchMemories({ agent: AGENT, query, limit: 10 });
    const texts = left.map(({ memory: one }) => one?.text);
    expect(texts).toContain(RIGHT);
    expect(texts).not.toContain(WRONG);
  },
);

task('upload documents and find what one says', { role: 'owner', maxClicks: 6 }, async (args) => {
  const { person, page } = args;
  const passage = 'The chimney is swept each September by Miller and Sons.';
  const documents = [
    { name: 'garden.md', mimeType: 'text/markdown', buffer: Buffer.from('# Garden\n\nThe hedge is cut in June.\n') },
    { name: 'house.md', mimeType: 'text/markdown', buffer: Buffer.from(`# House\n\n## Heating\n\n${passage}\n`) },
  ];
  // The second document waits, so that the progress can be read.
  let goOn = () => {};
  const mayGoOn = new Promise<void>((resolve) => (goOn = resolve));
  let sent = 0;
  await page.route('**/IngestArticle', async (route) => {
    sent += 1;
    if (sent === 2) await mayGoOn;
    await route.continue();
  });

  await person.open('Memory');
  await person.showTab('Knowledge');
  await person.chooseFiles(page.getByRole('button', { name: 'Upload' }), documents);
  await expect(page.getByRole('progressbar', { name: 'Upload' })).toHaveAttribute('aria-valuetext', '1 of 2: house.md');
  goOn();
  await expect(page.getByText('Uploaded', { exact: true })).toBeVisible();
  await expect(page.getByRole('progressbar')).toBeHidden();
  await expect(page.getByRole('grid', { name: 'Knowledge' }).getByRole('row').filter({ hasText: 'House' })).toBeVisible();

  await person.write(page.getByRole('searchbox', { name: 'Search by meaning and words' }), 'who sweeps the chimney');
  const hit = page.getByRole('listitem').filter({ hasText: passage });
  await expect(hit).toContainText('Why it was found: Meaning');
  await person.press(hit.getByRole('button', { name: 'House › Heating', exact: true }));
  await expect(page.getByRole('dialog', { name: 'House' })).toContainText(passage);
  const { found } = await (await session(args)).client(Knowledge).searchArticles({ query: 'chimney', limit: 5 });
  expect(found[0]).toMatchObject({ title: 'House', headings: ['House', 'Heating'] });
});
