// Rows of a table that are in the page: the visible ones, and some around them.

/** Rows around the visible ones, on each side. */
const OVERSCAN = 8;

export class RowWindow {
  scrollTop = $state(0);
  viewHeight = $state(0);
  /** The rows around the visible ones are in the page. */
  #isFull = $state(true);
  readonly #count: () => number;
  readonly #height: () => number;

  constructor(count: () => number, height: () => number) {
    this.#count = count;
    this.#height = height;
  }

  readonly #around = $derived.by(() => (this.#isFull ? OVERSCAN : 0));
  readonly first = $derived.by(() => Math.max(0, Math.min(Math.floor(this.scrollTop / this.#height()) - this.#around, this.#count())));
  readonly last = $derived.by(() => Math.min(this.#count(), Math.ceil((this.scrollTop + this.viewHeight) / this.#height()) + this.#around));
  /** Places for rows: one that leaves the page leaves its elements to another. */
  readonly places = $derived.by(() => Math.ceil(this.viewHeight / this.#height()) + 2 * OVERSCAN + 2);
  readonly isNearEnd = $derived.by(() => this.last >= this.#count() - OVERSCAN * 2);

  /** After a jump the visible rows come first, and those around them in a task of their own. */
  scroll(position: number) {
    const isJump = Math.abs(position - this.scrollTop) > OVERSCAN * this.#height();
    if (isJump && this.#isFull) {
      this.#isFull = false;
      setTimeout(() => (this.#isFull = true));
    }
    this.scrollTop = position;
  }
}
