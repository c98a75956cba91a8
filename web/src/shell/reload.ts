// Reload of the page when a file of it could not be read: the gateway was away, or has the files of a newer
// console. An import that failed is not made again: the browser and the loader remember it.

/** Time of the last reload of this tab, in milliseconds. */
const KEY = 'holdfast.reloadedAt';

/** A file that is still missing after a reload is not reloaded for again. */
const MIN_BETWEEN_RELOADS = 30_000;

/** Between questions whether the gateway is back, and the longest wait for an answer, in milliseconds. */
const ASK_AGAIN_AFTER = 1500;
const ANSWER_TIMEOUT = 5000;

/** Reloads the page once the gateway answers, while that `isWanted`. Returns false if it just did so. */
export async function reloadWhenBack(isWanted: () => boolean): Promise<boolean> {
  if (Date.now() - Number(sessionStorage.getItem(KEY) ?? 0) < MIN_BETWEEN_RELOADS) return false;
  while (isWanted() && !(await answers())) await new Promise((resolve) => setTimeout(resolve, ASK_AGAIN_AFTER));
  if (!isWanted()) return true;
  sessionStorage.setItem(KEY, String(Date.now()));
  location.reload();
  return true;
}

async function answers(): Promise<boolean> {
  const signal = AbortSignal.timeout(ANSWER_TIMEOUT);
  const answer = await fetch('/console/', { method: 'HEAD', cache: 'no-store', signal }).catch(() => undefined);
  return answer?.ok ?? false;
}
