// The time of now, for lengths of what has not ended.

/** Ticks once a second while the component lives and `runs` says so. */
export function clock(runs: () => boolean = () => true): { readonly now: number } {
  let now = $state(Date.now());
  $effect(() => {
    if (!runs()) return;
    now = Date.now();
    const timer = setInterval(() => (now = Date.now()), 1000);
    return () => clearInterval(timer);
  });
  return {
    get now() {
      return now;
    },
  };
}
