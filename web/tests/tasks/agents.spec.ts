// Tasks of somebody who develops an agent.
import { readFileSync } from 'node:fs';
import { Agents } from '../../src/api/gen/holdfast/gateway/v1/control_pb';
import { Behaviors } from '../../src/api/gen/holdfast/gateway/v1/behaviors_pb';
import { Files } from '../../src/api/gen/holdfast/gateway/v1/files_pb';
import { Packages } from '../../src/api/gen/holdfast/gateway/v1/skills_pb';
import { Policies } from '../../src/api/gen/holdfast/gateway/v1/policies_pb';
import { Sessions } from '../../src/api/gen/holdfast/gateway/v1/sessions_pb';
import { answers, Conversation } from '../conversation';
import { expect } from '../fixtures';
import { AGENT, openAgent, session } from './agent';
import { task, type TaskArguments } from './task';

const textOf = (content: Uint8Array) => new TextDecoder().decode(content);

async function writeFile(args: TaskArguments, path: string, text: string) {
  const files = (await session(args)).client(Files);
  await files.writeFile({ agent: AGENT, path, content: new TextEncoder().encode(text), requestId: crypto.randomUUID() });
}

async function readFile(args: TaskArguments, path: string): Promise<string> {
  const { content } = await (await session(args)).client(Files).readFile({ agent: AGENT, path });
  return textOf(content);
}

task('create an agent from a template and talk to it', { role: 'owner', maxClicks: 8 }, async (args) => {
  const { person, page, mesh } = args;
  await person.open('Agents');
  await person.press(page.getByRole('button', { name: 'New agent' }));
  const form = page.getByRole('dialog', { name: 'New agent' });
  await person.pick(form.getByRole('radio', { name: /^Study coach/ }));
  await person.write(form.getByRole('textbox', { name: /^Name/ }), 'trainer');
  await person.press(form.getByRole('button', { name: 'New agent' }));
  await expect(page.getByRole('heading', { level: 1, name: 'trainer' })).toBeVisible();

  await person.press(page.getByRole('link', { name: 'Chat with it' }));
  const conversation = new Conversation(page, mesh);
  await person.write(conversation.field, 'How do I begin?');
  await page.keyboard.press('Enter');
  await conversation.expectSaid('echo: How do I begin?');

  const signedIn = await session(args);
  const [{ agent }, { templates }] = await Promise.all([
    signedIn.client(Agents).getAgent({ agent: 'trainer' }),
    signedIn.client(Agents).listAgentTemplates({}),
  ]);
  const template = templates.find(({ title }) => title.startsWith('Study coach'))?.agent;
  expect(agent).toMatchObject({ description: template?.description, instructions: template?.instructions, tools: template?.tools });
  const id = await conversation.session();
  const { session: talk } = await signedIn.client(Sessions).getSession({ session: id });
  expect(talk?.agent).toBe('trainer');
  expect(await answers(signedIn, id)).toEqual(['echo: How do I begin?']);
});

const NOTES = 'notes/plan.md';

task(
  'change a file, see the difference, and restore the earlier version',
  { role: 'owner', maxClicks: 13, prepare: (args) => writeFile(args, NOTES, '# Plan\n\nFirst the roof.\n') },
  async (args) => {
    const { person, page } = args;
    await openAgent(args, 'Files');
    await person.openEntry(page.getByRole('tree', { name: 'Files' }), 'plan.md');
    const editor = page.getByRole('textbox', { name: NOTES });
    await expect(editor).toContainText('First the roof.');
    await person.write(editor, '# Plan\n\nFirst the cellar.\n');
    await person.press(page.getByRole('button', { name: 'Save', exact: true }));
    await expect(page.getByText('Saved as a new revision')).toBeVisible();
    expect(await readFile(args, NOTES)).toBe('# Plan\n\nFirst the cellar.\n');

    await person.press(page.getByRole('button', { name: 'History', exact: true }).last());
    const history = page.getByRole('dialog', { name: `History of ${NOTES}` });
    await person.press(history.getByRole('button', { name: 'What it changed' }).first());
    const difference = history.getByRole('group', { name: 'Difference' });
    await expect(difference.getByRole('row').filter({ hasText: 'First the roof.' })).toContainText('removed');
    await expect(difference.getByRole('row').filter({ hasText: 'First the cellar.' })).toContainText('added');

    await person.press(history.getByRole('button', { name: 'Restore' }));
    await person.press(page.getByRole('dialog', { name: /^Restore notes/ }).getByRole('button', { name: 'Restore' }));
    await expect(history).toBeHidden();
    await expect(editor).toContainText('First the roof.');
    expect(await readFile(args, NOTES)).toBe('# Plan\n\nFirst the roof.\n');
    const { revisions } = await (await session(args)).client(Files).getFileLog({ agent: AGENT, path: NOTES, limit: 10 });
    expect(revisions, 'nothing is lost').toHaveLength(3);
  },
);

