// The form of a provider: headers and fields that are added to its requests.
import { Providers } from '../src/api/gen/holdfast/gateway/v1/control_pb';
import { expect, test } from './fixtures';

test('headers and fields of a provider are checked, stored and never shown again', async ({ page, signIn, mesh }) => {
  const tenant = await mesh.tenant(`provider-form-${Date.now()}`);
  const session = await mesh.session(tenant.key);
  const stored = async () => (await session.client(Providers).listProviders({})).providers.find(({ name }) => name === 'scripted');
  await signIn(page, { role: 'owner', tenant });
  await page.goto(`${mesh.url}/console/models/providers`);
  await page.getByRole('row', { name: /scripted/ }).click();
  const form = page.getByRole('dialog');
  const [headers, body] = [form.getByLabel('Headers of each request'), form.getByLabel('Fields added to the body of each request')];
  const save = form.getByRole('button', { name: 'Save' });

  await headers.fill('X-Title');
  await body.fill('[1]');
  await save.click();
  await expect(form).toContainText('A line is no header: write a name, `:` and a value.');
  await expect(form).toContainText('This is not a JSON object');

  await headers.fill('Authorization: Bearer s3cret');
  await body.fill('{"top_k": 40}');
  await save.click();
  await expect(form.getByRole('alert')).toContainText('`authorization` is set by Holdfast');

  await headers.fill('X-Title: s3cret');
  await save.click();
  await expect(form).toHaveCount(0);
  expect(await stored()).toMatchObject({ headerNames: ['X-Title'], extraBody: '{"top_k":40}' });

  await page.getByRole('row', { name: /scripted/ }).click();
  await expect(headers).toHaveValue('');
  await form.getByLabel('Remove the stored headers: X-Title').check();
  await save.click();
  await expect(form).toHaveCount(0);
  expect(await stored()).toMatchObject({ headerNames: [], extraBody: '{"top_k":40}' });
});
