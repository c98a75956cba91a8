// The same change of several things.
import { words } from '$api/errors';
import { toast } from '$kit';
import { inbox } from '$lib/inbox.svelte';
import { t } from './text';

/** Makes a change of each, one after the other, and tells what came of it. */
export async function each(ids: Iterable<string>, change: (id: string) => Promise<unknown>, done: string): Promise<void> {
  const all = [...ids];
  let failed = 0;
  let text = '';
  for (const id of all) {
    try {
      await change(id);
    } catch (error) {
      failed += 1;
      const told = words(error);
      text = told.text || told.title;
    }
  }
  if (failed) toast({ kind: 'bad', text: t('failedSome', { failed, count: all.length, text }) });
  else toast({ kind: 'ok', text: done });
  inbox.reload();
}
