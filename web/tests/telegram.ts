// Telegram's Bot API on this machine: bots whose tokens are known, chats, and what is sent to them.
import { randomInt, randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';

type Update = { update_id: number; message: object };

type Parameters = { offset?: number; timeout?: number; chat_id?: number | string; text?: string };

export class Telegram {
  /** Texts that arrived, with their chats. */
  readonly sent: { chat: string; text: string }[] = [];
  private readonly blocked = new Set<string>();
  private updates: Update[] = [];
  private lastId = 0;
  /** Polls that wait for an update. */
  private waiting: (() => void)[] = [];

  private constructor(
    private readonly server: Server,
    /** The bot's, which BotFather has given. */
    readonly token: string,
  ) {
    server.on('request', (request: IncomingMessage, answer: ServerResponse) => {
      this.serve(request, answer).catch((error: unknown) => answer.writeHead(500).end(String(error)));
    });
  }

  static async start(): Promise<Telegram> {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    // Of a bot of an earlier test nobody's token is accepted, even if it comes to the same port.
    return new Telegram(server, `${randomInt(1e9)}:${randomUUID()}`);
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  /** A person writes to the bot. */
  write(person: number, text: string) {
    this.lastId += 1;
    const message = {
      message_id: this.lastId,
      date: Math.floor(Date.now() / 1000),
      chat: { id: person, type: 'private' },
      from: { id: person, is_bot: false, first_name: `Person ${person}` },
      text,
    };
    this.updates.push({ update_id: this.lastId, message });
    for (const wake of this.waiting.splice(0)) wake();
  }

  /** A person blocks the bot, or no longer does. */
  block(person: number, isBlocked: boolean) {
    if (isBlocked) this.blocked.add(String(person));
    else this.blocked.delete(String(person));
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }

  private async serve(request: IncomingMessage, answer: ServerResponse) {
    const [, token, method] = /^\/bot([^/]+)\/(\w+)$/.exec(request.url ?? '') ?? [];
    const body = await text(request);
    if (token !== this.token) return refuse(answer, 401, 'Unauthorized');
    const parameters = (body ? JSON.parse(body) : {}) as Parameters;
    const chat = String(parameters.chat_id ?? '');
    if (this.blocked.has(chat)) return refuse(answer, 403, 'Forbidden: bot was blocked by the user');
    switch (method) {
      case 'getMe':
        return reply(answer, { id: 123456, is_bot: true, first_name: 'Bot', username: 'test_bot' });
      case 'getUpdates':
        return reply(answer, await this.poll(parameters, request));
      case 'sendMessage':
        this.sent.push({ chat, text: parameters.text ?? '' });
        this.lastId += 1;
        return reply(answer, { message_id: this.lastId, date: 1, chat: { id: parameters.chat_id, type: 'private' } });
      default:
        return reply(answer, true);
    }
  }

  private async poll({ offset = 0, timeout = 0 }: Parameters, request: IncomingMessage): Promise<Update[]> {
    this.updates = this.updates.filter(({ update_id: id }) => id >= offset);
    if (this.updates.length === 0) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, timeout * 1000);
        const wake = () => {
          clearTimeout(timer);
          resolve();
        };
        this.waiting.push(wake);
        request.socket.once('close', wake);
      });
    }
    return this.updates;
  }
}

function reply(answer: ServerResponse, result: unknown) {
  answer.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ ok: true, result }));
}

function refuse(answer: ServerResponse, status: number, description: string) {
  answer.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify({ ok: false, error_code: status, description }));
}
