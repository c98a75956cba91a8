// The scripted model of a mesh; crates/testkit/src/model/script.rs describes its rules.

export type ScriptedReply = {
  text?: string;
  calls?: { tool: string; input: unknown }[];
  /** HTTP status instead of an answer. */
  status?: number;
  /** Answers nothing for so long, then 504. */
  hang_ms?: number;
  /** The connection is cut after the text. */
  cut?: boolean;
  latency_ms?: number;
  /** Time before each further piece of the text. */
  pace_ms?: number;
  /** Greatest number of pieces that the text is streamed in. */
  pieces?: number;
};

export class Model {
  constructor(readonly url: string) {}

  /**
   * Says what is answered to messages that contain a text: the first reply to the message, the next
   * one to the results of its calls, and so on. Without a rule the model repeats the message.
   */
  async answer(when: string, ...replies: ScriptedReply[]): Promise<void> {
    await this.call('POST', JSON.stringify({ when, replies }));
  }

  /** Forgets all rules. */
  async forget(): Promise<void> {
    await this.call('DELETE');
  }

  private async call(method: string, body?: string) {
    const headers = { 'content-type': 'application/json' };
    const answer = await fetch(`${this.url}/script`, { method, headers, ...(body ? { body } : {}) });
    if (!answer.ok) throw new Error(`the model refuses a rule: ${answer.status} ${await answer.text()}`);
  }
}

/** A text in as many words, whose parts can be told from each other. */
export function longText(words: number): string {
  return Array.from({ length: words }, (_, number) => `word${number}`).join(' ');
}
