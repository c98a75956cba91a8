// Values as the JSON tree shows them.

export function isFoldable(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !(value instanceof Uint8Array) && !(value instanceof Date);
}

/** Fields of an object or entries of an array. Names that begin with `$` are of the API's own messages. */
export function entriesOf(value: object): [string, unknown][] {
  if (value instanceof Map) return [...value].map(([key, field]) => [String(key), field as unknown]);
  return Object.entries(value).filter(([key]) => !/^\$(typeName|unknown)$/.test(key));
}

export function scalarText(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value);
  if (value instanceof Uint8Array) return `${value.length} bytes`;
  if (value instanceof Date) return value.toISOString();
  if (isFoldable(value)) return Array.isArray(value) ? '[]' : '{}';
  return String(value);
}

/** The whole value as text; an empty text if it refers to itself. */
export function jsonText(value: unknown): string {
  const plain = (key: string, field: unknown) => {
    if (key === '$typeName' || key === '$unknown') return undefined;
    if (typeof field === 'bigint') return field.toString();
    return field instanceof Uint8Array ? scalarText(field) : field;
  };
  try {
    return JSON.stringify(value, plain, 2) ?? '';
  } catch {
    return '';
  }
}
