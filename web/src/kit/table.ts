// Types of DataTable, and the order of its rows.
import type { Snippet } from 'svelte';

/** A value that rows can be sorted by. */
export type SortValue = string | number | bigint | boolean | Date | null | undefined;

export type Column<T> = {
  key: string;
  label: string;
  /** Content of a cell; default: the field `key` of the row as text. */
  cell?: Snippet<[T]>;
  /** Text of a cell without a snippet. */
  text?: (row: T) => string;
  /** A size of CSS grid, such as `120px` or `2fr`. */
  width?: string;
  align?: 'start' | 'end';
  /** Rows can be sorted by the column: by its field, or by the value returned. */
  sort?: boolean | ((row: T) => SortValue);
};

export type Sort = { key: string; descending: boolean };

/** Properties of DataTable. */
export type TableProps<T> = {
  rows: readonly T[];
  columns: Column<T>[];
  label: string;
  /** Opens a row: by click or Enter. */
  onrow?: (row: T) => void;
  /** Reads more rows; called when the end is near. */
  more?: () => void;
  /** All rows are loaded. */
  done?: boolean;
  /** Keys of the selected rows. Rows can be selected if it is given. */
  selected?: Set<string>;
  key?: (row: T, index: number) => string;
  sort?: Sort;
  /** The caller sorts. Without it the loaded rows are sorted here. */
  onsort?: (sort: Sort | undefined) => void;
  /** Number of rows in all, if it is known. */
  total?: number;
  empty?: Snippet;
  /** Takes the height of its place. */
  fill?: boolean;
  rowHeight?: number;
  class?: string;
};

export function fieldOf<T>(row: T, name: string): unknown {
  return (row as Record<string, unknown>)[name];
}

/** Identity of a row without a `key`: its id, its name, or its place. */
export function defaultKey<T>(row: T, index: number): string {
  const id = fieldOf(row, 'id') ?? fieldOf(row, 'name');
  return typeof id === 'string' && id !== '' ? id : String(index);
}

export function cellText<T>(row: T, column: Column<T>): string {
  if (column.text) return column.text(row);
  const value = fieldOf(row, column.key);
  return value === undefined || value === null ? '' : String(value);
}

export function sortRows<T>(rows: readonly T[], columns: Column<T>[], sort: Sort | undefined, locale: string): readonly T[] {
  const column = columns.find(({ key }) => key === sort?.key);
  if (!sort || !column?.sort) return rows;
  const by = typeof column.sort === 'function' ? column.sort : (row: T) => fieldOf(row, column.key) as SortValue;
  const { compare } = new Intl.Collator(locale, { numeric: true });
  const entries = rows.map((row) => ({ row, value: by(row) }));
  const direction = sort.descending ? -1 : 1;
  entries.sort((one, other) => compareValues(one.value, other.value, compare, direction));
  return entries.map(({ row }) => row);
}

/** Empty values come last in both directions. */
function compareValues(one: SortValue, other: SortValue, compare: (a: string, b: string) => number, direction: number): number {
  const [oneEmpty, otherEmpty] = [one ?? '', other ?? ''].map((value) => value === '');
  if (oneEmpty || otherEmpty) return Number(oneEmpty) - Number(otherEmpty);
  if (typeof one === 'string' && typeof other === 'string') return direction * compare(one, other);
  return direction * (one! < other! ? -1 : one! > other! ? 1 : 0);
}

/** The selected rows and those of a range, whose ends can be in any order. */
export function withRange(selected: Set<string> | undefined, from: number, to: number, keyAt: (index: number) => string): Set<string> {
  const next = new Set(selected);
  for (let index = Math.min(from, to); index <= Math.max(from, to); index += 1) next.add(keyAt(index));
  return next;
}

/** The row that a key moves to; undefined for keys that do not move. It can be beyond the ends. */
export function rowAfterKey(key: string, active: number, page: number, count: number): number | undefined {
  const rows: Record<string, number> = {
    ArrowDown: active + 1,
    ArrowUp: active - 1,
    PageDown: active + page,
    PageUp: active - page,
    Home: 0,
    End: count - 1,
  };
  return rows[key];
}

export function toggled(selected: Set<string>, key: string): Set<string> {
  const next = new Set(selected);
  if (!next.delete(key)) next.add(key);
  return next;
}

/** A column is sorted upwards, then downwards, then not any more. */
export function nextSort(sort: Sort | undefined, key: string): Sort | undefined {
  if (sort?.key !== key) return { key, descending: false };
  return sort.descending ? undefined : { key, descending: true };
}
