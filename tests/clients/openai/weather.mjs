// What the programs of this folder share: the client's tool, and what its answer has to be.

import { execFileSync } from "node:child_process";

export const question = "How is the weather?";

/** The tool. Before it answers, every runner of the mesh is killed. */
export async function degrees(city) {
  await (await fetch(process.env.HOLDFAST_KILL_RUNNERS)).text();
  return `${city} has ${city.length} degrees`;
}

export function assert(condition, shown) {
  if (!condition) throw new Error(JSON.stringify(shown));
}

export function check(text) {
  assert(text.includes("Paris has 5 degrees and Rome has 4 degrees"), text);
}

/** Number of the tenant's sessions. Those of housekeeping are deleted with the answer: `wanted` is waited for. */
export async function countSessions(wanted) {
  const [program, ...words] = JSON.parse(process.env.HOLDFAST_COMMAND);
  for (let left = 50; ; left--) {
    const listed = execFileSync(program, [...words, "sessions", "list", "--limit", "1000", "--output", "json"], { encoding: "utf8" });
    const count = JSON.parse(listed).length;
    if (wanted === undefined || count === wanted || left === 0) return count;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}
