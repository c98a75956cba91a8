import { texts } from '$lib/i18n.svelte';

/** Texts of the components themselves. */
export const t = texts({
  en: {
    close: 'Close',
    cancel: 'Cancel',
    confirm: 'Confirm',
    retry: 'Try again',
    loading: 'Loading',
    clear: 'Clear',
    notifications: 'Notifications',
    resize: 'Resize the parts',
    noOption: 'Nothing matches.',
    required: 'required',
    copy: 'Copy',
    copied: 'Copied',
  },
  zh: {
    close: '关闭',
    cancel: '取消',
    confirm: '确认',
    retry: '重试',
    loading: '正在加载',
    clear: '清除',
    notifications: '通知',
    resize: '调整大小',
    noOption: '没有匹配项。',
    required: '必填',
    copy: '复制',
    copied: '已复制',
  },
});
