"""The package `openai`: tools and structured output, streaming and not."""

import json

from openai import OpenAI
from pydantic import BaseModel

from weather import QUESTION, SCHEMA, check, degrees

client = OpenAI(timeout=60)


class Weather(BaseModel):
    city: str
    degrees: int


function = {"name": "get_weather", "description": "Degrees in a city", "parameters": SCHEMA, "strict": True}
chat_tools = [{"type": "function", "function": function}]
response_tools = [{"type": "function", **function}]


def chat():
    messages = [{"role": "user", "content": QUESTION}]
    answer = client.chat.completions.create(model="holdfast", messages=messages, tools=chat_tools).choices[0]
    assert answer.finish_reason == "tool_calls" and len(answer.message.tool_calls) == 2, answer
    messages.append(answer.message)
    for call in answer.message.tool_calls:
        output = degrees(json.loads(call.function.arguments)["city"])
        messages.append({"role": "tool", "tool_call_id": call.id, "content": output})
    check(client.chat.completions.create(model="holdfast", messages=messages, tools=chat_tools).choices[0].message.content)


def chat_stream():
    messages = [{"role": "user", "content": QUESTION}]
    with client.chat.completions.stream(model="holdfast", messages=messages, tools=chat_tools) as stream:
        message = stream.get_final_completion().choices[0].message
    messages.append(message)
    for call in message.tool_calls:
        output = degrees(json.loads(call.function.arguments)["city"])
        messages.append({"role": "tool", "tool_call_id": call.id, "content": output})
    text = ""
    for chunk in client.chat.completions.create(model="holdfast", messages=messages, tools=chat_tools, stream=True):
        text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
    check(text)


def responses():
    first = client.responses.create(model="holdfast", input=QUESTION, tools=response_tools)
    calls = [item for item in first.output if item.type == "function_call"]
    assert len(calls) == 2, first
    outputs = [
        {"type": "function_call_output", "call_id": call.call_id, "output": degrees(json.loads(call.arguments)["city"])}
        for call in calls
    ]
    following = client.responses.create(model="holdfast", input=outputs, previous_response_id=first.id, tools=response_tools)
    check(following.output_text)


def responses_stream():
    history = [{"role": "user", "content": QUESTION}]
    with client.responses.stream(model="holdfast", input=history, tools=response_tools) as stream:
        first = stream.get_final_response()
    history += first.output
    for call in first.output:
        if call.type == "function_call":
            output = degrees(json.loads(call.arguments)["city"])
            history.append({"type": "function_call_output", "call_id": call.call_id, "output": output})
    with client.responses.stream(model="holdfast", input=history, tools=response_tools) as stream:
        check(stream.get_final_response().output_text)


def structured():
    messages = [{"role": "user", "content": "Paris, in degrees"}]
    answer = client.chat.completions.parse(model="holdfast", messages=messages, response_format=Weather)
    assert answer.choices[0].message.parsed == Weather(city="Paris", degrees=21), answer
    answer = client.responses.parse(model="holdfast", input="Paris, in degrees", text_format=Weather)
    assert answer.output_parsed == Weather(city="Paris", degrees=21), answer
    with client.responses.stream(model="holdfast", input="Paris, in degrees", text_format=Weather) as stream:
        assert stream.get_final_response().output_parsed.degrees == 21


for part in [chat, chat_stream, responses, responses_stream, structured]:
    part()
    print(part.__name__, "ok", flush=True)
