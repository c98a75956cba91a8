// Dialogs, drawers and menus of pages, and how they are opened.
import { expect, type Locator, type Page } from '@playwright/test';
import type { Things } from './details';
import { settled, showRoute } from './settled';

export type Overlay = {
  /** Name of its pictures. */
  name: string;
  /** Below /console; `{agent}` and `{conversation}` are those of the tenant. */
  path: string;
  open: (content: Locator, page: Page) => Promise<void>;
};

const button = (name: string | RegExp) => (content: Locator) => content.getByRole('button', { name, exact: typeof name === 'string' }).first().click();
const row = (content: Locator) => content.getByRole('row').nth(1).click();
const menu = (name: RegExp) => (content: Locator) => content.getByRole('button', { name }).first().click();
// The list of conversations comes first, with menus of its own.
const lastMenu = (name: RegExp) => (content: Locator) => content.getByRole('button', { name }).last().click();

export const OVERLAYS: Overlay[] = [
  { name: 'commands', path: '/agents', open: (_, page) => page.keyboard.press('Control+k') },
  { name: 'shortcuts', path: '/runs', open: (_, page) => page.keyboard.press('?') },
  { name: 'account-menu', path: '/inbox', open: (_, page) => page.getByRole('button', { name: /^Signed in as/ }).click() },
  { name: 'new-agent', path: '/agents', open: button('New agent') },
  { name: 'agent-menu', path: '/agents/{agent}', open: menu(/^Actions for/) },
  { name: 'new-file', path: '/agents/{agent}/files', open: button('New file') },
  { name: 'tool', path: '/agents/{agent}/tools', open: row },
  { name: 'new-todo', path: '/agents/{agent}/todos', open: button('Add a todo') },
  { name: 'new-job', path: '/schedules', open: button('New job') },
  { name: 'new-reminder', path: '/schedules/reminders', open: button('New reminder') },
  { name: 'new-binding', path: '/channels/bindings', open: button('New binding') },
  { name: 'new-rule', path: '/channels/rules', open: button('New rule') },
  { name: 'new-memory', path: '/memory', open: button('Save a memory') },
  { name: 'memory-details', path: '/memory', open: row },
  { name: 'skill', path: '/skills', open: row },
  { name: 'new-mcp-server', path: '/skills/mcp', open: button('New MCP server') },
  { name: 'model', path: '/models/catalogue', open: row },
  { name: 'new-budget', path: '/usage/budgets', open: button('Set a budget') },
  { name: 'new-key', path: '/settings/keys', open: button('New key') },
  { name: 'invitation', path: '/settings/people', open: button('Invite') },
  { name: 'new-webhook', path: '/settings/webhooks', open: button('New webhook') },
  { name: 'audit-event', path: '/settings/audit', open: row },
  { name: 'letter', path: '/inbox/letters', open: row },
  { name: 'delivery', path: '/inbox/deliveries', open: row },
  { name: 'conversation-menu', path: '/chat/{conversation}', open: lastMenu(/^Actions of/) },
  {
    name: 'conversation-details',
    path: '/chat/{conversation}',
    open: async (content, page) => {
      await lastMenu(/^Actions of/)(content);
      await page.getByRole('menuitem', { name: 'Details' }).click();
    },
  },
];

const OPEN = 'dialog[open], [role="dialog"], [role="menu"]';

/** Opens the page of an overlay and the overlay. */
export async function openOverlay(page: Page, origin: string, overlay: Overlay, { agent, conversation }: Things): Promise<void> {
  const path = overlay.path.replace('{agent}', agent ?? '').replace('{conversation}', conversation ?? '');
  await showRoute(page, origin, { path });
  const before = await page.locator(OPEN).count();
  await overlay.open(page.locator('#content'), page);
  await expect(page.locator(OPEN), `${overlay.name} is open`).not.toHaveCount(before);
  await settled(page);
}
