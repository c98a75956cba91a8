// Light or dark, as the system says unless the person chose.

export type Theme = 'system' | 'light' | 'dark';

const KEY = 'holdfast.theme';
const system = matchMedia('(prefers-color-scheme: dark)');

function stored(): Theme {
  const value = localStorage.getItem(KEY);
  return value === 'light' || value === 'dark' ? value : 'system';
}

let chosen = $state<Theme>(stored());
let systemIsDark = $state(system.matches);
const isDark = $derived(chosen === 'dark' || (chosen === 'system' && systemIsDark));

function apply() {
  const dark = chosen === 'dark' || (chosen === 'system' && systemIsDark);
  document.documentElement.dataset['theme'] = dark ? 'dark' : 'light';
}

system.addEventListener('change', (event) => {
  systemIsDark = event.matches;
  apply();
});
apply();

export const theme = {
  get chosen(): Theme {
    return chosen;
  },
  get isDark(): boolean {
    return isDark;
  },
  set(next: Theme) {
    chosen = next;
    localStorage.setItem(KEY, next);
    apply();
  },
};
