// Tasks of somebody who talks to an agent.
import { Conversation } from '../conversation';
import { expect } from '../fixtures';
import { task } from './task';

task('ask an agent something', { role: 'member', maxClicks: 2 }, async ({ page, mesh }) => {
  const conversation = new Conversation(page, mesh);
  await conversation.field.fill('What is on today?');
  await conversation.field.press('Enter');
  await conversation.expectSaid('echo: What is on today?');
});

task('decide about a call that waits', { role: 'approver', seeded: true, maxClicks: 4 }, async ({ page }) => {
  const menu = page.getByRole('button', { name: 'Menu', exact: true });
  if (await menu.isVisible()) await menu.click();
  await page.getByRole('link', { name: /^Inbox/ }).click();
  const waiting = page.getByRole('button', { name: 'Deny' });
  await expect(waiting.first()).toBeVisible();
  const before = await waiting.count();
  await waiting.first().click();
  await expect(waiting).toHaveCount(before - 1);
});
