import { defineConfig, type PlaywrightTestConfig } from '@playwright/test';

const isRoot = process.getuid?.() === 0;

const use: PlaywrightTestConfig['use'] = {
  browserName: 'chromium',
  launchOptions: {
    executablePath: process.env['HOLDFAST_CHROMIUM'] ?? '/usr/bin/chromium',
    args: isRoot ? ['--no-sandbox'] : [],
  },
  locale: 'en-GB',
  timezoneId: 'Europe/Berlin',
  // Nothing is retried, so the first failure has to tell everything.
  trace: 'retain-on-failure',
  screenshot: 'only-on-failure',
};

export default defineConfig({
  testDir: 'tests',
  outputDir: 'test-results/output',
  globalSetup: './tests/setup.ts',
  // Tests kill the gateway and cut the network, which the others would notice.
  workers: 1,
  timeout: 60_000,
  expect: { timeout: 10_000 },
  forbidOnly: process.env['CI'] === 'true',
  reporter: [['list'], ['json', { outputFile: 'test-results/report.json' }]],
  projects: [
    { name: 'desktop', metadata: { means: 'mouse' }, use: { ...use, viewport: { width: 1440, height: 900 } } },
    {
      name: 'keyboard',
      metadata: { means: 'keyboard' },
      use: { ...use, viewport: { width: 1440, height: 900 } },
      testMatch: /tasks\/.*\.spec\.ts/,
    },
    {
      name: 'phone',
      metadata: { means: 'touch' },
      use: { ...use, viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true, deviceScaleFactor: 2 },
      testMatch: /(axe|pages|chat)\.spec\.ts|tasks\/.*\.spec\.ts/,
    },
  ],
});
