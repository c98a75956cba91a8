// A conversation on the page Chat.
import { expect, type Locator, type Page } from '@playwright/test';
import { Sessions } from '../src/api/gen/holdfast/gateway/v1/sessions_pb';
import type { Session } from './api';
import type { Mesh } from './mesh';

export class Conversation {
  constructor(
    readonly page: Page,
    private readonly mesh: Mesh,
  ) {}

  /** The field for a message. */
  get field(): Locator {
    return this.page.getByLabel('Message', { exact: true });
  }

  /** Messages and answers. */
  get log(): Locator {
    return this.page.getByRole('region', { name: 'Conversation', exact: true }).getByRole('list', { name: 'Messages', exact: true });
  }

  /** Begins a new conversation. */
  async begin(): Promise<void> {
    await this.page.goto(`${this.mesh.url}/console/chat`);
    await expect(this.field).toBeVisible();
  }

  async send(text: string): Promise<void> {
    await this.field.fill(text);
    await this.field.press('Enter');
  }

  /** Fails unless this is shown. */
  async expectSaid(text: string, seconds = 20): Promise<void> {
    await expect(this.log).toContainText(text, { timeout: seconds * 1000 });
  }

  /** Id or key of the session, which is in the address once it has begun. */
  async session(): Promise<string> {
    await expect(this.page).toHaveURL(/\/console\/chat\/[^/?]+/);
    return decodeURIComponent(new URL(this.page.url()).pathname.split('/').at(-1)!);
  }
}

/** Answers of a session as its journal has them; messages if `kind` is `heard`. */
export async function answers(session: Session, id: string, kind = 'thought'): Promise<string[]> {
  const { entries } = await session.client(Sessions).getHistory({ session: id, limit: 1000 });
  return entries.filter((entry) => entry.kind === kind && entry.text).map(({ text }) => text);
}
