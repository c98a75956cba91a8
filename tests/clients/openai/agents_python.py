"""The package `openai-agents`: function tools and output types, streaming and not, over both APIs."""

import asyncio

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI
from pydantic import BaseModel

from weather import QUESTION, check, degrees

set_tracing_disabled(True)


@function_tool
def get_weather(city: str) -> str:
    """Degrees in a city"""
    return degrees(city)


class Weather(BaseModel):
    city: str
    degrees: int


async def main():
    client = AsyncOpenAI(timeout=60)
    for kind in [OpenAIChatCompletionsModel, OpenAIResponsesModel]:
        model = kind(model="holdfast", openai_client=client)
        agent = Agent(name="weather", instructions="Be brief.", model=model, tools=[get_weather])
        check((await Runner.run(agent, QUESTION)).final_output)
        streamed = Runner.run_streamed(agent, QUESTION)
        events = [event async for event in streamed.stream_events()]
        assert len(events) > 5, events
        check(streamed.final_output)
        typed = Agent(name="typed", model=model, output_type=Weather)
        found = (await Runner.run(typed, "Paris, in degrees")).final_output
        assert found == Weather(city="Paris", degrees=21), found
        print(kind.__name__, "ok", flush=True)


asyncio.run(main())
