// Heights and positions of the rows of a virtual list. Rows that were never shown have an estimate.

export class RowHeights {
  #heights = new Float64Array(0);
  /** Position of the top of each row; valid for the rows up to `#validUpTo`. */
  #tops = new Float64Array(1);
  #validUpTo = 0;
  #count = 0;
  #keys: unknown[] = [];
  #measured = new Map<unknown, number>();

  constructor(readonly estimate: number) {}

  get count(): number {
    return this.#count;
  }

  get total(): number {
    return this.top(this.#count);
  }

  /** Takes the keys of the rows; measured heights stay with their keys. */
  setKeys(keys: unknown[]) {
    const kept = this.#sameStart(keys);
    const keptAtEnd = this.#sameEnd(keys, kept);
    this.#reserve(keys.length);
    this.#heights.copyWithin(keys.length - keptAtEnd, this.#count - keptAtEnd, this.#count);
    for (let index = kept; index < keys.length - keptAtEnd; index += 1) {
      this.#heights[index] = this.#measured.get(keys[index]) ?? this.estimate;
    }
    if (this.#measured.size > keys.length * 2 + 1000) this.#forgetExcept(keys);
    this.#keys = keys;
    this.#count = keys.length;
    this.#validUpTo = Math.min(this.#validUpTo, kept);
  }

  /** Position of the top of a row; of the end for the number of rows. */
  top(index: number): number {
    for (let row = this.#validUpTo; row < index; row += 1) {
      this.#tops[row + 1] = this.#tops[row]! + this.#heights[row]!;
    }
    this.#validUpTo = Math.max(this.#validUpTo, index);
    return this.#tops[index]!;
  }

  height(index: number): number {
    return this.#heights[index] ?? this.estimate;
  }

  /** Keeps a measured height. Returns whether it differs from the one before. */
  measure(index: number, height: number): boolean {
    this.#measured.set(this.#keys[index], height);
    if (Math.abs(this.height(index) - height) < 0.5) return false;
    this.#heights[index] = height;
    this.#validUpTo = Math.min(this.#validUpTo, index);
    return true;
  }

  /** All measured heights are wrong, such as after a change of the width. */
  forget() {
    this.#measured.clear();
  }

  /** The row at a position. */
  indexAt(position: number): number {
    this.top(this.#count);
    let [low, high] = [0, Math.max(0, this.#count - 1)];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.#tops[middle]! <= position) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** The row that has the key, or -1. */
  indexOf(key: unknown): number {
    return this.#keys.indexOf(key);
  }

  key(index: number): unknown {
    return this.#keys[index];
  }

  /** Rows at the start that are as before. Rows are mostly added at one end, which costs little then. */
  #sameStart(keys: unknown[]): number {
    const limit = Math.min(keys.length, this.#count);
    let index = 0;
    while (index < limit && keys[index] === this.#keys[index]) index += 1;
    return index;
  }

  #sameEnd(keys: unknown[], start: number): number {
    const limit = Math.min(keys.length, this.#count) - start;
    let count = 0;
    while (count < limit && keys[keys.length - 1 - count] === this.#keys[this.#count - 1 - count]) count += 1;
    return count;
  }

  #reserve(count: number) {
    if (count <= this.#heights.length) return;
    const size = Math.max(count, this.#heights.length * 2, 256);
    const [heights, tops] = [new Float64Array(size), new Float64Array(size + 1)];
    heights.set(this.#heights);
    tops.set(this.#tops);
    [this.#heights, this.#tops] = [heights, tops];
  }

  #forgetExcept(keys: unknown[]) {
    const present = new Set(keys);
    for (const key of this.#measured.keys()) if (!present.has(key)) this.#measured.delete(key);
  }
}
