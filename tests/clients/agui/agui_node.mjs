// The package `@ag-ui/client`: a thread with tools of the client, its next run, a refusal.

import { HttpAgent } from "@ag-ui/client";
import { assert, check, degrees, question } from "./weather.mjs";

const url = process.env.OPENAI_BASE_URL.replace(/\/v1$/, "/chat");
const headers = { Authorization: `Bearer ${process.env.OPENAI_API_KEY}` };
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = [{ name: "get_weather", description: "Degrees in a city", parameters }];
const user = (content) => ({ id: crypto.randomUUID(), role: "user", content });

const agent = new HttpAgent({ url, headers, threadId: crypto.randomUUID() });
const kinds = new Set();
agent.subscribe({ onEvent: ({ event }) => void kinds.add(event.type) });

agent.addMessage(user(question));
const { newMessages: asked } = await agent.runAgent({ tools });
const calls = asked.flatMap((message) => message.toolCalls ?? []);
assert(calls.length === 2, asked);
for (const call of calls) {
  const content = await degrees(JSON.parse(call.function.arguments).city);
  agent.addMessage({ id: crypto.randomUUID(), role: "tool", toolCallId: call.id, content });
}
const { newMessages: answered } = await agent.runAgent({ tools });
check(answered.at(-1).content);
console.log("tools ok");

agent.addMessage(user("a plum"));
const { newMessages: said } = await agent.runAgent();
assert(said.length === 1 && said[0].content.includes("a plum"), said);
for (const kind of ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "RUN_FINISHED"])
  assert(kinds.has(kind), [...kinds]);
console.log("thread ok");

const stranger = new HttpAgent({ url, headers: { Authorization: "Bearer hf_no_key" }, threadId: "t" });
stranger.addMessage(user("hi"));
const refusal = await stranger.runAgent().then(() => null, (error) => String(error));
assert(refusal?.includes("401"), refusal);
console.log("refusal ok");
