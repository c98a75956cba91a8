// What tasks about an agent share.
import type { Session } from '../api';
import { expect } from '../fixtures';
import { Messages } from '../../src/api/gen/holdfast/gateway/v1/messages_pb';
import type { TaskArguments } from './task';

/** The agent that each tenant has. */
export const AGENT = 'main';

/** The task's own sign-in, for what is prepared and compared. */
export const session = ({ mesh, tenant }: TaskArguments): Promise<Session> => mesh.session(tenant.key);

/** Goes to a part of an agent by the list of agents. */
export async function openAgent({ person, page }: TaskArguments, part: string, name = AGENT): Promise<void> {
  await person.open('Agents');
  await person.openRow(page.getByRole('grid', { name: 'Agents' }), name);
  await expect(page.getByRole('heading', { level: 1, name })).toBeVisible();
  await person.showTab(part);
}

/** Talks to the agent in its main conversation until it has answered. Returns the id of the conversation. */
export async function talk(args: TaskArguments, text: string): Promise<string> {
  const events = (await session(args)).client(Messages).stream({ agent: AGENT, text });
  let id = '';
  for await (const { sessionId, event } of events) {
    id = sessionId;
    if (event.case === 'done') break;
  }
  return id;
}
