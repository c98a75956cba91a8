// Rows of a tree that are visible, in the order in which they are shown.
import { duration } from '$lib/format';
import type { TreeNode } from './tree';

export type Order = 'time' | 'cost' | 'tokens' | 'duration';

export type TreeRow = {
  node: TreeNode;
  /** From 1. */
  level: number;
  /** Place among its siblings, from 1, and their number. */
  position: number;
  size: number;
  isExpanded: boolean;
  canExpand: boolean;
  /** Index of the row above it in the tree; -1 of the root. */
  parent: number;
};

/** Length in milliseconds; `undefined` if it is not known. */
export function lengthOf({ start, end }: TreeNode, now: number): number | undefined {
  return start === undefined ? undefined : Math.max(0, (end ?? now) - start);
}

export function lengthText(node: TreeNode, now: number): string {
  const length = lengthOf(node, now);
  return length === undefined || (length === 0 && node.end !== undefined) ? '' : duration(length);
}

function value(node: TreeNode, order: Order): number {
  if (order === 'cost') return node.total.cost;
  if (order === 'tokens') return node.total.tokens;
  // What lasts is longest; its length would change the order each second.
  return node.start === undefined ? 0 : (node.end ?? Infinity) - node.start;
}

export function visibleRows(root: TreeNode, order: Order, isExpanded: (node: TreeNode) => boolean): TreeRow[] {
  const rows: TreeRow[] = [];
  const add = (node: TreeNode, level: number, position: number, size: number, parent: number) => {
    const canExpand = node.isLazy || node.children.length > 0;
    const open = canExpand && isExpanded(node);
    const index = rows.push({ node, level, position, size, isExpanded: open, canExpand, parent }) - 1;
    if (!open) return;
    const children =
      order === 'time' ? node.children : [...node.children].sort((one, other) => value(other, order) - value(one, order) || 0);
    children.forEach((child, place) => add(child, level + 1, place + 1, children.length, index));
  };
  add(root, 1, 1, 1, -1);
  return rows;
}

/** Nodes of the tree that a row of `id` is below, from the root on. */
export function pathTo(root: TreeNode, id: string): TreeNode[] {
  if (root.id === id) return [root];
  for (const child of root.children) {
    const path = pathTo(child, id);
    if (path.length) return [root, ...path];
  }
  return [];
}
