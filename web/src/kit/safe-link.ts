// Which addresses in untrusted text may become links.

export type SafeLink = {
  href: string;
  /** What a person should know of where the link goes. */
  host: string;
  /** A page of the console, which opens in this tab. */
  isOwnPage: boolean;
};

/** Paths of the console that are no pages: they sign in or answer calls. */
const NO_PAGE = /^\/console\/(?:api|ws|oidc|sign-in|sign-out)(?:\/|$)/;

/** The link for an address, or undefined if it must stay text. */
export function safeLink(address: string): SafeLink | undefined {
  const given = address.trim();
  if (given.length > 4096 || !/^(?:https?:\/\/|mailto:|\/console(?:\/|$))/i.test(given)) return undefined;
  if (!URL.canParse(given, location.origin)) return undefined;
  const url = new URL(given, location.origin);
  if (!['http:', 'https:', 'mailto:'].includes(url.protocol)) return undefined;
  if (url.protocol === 'mailto:') return { href: url.href, host: url.pathname, isOwnPage: false };
  if (given.startsWith('/') && url.origin !== location.origin) return undefined;
  if (url.origin !== location.origin) return { href: url.href, host: url.host, isOwnPage: false };
  // The fragment of an own page could hold a sign-in link of somebody else.
  if (NO_PAGE.test(decoded(url.pathname))) return undefined;
  const isOwnPage = url.pathname.startsWith('/console/');
  return { href: isOwnPage ? url.pathname + url.search : url.href, host: url.host, isOwnPage };
}

function decoded(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}

const HOST_IN_TEXT = /(?:[\p{L}\p{N}-]+\.)+[\p{L}\p{N}-]{2,}/u;

/** Characters of a text in which a host is looked for. */
const MAX_CHARACTERS = 500;

/** A text as a reader sees it: with the usual dots, and without characters that nobody sees. */
function seen(text: string): string {
  const oneLine = text.replace(/\s+/g, ' ').slice(0, MAX_CHARACTERS);
  return oneLine.normalize('NFKC').replace(/\p{Cf}|\p{Mn}/gu, '').replaceAll('。', '.');
}

/** The host to show after the text of a link, because the text looks like another one. */
export function hostToShow(text: string, link: SafeLink): string {
  const found = HOST_IN_TEXT.exec(seen(text))?.[0];
  if (link.isOwnPage) return found ? link.href : '';
  if (!found) return '';
  const plain = (host: string) => host.toLowerCase().replace(/^www\./, '').replace(/:\d+$/, '');
  if (link.href.startsWith('mailto:')) return text.trim().toLowerCase() === link.host.toLowerCase() ? '' : link.host;
  return plain(found) === plain(link.host) ? '' : link.host;
}
