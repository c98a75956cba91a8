// The package `openai`: tools and structured output, streaming and not.

import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { assert, check, degrees, question } from "./weather.mjs";

const client = new OpenAI({ timeout: 60_000 });
const model = "holdfast";
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const named = { name: "get_weather", description: "Degrees in a city", parameters, strict: true };
const Weather = z.object({ city: z.string(), degrees: z.number() });

async function chat() {
  for (const ask of [
    async (messages, tools) => (await client.chat.completions.create({ model, messages, tools })).choices[0].message,
    async (messages, tools) => client.chat.completions.stream({ model, messages, tools }).finalMessage(),
  ]) {
    const messages = [{ role: "user", content: question }];
    const tools = [{ type: "function", function: named }];
    const message = await ask(messages, tools);
    assert(message.tool_calls.length === 2, message);
    messages.push(message);
    for (const call of message.tool_calls) {
      const content = await degrees(JSON.parse(call.function.arguments).city);
      messages.push({ role: "tool", tool_call_id: call.id, content });
    }
    check((await ask(messages, tools)).content);
  }
}

async function responses() {
  for (const ask of [
    async (request) => client.responses.create(request),
    async (request) => client.responses.stream(request).finalResponse(),
  ]) {
    const tools = [{ type: "function", ...named }];
    const first = await ask({ model, input: question, tools });
    const calls = first.output.filter((item) => item.type === "function_call");
    assert(calls.length === 2, first);
    const input = [];
    for (const call of calls) {
      const output = await degrees(JSON.parse(call.arguments).city);
      input.push({ type: "function_call_output", call_id: call.call_id, output });
    }
    check((await ask({ model, input, tools, previous_response_id: first.id })).output_text);
  }
}

async function structured() {
  const messages = [{ role: "user", content: "Paris, in degrees" }];
  const response_format = zodResponseFormat(Weather, "weather");
  const answer = await client.chat.completions.parse({ model, messages, response_format });
  assert(answer.choices[0].message.parsed.degrees === 21, answer);
  const format = zodTextFormat(Weather, "weather");
  const response = await client.responses.parse({ model, input: "Paris, in degrees", text: { format } });
  assert(response.output_parsed.degrees === 21, response);
}

for (const part of [chat, responses, structured]) {
  await part();
  console.log(part.name, "ok");
}
