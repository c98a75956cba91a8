// Series of a plot, and how they are told apart: by colour, and by dashes or hatching.
import { toDate, type Moment } from '$lib/format';

export type Series = {
  label: string;
  values: readonly (number | null)[];
  /** Colour; default: the next of the palette. */
  stroke?: string;
};

/** Contrast of 3 at least with the surface of the theme. */
const LIGHT = ['#2a55c8', '#b4450f', '#0d7a5f', '#8a3ab0', '#8a6100', '#b3261e', '#1d6f8f', '#5b6470'];
const DARK = ['#8aabff', '#f2a272', '#6cd3b2', '#d39cf0', '#e5c15c', '#ff9d94', '#7cc8ea', '#aab3c0'];
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [14, 4], [4, 4], [1, 4], [8, 3, 2, 3, 2, 3]];

export function colorOf(index: number, isDark: boolean): string {
  const palette = isDark ? DARK : LIGHT;
  return palette[index % palette.length]!;
}

export function dashOf(index: number): number[] {
  return DASHES[index % DASHES.length]!;
}

/** Lines, in a square of 8, that hatch the bars of a series; none for the first. */
export function hatchOf(index: number): [number, number, number, number][] {
  const hatches: [number, number, number, number][][] = [
    [],
    [[0, 8, 8, 0], [-2, 2, 2, -2], [6, 10, 10, 6]],
    [[0, 4, 8, 4]],
    [[0, 0, 8, 8], [-2, 6, 2, 10], [6, -2, 10, 2]],
    [[4, 0, 4, 8]],
    [[0, 0, 8, 8], [0, 8, 8, 0]],
    [[0, 2, 8, 2], [2, 0, 2, 8]],
    [[3, 4, 5, 4]],
  ];
  return hatches[index % hatches.length]!;
}

/** Whether all values are times; names of categories otherwise. */
export function isTimes(x: readonly Moment[] | readonly string[]): x is readonly Moment[] {
  const isTime = (value: Moment) => (typeof value === 'string' ? /^\d{4}-\d\d-\d\d[T ]/.test(value) : toDate(value) !== undefined);
  return x.length > 0 && x.every(isTime);
}
