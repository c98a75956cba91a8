"""Open WebUI, started with our gateway as its only connection: the models it lists, chats in which it offers its own
tools and runs one, and the titles, tags and follow-up messages that it asks for by itself, which leave no session.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path

from weather import count_sessions

PROGRAM = Path(sys.executable).parent / "open-webui"
START_TIMEOUT, CHAT_TIMEOUT = 240, 60


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class OpenWebUi:
    """A server with a folder of its own, and its first user."""

    def __init__(self, folder):
        self.folder, self.port, self.token = Path(folder), free_port(), None
        self.environment = os.environ | {
            "DATA_DIR": folder,
            "HOME": folder,
            "OPENAI_API_BASE_URL": os.environ["OPENAI_BASE_URL"],
            "ENABLE_OLLAMA_API": "False",
            "OFFLINE_MODE": "True",
            "ANONYMIZED_TELEMETRY": "False",
            "DO_NOT_TRACK": "True",
            "SCARF_NO_ANALYTICS": "True",
            # Its own embeddings need a package of several gigabytes.
            "RAG_EMBEDDING_ENGINE": "openai",
            "WEBUI_SECRET_KEY": uuid.uuid4().hex,
        }

    def __enter__(self):
        self.log = (self.folder / "log").open("w")
        command = [PROGRAM, "serve", "--host", "127.0.0.1", "--port", str(self.port)]
        self.server = subprocess.Popen(command, env=self.environment, cwd=self.folder, stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline and self.server.poll() is None:
            try:
                self.call("/health")
                return self
            except (urllib.error.URLError, ConnectionError):
                time.sleep(1)
        self.__exit__()
        sys.exit("Open WebUI does not start: " + (self.folder / "log").read_text()[-3000:])

    def __exit__(self, *_):
        self.server.terminate()
        try:
            self.server.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()
        self.log.close()

    def call(self, path, body=None):
        headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {self.token}"} if self.token else {})
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as response:
            return json.load(response)

    def sign_up(self):
        person = {"name": "Anna", "email": "anna@example.com", "password": uuid.uuid4().hex}
        self.token = self.call("/api/v1/auths/signup", person)["token"]


def new_chat(server, text):
    """Sends the first message of a chat as the front end does; returns the ids of the chat and of the answer."""
    question, answer = str(uuid.uuid4()), str(uuid.uuid4())
    message = {"id": question, "parentId": None, "childrenIds": [], "role": "user", "content": text, "timestamp": int(time.time()), "models": ["holdfast"]}
    sent = server.call(
        "/api/chat/completions",
        {
            "model": "holdfast",
            "messages": [{"role": "user", "content": text}],
            "stream": True,
            "parent_id": None,
            "user_message": message,
            "id": answer,
            "session_id": str(uuid.uuid4()),
            "features": {},
            "background_tasks": {"title_generation": True, "tags_generation": True, "follow_up_generation": True},
        },
    )
    return sent["chat_id"], answer


def settled_chat(server, chat_id, answer):
    """Waits for the answer and for what the server asks after it."""
    deadline = time.monotonic() + CHAT_TIMEOUT
    while True:
        chat = server.call(f"/api/v1/chats/{chat_id}")
        message = chat["chat"]["history"]["messages"][answer]
        tags = {tag["name"] for tag in server.call(f"/api/v1/chats/{chat_id}/tags")}
        is_settled = chat["title"] != "New Chat" and message.get("followUps") and tags
        if is_settled or time.monotonic() > deadline:
            return chat["title"], message, tags
        time.sleep(0.5)


with tempfile.TemporaryDirectory() as folder, OpenWebUi(folder) as server:
    server.sign_up()
    print("first user ok", flush=True)
    models = [model["id"] for model in server.call("/api/models")["data"]]
    assert {"holdfast", "holdfast/main"} <= set(models), models
    print("models ok", flush=True)
    before = count_sessions()
    title, message, tags = settled_chat(server, *new_chat(server, "say a plum"))
    assert message["content"].strip() == "say a plum" and message["done"], message
    print("chat ok", flush=True)
    # The model answers the example that the request has.
    assert title == "your concise title here", title
    assert message["followUps"][0] == "Suggested next message 1", message
    assert tags == {"tag1", "tag2", "tag3"}, tags
    print("title, tags and follow-up messages ok", flush=True)
    _, message, _ = settled_chat(server, *new_chat(server, "call get_current_timestamp"))
    assert str(int(time.time()))[:6] in message["content"], message
    print("tool of the front end ok", flush=True)
    after = count_sessions(before + 2)
    assert after == before + 2, [before, after]
    print("one session of each chat ok", flush=True)
