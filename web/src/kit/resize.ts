/** Calls `run` with the first size of an element and each new one. Returns what stops it. */
export function whenResized(element: Element, run: () => void): () => void {
  const observer = new ResizeObserver(run);
  observer.observe(element);
  return () => observer.disconnect();
}
