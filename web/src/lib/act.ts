// Changes that a person makes: what came of them is told in a toast.
import { words } from '$api/errors';
import { toast } from '$kit';

/**
 * Makes a change and says `done` when it is made, or why it failed. Returns the answer; `undefined`
 * if it failed.
 */
export async function act<T>(change: () => Promise<T>, options: { done?: string } = {}): Promise<T | undefined> {
  try {
    const answer = await change();
    if (options.done) toast({ kind: 'ok', text: options.done });
    return answer;
  } catch (error) {
    const { title, text } = words(error);
    toast({ kind: 'bad', text: text && text !== title ? `${title}: ${text}` : title });
    return undefined;
  }
}
