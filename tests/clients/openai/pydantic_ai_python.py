"""The package `pydantic-ai`: a tool and structured output, over Chat Completions and Responses."""

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel

from weather import QUESTION, check, degrees


class Weather(BaseModel):
    city: str
    degrees: int


for kind in [OpenAIChatModel, OpenAIResponsesModel]:
    agent = Agent(kind("holdfast"))

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """Degrees in a city"""
        return degrees(city)

    check(agent.run_sync(QUESTION).output)
    for output in [Weather, NativeOutput(Weather)]:
        found = Agent(kind("holdfast"), output_type=output).run_sync("Paris, in degrees").output
        assert found == Weather(city="Paris", degrees=21), found
    print(kind.__name__, "ok", flush=True)
