// What the programs of this folder share: the client's tool, and what its answer has to be.

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
