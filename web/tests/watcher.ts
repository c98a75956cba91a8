// Watches the pages of a test for what none may do.
import type { BrowserContext, Page } from '@playwright/test';

/** Name of the function by which pages report violations, and hostile contents that they ran. */
const REPORT = 'reportProblem';

export class Watcher {
  readonly problems: string[] = [];
  private readonly allowed: RegExp[] = [];

  constructor(private readonly origin: string) {}

  /** Expects errors with this text, such as of calls while the gateway is away. */
  allow(...texts: RegExp[]) {
    this.allowed.push(...texts);
  }

  /** Watches all pages of a context. Before its first page is loaded. */
  async watch(context: BrowserContext): Promise<void> {
    await context.exposeFunction(REPORT, (text: string) => this.report(text));
    await context.addInitScript((report) => {
      const tell = (text: string) => void (window as unknown as Record<string, (text: string) => void>)[report]!(text);
      document.addEventListener('securitypolicyviolation', ({ violatedDirective, blockedURI, sourceFile, lineNumber }) =>
        tell(`policy: ${violatedDirective} blocked ${blockedURI} in ${sourceFile}:${lineNumber}`),
      );
      // What hostile contents call; see hostile.ts.
      (window as unknown as Record<string, unknown>)['pwned'] = (what: unknown) => tell(`hostile: ${String(what)} has run`);
    }, REPORT);
    for (const page of context.pages()) this.watchPage(page);
    context.on('page', (page) => this.watchPage(page));
    context.on('request', (request) => {
      const url = request.url();
      if (/^(blob|data|about):/.test(url)) return;
      if (!url.startsWith(`${this.origin}/`)) this.report(`request: ${url}`);
    });
    // Without a handler a dialog is closed unseen.
    context.on('dialog', (dialog) => {
      this.report(`dialog: ${dialog.type()} ${dialog.message()}`);
      void dialog.dismiss();
    });
  }

  private watchPage(page: Page) {
    page.on('pageerror', (error) => this.report(`error: ${error.message}\n${error.stack ?? ''}`));
    page.on('console', (message) => {
      if (message.type() === 'error' || message.type() === 'warning') {
        const { url } = message.location();
        this.report(`${message.type()}: ${message.text()}${url ? ` (${url})` : ''}`);
      }
    });
    page.on('crash', () => this.report('crash: the page has crashed'));
    page.on('websocket', (socket) => {
      if (!socket.url().startsWith(this.origin.replace(/^http/, 'ws'))) this.report(`request: ${socket.url()}`);
    });
  }

  private report(text: string) {
    if (!this.allowed.some((allowed) => allowed.test(text))) this.problems.push(text);
  }
}

/** Errors of the browser for calls that fail while the gateway cannot be reached. */
export const AWAY = /Failed to load resource|WebSocket connection to|net::ERR_/;
