// The table of tasks: how many clicks and keys and how much time each took.
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const RESULTS = join(dirname(fileURLToPath(import.meta.url)), '../../test-results');
const ROWS = join(RESULTS, 'tasks.json');
const TABLE = join(RESULTS, 'tasks.md');

export type TaskResult = {
  task: string;
  project: string;
  clicks: number;
  keys: number;
  seconds: number;
};

/** Begins a new table. */
export function clearTasks() {
  rmSync(ROWS, { force: true });
  rmSync(TABLE, { force: true });
}

/** Adds a row and writes the table. */
export function addTask(result: TaskResult) {
  const rows = existsSync(ROWS) ? (JSON.parse(readFileSync(ROWS, 'utf8')) as TaskResult[]) : [];
  rows.push(result);
  const lines = rows.map(({ task, project, clicks, keys, seconds }) => `| ${task} | ${project} | ${clicks} | ${keys} | ${seconds.toFixed(1)} |`);
  mkdirSync(RESULTS, { recursive: true });
  writeFileSync(ROWS, JSON.stringify(rows));
  writeFileSync(TABLE, ['| task | window | clicks | keys | seconds |', '|---|---|---:|---:|---:|', ...lines, ''].join('\n'));
}
