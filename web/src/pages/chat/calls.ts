// The ledger of tool calls of a turn, read once for all of its calls that are opened.
import { sessions } from '$api/clients';
import type { ToolCall } from '$api/gen/holdfast/gateway/v1/sessions_pb';

/** Turns whose ledgers are kept. */
const MAX_KEPT = 50;

const kept = new Map<string, Promise<ToolCall[]>>();

/** A call of a turn as the ledger has it; read anew while `isOver` is false. */
export async function recordedCall(run: string, id: string, isOver: boolean): Promise<ToolCall | undefined> {
  const known = isOver ? kept.get(run) : undefined;
  const ledger = known ?? sessions.listToolCalls({ runId: run, limit: 1000 }).then(({ calls }) => calls);
  kept.set(run, ledger);
  ledger.catch(() => kept.delete(run));
  const oldest = kept.keys().next().value;
  if (kept.size > MAX_KEPT && oldest !== undefined) kept.delete(oldest);
  const call = (await ledger).findLast((one) => one.id === id);
  if (isOver && call && !call.endedAt) kept.delete(run);
  return call;
}

/** Sessions that a call started or wrote to. */
export function sessionsIn(text: string): string[] {
  return [...new Set(text.match(/\bses_[0-9a-f]{32}\b/g) ?? [])].slice(0, 8);
}

const SUMMARY_FIELDS = ['command', 'path', 'query', 'url', 'task', 'name', 'text', 'message'];

/** Tools whose calls start subagents or speak to them. */
const SUBAGENT_TOOLS = new Set(['sessions_spawn', 'subagent', 'sessions_send', 'subagents']);

export function isSubagentTool(tool: string): boolean {
  return SUBAGENT_TOOLS.has(tool);
}

/** What a call is about, in one line, as far as its input says it. */
export function summaryOf(input: string): string {
  try {
    const value = JSON.parse(input) as Record<string, unknown>;
    const told = SUMMARY_FIELDS.map((name) => value[name]).find((one) => typeof one === 'string' && one !== '');
    return String(told ?? '').split('\n')[0]!.slice(0, 120);
  } catch {
    return input.split('\n')[0]!.slice(0, 120);
  }
}
