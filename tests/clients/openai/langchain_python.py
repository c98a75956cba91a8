"""The package `langchain-openai`: `bind_tools` and `with_structured_output`, streaming and not."""

from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from weather import QUESTION, check, degrees


@tool
def get_weather(city: str) -> str:
    """Degrees in a city"""
    return degrees(city)


class Weather(BaseModel):
    """The weather in a city"""

    city: str
    degrees: int


def text(message):
    return message.content if isinstance(message.content, str) else message.text


def last(stream):
    whole = None
    for chunk in stream:
        whole = chunk if whole is None else whole + chunk
    return whole


for responses in [False, True]:
    model = ChatOpenAI(model="holdfast", use_responses_api=responses, timeout=60)
    bound = model.bind_tools([get_weather])
    for ask in [bound.invoke, lambda messages: last(bound.stream(messages))]:
        messages = [HumanMessage(QUESTION)]
        messages.append(ask(messages))
        assert len(messages[-1].tool_calls) == 2, messages
        messages += [get_weather.invoke(call) for call in messages[-1].tool_calls]
        check(text(ask(messages)))
    for method in ["json_schema", "function_calling", "json_mode"]:
        structured = model.with_structured_output(Weather, method=method)
        found = structured.invoke("Paris, in degrees, as JSON")
        assert found == Weather(city="Paris", degrees=21), found
    print("responses" if responses else "chat", "ok", flush=True)
