import { answers, Conversation } from './conversation';
import { expect, test } from './fixtures';
import { longText } from './model';

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
  await expect(conversation.log.or(signedIn.getByRole('alert'))).toContainText(/fail|refused|error/i, { timeout: 20_000 });
  await mesh.model.forget();
  await conversation.send('and now?');

  await conversation.expectSaid('echo: ');
});
