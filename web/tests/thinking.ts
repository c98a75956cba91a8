// A model that thinks before it answers: a server of chat completions that streams both.
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export class ThinkingModel {
  private readonly waiting: ServerResponse[] = [];

  private constructor(
    private readonly server: Server,
    /** What the model thinks. */
    readonly thoughts: string,
    readonly answer: string,
  ) {}

  /** Starts one. It answers only when it is told to, so that its thinking can be looked at. */
  static async start(thoughts: string, answer: string): Promise<ThinkingModel> {
    const server = createServer();
    const model = new ThinkingModel(server, thoughts, answer);
    server.on('request', (request, response) => {
      request.resume();
      request.on('end', () => model.think(response));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return model;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}/v1`;
  }

  /** Ends the thinking of all requests with the answer. */
  finish() {
    for (const response of this.waiting.splice(0)) {
      response.write(event({ content: this.answer }));
      response.end(`${event({}, 'stop')}data: [DONE]\n\n`);
    }
  }

  stop() {
    this.finish();
    this.server.close();
  }

  private think(response: ServerResponse) {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    for (const word of this.thoughts.split(/(?<= )/)) response.write(event({ reasoning_content: word }));
    this.waiting.push(response);
  }
}

function event(delta: object, finish: string | null = null): string {
  const choices = [{ index: 0, delta, finish_reason: finish }];
  return `data: ${JSON.stringify({ id: 'thinking', object: 'chat.completion.chunk', model: 'thinking', choices })}\n\n`;
}
