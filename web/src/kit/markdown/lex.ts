// Tokens of a Markdown text, with limits that keep a hostile text from freezing the page.
import { Lexer, Tokenizer, type Token, type Tokens, type TokensList } from 'marked';

/** Part of a text that is shown as it is, because it is beyond a limit. */
export type PlainToken = { type: 'plain'; raw: string; text: string };

/** Characters of a text that are formatted; the rest is plain. */
const MAX_CHARACTERS = 200_000;
/** Levels of quotes and lists, and of emphasis in emphasis. */
const MAX_DEPTH = 20;
/** Characters of one paragraph that are formatted: the time grows with the square of its length. */
const MAX_INLINE_CHARACTERS = 8_000;
/** Characters of one quote or list, for the same reason; a longer one becomes several. */
const MAX_CONTAINER_CHARACTERS = 10_000;
const MAX_TABLE_ROWS = 500;
const MAX_TABLE_COLUMNS = 60;
/** Blocks, and pieces within them, that are looked for in one text; what is behind them is plain. */
const MAX_BLOCKS = 6_000;
const MAX_PIECES = 40_000;

function plain(text: string): PlainToken {
  return { type: 'plain', raw: text, text };
}

/** The part of a text before the line that goes beyond a number of characters. */
function cutAtLine(src: string, limit: number): string {
  if (src.length <= limit) return src;
  const end = src.lastIndexOf('\n', limit);
  return src.slice(0, end > 0 ? end + 1 : limit);
}

class LimitedTokenizer extends Tokenizer {
  // Not a limit of time: a text would look different on a machine that is busy.
  #blocks = 0;
  #pieces = 0;

  // The lexer asks for `space` before any other block, and for `escape` before any other inline token.
  override space(src: string): Tokens.Space | undefined {
    this.#blocks += 1;
    return this.#blocks > MAX_BLOCKS ? (plain(src) as unknown as Tokens.Space) : super.space(src);
  }

  override escape(src: string): Tokens.Escape | undefined {
    this.#pieces += 1;
    return this.#pieces > MAX_PIECES ? (plain(src) as unknown as Tokens.Escape) : super.escape(src);
  }

  override blockquote(src: string): Tokens.Blockquote | undefined {
    return super.blockquote(cutAtLine(src, MAX_CONTAINER_CHARACTERS));
  }

  override list(src: string): Tokens.List | undefined {
    return super.list(cutAtLine(src, MAX_CONTAINER_CHARACTERS));
  }

  override table(src: string): Tokens.Table | undefined {
    const head = src.slice(0, src.indexOf('\n') + 1);
    if (head.length > MAX_INLINE_CHARACTERS || head.split('|').length > MAX_TABLE_COLUMNS) return undefined;
    let end = 0;
    for (let line = 0; line < MAX_TABLE_ROWS + 2; line += 1) {
      const next = src.indexOf('\n', end);
      if (next < 0) return super.table(src);
      end = next + 1;
    }
    return super.table(src.slice(0, end));
  }
}

/** Lexer of `marked` that stops at the limits. What is beyond a limit becomes plain text. */
class LimitedLexer extends Lexer {
  #blockDepth = 0;
  #inlineDepth = 0;

  override blockTokens(src: string, tokens: Token[] = [], lastParagraphClipped = false): TokensList {
    if (this.#blockDepth >= MAX_DEPTH) {
      tokens.push(plain(src));
      return tokens as TokensList;
    }
    this.#blockDepth += 1;
    try {
      return super.blockTokens(src, tokens, lastParagraphClipped) as TokensList;
    } finally {
      this.#blockDepth -= 1;
    }
  }

  override inlineTokens(src: string, tokens: Token[] = []): Token[] {
    if (src.length > MAX_INLINE_CHARACTERS || this.#inlineDepth >= MAX_DEPTH) {
      tokens.push(plain(src));
      return tokens;
    }
    this.#inlineDepth += 1;
    try {
      return super.inlineTokens(src, tokens);
    } finally {
      this.#inlineDepth -= 1;
    }
  }
}

export function lex(text: string): Token[] {
  const head = text.slice(0, MAX_CHARACTERS);
  let tokens: Token[];
  try {
    tokens = new LimitedLexer({ gfm: true, breaks: true, tokenizer: new LimitedTokenizer() }).lex(head);
  } catch {
    tokens = [plain(head)];
  }
  return text.length > MAX_CHARACTERS ? [...tokens, plain(text.slice(MAX_CHARACTERS))] : tokens;
}

/** Text of tokens as the reader sees it. */
export function seenText(tokens: Token[]): string {
  return tokens.map((token) => ('tokens' in token && token.tokens ? seenText(token.tokens) : 'text' in token ? decodeEntities(String(token.text)) : '')).join('');
}

/** The first `budget` tokens in the order of reading, and whether there are more. */
export function firstTokens(tokens: Token[], budget: number): { tokens: Token[]; isCut: boolean } {
  const state = { left: budget, isCut: false };
  const kept = prune(tokens, state);
  // The same objects as before, so that what is shown already is not rendered again.
  return state.isCut ? { tokens: kept, isCut: true } : { tokens, isCut: false };
}

/** A block of code has more elements in the page than others. */
function costOf(token: unknown): number {
  return (token as Partial<Token>).type === 'code' ? 8 : 1;
}

function prune<T>(tokens: T[], state: { left: number; isCut: boolean }): T[] {
  const kept: T[] = [];
  for (const token of tokens) {
    if (state.left <= 0) {
      state.isCut = true;
      break;
    }
    state.left -= costOf(token);
    const copy = { ...token } as T & { tokens?: Token[]; items?: Token[]; rows?: Token[][] };
    if (copy.tokens) copy.tokens = prune(copy.tokens, state);
    if (copy.items) copy.items = prune(copy.items, state);
    if (copy.rows) copy.rows = prune(copy.rows, state).map((cells) => prune(Object.values(cells), state));
    kept.push(copy);
  }
  return kept;
}

const NAMED: Record<string, string> = {
  amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: '\u00a0', ndash: '–', mdash: '—', hellip: '…',
  rarr: '→', larr: '←', times: '×', middot: '·', bull: '•', copy: '©', deg: '°', euro: '€', laquo: '«', raquo: '»',
};

/** Text in which character references are replaced; unknown ones stay. */
export function decodeEntities(text: string): string {
  return text.replace(/&(?:#(\d{1,7})|#x([\da-f]{1,6})|([a-z]{2,8}));/gi, (whole, decimal?: string, hex?: string, name?: string) => {
    if (name) return NAMED[name] ?? whole;
    const code = decimal ? Number(decimal) : Number.parseInt(hex ?? '', 16);
    return code > 31 && code <= 0x10ffff ? String.fromCodePoint(code) : whole;
  });
}
