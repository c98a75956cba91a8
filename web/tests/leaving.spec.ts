// Leaving a page with unsaved text, by links and by the buttons of the browser, and closing a dialog with it.
import type { Locator, Page } from '@playwright/test';
import { Knowledge } from '../src/api/gen/holdfast/gateway/v1/memories_pb';
import { Skills } from '../src/api/gen/holdfast/gateway/v1/skills_pb';
import { Chains } from '../src/api/gen/holdfast/gateway/v1/subagents_pb';
import type { Session } from './api';
import { expect, test } from './fixtures';

const QUESTION = /^dialog: confirm Leave without saving/;

/** Goes to the settings of an agent by links. */
async function openSettings(page: Page) {
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Agents' }).click();
  await page.getByRole('grid').getByText('main', { exact: true }).click();
  await expect(page.getByLabel('Description')).toBeEditable();
}

/** Answers the questions of the page, and returns how many there were. */
async function answerQuestions(page: Page, answer: boolean): Promise<() => Promise<number>> {
  await page.evaluate((answer) => {
    const counted = window as unknown as { questions: number };
    counted.questions = 0;
    window.confirm = () => {
      counted.questions += 1;
      return answer;
    };
  }, answer);
  return () => page.evaluate(() => (window as unknown as { questions: number }).questions);
}

test('the back button asks before unsaved text is lost, and the page stays', async ({ signedIn: page, mesh, watcher }) => {
  watcher.allow(QUESTION);
  await openSettings(page);
  await page.getByLabel('Description').fill('not saved');
  const address = page.url();

  // The test's watcher answers that the page may not be left.
  const asked = page.waitForEvent('dialog');
  await page.evaluate(() => history.back());
  await asked;

  await expect(page).toHaveURL(address);
  await expect(page.getByLabel('Description')).toHaveValue('not saved');
  // The history is as before: there is nothing to go forward to, and back leads to the list.
  const questions = await answerQuestions(page, true);
  await page.evaluate(() => history.forward());
  await page.goBack();
  await expect(page).toHaveURL(`${mesh.url}/console/agents`);
  expect(await questions()).toBe(1);
});

test('the back button asks after a reload too, and forward asks as well', async ({ signedIn: page, mesh, watcher }) => {
  watcher.allow(QUESTION);
  await openSettings(page);
  const address = page.url();
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Usage' }).click();
  await expect(page).toHaveURL(`${mesh.url}/console/usage`);
  await page.goBack();
  await expect(page).toHaveURL(address);
  await page.reload();
  await page.getByLabel('Description').fill('not saved');

  const questions = await answerQuestions(page, false);
  await page.evaluate(() => history.forward());
  await expect.poll(questions).toBe(1);
  await expect(page).toHaveURL(address);
  await page.evaluate(() => history.back());
  await expect.poll(questions).toBe(2);
  await expect(page).toHaveURL(address);
  await expect(page.getByLabel('Description')).toHaveValue('not saved');
});

test('nothing is asked where nothing is unsaved', async ({ signedIn: page, mesh }) => {
  await openSettings(page);
  const questions = await answerQuestions(page, false);

  await page.goBack();

  await expect(page).toHaveURL(`${mesh.url}/console/agents`);
  await page.goForward();
  await expect(page.getByLabel('Description')).toBeVisible();
  expect(await questions()).toBe(0);
});

type TextDialog = {
  name: string;
  /** Makes what the dialog shows. Returns the page that leads to it. */
  make: (session: Session) => Promise<string>;
  /** Shows the editor. */
  open: (page: Page) => Promise<void>;
};

const encode = (text: string) => new TextEncoder().encode(text);

const DIALOGS: TextDialog[] = [
  {
    name: 'a chain',
    make: async (session) => {
      const spec = JSON.stringify({ stages: [{ steps: [{ name: 'look', prompt: 'Look at {{input}}', bundle: 'read' }] }] });
      await session.client(Chains).putChain({ chain: { name: 'look-around', spec } });
      return '/agents/main/subagents';
    },
    open: (page) => page.getByRole('grid').getByText('look-around').click(),
  },
  {
    name: 'a skill',
    make: async (session) => {
      const skill = '---\nname: whistle\ndescription: How to whistle.\n---\n\n# Whistle\n';
      await session.client(Skills).putSkill({ files: [{ path: 'SKILL.md', content: encode(skill) }] });
      return '/skills';
    },
    open: async (page) => {
      await page.getByRole('grid').getByText('whistle', { exact: true }).click();
      await page.getByRole('dialog').getByRole('button', { name: 'Change' }).click();
    },
  },
  {
    name: 'an article',
    make: async (session) => {
      const article = { content: encode('# Whales\n\nThey sing.\n'), mediaType: 'text/markdown', source: 'whales.md', author: 'test', requestId: 'whales' };
      await session.client(Knowledge).ingestArticle(article);
      const { articles } = await session.client(Knowledge).listArticles({ limit: 1 });
      return `/memory/knowledge/${articles[0]!.id}`;
    },
    open: (page) => page.getByRole('dialog').getByRole('button', { name: 'Correct' }).click(),
  },
];

