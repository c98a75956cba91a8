// How much waits for the person: the number beside Inbox.
import { operations } from '$api/clients';
import { listen } from '$api/live.svelte';
import { inTurn } from './load.svelte';

let count = $state(0);

async function read() {
  try {
    count = Number((await operations.getInboxCounts({})).total);
  } catch {
    // The number stays as it was; the page itself tells what is wrong.
  }
}

const again = inTurn(read, 1000);
listen(['approval.', 'live.approval', 'delivery.', 'message.failed', 'live.connected'], again);
again();

export const inbox = {
  get count(): number {
    return count;
  },
  /** After decisions of the person. */
  reload: again,
};
