// Speech recognition of the browser, where it has one.
import { t } from './text';

type Result = { isFinal: boolean; 0: { transcript: string } };

type Recognition = {
  lang: string;
  interimResults: boolean;
  continuous: boolean;
  onresult: ((event: { results: ArrayLike<Result> }) => void) | null;
  onend: (() => void) | null;
  onerror: ((event: { error: string }) => void) | null;
  start(): void;
  stop(): void;
};

type Browser = { SpeechRecognition?: new () => Recognition; webkitSpeechRecognition?: new () => Recognition };

const browser = globalThis as unknown as Browser;
const Constructor = browser.SpeechRecognition ?? browser.webkitSpeechRecognition;

export const hasVoice = Constructor !== undefined;

/** What can be done about an error of the recognition. */
export function voiceProblem(error: string): string {
  if (error === 'not-allowed') return t('voiceNotAllowed');
  if (error === 'audio-capture') return t('voiceNoMicrophone');
  if (error === 'network' || error === 'service-not-allowed' || error === 'language-not-supported') return t('voiceNoService');
  return t('voiceFailed', { error });
}

type Handlers = { lang: string; ontext: (text: string) => void; onend: () => void; onerror: (error: string) => void };

/** Listens until it is stopped; `ontext` gets all that was understood so far. Returns what stops it. */
export function listenToVoice({ lang, ontext, onend, onerror }: Handlers): () => void {
  if (!Constructor) return () => undefined;
  const recognition = new Constructor();
  Object.assign(recognition, { lang, interimResults: true, continuous: true });
  recognition.onresult = ({ results }) => ontext(Array.from(results, (result) => result[0].transcript).join(''));
  recognition.onend = onend;
  recognition.onerror = ({ error }) => error !== 'aborted' && error !== 'no-speech' && onerror(error);
  recognition.start();
  return () => recognition.stop();
}
