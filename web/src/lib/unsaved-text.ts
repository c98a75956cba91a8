import { texts } from '$lib/i18n.svelte';

export const t = texts({
  en: { leave: 'Leave without saving? What you changed is lost.' },
  zh: { leave: '不保存就离开吗？您的更改将会丢失。' },
});
