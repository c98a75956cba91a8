// Surfaces of A2UI 0.8, made of the messages that a model wrote. Nothing of them is trusted.

type Data = Record<string, unknown>;

export type UiNode = {
  type: string;
  props: Data;
  children: UiNode[];
  /** Values that texts with a path refer to: of its place, and of the surface for paths from the root. */
  scope: unknown;
  model: unknown;
};

/** Nodes of a surface; components may refer to each other in circles. */
const MAX_NODES = 2000;
const MAX_DEPTH = 30;

const isData = (value: unknown): value is Data => typeof value === 'object' && value !== null && !Array.isArray(value);
const dataOf = (value: unknown): Data => (isData(value) ? value : {});
const listOf = (value: unknown): unknown[] => (Array.isArray(value) ? (value as unknown[]) : []);

/** The tree of a surface; `undefined` if its messages make none. */
export function parseSurface(content: string): UiNode | undefined {
  let messages: unknown;
  try {
    messages = JSON.parse(content);
  } catch {
    return undefined;
  }
  const components = new Map<string, Data>();
  const model: Data = {};
  let root = '';
  for (const message of listOf(messages).map(dataOf)) {
    for (const one of listOf(dataOf(message['surfaceUpdate'])['components']).map(dataOf)) {
      components.set(String(one['id']), dataOf(one['component']));
    }
    if (isData(message['dataModelUpdate'])) applyUpdate(model, message['dataModelUpdate']);
    if (isData(message['beginRendering'])) root = String(message['beginRendering']['root']);
    if (isData(message['deleteSurface'])) root = '';
  }
  return root ? new Builder(components, model).node(root, model, 0) : undefined;
}

class Builder {
  #left = MAX_NODES;

  constructor(
    readonly components: ReadonlyMap<string, Data>,
    readonly model: Data,
  ) {}

  node(id: string, scope: unknown, depth: number): UiNode | undefined {
    const [type, props] = Object.entries(this.components.get(id) ?? {})[0] ?? [];
    if (type === undefined || depth > MAX_DEPTH || this.#left <= 0) return undefined;
    this.#left -= 1;
    return { type, props: dataOf(props), scope, model: this.model, children: this.#children(dataOf(props), scope, depth + 1) };
  }

  #children(props: Data, scope: unknown, depth: number): UiNode[] {
    const children = dataOf(props['children']);
    const template = dataOf(children['template']);
    const ids = [...listOf(children['explicitList']), props['child'], ...listOf(props['tabItems']).map((tab) => dataOf(tab)['child'])];
    const nodes = ids.filter((id) => typeof id === 'string').map((id) => this.node(id, scope, depth));
    if (typeof template['componentId'] === 'string') {
      const id = template['componentId'];
      const items = at(scope, this.model, String(template['dataBinding'] ?? ''));
      const values = Array.isArray(items) ? (items as unknown[]) : Object.values(dataOf(items));
      nodes.push(...values.map((item) => this.node(id, item, depth)));
    }
    return nodes.filter((node) => node !== undefined);
  }
}

/** The text of a bound value: a literal, or what its path names. */
export function textOf(value: unknown, { scope, model }: Pick<UiNode, 'scope' | 'model'>): string {
  const bound = dataOf(value);
  const literal = bound['literalString'] ?? bound['literalNumber'] ?? bound['literalBoolean'];
  if (literal !== undefined) return String(literal);
  const found = typeof bound['path'] === 'string' ? at(scope, model, bound['path']) : undefined;
  return typeof found === 'object' || found === undefined ? '' : String(found);
}

function at(scope: unknown, root: unknown, path: string): unknown {
  const names = path.split('/').filter(Boolean);
  const start = path.startsWith('/') ? root : scope;
  return names.reduce<unknown>((value, name) => (isData(value) && Object.hasOwn(value, name) ? value[name] : Array.isArray(value) ? value[Number(name)] : undefined), start);
}

function applyUpdate(model: Data, update: Data) {
  let place = model;
  for (const name of String(update['path'] ?? '').split('/').filter(Boolean)) {
    if (!isData(place[name]) || !Object.hasOwn(place, name)) define(place, name, {});
    place = dataOf(place[name]);
  }
  for (const [name, value] of pairsOf(update['contents'])) define(place, name, value);
}

function pairsOf(contents: unknown): [string, unknown][] {
  return listOf(contents).map(dataOf).map((one) => {
    const map = one['valueMap'];
    const value = one['valueString'] ?? one['valueNumber'] ?? one['valueBoolean'] ?? (map ? Object.fromEntries(pairsOf(map)) : '');
    return [String(one['key']), value];
  });
}

/** Sets an own property whatever its name is, such as `__proto__`. */
function define(place: Data, name: string, value: unknown) {
  Object.defineProperty(place, name, { value, enumerable: true, configurable: true, writable: true });
}
