// The package `ai` with `@ai-sdk/openai`, `@ai-sdk/openai-compatible` and `@ai-sdk/anthropic`: tools and
// structured output, streaming and not.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, isStepCount, Output, streamObject, streamText, tool } from "ai";
import { z } from "zod";
import { assert, check, degrees, question } from "./weather.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;
const { ANTHROPIC_BASE_URL, OPENAI_API_KEY: apiKey, OPENAI_BASE_URL: baseURL } = process.env;
const openai = createOpenAI({ baseURL, apiKey });
const compatible = createOpenAICompatible({ name: "holdfast", baseURL, apiKey, supportsStructuredOutputs: true });
const anthropic = createAnthropic({ baseURL: `${ANTHROPIC_BASE_URL}/v1`, apiKey });
const models = {
  "openai responses": openai("holdfast"),
  "openai chat": openai.chat("holdfast"),
  "openai-compatible": compatible("holdfast"),
  anthropic: anthropic("holdfast"),
};
const tools = {
  get_weather: tool({
    description: "Degrees in a city",
    inputSchema: z.object({ city: z.string() }),
    execute: ({ city }) => degrees(city),
  }),
};
// `z.email` writes a `pattern` into the schema.
const schema = z.object({ city: z.string(), degrees: z.number(), contact: z.email().optional() });

for (const [name, model] of Object.entries(models)) {
  const asked = { model, tools, prompt: question, stopWhen: isStepCount(3) };
  const { text, steps, totalUsage } = await generateText(asked);
  check(text);
  assert(steps.length === 2 && steps[0].toolCalls.length === 2 && totalUsage.outputTokens > 0, steps);
  console.log(`${name} generateText ok`);

  const streamed = streamText(asked);
  const kinds = new Set();
  let heard = "";
  for await (const part of streamed.fullStream) {
    kinds.add(part.type);
    if (part.type === "error") throw part.error;
    if (part.type === "text-delta") heard += part.text;
  }
  check(heard);
  assert(kinds.has("tool-call") && kinds.has("tool-result") && (await streamed.finishReason) === "stop", [...kinds]);
  console.log(`${name} streamText ok`);

  const form = { model, schema, prompt: "Paris, in degrees" };
  const { object } = await generateObject(form);
  assert(object.city === "Paris" && object.degrees === 21, object);
  const objects = streamObject(form);
  for await (const _ of objects.partialObjectStream);
  assert((await objects.object).degrees === 21, await objects.object);
  const { output } = await generateText({ model, prompt: form.prompt, output: Output.object({ schema }) });
  assert(output.degrees === 21, output);
  console.log(`${name} generateObject ok`);
}
