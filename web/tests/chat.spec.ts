import { answers, Conversation } from './conversation';
import { expect, test } from './fixtures';
import { longText } from './model';
import { ThinkingModel } from './thinking';

test('an answer is shown while it is written, and a reload keeps it', async ({ signedIn, mesh }) => {
  const conversation = new Conversation(signedIn, mesh);
  const text = longText(120);
  await mesh.model.answer('Count for me', { text, pieces: 60, pace_ms: 50 });
  await conversation.begin();

  await conversation.send('Count for me');
  await conversation.expectSaid('word5 ', 5);
  await expect(conversation.log).not.toContainText('word119');
  await expect(conversation.log).toContainText('word119', { timeout: 20_000 });

  const session = await mesh.session(mesh.key);
  const id = await conversation.session();
  await expect.poll(() => answers(session, id)).toEqual([text]);
  await signedIn.reload();
  await expect(conversation.log).toContainText('Count for me');
  await expect(conversation.log).toContainText(text);
});

test('a tool call is shown with its result', async ({ signedIn, mesh }) => {
  const conversation = new Conversation(signedIn, mesh);
  const write = { tool: 'write', input: { path: 'list.txt', content: 'milk and bread' } };
  await mesh.model.answer('Write a list', { text: 'I write it.', calls: [write] }, { text: 'The list is written.' });
  await conversation.begin();

  await conversation.send('Write a list');

  await conversation.expectSaid('The list is written.');
  await conversation.expectSaid('write');
});

test('a call that waits for an approval is allowed in the conversation', async ({ signedIn, mesh }) => {
  const conversation = new Conversation(signedIn, mesh);
  const write = { tool: 'write', input: { path: 'role.md', content: `# Role of ${Date.now()}` } };
  await mesh.model.answer('Change your role', { text: 'May I?', calls: [write] }, { text: 'My role is changed.' });
  await conversation.begin();

  await conversation.send('Change your role');
  await signedIn.getByRole('button', { name: /^Allow( once)?$/ }).first().click();

  await conversation.expectSaid('My role is changed.');
});

test('a model that fails is named with what to do, and the next message works', async ({ signedIn, mesh }) => {
  const conversation = new Conversation(signedIn, mesh);
  await mesh.model.answer('Fail please', { status: 400 });
  await conversation.begin();

  await conversation.send('Fail please');
  await expect(signedIn.locator('#content')).toContainText('could not answer', { timeout: 20_000 });
  await mesh.model.forget();
  await conversation.send('and now?');

  await conversation.expectSaid('echo: ');
});

test('what the model thinks is shown while it thinks, to those who ask for it', async ({ page, signIn, mesh }) => {
  const model = await ThinkingModel.start('First I look at the sky. Then I decide.', 'Take an umbrella.');
  try {
    const tenant = await mesh.tenant(`thinking-${Date.now()}`);
    await mesh.command(['providers', 'put', 'scripted', '--base-url', model.url, '--api-key', 'k', '--model', 'scripted:one'], tenant.key);
    await signIn(page, { tenant, role: 'member' });
    const conversation = new Conversation(page, mesh);
    await conversation.begin();
    await conversation.send('/status');
    await conversation.expectSaid('Reasoning: off');
    await page.getByTitle('Thinking', { exact: true }).click();
    await page.getByRole('menuitem', { name: 'Show what it thinks' }).click();
    await conversation.expectSaid('Reasoning: stream');

    await conversation.send('Do I need an umbrella?');
    await conversation.log.getByText('Thinking', { exact: true }).click();
    await conversation.expectSaid('First I look at the sky. Then I decide.');
    await expect(conversation.log).not.toContainText('Take an umbrella.');
    model.finish();

    await conversation.expectSaid('Take an umbrella.');
    const session = await mesh.session(tenant.key);
    expect((await answers(session, await conversation.session())).at(-1)).toBe('Take an umbrella.');
    await expect(conversation.log).not.toContainText('First I look at the sky.');
    await page.getByTitle('Thinking', { exact: true }).click();
    await page.getByRole('menuitem', { name: 'Hide what it thinks' }).click();
    await conversation.expectSaid('Reasoning: off');
  } finally {
    model.stop();
  }
});

test('a browser without speech recognition has no button for it', async ({ page, signIn }) => {
  await page.addInitScript(() => {
    for (const name of ['SpeechRecognition', 'webkitSpeechRecognition']) Reflect.deleteProperty(window, name);
  });
  await signIn(page, { path: '/chat' });

  await expect(page.getByRole('button', { name: 'Attach files' })).toBeVisible();
  await expect(page.getByRole('button', { name: 'Speak' })).toHaveCount(0);
});

test('what is spoken is written into the message, and a refused microphone is told', async ({ page, signIn }) => {
  await page.addInitScript(() => {
    class Recognition {
      onresult?: (event: object) => void;
      onerror?: (event: object) => void;
      onend?: () => void;
      start() {
        (window as unknown as { recognition: Recognition }).recognition = this;
      }
      stop() {
        this.onend?.();
      }
    }
    Object.assign(window, { SpeechRecognition: Recognition });
  });
  type Spoken = Window & { recognition: { onresult: (event: object) => void; onerror: (event: object) => void; onend: () => void } };
  await signIn(page, { path: '/chat' });
  const field = page.getByLabel('Message', { exact: true });
  await field.fill('Please');

  await page.getByRole('button', { name: 'Speak' }).click();
  await page.evaluate(() => (window as unknown as Spoken).recognition.onresult({ results: [[{ transcript: 'buy ' }], [{ transcript: 'bread' }]] }));
  await expect(field).toHaveValue('Please buy bread');
  // Browsers tell an error, then the end.
  await page.evaluate(() => {
    const { recognition } = window as unknown as Spoken;
    recognition.onerror({ error: 'not-allowed' });
    recognition.onend();
  });
  await expect(page.getByText('The microphone is not allowed.')).toBeVisible();
  await expect(page.getByRole('button', { name: 'Speak' })).toBeVisible();
});
