// Headers and fields that a provider's settings add to its requests: parsed and checked as the
// server does (crates/llm/src/extras.rs). Which names Holdfast sets itself, the server alone knows.
import { t } from './text';

const MAX_HEADERS = 32;
const MAX_HEADER_NAME_BYTES = 100;
const MAX_HEADER_VALUE_BYTES = 8_000;
const MAX_BODY_BYTES = 16 * 1024;

type Header = { name: string; value: string | undefined };

/** Lines such as `X-Title: Holdfast`; a line without a colon has no value. */
function parse(text: string): Header[] {
  const lines = text.split('\n').map((line) => line.trim());
  return lines.filter(Boolean).map((line) => {
    const at = line.indexOf(':');
    return at < 0 ? { name: line, value: undefined } : { name: line.slice(0, at).trim(), value: line.slice(at + 1).trim() };
  });
}

export function headersOf(text: string): Record<string, string> {
  return Object.fromEntries(parse(text).map(({ name, value }) => [name, value ?? '']));
}

/** Why the headers cannot be sent; empty if they can. Values are never repeated. */
export function headersError(text: string): string {
  const headers = parse(text);
  if (headers.length > MAX_HEADERS) return t('tooManyHeaders', { most: MAX_HEADERS });
  for (const { name, value } of headers) {
    if (value === undefined) return t('headerForm');
    if (name.length > MAX_HEADER_NAME_BYTES || !/^[A-Za-z0-9_.-]+$/.test(name)) return t('headerName', { name: name.slice(0, 80) });
    if (value.length > MAX_HEADER_VALUE_BYTES || !/^[ -~]*$/.test(value)) return t('headerValue', { name: name.toLowerCase(), most: MAX_HEADER_VALUE_BYTES });
  }
  return '';
}

/** Why the fields of a body cannot be sent; empty if they can, or if there are none. */
export function bodyError(text: string): string {
  if (text.trim() === '') return '';
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    return t('bodyForm');
  }
  if (typeof body !== 'object' || body === null || Array.isArray(body)) return t('bodyForm');
  const bytes = new TextEncoder().encode(JSON.stringify(body)).length;
  return bytes > MAX_BODY_BYTES ? t('bodySize', { bytes, most: MAX_BODY_BYTES }) : '';
}

/** The stored fields, in lines; empty if there are none. */
export function shownBody(stored: string | undefined): string {
  if (!stored || stored === '{}') return '';
  try {
    return JSON.stringify(JSON.parse(stored), null, 2);
  } catch {
    return stored;
  }
}
