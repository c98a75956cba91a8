// Form fields of a JSON schema, and the object that a filled form stands for.

export type Values = Record<string, string | boolean>;

export type FormField = {
  /** Names from the outside in: `['groups', 'allow']`. */
  path: string[];
  /** The same as one name: `groups.allow`. */
  id: string;
  kind: 'text' | 'number' | 'boolean' | 'choice' | 'list' | 'json';
  hint: string;
  choices: { value: string; hint: string }[];
  /** What the schema has if the field is left out, as the form writes it. */
  fallback: string | boolean;
};

type Schema = {
  $ref?: string;
  $defs?: Record<string, Schema>;
  type?: string | string[];
  description?: string;
  default?: unknown;
  properties?: Record<string, Schema>;
  oneOf?: Schema[];
  anyOf?: Schema[];
  const?: unknown;
  enum?: unknown[];
};

type Json = Record<string, unknown>;

/** Fields of a schema; objects within it are taken apart. */
export function fieldsOf(text: string): FormField[] {
  const root = JSON.parse(text) as Schema;
  return Object.entries(root.properties ?? {}).flatMap(([name, schema]) => expand(root, [name], schema));
}

function expand(root: Schema, path: string[], raw: Schema): FormField[] {
  const schema = resolve(root, raw);
  if (schema.properties) {
    return Object.entries(schema.properties).flatMap(([name, inner]) => expand(root, [...path, name], inner));
  }
  const kind = kindOf(schema);
  const choices = choicesOf(schema);
  const fallback = written(kind, raw.default ?? schema.default ?? (kind === 'choice' ? choices[0]?.value : undefined));
  return [{ path, id: path.join('.'), kind, hint: (raw.description ?? schema.description ?? '').replaceAll('\n', ' '), choices, fallback }];
}

/** Follows a reference; what is beside it is kept. */
function resolve(root: Schema, schema: Schema): Schema {
  const inner = schema.anyOf?.find((one) => one.$ref && !schema.$ref);
  const reference = schema.$ref ?? inner?.$ref;
  const target = reference && root.$defs?.[reference.split('/').at(-1)!];
  return target ? { ...resolve(root, target), ...(schema.description ? { description: schema.description } : {}) } : schema;
}

function kindOf(schema: Schema): FormField['kind'] {
  const types = [schema.type ?? []].flat();
  if (choicesOf(schema).length > 0) return 'choice';
  if (types.includes('boolean')) return 'boolean';
  if (types.includes('integer') || types.includes('number')) return 'number';
  if (types.includes('array')) return 'list';
  return types.includes('string') ? 'text' : 'json';
}

function choicesOf(schema: Schema): FormField['choices'] {
  const single = (schema.enum ?? []).map((value) => ({ value: String(value), hint: '' }));
  const described = (schema.oneOf ?? []).flatMap(({ enum: values, const: value, description }) =>
    (values ?? (value === undefined ? [] : [value])).map((one) => ({ value: String(one), hint: description ?? '' })),
  );
  return [...single, ...described];
}

function written(kind: FormField['kind'], value: unknown): string | boolean {
  if (kind === 'boolean') return value === true;
  if (value === undefined || value === null) return '';
  if (kind === 'list' && Array.isArray(value)) return value.join('\n');
  return kind === 'json' ? JSON.stringify(value) : String(value);
}

/** What a form shows for settings. */
export function valuesOf(fields: FormField[], settings: Json): Values {
  const entries = fields.map((field): [string, string | boolean] => {
    const value = field.path.reduce<unknown>((inner, name) => (inner as Json | undefined | null)?.[name], settings);
    return [field.id, value === undefined || value === null ? field.fallback : written(field.kind, value)];
  });
  return Object.fromEntries(entries);
}

/** Settings of a filled form; what the form does not know is kept from `before`. */
export function settingsOf(fields: FormField[], values: Values, before: Json = {}): Json {
  const settings = structuredClone(before);
  for (const field of fields) {
    const value = values[field.id] ?? field.fallback;
    put(settings, field.path, value === '' || value === field.fallback ? undefined : parsed(field.kind, value));
  }
  return settings;
}

function parsed(kind: FormField['kind'], value: string | boolean): unknown {
  if (typeof value === 'boolean') return value;
  if (kind === 'number') return Number(value);
  if (kind === 'json') return JSON.parse(value);
  return kind === 'list' ? value.split('\n').map((line) => line.trim()).filter(Boolean) : value.trim();
}

/** Sets or removes a value within an object. */
function put(object: Json, path: string[], value: unknown) {
  const [name, ...rest] = path;
  if (name === undefined) return;
  if (rest.length > 0) {
    const inner = (object[name] ?? {}) as Json;
    put(inner, rest, value);
    if (Object.keys(inner).length > 0) object[name] = inner;
    else delete object[name];
  } else if (value === undefined) delete object[name];
  else object[name] = value;
}
