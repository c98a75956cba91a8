// Parts of menus, rows of tabs, tables and trees: the keyboard comes to them by arrows, not by Tab.
import { expect, type Locator, type Page } from '@playwright/test';
import { tabTo } from '../keyboard';

/** More than any of the tests' menus, tables and trees has parts. */
const MAX_STEPS = 100;

/** Role of what a part is in. */
const WHOLES: Record<string, string> = { menuitem: 'menu', tab: 'tablist', treeitem: 'tree', row: 'grid' };

/** Whether an element is such a part. */
export async function isPart(target: Locator): Promise<boolean> {
  return ((await target.first().getAttribute('role')) ?? '') in WHOLES;
}

/** Goes to a part by arrows, and presses a key there. */
export async function pressPart(page: Page, target: Locator, key: 'Enter' | 'x'): Promise<void> {
  const part = target.first();
  const role = WHOLES[(await part.getAttribute('role'))!]!;
  const whole = part.locator(`xpath=ancestor::*[@role="${role}"]`);
  // A menu has the focus since it was opened, and the chosen tab has that of its row.
  if (role === 'tablist') await tabTo(page, whole.getByRole('tab', { selected: true }));
  else if (role !== 'menu') {
    await tabTo(page, whole);
    await page.keyboard.press('Home');
  }
  for (let step = 0; !(await isActive(part)); step += 1) {
    expect(step, `the arrows come to ${String(target)}`).toBeLessThan(MAX_STEPS);
    await page.keyboard.press(role === 'tablist' ? 'ArrowRight' : 'ArrowDown');
  }
  // A tab is chosen as soon as the arrows are there.
  if (role !== 'tablist') await page.keyboard.press(key);
}

/** Whether the element has the focus, or is what the focused one points at. */
function isActive(part: Locator): Promise<boolean> {
  return part.evaluate((element) => {
    const active = document.activeElement;
    return active === element || (element.id !== '' && active?.getAttribute('aria-activedescendant') === element.id);
  });
}
