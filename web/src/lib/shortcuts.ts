// Keys of the console. Single letters count only outside of text fields and dialogs.

export type Shortcut = { keys: string; label: () => string; run: () => void };

/** Longest time between the keys of a sequence, in milliseconds. */
const SEQUENCE_TIME = 900;

const active = new Set<Shortcut>();
let first = '';
let firstAt = 0;

/**
 * Adds a key: `j`, `g a` (one after the other), `mod+k` (Ctrl, or Command). Returns what removes it:
 * `$effect(() => addShortcut('j', () => t('next'), next))`.
 */
export function addShortcut(keys: string, label: () => string, run: () => void): () => void {
  const entry = { keys, label, run };
  active.add(entry);
  return () => active.delete(entry);
}

/** The keys that work now, for the list of keys. */
export function activeShortcuts(): { keys: string; label: string }[] {
  return [...active].map(({ keys, label }) => ({ keys, label: label() }));
}

function isTyping(target: EventTarget | null): boolean {
  const element = target as HTMLElement | null;
  return !!element?.closest?.('input, textarea, select, [contenteditable], [role="dialog"], [role="menu"], [role="listbox"]');
}

/** Once, by the frame. */
export function startShortcuts() {
  addEventListener('keydown', (event) => {
    const mod = event.ctrlKey || event.metaKey;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const pressed = mod ? `mod+${key}` : key;
    if (event.altKey || event.defaultPrevented || event.isComposing) return;
    if (!mod && isTyping(event.target)) return;
    const sequence = performance.now() - firstAt < SEQUENCE_TIME ? `${first} ${pressed}` : '';
    const found = [...active].findLast(({ keys }) => keys === sequence) ?? [...active].findLast(({ keys }) => keys === pressed);
    [first, firstAt] = [pressed, performance.now()];
    if (!found) return;
    event.preventDefault();
    found.run();
  });
}
