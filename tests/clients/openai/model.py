"""A scripted model with OpenAI's Chat Completions: what `make test-clients` configures as a provider.

| a request has | the model |
|---|---|
| results of tools after the last message of a user | says them |
| a demanded call | calls this function, or the first one |
| a function that runs commands, and a last line `run COMMAND` | calls it with the command |
| a last line `recall` | says the last lines of the user's messages before it |
| a function NAME without arguments, and a last line `call NAME` | calls it |
| the function `get_weather`, and a question about the weather | calls it for two cities at once |
| the line `JSON format: EXAMPLE` | answers the example |
| a form of the answer | answers `{"city": "Paris", "degrees": 21}` |
| nothing of that | says the last message of a user |
"""

import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

WEATHER = {"city": "Paris", "degrees": 21}


# Functions of coding agents that run commands, and their arguments.
COMMANDS = {
    "Bash": lambda command: {"command": command},
    "exec_command": lambda command: {"cmd": command},
    "run_commands": lambda command: {"commands": [command]},
}


def call(n, name, arguments):
    return {"index": n, "id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def text_of(content):
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content or [])


def last_line(text):
    return text.strip().splitlines()[-1] if text.strip() else ""


def reply(request):
    """Returns a text and calls."""
    messages = request["messages"]
    last = max((n for n, message in enumerate(messages) if message["role"] == "user"), default=-1)
    said = text_of(messages[last]["content"])
    results = [text_of(message["content"]) for message in messages[last + 1 :] if message["role"] == "tool"]
    names = [tool["function"]["name"] for tool in request.get("tools", [])]
    if results:
        return " and ".join(results), []
    choice = request.get("tool_choice", "auto")
    if choice == "required" or isinstance(choice, dict):
        name = names[0] if choice == "required" else choice["function"]["name"]
        return "", [call(0, name, WEATHER)]
    runner = next((name for name in names if name in COMMANDS), None)
    line = last_line(said)
    if runner and line.startswith("run "):
        return "", [call(0, runner, COMMANDS[runner](line.removeprefix("run ")))]
    if line == "recall":
        return " then ".join(last_line(text_of(message["content"])) for message in messages[:last] if message["role"] == "user"), []
    if line.startswith("call ") and line.removeprefix("call ") in names:
        return "", [call(0, line.removeprefix("call "), {})]
    if "get_weather" in names and "weather" in said:
        return "I will look.", [call(0, "get_weather", {"city": "Paris"}), call(1, "get_weather", {"city": "Rome"})]
    if example := re.search(r"^JSON format: (\{.*\})$", said, re.MULTILINE):
        return example[1], []
    if request.get("response_format", {}).get("type", "text") != "text":
        return json.dumps(WEATHER), []
    return said, []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text, calls = reply(request)
        head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": request["model"]}
        deltas = [{"content": word} for word in text.split(" ") if text for word in [word + " "]]
        deltas += [{"tool_calls": [one]} for one in calls]
        chunks = [head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in [{"role": "assistant"}, *deltas]]
        chunks.append(head | {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"}]})
        chunks.append(head | {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}})
        lines = [json.dumps(chunk) for chunk in chunks] + ["[DONE]"]
        body = "".join(f"data: {line}\n\n" for line in lines).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def serve():
    """Serves on a free port of this machine; returns the base URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/v1"
