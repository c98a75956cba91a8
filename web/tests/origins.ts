// A site of somebody else, on another port of this machine: another origin, but the same site, so that
// browsers send cookies with `SameSite=Strict` along.
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';

export class OtherSite {
  private constructor(
    private readonly server: Server,
    readonly url: string,
  ) {}

  static async start(html: string): Promise<OtherSite> {
    const server = createServer((request, response) => {
      response.writeHead(request.url === '/' ? 200 : 404, { 'content-type': 'text/html' }).end(request.url === '/' ? html : '');
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return new OtherSite(server, `http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }
}
