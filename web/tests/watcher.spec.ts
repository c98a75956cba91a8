// The watcher sees what no page may do: without this the other tests would prove nothing.
import { expect, test } from './fixtures';

test('what a page must never do is noticed', async ({ signedIn, watcher }) => {
  const seen = async (what: RegExp) => {
    await expect.poll(() => watcher.problems.some((problem) => what.test(problem)), { message: String(what) }).toBe(true);
    watcher.problems.length = 0;
  };

  await signedIn.evaluate(() => (window as unknown as { pwned: (what: string) => void }).pwned('a test'));
  await seen(/^hostile: a test has run$/);
  await signedIn.evaluate(() => console.error('a test'));
  await seen(/^error: a test/);
  await signedIn.evaluate(() => setTimeout(() => { throw new Error('of a test'); }));
  await seen(/^error: of a test/);
  await signedIn.evaluate(() => void document.body.insertAdjacentHTML('beforeend', '<img src=x onerror="pwned(1)">'));
  await seen(/^policy: script-src/);
  await signedIn.evaluate(() => void fetch('http://127.0.0.2:1/').catch(() => undefined));
  await seen(/^policy: connect-src/);
  await signedIn.evaluate(() => setTimeout(() => alert('a test')));
  await seen(/^dialog: alert a test/);
  await signedIn.waitForTimeout(300);
  watcher.problems.length = 0;
});
