// A web page of a test that takes as long as the test says.
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { eventually } from './processes';

export class SlowPage {
  /** Requests so far. */
  requests = 0;
  private readonly waiting: ServerResponse[] = [];
  private isReleased = false;
  private readonly server = createServer((_request, response) => {
    this.requests += 1;
    if (this.isReleased) this.answer(response);
    else this.waiting.push(response);
  });

  static async start(): Promise<SlowPage> {
    const page = new SlowPage();
    await new Promise<void>((resolve) => page.server.listen(0, '127.0.0.1', resolve));
    return page;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}/page.txt`;
  }

  /** Waits until somebody asks for it. */
  async asked(): Promise<void> {
    await eventually('the page is asked for', () => this.requests > 0);
  }

  /** Answers those who wait, and others at once. */
  release() {
    this.isReleased = true;
    for (const response of this.waiting) this.answer(response);
  }

  private answer(response: ServerResponse) {
    response.writeHead(200, { 'content-type': 'text/plain' }).end('the slow page\n');
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }
}
