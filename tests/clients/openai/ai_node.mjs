// The packages `ai` and `@ai-sdk/openai-compatible`: tools and `generateObject`, streaming and not.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, stepCountIs, streamObject, streamText, tool } from "ai";
import { z } from "zod";
import { assert, check, degrees, question } from "./weather.mjs";

const provider = createOpenAICompatible({
  name: "holdfast",
  baseURL: process.env.OPENAI_BASE_URL,
  apiKey: process.env.OPENAI_API_KEY,
  supportsStructuredOutputs: true,
});
const model = provider("holdfast");
const tools = {
  get_weather: tool({
    description: "Degrees in a city",
    inputSchema: z.object({ city: z.string() }),
    execute: ({ city }) => degrees(city),
  }),
};
const schema = z.object({ city: z.string(), degrees: z.number() });

const { text } = await generateText({ model, tools, prompt: question, stopWhen: stepCountIs(3) });
check(text);
console.log("generateText ok");

const streamed = streamText({ model, tools, prompt: question, stopWhen: stepCountIs(3) });
let heard = "";
for await (const part of streamed.textStream) heard += part;
check(heard);
console.log("streamText ok");

const { object } = await generateObject({ model, schema, prompt: "Paris, in degrees" });
assert(object.degrees === 21, object);
const objects = streamObject({ model, schema, prompt: "Paris, in degrees" });
for await (const _ of objects.partialObjectStream);
assert((await objects.object).city === "Paris", await objects.object);
console.log("generateObject ok");
