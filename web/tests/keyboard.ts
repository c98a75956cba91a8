// Uses a page by keyboard alone.
import { expect, type Locator, type Page } from '@playwright/test';

/** More than any page has elements that take the focus. */
const MOST_STOPS = 200;

/** Presses Tab until an element has the focus. Fails if it never gets it, or if the focus cannot be seen. */
export async function tabTo(page: Page, target: Locator): Promise<void> {
  for (let stop = 0; stop < MOST_STOPS; stop += 1) {
    if (await hasFocus(target)) {
      await expectVisibleFocus(target);
      return;
    }
    await leave(page);
  }
  expect(false, `the focus comes to ${String(target)} by the Tab key`).toBe(true);
}

/** Presses Tab; in an editor, where it indents, after Escape. */
async function leave(page: Page) {
  const isEditor = await page.evaluate(() => !!document.activeElement?.shadowRoot?.activeElement?.matches('.cm-content'));
  if (isEditor) await page.keyboard.press('Escape');
  await page.keyboard.press('Tab');
}

/** Goes to an element by Tab and presses it. */
export async function pressByKeyboard(page: Page, target: Locator, key: 'Enter' | 'Space' = 'Enter'): Promise<void> {
  await tabTo(page, target);
  await page.keyboard.press(key);
}

/** Fails if Tab does not lead out of an element again. */
export async function expectNoTrap(page: Page, inside: Locator): Promise<void> {
  await tabTo(page, inside);
  await leave(page);
  expect(await hasFocus(inside), 'the focus leaves the element').toBe(false);
}

function hasFocus(target: Locator): Promise<boolean> {
  return target.first().evaluate((element) => {
    let active = document.activeElement;
    while (active?.shadowRoot?.activeElement) active = active.shadowRoot.activeElement;
    return active === element;
  });
}

/** The focus is shown by the element, or by a frame around it. */
async function expectVisibleFocus(target: Locator) {
  const isVisible = await target.first().evaluate((element) => {
    const hasOutline = (one: Element) => {
      const { outlineStyle, outlineWidth } = getComputedStyle(one);
      return outlineStyle !== 'none' && parseFloat(outlineWidth) > 0;
    };
    if (getComputedStyle(element).boxShadow !== 'none') return true;
    for (let one: Element | null = element; one; one = one.parentElement) if (hasOutline(one)) return true;
    return false;
  });
  expect(isVisible, 'the focus can be seen').toBe(true);
}
