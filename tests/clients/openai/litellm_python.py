"""The package `litellm`: the gateway as a server of OpenAI's API and of Anthropic's."""

import json
import os

# Prices are those of the package, not fetched ones.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm

from weather import QUESTION, SCHEMA, check, degrees

TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Degrees in a city", "parameters": SCHEMA}}]
KEY = os.environ["OPENAI_API_KEY"]
SERVERS = [
    {"model": "openai/holdfast", "api_base": os.environ["OPENAI_BASE_URL"], "api_key": KEY},
    {"model": "anthropic/holdfast", "api_base": os.environ["ANTHROPIC_BASE_URL"], "api_key": KEY},
]

litellm.telemetry = False
for server in SERVERS:
    messages = [{"role": "user", "content": QUESTION}]
    message = litellm.completion(messages=messages, tools=TOOLS, **server).choices[0].message
    assert len(message.tool_calls) == 2, message
    messages.append(message)
    for call in message.tool_calls:
        output = degrees(json.loads(call.function.arguments)["city"])
        messages.append({"role": "tool", "tool_call_id": call.id, "content": output})
    check(litellm.completion(messages=messages, tools=TOOLS, **server).choices[0].message.content)
    chunks = litellm.completion(messages=[{"role": "user", "content": "hello"}], stream=True, **server)
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert said.strip() == "hello", said
    print(server["model"], "ok", flush=True)
