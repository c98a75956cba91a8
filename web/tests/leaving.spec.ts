// Leaving a page with unsaved text, by links and by the buttons of the browser.
import type { Page } from '@playwright/test';
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
