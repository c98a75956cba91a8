// A real call of a model: a short conversation with the default agent, which is deleted afterwards.
import { messages, sessions } from '$api/clients';
import { words } from '$api/errors';
import { Outcome, type Done } from '$api/gen/holdfast/gateway/v1/messages_pb';
import { t } from './text';

/** Time until every runner uses a changed provider, in milliseconds. */
const PROVIDER_CACHE_MS = 2_200;

export type Checked = { ms: number } | { reason: string; message: string };

const ADVICE = {
  auth: 'adviceAuth',
  quota: 'adviceQuota',
  rate_limited: 'adviceRate',
  no_model: 'adviceModel',
  not_found: 'adviceModel',
  budget_spent: 'adviceBudget',
  timeout: 'adviceNetwork',
  unavailable: 'adviceNetwork',
  network: 'adviceNetwork',
} as const;

export function adviceFor(reason: string): string {
  const key = ADVICE[reason as keyof typeof ADVICE];
  return key ? t(key) : '';
}

/** Asks a model, named `provider:id`, once all runners know its provider. */
export async function ask(model: string, signal: AbortSignal): Promise<Checked> {
  await new Promise((resolve) => setTimeout(resolve, PROVIDER_CACHE_MS));
  const session = `check-${crypto.randomUUID()}`;
  let sessionId = '';
  const send = async (text: string): Promise<Done | undefined> => {
    for await (const event of messages.stream({ text, session, requestId: crypto.randomUUID() }, { signal })) {
      sessionId = event.sessionId || sessionId;
      if (event.event.case === 'done') return event.event.value;
    }
    return undefined;
  };
  try {
    await send(`/model ${model}`);
    const began = performance.now();
    const done = await send('Answer with one word: are you there?');
    const ms = Math.round(performance.now() - began);
    if (done?.outcome !== Outcome.COMPLETED) return { reason: done?.reason ?? '', message: done?.text ?? '' };
    // A fallback may have answered, or the choice was refused.
    return done.model === model ? { ms } : { reason: '', message: t('otherAnswered', { model: done.model || '–' }) };
  } catch (error) {
    return signal.aborted ? { reason: 'timeout', message: t('noAnswerInTime') } : { reason: '', message: words(error).text || words(error).title };
  } finally {
    if (sessionId) await sessions.deleteSession({ session: sessionId }).catch(() => undefined);
  }
}
