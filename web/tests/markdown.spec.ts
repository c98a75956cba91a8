// Markdown that is made to keep a reader's browser busy, or to look like something else.
import { expect, test } from '@playwright/test';
import type { Token } from 'marked';
import { lex } from '../src/kit/markdown/lex';
import { plainOutput } from '../src/kit/plain-output';

/** Time of the processor for one text, in milliseconds; far above the limit of the lexer itself. */
const MAX_TIME = 400;

const MEGABYTE = 1_000_000;
const times = (text: string, characters = MEGABYTE) => text.repeat(Math.ceil(characters / text.length));

const HOSTILE: Record<string, string> = {
  'a long word': times('W'),
  'open brackets': times('['),
  'open pictures': times('!['),
  'brackets in brackets': times('[', 400_000) + times(']', 400_000),
  'links without an end': times('[a]('),
  'links in angle brackets': times('[a](<b'),
  'links with titles': times('[a](b "'),
  references: times('[a][b]'),
  'definitions without an end': times('[a]:\n'),
  stars: times('*'),
  'stars and letters': times('*a '),
  'mixed emphasis': times('*a_b**c__'),
  underscores: times('_a'),
  tildes: times('~~a'),
  backticks: times('`'),
  'backticks of all lengths': Array.from({ length: 1400 }, (_, length) => '`'.repeat(length)).join(' '),
  'open tags': times('<'),
  'tags without an end': times('<a b="'),
  comments: times('<!--'),
  declarations: times('<?x <!y <![CDATA['),
  'addresses in brackets': times('<a@'),
  'addresses of mail': times('a@b.'),
  'addresses of the web': times('http://a.'),
  'addresses with brackets': `http://a/${times('(')}`,
  www: times('www.'),
  entities: times('&#x'),
  escapes: times('\\['),
  quotes: times('>'),
  'quotes in lines': times('> > > > a\n'),
  'lists in lists': Array.from({ length: 1000 }, (_, depth) => `${'  '.repeat(depth)}- a`).join('\n'),
  'lists in a line': times('- '),
  'numbered lists': times('1. '),
  'list and blank lines': times('- a\n\n\n'),
  'task lists': times('- [ ] '),
  'rules': times('- - -\n'),
  'headings': times('#'),
  'headings by lines below': times('a\n=\n'),
  'spaces': times(' '),
  'tabs': times('\t'),
  'blank lines': times('\n'),
  'lines with spaces': times('  \n'),
  'fences': times('```\n'),
  'fences without an end': times('~~~a\n'),
  'a wide table': `${times('|a')}\n${times('|-')}\n`,
  'a long table': `|a|b|\n|-|-|\n${times('|c|d|\n')}`,
  'tables in lines': times('|a|\n|-|\n'),
  'a table of pipes': `|a|\n|-|\n${times('|')}`,
  'line breaks': times('a  \n'),
};

/** Time of the processor for something, in milliseconds. */
function timeOf(something: () => void): number {
  const before = process.cpuUsage();
  something();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}

test('hostile Markdown is read in a short time, whole or as plain text', () => {
  for (const [name, text] of Object.entries(HOSTILE)) {
    let tokens: Token[] = [];
    expect.soft(timeOf(() => (tokens = lex(text))), name).toBeLessThan(MAX_TIME);
    const length = tokens.reduce((sum, { raw }) => sum + raw.length, 0);
    expect.soft(length, `nothing of ${name} is lost`).toBeGreaterThan(text.length * 0.9);
  }
});

test('output of programs is read in a short time whatever it has', () => {
  for (const text of ['\u001b]', '\u001b[', '\u001b[1;', '\u009b', '\r', '\r\n', 'a\r', '\u001b]8;;http://a', '\b']) {
    expect.soft(timeOf(() => plainOutput(times(text))), JSON.stringify(text)).toBeLessThan(MAX_TIME);
  }
});
