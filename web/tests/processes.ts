// Programs that tests start, and their ends.
import { execFile, spawn } from 'node:child_process';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** Longest time that a program may take, in milliseconds. */
const COMMAND_TIMEOUT = 180_000;

export type Environment = Record<string, string | undefined>;

/** Runs a program to its end and returns what it printed. */
export async function output(program: string, words: string[], environment: Environment = {}): Promise<string> {
  const options = { env: { ...process.env, ...environment }, timeout: COMMAND_TIMEOUT, maxBuffer: 1 << 26 };
  const { stdout } = await run(program, words, options);
  return stdout;
}

/** Starts a program that outlives this process, with its output in a file. Returns its id. */
export function startDetached(program: string, words: string[], log: string): number {
  const file = openSync(log, 'w');
  const child = spawn(program, words, { detached: true, stdio: ['ignore', file, file] });
  closeSync(file);
  child.unref();
  if (!child.pid) throw new Error(`cannot start ${program}`);
  return child.pid;
}

/** Whether a process runs whose command line has this word. An id alone may be another's by now. */
export function isRunning(pid: number, word: string): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(word);
  } catch {
    return false;
  }
}

export function kill(pid: number, signal: NodeJS.Signals = 'SIGKILL') {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** Waits until a condition holds, and fails with its name after some time. */
export async function eventually<T>(
  name: string,
  condition: () => T | undefined | false | Promise<T | undefined | false>,
  seconds = 30,
): Promise<T> {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const found = await condition();
    if (found) return found;
    if (Date.now() > end) throw new Error(`not within ${seconds} s: ${name}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
