// The package `@openai/agents`: function tools and output types, streaming and not, over both APIs.

import { Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, run, setTracingDisabled, tool } from "@openai/agents";
import OpenAI from "openai";
import { z } from "zod";
import { assert, check, degrees, question } from "./weather.mjs";

setTracingDisabled(true);
const client = new OpenAI({ timeout: 60_000 });
const getWeather = tool({
  name: "get_weather",
  description: "Degrees in a city",
  parameters: z.object({ city: z.string() }),
  execute: ({ city }) => degrees(city),
});

for (const Model of [OpenAIChatCompletionsModel, OpenAIResponsesModel]) {
  const model = new Model(client, "holdfast");
  const agent = new Agent({ name: "weather", instructions: "Be brief.", model, tools: [getWeather] });
  check((await run(agent, question)).finalOutput);
  const streamed = await run(agent, question, { stream: true });
  for await (const _ of streamed);
  await streamed.completed;
  check(streamed.finalOutput);
  const outputType = z.object({ city: z.string(), degrees: z.number() });
  const typed = new Agent({ name: "typed", model, outputType });
  const found = (await run(typed, "Paris, in degrees")).finalOutput;
  assert(found.degrees === 21, found);
  console.log(Model.name, "ok");
}
