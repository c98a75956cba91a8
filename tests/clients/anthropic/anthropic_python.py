"""The package `anthropic`: messages, streams, tools of the client, structured output, counting, models."""

import os

import anthropic

from weather import QUESTION, SCHEMA, check, degrees

client = anthropic.Anthropic(base_url=os.environ["ANTHROPIC_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"], timeout=60)
TOOLS = [{"name": "get_weather", "description": "Degrees in a city", "input_schema": SCHEMA}]


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


def results_of(message):
    calls = [block for block in message.content if block.type == "tool_use"]
    assert message.stop_reason == "tool_use" and len(calls) == 2, message
    return [{"type": "tool_result", "tool_use_id": call.id, "content": degrees(call.input["city"])} for call in calls]


def create():
    message = client.messages.create(model="holdfast", max_tokens=100, messages=[{"role": "user", "content": "hello"}])
    assert text_of(message).strip() == "hello" and message.stop_reason == "end_turn", message
    assert message.usage.output_tokens > 0, message


def stream():
    with client.messages.stream(model="claude-sonnet-4-5", max_tokens=100, system="Be brief.", messages=[{"role": "user", "content": "hello"}]) as events:
        assert "".join(events.text_stream).strip() == "hello"
        assert events.get_final_message().usage.output_tokens > 0


def tools():
    messages = [{"role": "user", "content": QUESTION}]
    asked = {"model": "holdfast", "max_tokens": 1000, "tools": TOOLS}
    called = client.messages.create(messages=messages, **asked)
    messages += [{"role": "assistant", "content": called.content}, {"role": "user", "content": results_of(called)}]
    check(text_of(client.messages.create(messages=messages, **asked)))


def tools_stream():
    messages = [{"role": "user", "content": QUESTION}]
    asked = {"model": "holdfast", "max_tokens": 4000, "tools": TOOLS, "thinking": {"type": "enabled", "budget_tokens": 2000}}
    with client.messages.stream(messages=messages, **asked) as events:
        called = events.get_final_message()
    messages += [{"role": "assistant", "content": called.content}, {"role": "user", "content": results_of(called)}]
    with client.messages.stream(messages=messages, **asked) as events:
        check(text_of(events.get_final_message()))


def count():
    messages = [{"role": "user", "content": "x" * 400}]
    assert client.messages.count_tokens(model="holdfast", messages=messages).input_tokens == 101


def models():
    assert [model.id for model in client.models.list()][:2] == ["holdfast", "holdfast/main"]
    assert client.models.retrieve("claude-sonnet-4-5").type == "model"


def errors():
    for refused, model, key in [
        (anthropic.NotFoundError, "gpt-5", client.api_key),
        (anthropic.AuthenticationError, "holdfast", "hf_no_key"),
    ]:
        try:
            client.with_options(api_key=key).messages.create(model=model, max_tokens=9, messages=[{"role": "user", "content": "hello"}])
        except refused as error:
            assert error.body["error"]["message"] and error.request_id, error
        else:
            raise AssertionError(f"{model} was answered")


for part in [create, stream, tools, tools_stream, count, models, errors]:
    part()
    print(part.__name__, "ok", flush=True)