for (const { name, make, open } of DIALOGS) {
  test(`the dialog of ${name} asks before unsaved text is lost`, async ({ page, signIn, mesh }) => {
    const tenant = await mesh.tenant(`dialogs-${Date.now()}`);
    await signIn(page, { role: 'owner', tenant, path: await make(await mesh.session(tenant.key)) });
    await open(page);
    const field = page.getByRole('dialog').getByRole('textbox', { name: /leaves the editor/ });
    const close = page.getByRole('dialog').first().getByRole('button', { name: 'Close', exact: true });
    const question = page.getByRole('dialog', { name: 'Close without saving?' });
    await expect(field).toBeEditable();
    await field.focus();
    await page.keyboard.press('Control+Home');
    await page.keyboard.insertText('not saved ');

    // In the editor the key does what the editor does with it.
    await page.keyboard.press('Escape');
    await page.keyboard.press('Escape');
    await expect(field).toBeVisible();
    await expect(question).toBeHidden();
    const refuse = async (ask: () => Promise<void>, answer: (question: Locator) => Promise<void>) => {
      await ask();
      await expect(question).toBeVisible();
      await answer(question);
      await expect(question).toBeHidden();
      await expect(field).toContainText('not saved ');
    };
    await close.focus();
    const escape = () => page.keyboard.press('Escape');
    await refuse(escape, () => question.getByRole('button', { name: 'Go on editing' }).click());
    // Without other input in between, the browser itself would close the dialog after some presses.
    for (let press = 0; press < 4; press += 1) await refuse(escape, escape);
    await refuse(() => close.click(), escape);

    await close.click();
    await question.getByRole('button', { name: 'Close without saving' }).click();
    await expect(page.getByRole('dialog')).toHaveCount(0);
  });
}

test('a dialog whose text was not changed closes at once', async ({ page, signIn }) => {
  await signIn(page, { path: '/agents/main/subagents' });
  await page.getByRole('button', { name: 'New chain' }).click();
  await expect(page.getByRole('dialog').getByRole('textbox', { name: /^Definition/ })).toBeEditable();

  await page.getByRole('dialog').getByRole('button', { name: 'Close' }).focus();
  await page.keyboard.press('Escape');

  await expect(page.getByRole('dialog')).toHaveCount(0);
});

type Form = { name: string; path: string; button: string; field: RegExp };

const FORMS: Form[] = [
  { name: 'a memory', path: '/memory', button: 'Save a memory', field: /^Text/ },
  { name: 'a job', path: '/schedules', button: 'New job', field: /^What the agent is asked/ },
  { name: 'an MCP server', path: '/skills/mcp', button: 'New MCP server', field: /^Name/ },
];

for (const { name, path, button, field } of FORMS) {
  test(`the form of ${name} asks before what was typed is lost`, async ({ page, signIn }) => {
    await signIn(page, { path });
    await page.getByRole('button', { name: button }).first().click();
    const form = page.getByRole('dialog', { name: button });
    const question = page.getByRole('dialog', { name: 'Close without saving?' });
    await form.getByLabel(field).fill('not saved');

    await page.keyboard.press('Escape');
    await question.getByRole('button', { name: 'Go on editing' }).click();
    await expect(form.getByLabel(field)).toHaveValue('not saved');

    await page.keyboard.press('Escape');
    await question.getByRole('button', { name: 'Close without saving' }).click();
    await expect(page.getByRole('dialog')).toHaveCount(0);

    await page.getByRole('button', { name: button }).first().click();
    await expect(form).toBeVisible();
    await page.keyboard.press('Escape');
    await expect(page.getByRole('dialog')).toHaveCount(0);
  });
}

test('a form that is saved asks nothing', async ({ page, signIn }) => {
  await signIn(page, { path: '/schedules' });
  await page.getByRole('button', { name: 'New job' }).first().click();
  const form = page.getByRole('dialog', { name: 'New job' });
  await form.getByLabel(/^Name/).fill('saved at once');
  await form.getByLabel(/^What the agent is asked/).fill('Tell the time.');

  await form.getByRole('button', { name: 'Save' }).click();

  await expect(page.getByRole('dialog', { name: 'saved at once' })).toBeVisible();
  await expect(page).toHaveURL(/\/schedules\/jobs\/.+/);
});
