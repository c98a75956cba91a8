// Measures how smoothly a page scrolls.
import type { Locator, Page } from '@playwright/test';

/** Longest time between two frames that nobody notices, in milliseconds. */
const LONG_FRAME = 50;

export type Frames = {
  count: number;
  /** Frames that came more than 50 ms after the one before. */
  long: number;
  longest: number;
};

/** Turns the wheel over an element, and measures the frames meanwhile. */
export async function scrollFrames(page: Page, over: Locator, { turns = 60, pixels = 800 } = {}): Promise<Frames> {
  await over.hover();
  return frames(page, async () => {
    for (let turn = 0; turn < turns; turn += 1) {
      await page.mouse.wheel(0, pixels);
      await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(resolve)));
    }
  });
}

/** Measures the frames of a page on which nothing happens: those that come late do so for the machine. */
export async function idleFrames(page: Page, milliseconds = 3000): Promise<Frames> {
  return frames(page, () => page.waitForTimeout(milliseconds));
}

async function frames(page: Page, during: () => Promise<void>): Promise<Frames> {
  await page.evaluate(() => {
    const frames: number[] = [];
    let last = performance.now();
    const next = (now: number) => {
      frames.push(now - last);
      last = now;
      (window as unknown as Record<string, unknown>)['measuring'] = requestAnimationFrame(next);
    };
    Object.assign(window, { frames, measuring: requestAnimationFrame(next) });
  });
  await during();
  const times = await page.evaluate(() => {
    const { frames, measuring } = window as unknown as { frames: number[]; measuring: number };
    cancelAnimationFrame(measuring);
    return frames;
  });
  return {
    count: times.length,
    long: times.filter((time) => time > LONG_FRAME).length,
    longest: Math.max(...times),
  };
}
