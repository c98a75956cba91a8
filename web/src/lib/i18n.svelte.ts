// Texts in English and Chinese. Each area of pages has its own; the compiler checks that both
// languages have the same texts.

export type Language = 'en' | 'zh';
type Parameters = Record<string, string | number>;

export const languages: { id: Language; name: string }[] = [
  { id: 'en', name: 'English' },
  { id: 'zh', name: '中文' },
];

const KEY = 'holdfast.language';

function initial(): Language {
  const chosen = localStorage.getItem(KEY) ?? navigator.language;
  return chosen.toLowerCase().startsWith('zh') ? 'zh' : 'en';
}

const first = initial();
let current = $state<Language>(first);
document.documentElement.lang = first;

export const language = {
  get id(): Language {
    return current;
  },
  /** For the `Intl` formatters. */
  get locale(): string {
    return current === 'zh' ? 'zh-CN' : navigator.language.startsWith('en') ? navigator.language : 'en-GB';
  },
  set(next: Language) {
    current = next;
    localStorage.setItem(KEY, next);
    document.documentElement.lang = next;
  },
};

/** Returns a function that looks a text up in the language of the page, and fills `{name}` in. */
export function texts<T extends Record<string, string>>(of: { en: T; zh: Record<keyof T, string> }) {
  return (key: keyof T & string, values: Parameters = {}): string => {
    const text: string = of[current][key] ?? of.en[key] ?? key;
    return text.replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
  };
}
