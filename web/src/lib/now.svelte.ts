// The time of the page, for texts such as "5 minutes ago".

/** Time between changes, in milliseconds. */
const STEP = 15_000;

let current = $state(Date.now());
setInterval(() => (current = Date.now()), STEP);

export const now = {
  /** Exact to 15 s; times that are newer count as now. */
  get minute(): number {
    return current;
  },
};