task(
  'find why an agent may not use a tool, and allow it',
  {
    role: 'owner',
    maxClicks: 12,
    prepare: async (args) => {
      await (await session(args)).client(Policies).putPolicy({ agent: AGENT, document: '{"deny": ["web_fetch"]}' });
    },
  },
  async (args) => {
    const { person, page } = args;
    await openAgent(args, 'Tools');
    await person.write(page.getByRole('searchbox', { name: 'Search tools' }), 'web_fetch');
    const tools = page.getByRole('grid', { name: 'Tools' });
    await person.openRow(tools, /^web_fetch$/);
    const reason = page.getByRole('dialog', { name: 'web_fetch' });
    await expect(reason).toContainText('Denied by layer 5: the policy of the agent');
    await expect(reason).toContainText('entry web_fetch of agent.tools.deny');
    await page.keyboard.press('Escape');
    await expect(reason).toBeHidden();

    await person.showTab('Policy of the agent', page.getByRole('tablist', { name: 'Tools and rules' }));
    const editor = page.getByRole('textbox', { name: 'Policy' });
    await expect(editor).toContainText('web_fetch');
    await person.write(editor, '{"deny": []}');
    await expect(page.getByText('The policy is valid.')).toBeVisible();
    await person.press(page.getByRole('button', { name: 'Save', exact: true }));
    await expect(page.getByText('The policy is saved')).toBeVisible();

    await person.showTab('Tools', page.getByRole('tablist', { name: 'Tools and rules' }));
    await expect(tools.getByRole('row').filter({ has: page.getByRole('gridcell', { name: 'web_fetch', exact: true }) })).toContainText('Allowed');
    const { decisions } = await (await session(args)).client(Policies).explainTools({ agent: AGENT });
    expect(decisions.find(({ tool }) => tool === 'web_fetch')?.decision).toBe('allow');
  },
);

task('give an agent another model', { role: 'owner', maxClicks: 8 }, async (args) => {
  const { person, page } = args;
  await openAgent(args, 'Overview');
  await person.write(page.getByRole('combobox', { name: 'Model', exact: true }), 'scripted:two');
  await person.press(page.getByRole('button', { name: 'Save', exact: true }).first());
  await expect(page.getByText('Saved: it takes effect with the next turn')).toBeVisible();
  const { agent } = await (await session(args)).client(Agents).getAgent({ agent: AGENT });
  expect(agent?.model).toBe('scripted:two');
  await person.open('Agents');
  await expect(page.getByRole('row').filter({ hasText: AGENT })).toContainText('scripted:two');
});

const WRONG = 'description: Greets people.\nproces_rule: |\n  Greet whoever wrote in one sentence, and end.\n';
const RIGHT = WRONG.replace('proces_rule', 'process_rule');

task('write a behaviour with a mistake, correct it, look at its prompt, and save it', { role: 'owner', maxClicks: 13 }, async (args) => {
  const { person, page } = args;
  await openAgent(args, 'Behaviours');
  await person.press(page.getByRole('button', { name: 'New behaviour' }));
  await person.write(page.getByLabel('Name', { exact: true }), 'greet');
  const editor = page.getByRole('textbox', { name: 'Document' });
  await person.write(editor, WRONG);
  await expect(page.getByText(/proces_rule/).and(page.locator('p'))).toBeVisible();
  await expect(page.getByRole('button', { name: 'Save', exact: true })).toBeDisabled();
  await person.write(editor, RIGHT);
  await expect(page.getByText('The document is valid.')).toBeVisible();

  const parts = page.getByRole('tablist', { name: 'Parts of the behaviour' });
  await person.showTab('Try', parts);
  await person.write(page.getByLabel('Message', { exact: true }), 'Hello, I am Ann.');
  await person.press(page.getByRole('button', { name: 'Show the prompt' }));
  const prompt = page.getByRole('region', { name: 'Prompt' });
  await expect(prompt).toContainText('Greet whoever wrote in one sentence, and end.');
  await expect(prompt).toContainText('Hello, I am Ann.');

  await person.showTab('Document', parts);
  await person.press(page.getByRole('button', { name: 'Save', exact: true }));
  await expect(page.getByRole('heading', { name: 'greet' })).toBeVisible();
  const { behavior } = await (await session(args)).client(Behaviors).getBehavior({ agent: AGENT, name: 'greet' });
  expect(behavior).toMatchObject({ layer: 'agent', source: RIGHT, error: '' });
});

