// TCP proxy between the browser and the gateway, which can cut the network or let it fall silent.
import { createServer, connect, type AddressInfo, type Server, type Socket } from 'node:net';

/** `up` is to the gateway, `down` to the browser. */
export type Direction = 'up' | 'down';

export class Proxy {
  private readonly links = new Set<Link>();
  private isCut = false;
  private silent: ReadonlySet<Direction> = new Set();

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
    server.on('connection', (client) => proxy.join(client, connect(Number(to), hostname)));
    return proxy;
  }

  private join(client: Socket, gateway: Socket) {
    const link = new Link(client, gateway, () => this.links.delete(link));
    if (this.isCut) link.end();
    else {
      this.links.add(link);
      link.carry(this.silent);
    }
  }

  /** Ends all connections and refuses new ones. */
  cut() {
    this.isCut = true;
    for (const link of this.links) link.end();
  }

  /** Carries nothing any more: connections, and new ones, stay open, and nothing comes through. */
  freeze(...directions: Direction[]) {
    this.silent = new Set(directions.length > 0 ? directions : ['up', 'down']);
    for (const link of this.links) link.carry(this.silent);
  }

  /**
   * The network works again. What was sent meanwhile arrives late; or never, nor anything else on the
   * connections that there were, if the network `forgets` them.
   */
  mend({ forgets = false } = {}) {
    this.isCut = false;
    const wasSilent = this.silent.size > 0;
    this.silent = new Set();
    for (const link of this.links) link.carry(forgets && wasSilent ? new Set(['up', 'down']) : this.silent);
  }

  async stop(): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.server.close(resolve));
  }
}

/** Two connections that are one for its ends. */
class Link {
  private silent: ReadonlySet<Direction> = new Set();

  constructor(
    private readonly client: Socket,
    private readonly gateway: Socket,
    onEnd: () => void,
  ) {
    for (const [one, other, direction] of [[client, gateway, 'up'], [gateway, client, 'down']] as const) {
      one.setNoDelay(true);
      one.on('error', () => undefined);
      one.on('close', () => {
        // A silent network does not tell the other end.
        if (!this.silent.has(direction)) other.destroy();
        if (other.destroyed) onEnd();
      });
    }
  }

  /** Carries what comes in all but these directions. */
  carry(silent: ReadonlySet<Direction>) {
    this.silent = silent;
    for (const [one, other, direction] of [[this.client, this.gateway, 'up'], [this.gateway, this.client, 'down']] as const) {
      one.unpipe(other);
      if (silent.has(direction)) one.pause();
      else if (one.destroyed) other.destroy();
      else one.pipe(other);
    }
  }

  end() {
    this.client.destroy();
    this.gateway.destroy();
  }
}
