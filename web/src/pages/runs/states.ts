// States of conversations in words.
import { t } from './text';

const STATES = {
  WAIT: 'stateWait',
  WAIT_FOR_MSG: 'stateWaitForMessage',
  WAIT_FOR_EVENT: 'stateWaitForEvent',
  READY: 'stateReady',
  RUNNING: 'stateRunning',
  PAUSE: 'statePause',
  SLEEP: 'stateSleep',
} as const;

export function stateLabel(state: string): string {
  return state in STATES ? t(STATES[state as keyof typeof STATES]) : state;
}
