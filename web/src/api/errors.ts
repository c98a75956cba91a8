// Errors of the gateway in words.
import { Code, ConnectError } from '@connectrpc/connect';
import { texts } from '$lib/i18n.svelte';

const t = texts({
  en: {
    signedOut: 'You are signed out',
    signedOutText: 'Sign in again to go on. Nothing is lost.',
    forbidden: 'This is not allowed',
    missing: 'This does not exist',
    invalid: 'This cannot be used',
    conflict: 'Something changed meanwhile',
    busy: 'Too much at once',
    busyText: 'Wait a moment and try again.',
    away: 'The gateway cannot be reached',
    awayText: 'The console tries again by itself. If this stays, ask who runs Holdfast.',
    defect: 'Something failed in the gateway',
    request: 'request {id}',
  },
  zh: {
    signedOut: '您已退出登录',
    signedOutText: '重新登录即可继续，内容不会丢失。',
    forbidden: '没有权限',
    missing: '不存在',
    invalid: '无法使用',
    conflict: '内容已被更改',
    busy: '请求过多',
    busyText: '请稍候再试。',
    away: '无法连接网关',
    awayText: '控制台会自动重试。如果持续如此，请联系 Holdfast 的管理员。',
    defect: '网关内部出错',
    request: '请求 {id}',
  },
});

export type Words = { title: string; text: string; canRetry: boolean };

/** What a person is told about an error. */
export function words(error: unknown): Words {
  if (!(error instanceof ConnectError)) {
    const text = error instanceof Error ? error.message : String(error);
    return { title: t('defect'), text, canRetry: true };
  }
  const said = sentence(error.rawMessage);
  switch (error.code) {
    case Code.Unauthenticated:
      return { title: t('signedOut'), text: t('signedOutText'), canRetry: false };
    case Code.PermissionDenied:
      return { title: t('forbidden'), text: said, canRetry: false };
    case Code.NotFound:
      return { title: t('missing'), text: said, canRetry: false };
    case Code.InvalidArgument:
    case Code.OutOfRange:
    case Code.FailedPrecondition:
    case Code.Unimplemented:
      return { title: t('invalid'), text: said, canRetry: false };
    case Code.Aborted:
    case Code.AlreadyExists:
      return { title: t('conflict'), text: said, canRetry: true };
    case Code.ResourceExhausted:
      return { title: t('busy'), text: said || t('busyText'), canRetry: true };
    case Code.Unavailable:
    case Code.DeadlineExceeded:
    case Code.Canceled:
      return { title: t('away'), text: t('awayText'), canRetry: true };
    default: {
      const id = error.metadata.get('x-request-id');
      const text = id ? `${said} (${t('request', { id })})` : said;
      return { title: t('defect'), text, canRetry: true };
    }
  }
}

export function isSignedOut(error: unknown): boolean {
  return error instanceof ConnectError && error.code === Code.Unauthenticated;
}

export function isMissing(error: unknown): boolean {
  return error instanceof ConnectError && error.code === Code.NotFound;
}

/** The gateway could not be reached, so that the same call may succeed later. */
export function isAway(error: unknown): boolean {
  return error instanceof ConnectError && error.code === Code.Unavailable;
}

/** A text of the gateway as a sentence. */
export function sentence(text: string): string {
  const trimmed = text.trim();
  if (!trimmed) return '';
  const begun = trimmed[0]!.toUpperCase() + trimmed.slice(1);
  return /[.!?。]$/.test(begun) ? begun : `${begun}.`;
}
