"""Each field of the request types in the package `openai` is honoured, refused by its name, or named as ignored.

Honoured are the fields, and of fields with a list of words the words, that `/openapi.json` describes. Each other one is
sent, and has to be refused with 400 and its name in `param`, or be in the header `x-holdfast-ignored` of the answer. So
are the fields of objects within a request.
"""

import json
import os
import typing
import urllib.error
import urllib.request

import typing_extensions
from openai.types import embedding_create_params, shared_params
from openai.types.chat import chat_completion_stream_options_param, completion_create_params
from openai.types.responses import function_tool_param, response_create_params, response_text_config_param
from openai.types.shared_params import function_definition, response_format_json_schema

BASE = os.environ["OPENAI_BASE_URL"]
GIVEN = ["x", True, 7, ["x"], {"x": "x"}, [{"type": "x"}]]
CHAT = {"model": "holdfast", "messages": [{"role": "user", "content": "hi"}]}
RESPONSES = {"model": "holdfast", "input": "hi"}
SCHEMA = {"name": "n", "schema": {"type": "object"}}
FUNCTION = {"name": "surface_test"}
# Path, type, request with the object, and where the object and its description are.
SURFACE = [
    ("/chat/completions", completion_create_params.CompletionCreateParamsBase, CHAT, [], "ChatRequest"),
    ("/responses", response_create_params.ResponseCreateParamsBase, RESPONSES, [], "ResponsesRequest"),
    ("/embeddings", embedding_create_params.EmbeddingCreateParams, RESPONSES, [], "EmbeddingsRequest"),
    ("/chat/completions", chat_completion_stream_options_param.ChatCompletionStreamOptionsParam, CHAT | {"stream": True, "stream_options": {}}, ["stream_options"], "ChatRequest"),
    ("/chat/completions", response_format_json_schema.JSONSchema, CHAT | {"response_format": {"type": "json_schema", "json_schema": SCHEMA}}, ["response_format", "json_schema"], {"name", "description", "schema", "strict"}),
    ("/chat/completions", function_definition.FunctionDefinition, CHAT | {"tools": [{"type": "function", "function": FUNCTION}]}, ["tools", 0, "function"], "ClientFunction"),
    ("/responses", response_create_params.StreamOptions, RESPONSES | {"stream": True, "stream_options": {}}, ["stream_options"], "ResponsesRequest"),
    ("/responses", shared_params.Reasoning, RESPONSES | {"reasoning": {}}, ["reasoning"], "ResponsesRequest"),
    ("/responses", response_text_config_param.ResponseTextConfigParam, RESPONSES | {"text": {}}, ["text"], "ResponsesRequest"),
    ("/responses", function_tool_param.FunctionToolParam, RESPONSES | {"tools": [{"type": "function"} | FUNCTION]}, ["tools", 0], "ClientFunction"),
]


def post(path, body):
    headers = {"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    request = urllib.request.Request(BASE + path, json.dumps(body).encode(), headers)
    try:
        response = urllib.request.urlopen(request, timeout=60)
        answer = response.read()
        names = response.headers.get("x-holdfast-ignored", "")
        return 200, ({} if body.get("stream") else json.loads(answer)) | {"ignored": names.replace(", ", ".").split(".")}
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def with_field(body, place, field, value):
    body = json.loads(json.dumps(body))
    target = body
    for step in place:
        target = target[step]
    target[field] = value
    return body


def is_refused(path, body, place, field, values):
    """Whether the field is refused or named with any of the values; one of the wrong type is no JSON of the request."""
    for value in values:
        status, answer = post(path, with_field(body, place, field, value))
        named = ((answer.get("error") or {}).get("param") or "").split(".")
        if status == 400 and named[0] == (place or [field])[0]:
            return True
        if status == 200 and field in answer["ignored"]:
            return True
    return False


def properties(schema, place):
    """Properties of an object that the description has."""
    if isinstance(schema, set):
        return dict.fromkeys(schema, {})
    found = described[schema]["properties"]
    if schema == "ClientFunction":
        return found | {"type": {}}
    for step in place:
        branches = [found[step], *found[step].get("oneOf", [])]
        found = next(branch["properties"] for branch in branches if "properties" in branch)
    return found


def words(annotation):
    """The words that a field may have, and whether it is a list of them."""
    if typing_extensions.get_origin(annotation) is typing_extensions.Literal:
        return {word for word in typing.get_args(annotation) if isinstance(word, str)}, False
    found, is_list = set(), typing_extensions.get_origin(annotation) in (list, typing.List)
    for argument in typing.get_args(annotation):
        inner, inner_list = words(argument)
        found, is_list = found | inner, is_list or (inner_list and bool(inner))
    return found, is_list and bool(found)


def honoured_words(description):
    items = description.get("items") or {}
    return set(description.get("enum", [])) | set(items.get("enum", [])) | ({items["const"]} if "const" in items else set())


described = json.load(urllib.request.urlopen(BASE.removesuffix("/v1") + "/openapi.json", timeout=60))["components"]["schemas"]
wrong, refused = [], []
for path, fields, body, place, schema in SURFACE:
    where = ".".join(map(str, [path, *place]))
    status, answer = post(path, body)
    assert status == 200, f"{where}: {answer}"
    known = properties(schema, place)
    for name, annotation in typing_extensions.get_type_hints(fields).items():
        if name not in known:
            values, is_list = words(annotation)
            given = [[word] if is_list else word for word in sorted(values)] + GIVEN
            if is_refused(path, body, place, name, given):
                refused.append(f"{where}.{name}")
            else:
                wrong.append(f"{where}.{name} is ignored")
            continue
        values, is_list = words(annotation)
        honoured = honoured_words(known[name])
        if name in ("model", "type") or not honoured:
            continue
        for word in sorted(values - honoured):
            if is_refused(path, body, place, name, [[word] if is_list else word]):
                refused.append(f"{where}.{name}={word}")
            else:
                wrong.append(f"{where}.{name}={word} is ignored")
        for word in sorted(values & honoured):
            status, answer = post(path, with_field(body, place, name, [word] if is_list else word))
            if status == 400:
                wrong.append(f"{where}.{name}={word} is refused, though described: {answer}")
print("refused:", ", ".join(refused), flush=True)
assert not wrong, wrong
print("fields of requests ok")
