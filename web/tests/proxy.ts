// TCP proxy between the browser and the gateway, which can cut the network.
import { createServer, connect, type AddressInfo, type Server, type Socket } from 'node:net';

export class Proxy {
  private readonly open = new Set<Socket>();
  private isCut = false;

  private constructor(
    private readonly server: Server,
    readonly port: number,
  ) {}

  /** Listens on a port of this machine; 0 lets the system choose. */
  static async start(target: string, port = 0): Promise<Proxy> {
    const { hostname, port: to } = new URL(target);
    const server = createServer();
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(port, '127.0.0.1', resolve);
    });
    const proxy = new Proxy(server, (server.address() as AddressInfo).port);
    server.on('connection', (client) => proxy.join(client, Number(to), hostname));
    return proxy;
  }

  private join(client: Socket, port: number, host: string) {
    if (this.isCut) {
      client.destroy();
      return;
    }
    const gateway = connect(port, host);
    for (const [one, other] of [[client, gateway], [gateway, client]] as const) {
      this.open.add(one);
      one.setNoDelay(true);
      one.on('error', () => other.destroy());
      one.on('close', () => {
        this.open.delete(one);
        other.destroy();
      });
      one.pipe(other);
    }
  }

  /** Ends all connections and refuses new ones. */
  cut() {
    this.isCut = true;
    for (const socket of this.open) socket.destroy();
  }

  mend() {
    this.isCut = false;
  }

  async stop(): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.server.close(resolve));
  }
}