task(
  'be told that somebody else changed the file meanwhile',
  { role: 'owner', prepare: (args) => writeFile(args, NOTES, '# Plan\n\nFirst the roof.\n') },
  async (args) => {
    const { person, page } = args;
    await openAgent(args, 'Files');
    await person.openEntry(page.getByRole('tree', { name: 'Files' }), 'plan.md');
    const editor = page.getByRole('textbox', { name: NOTES });
    await expect(editor).toContainText('First the roof.');
    const theirs = '# Plan\n\nFirst the windows.\n';
    await person.write(editor, '# Plan\n\nFirst the cellar.\n');
    await writeFile(args, NOTES, theirs);
    await person.press(page.getByRole('button', { name: 'Save', exact: true }));
    await expect(page.getByRole('alert').filter({ hasText: 'Somebody else saved this file meanwhile' })).toBeVisible();
    const difference = page.getByRole('group', { name: 'Difference' });
    await expect(difference.getByRole('row').filter({ hasText: 'First the windows.' })).toContainText('removed');
    await expect(difference.getByRole('row').filter({ hasText: 'First the cellar.' })).toContainText('added');
    expect(await readFile(args, NOTES), 'nothing is overwritten').toBe(theirs);

    await person.press(page.getByRole('button', { name: 'Take the stored text' }));
    await expect(editor).toContainText('First the windows.');
    await expect(page.getByText('not saved')).toBeHidden();
    expect(await readFile(args, NOTES)).toBe(theirs);
  },
);

task(
  'take an agent elsewhere as a package',
  {
    role: 'owner',
    prepare: async (args) => {
      const agent = { name: 'travel', description: 'Plans journeys.', instructions: 'You plan journeys.', tools: ['web_search'] };
      await (await session(args)).client(Agents).createAgent({ agent });
    },
  },
  async (args) => {
    const { person, page } = args;
    await openAgent(args, 'Overview', 'travel');
    const downloaded = page.waitForEvent('download');
    await person.chooseAction(page.getByRole('button', { name: 'Actions for travel' }), 'Export as a package');
    const download = await downloaded;
    expect(download.suggestedFilename()).toBe('travel.skill.yaml');
    const text = readFileSync(await download.path(), 'utf8');
    const { text: exported } = await (await session(args)).client(Packages).exportAgent({ agent: 'travel' });
    expect(text).toBe(exported);

    await person.open('Agents');
    await person.press(page.getByRole('button', { name: 'Import a package' }));
    const form = page.getByRole('dialog', { name: 'Import a package' });
    const file = (content: string) => ({ name: 'travel.skill.yaml', mimeType: 'application/yaml', buffer: Buffer.from(content) });
    await person.chooseFiles(form.getByLabel('Package (.skill.yaml)'), file(text));
    await person.press(form.getByRole('button', { name: 'Import a package' }));
    await expect(page.getByText(/travel.* (is|exists)/)).toBeVisible();

    await person.write(form.getByLabel('Text of the package'), text.replace(/^( +id: ).*$/m, '$1travel-two'));
    await person.press(form.getByRole('button', { name: 'Import a package' }));
    await expect(page.getByRole('heading', { level: 1, name: 'travel-two' })).toBeVisible();
    const { agent } = await (await session(args)).client(Agents).getAgent({ agent: 'travel-two' });
    expect(agent).toMatchObject({ instructions: 'You plan journeys.', tools: ['web_search'] });
  },
);
