// Tasks of somebody who connects channels and looks after what is delivered there.
import { Channels } from '../../src/api/gen/holdfast/gateway/v1/control_pb';
import { Operations, type Delivery } from '../../src/api/gen/holdfast/gateway/v1/operations_pb';
import { expect, test } from '../fixtures';
import { eventually } from '../processes';
import { Telegram } from '../telegram';
import { task, type TaskArguments } from './task';

const ANNA = 42;

let telegram: Telegram;

test.beforeEach(async () => {
  telegram = await Telegram.start();
});

test.afterEach(() => telegram.stop());

const session = ({ mesh, tenant }: TaskArguments) => mesh.session(tenant.key);

async function accounts(args: TaskArguments) {
  return (await (await session(args)).client(Channels).listAccounts({})).accounts;
}

async function deliveries(args: TaskArguments): Promise<Delivery[]> {
  return (await (await session(args)).client(Operations).listDeliveries({})).deliveries;
}

async function expectArrived(text: string) {
  await expect.poll(() => telegram.sent, { timeout: 20_000 }).toContainEqual({ chat: String(ANNA), text });
}

task('connect Telegram, first with a wrong token', { role: 'owner', maxClicks: 14 }, async (args) => {
  const { person, page } = args;
  await person.open('Channels');
  await person.press(page.getByRole('link', { name: 'Connect a channel' }));
  await person.press(page.getByRole('button', { name: /^Telegram/ }));
  const token = page.getByLabel('Token', { exact: false });
  await person.write(token, '1:a-wrong-token');
  await person.write(page.getByLabel('Who may write'), String(ANNA));
  await person.press(page.getByText('Further settings'));
  await person.write(page.getByLabel('Address of the API'), telegram.url);
  await person.press(page.getByRole('button', { name: 'Connect and check' }));
  await expect(page.getByRole('alert')).toContainText('its token was revoked, or is wrong', { timeout: 20_000 });
  await expect(token).toHaveAttribute('aria-invalid', 'true');
  expect(await accounts(args)).toMatchObject([{ channel: 'telegram', status: { state: 'failing' } }]);

  await person.write(token, telegram.token);
  await person.press(page.getByRole('button', { name: 'Save and check' }));
  await expect(page.getByRole('status').filter({ hasText: 'Working' })).toBeVisible({ timeout: 20_000 });
  await expect(page.getByRole('alert')).toHaveCount(0);
  await person.press(page.getByRole('link', { name: 'Open the account' }));
  const details = page.getByRole('dialog', { name: 'Telegram: default' });
  await expect(details.getByText('Working', { exact: true })).toBeVisible();

  telegram.write(ANNA, 'Are you there?');
  await expectArrived('echo: Are you there?');
  await expect(details.getByRole('listitem').filter({ hasText: 'echo: Are you there?' })).toContainText('sent', { timeout: 20_000 });
  expect(await accounts(args)).toMatchObject([{ name: 'default', enabled: true, status: { state: 'working' } }]);
});

/** Connects a bot, which then cannot answer a person who has blocked it. */
async function failADelivery(args: TaskArguments) {
  const client = (await session(args)).client(Channels);
  const settings = JSON.stringify({ allow: [ANNA], api_base: telegram.url });
  const secrets = JSON.stringify({ token: telegram.token });
  const { account } = await client.createAccount({ account: { channel: 'telegram', name: 'default', enabled: true, settings }, secrets });
  await client.checkAccount({ id: account!.id });
  telegram.block(ANNA, true);
  telegram.write(ANNA, 'What is on today?');
  await eventually('the reply is refused', async () => (await deliveries(args)).some(({ state }) => state === 'dead'));
}

task('read why a delivery has failed, and send it again', { role: 'owner', maxClicks: 6, prepare: failADelivery }, async (args) => {
  const { person, page } = args;
  await person.open('Inbox');
  await person.showTab(/^Failed deliveries/);
  const list = page.getByRole('grid', { name: 'Failed deliveries' });
  await person.openRow(list, 'echo: What is on today?');
  const details = page.getByRole('dialog', { name: 'Delivery' });
  await expect(details).toContainText('bot was blocked by the user');
  await expect(details).toContainText(String(ANNA));

  telegram.block(ANNA, false);
  await person.press(details.getByRole('button', { name: 'Send again' }));
  await person.press(page.getByRole('dialog', { name: 'Send 1 again?' }).getByRole('button', { name: 'Send again' }));
  await expect(page.getByText('Every reply has arrived')).toBeVisible();
  await expectArrived('echo: What is on today?');
  await expect.poll(async () => (await deliveries(args)).map(({ state }) => state), { timeout: 20_000 }).toEqual(['sent']);
  expect(telegram.sent).toHaveLength(1);
});
