// A person who uses the page with a mouse, a finger, or the keyboard alone.
import { expect, type FileChooser, type Locator, type Page } from '@playwright/test';
import { pressByKeyboard, tabTo } from '../keyboard';
import { isPart, pressPart } from './composite';

/** More than any list has entries that are passed by the arrow keys. */
const MOST_PRESSES = 300;

export type Means = 'mouse' | 'touch' | 'keyboard';

export class Person {
  constructor(
    readonly page: Page,
    readonly means: Means,
  ) {}

  /** Presses a button, a link or another element, or opens the row of a table. */
  async press(target: Locator): Promise<void> {
    await expect(target.first()).toBeVisible();
    if (this.means === 'keyboard' && (await isPart(target))) await pressPart(this.page, target, 'Enter');
    else if (this.means === 'keyboard') await pressByKeyboard(this.page, target);
    else if (this.means === 'touch') await target.tap();
    else await target.click();
  }

  /** Ticks or unticks a field. */
  async toggle(target: Locator): Promise<void> {
    if (this.means === 'keyboard') await pressByKeyboard(this.page, target, 'Space');
    else await this.press(target);
  }

  /** Selects or deselects a row of a table. */
  async select(row: Locator): Promise<void> {
    await expect(row.first()).toBeVisible();
    if (this.means === 'keyboard') await pressPart(this.page, row, 'x');
    else await this.press(row.getByRole('checkbox'));
  }

  /** Replaces the text of a field. */
  async write(target: Locator, text: string): Promise<void> {
    await this.focus(target);
    await this.page.keyboard.press('Control+a');
    await this.page.keyboard.insertText(text);
  }

  /** Chooses an option of a native list. */
  async choose(target: Locator, label: string): Promise<void> {
    await this.focus(target);
    await target.selectOption({ label });
  }

  /** Opens a page by its name in the navigation. */
  async open(name: string): Promise<void> {
    if (this.means === 'keyboard') {
      await this.page.keyboard.press('Control+k');
      await this.page.getByRole('combobox', { name: 'Search or run a command' }).fill(`Go to ${name}`);
      await this.page.keyboard.press('Enter');
    } else {
      if (this.means === 'touch') await this.press(this.page.getByRole('button', { name: 'Menu', exact: true }));
      await this.press(this.page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: new RegExp(`^${name}`) }));
    }
    await expect(this.page.getByRole('heading', { level: 1 })).toBeVisible();
  }

  /** Shows a tab of a row of tabs. */
  async showTab(name: string | RegExp, row: Locator = this.page.getByRole('tablist').first()): Promise<void> {
    const tab = row.getByRole('tab', { name, exact: true });
    if (this.means === 'keyboard') {
      await tabTo(this.page, row.getByRole('tab', { selected: true }));
      await this.pressUntil('ArrowRight', 'no tab of this name', async () => (await tab.getAttribute('aria-selected')) === 'true');
    } else {
      await this.press(tab);
    }
    await expect(tab).toHaveAttribute('aria-selected', 'true');
  }

  /** Opens the row of a table that has a cell with a text. */
  async openRow(table: Locator, text: string | RegExp): Promise<void> {
    const row = table.getByRole('row').filter({ has: this.page.getByRole('gridcell', { name: text }) }).first();
    await expect(row).toBeVisible();
    if (this.means !== 'keyboard') return this.press(row.getByRole('gridcell', { name: text }).first());
    await tabTo(this.page, table);
    await this.page.keyboard.press('Home');
    const id = await row.getAttribute('id');
    await this.pressUntil('ArrowDown', `no row with ${String(text)}`, async () => (await table.getAttribute('aria-activedescendant')) === id);
    await this.page.keyboard.press('Enter');
  }

  /** Opens an entry of a tree. */
  async openEntry(tree: Locator, name: string): Promise<void> {
    const entry = tree.getByRole('treeitem', { name });
    if (this.means !== 'keyboard') return this.press(entry);
    await expect(entry).toBeVisible();
    await tabTo(this.page, tree.locator('[role="treeitem"][tabindex="0"]'));
    await this.pressUntil('ArrowDown', `no entry ${name}`, () => entry.evaluate((element) => element === document.activeElement));
    await this.page.keyboard.press('Enter');
  }

  /** Chooses an action of a menu. */
  async chooseAction(menu: Locator, name: string): Promise<void> {
    await this.press(menu);
    const action = this.page.getByRole('menuitem', { name, exact: true });
    if (this.means !== 'keyboard') return this.press(action);
    await this.pressUntil('ArrowDown', `no action ${name}`, () => action.evaluate((element) => element === document.activeElement));
    await this.page.keyboard.press('Enter');
  }

  /** Chooses an option of a field with a list that is searched by typing. */
  async find(field: Locator, text: string): Promise<void> {
    await this.write(field, text);
    const option = this.page.getByRole('option', { name: text }).first();
    if (this.means !== 'keyboard') return this.press(option);
    await this.pressUntil('ArrowDown', `no option ${text}`, async () => (await option.getAttribute('aria-selected')) === 'true');
    await this.page.keyboard.press('Enter');
  }

  /** Chooses one of a few options that are all shown. */
  async pick(option: Locator): Promise<void> {
    if (this.means !== 'keyboard') return this.press(option);
    await expect(option).toBeVisible();
    const name = await option.getAttribute('name');
    await tabTo(this.page, this.page.locator(`input[type="radio"][name="${name}"]:checked`));
    await this.pressUntil('ArrowDown', 'no such option', () => option.isChecked());
  }

  /** Presses a button that asks for files, and chooses them. */
  async chooseFiles(button: Locator, files: Parameters<FileChooser['setFiles']>[0]): Promise<void> {
    const asked = this.page.waitForEvent('filechooser');
    await this.press(button);
    await (await asked).setFiles(files);
  }

  private async pressUntil(key: string, problem: string, isReached: () => Promise<boolean>): Promise<void> {
    for (let presses = 0; presses <= MOST_PRESSES; presses += 1) {
      if (await isReached()) return;
      await this.page.keyboard.press(key);
    }
    expect(false, problem).toBe(true);
  }

  private async focus(target: Locator): Promise<void> {
    await expect(target.first()).toBeVisible();
    if (this.means === 'keyboard') await tabTo(this.page, target);
    else await this.press(target);
  }
}
