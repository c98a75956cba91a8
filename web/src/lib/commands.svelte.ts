// Commands of the palette. Pages add theirs while they are shown.
import { untrack } from 'svelte';

export type Command = {
  id: string;
  label: () => string;
  /** Shown beside the label, such as the kind of the thing. */
  detail?: () => string;
  /** Key that does the same. */
  keys?: string;
  run: () => void;
};

let commands = $state.raw<Command[]>([]);

/** Adds commands; returns what removes them: `$effect(() => addCommands([…]))`. */
export function addCommands(added: Command[]): () => void {
  const others = untrack(() => commands).filter((known) => !added.some(({ id }) => id === known.id));
  commands = [...others, ...added];
  return () => {
    commands = untrack(() => commands).filter((known) => !added.includes(known));
  };
}

export const palette = {
  get commands(): Command[] {
    return commands;
  },
};
