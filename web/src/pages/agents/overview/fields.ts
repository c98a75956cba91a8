// Form fields of an agent's settings, from the descriptions and values that the gateway has.
import type { Setting, SettingDescription } from '$api/gen/holdfast/gateway/v1/settings_pb';

type Schema = { type?: string; enum?: string[]; items?: { type?: string }; minimum?: number; maximum?: number };

export type Field = {
  /** Such as `queue_mode`. */
  name: string;
  path: string;
  description: string;
  kind: 'text' | 'long' | 'number' | 'choice' | 'list' | 'json';
  choices: string[];
  minimum: number | undefined;
  maximum: number | undefined;
};

/** Settings that most people look for, in the order of the form. */
const MAIN = ['description', 'instructions', 'model', 'fallbacks', 'thinking', 'queue_mode', 'debounce_ms', 'time_zone'];

export const isMain = ({ name }: Field) => MAIN.includes(name);

/** Fields of an agent, without its policy, which has an editor of its own. */
export function fieldsOf(descriptions: SettingDescription[], agent: string): Field[] {
  const fields = descriptions.flatMap(({ path, description, schema }) => {
    const [area, , name] = path.split('.');
    return area === 'agents' && name && name !== 'policy' ? [fieldOf(name, `agents.${agent}.${name}`, description, schema)] : [];
  });
  const place = ({ name }: Field) => (MAIN.includes(name) ? MAIN.indexOf(name) : MAIN.length);
  return fields.toSorted((one, other) => place(one) - place(other));
}

function fieldOf(name: string, path: string, description: string, text: string): Field {
  const schema = JSON.parse(text) as Schema;
  return { name, path, description, kind: kindOf(name, schema), choices: schema.enum ?? [], minimum: schema.minimum, maximum: schema.maximum };
}

function kindOf(name: string, schema: Schema): Field['kind'] {
  if (schema.enum) return 'choice';
  if (schema.type === 'integer' || schema.type === 'number') return 'number';
  if (schema.type === 'array' && schema.items?.type === 'string') return 'list';
  if (schema.type === 'string') return name === 'instructions' ? 'long' : 'text';
  return 'json';
}

/** What the form shows for each field, and the version of the agent. */
export function valuesOf(fields: Field[], settings: Setting[]): { values: Record<string, string>; version: bigint } {
  const byPath = new Map(settings.map((setting) => [setting.path, setting]));
  const values = Object.fromEntries(fields.map((field) => [field.name, shownValue(field, byPath.get(field.path)?.value)]));
  return { values, version: byPath.get(fields[0]?.path ?? '')?.version ?? 0n };
}

function shownValue({ kind }: Field, json: string | undefined): string {
  const value = JSON.parse(json || 'null') as unknown;
  if (value === null) return '';
  if (kind === 'list' && Array.isArray(value)) return value.join('\n');
  return kind === 'json' ? JSON.stringify(value, null, 2) : String(value);
}

/** The JSON that a filled field stands for; an empty one is the default. Throws for invalid JSON. */
export function jsonOf({ kind }: Field, text: string): string {
  if (kind === 'list') return JSON.stringify(text.split('\n').map((line) => line.trim()).filter(Boolean));
  if (text.trim() === '') return 'null';
  if (kind === 'number') return JSON.stringify(Number(text));
  return kind === 'json' ? JSON.stringify(JSON.parse(text)) : JSON.stringify(text);
}

export type Problem = 'notANumber' | 'outOfRange' | 'notJson' | '';

export function problemOf({ kind, minimum, maximum }: Field, text: string): Problem {
  if (text.trim() === '') return '';
  if (kind === 'number') {
    const value = Number(text);
    if (!Number.isInteger(value)) return 'notANumber';
    return value < (minimum ?? -Infinity) || value > (maximum ?? Infinity) ? 'outOfRange' : '';
  }
  if (kind !== 'json') return '';
  try {
    JSON.parse(text);
    return '';
  } catch {
    return 'notJson';
  }
}
