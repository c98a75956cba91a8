// What the page gives to the tokens of a Markdown text.
import { getContext, setContext } from 'svelte';

/** Address (`blob:`) of a picture that the page has, such as an attachment; undefined for all others. */
export type ImageSource = (href: string) => string | undefined;

export type MarkdownContext = {
  readonly image: ImageSource | undefined;
  /** Level of the headings that `#` makes. */
  readonly headingLevel: number;
};

const KEY = Symbol('markdown');

export const setMarkdown = (context: MarkdownContext) => setContext(KEY, context);
export const getMarkdown = (): MarkdownContext => getContext(KEY);
