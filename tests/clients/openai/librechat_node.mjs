// LibreChat's package of agents with a custom endpoint: an agent with a tool, then the requests that LibreChat
// makes by itself: titles and labels, which leave no session.

import { HumanMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { Providers, Run, TitleMethod } from "@librechat/agents";
import { z } from "zod";
import { assert, check, countSessions, degrees, question } from "./weather.mjs";

const clientOptions = {
  model: "holdfast",
  apiKey: process.env.OPENAI_API_KEY,
  configuration: { baseURL: process.env.OPENAI_BASE_URL },
};
const getWeather = tool(({ city }) => degrees(city), {
  name: "get_weather",
  description: "Degrees in a city",
  schema: z.object({ city: z.string() }),
});
const before = await countSessions();

const runId = crypto.randomUUID();
const run = await Run.create({
  runId,
  graphConfig: {
    type: "standard",
    instructions: "Be brief.",
    llmConfig: { provider: Providers.OPENAI, ...clientOptions, streaming: true, streamUsage: true },
    tools: [getWeather],
  },
  returnContent: true,
});
const options = { configurable: { thread_id: crypto.randomUUID() }, streamMode: "values", version: "v2" };
const content = await run.processStream({ messages: [new HumanMessage(question)] }, options);
check(content.filter((part) => part?.type === "text").map((part) => part.text).join(""));
assert(content.filter((part) => part?.type === "tool_call").length === 2, content);
const during = await countSessions();
assert(during === before + 1, [before, during]);
console.log("agent with a tool ok");

const asked = { provider: Providers.OPENAI, inputText: "Paris, in degrees", contentParts: [{ type: "text", text: "21" }], clientOptions, skipLanguage: true };
const { title } = await run.generateTitle({ ...asked, titleMethod: TitleMethod.COMPLETION });
// The model says the last message.
assert(title.startsWith("Provide a concise, 5-word-or-less title") && title.includes("Paris, in degrees"), title);
console.log("title ok");

const entry = { toolName: "get_weather", toolInput: { city: "Paris" }, toolOutput: "21", status: "success" };
const { label } = await run.generateActivityLabel({ provider: Providers.OPENAI, clientOptions, entries: [entry] });
assert(label.includes("get_weather"), label);
console.log("label of an activity ok");

const after = await countSessions(during);
assert(after === during, [during, after]);
console.log("no session of titles and labels ok");
