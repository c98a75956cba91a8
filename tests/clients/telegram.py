"""Telegram's Bot API as the npm package `telegram-test-api` has it: people write to a bot that is polled,
and each message is answered once."""

import json
import subprocess
import sys
import time
import urllib.request

from helpers import answer_each_message, eventually, free_port

PACKAGES = ["telegram-test-api@4.2.1"]
TOKEN = "123456:test-token"
START = "const TelegramServer = require('telegram-test-api'); new TelegramServer({ host: '127.0.0.1', port: Number(process.argv[1]), storeTimeout: 600 }).start();"


class Emulator:
    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.variables = {"HOLDFAST_BRIDGE__TELEGRAM__API_BASE": self.url}

    def __enter__(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / "node_modules" / "telegram-test-api").exists():
            subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent", *PACKAGES], cwd=self.folder, check=True)
        self.process = subprocess.Popen(["node", "-e", START, str(self.port)], cwd=self.folder, stdout=sys.stderr)
        eventually("telegram-test-api answers", lambda: self.call(f"bot{TOKEN}/getMe")["ok"])
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=20)

    def call(self, path, **body):
        request = urllib.request.Request(f"{self.url}/{path}", data=json.dumps(body).encode(), headers={"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)

    def write(self, person, text, **more):
        chat = {"id": person, "type": "private", "first_name": "Anna"}
        message = {"botToken": TOKEN, "date": int(time.time()), "text": text, "chat": chat, "from": {"id": person, "is_bot": False, "first_name": "Anna"}}
        self.call("sendCommand" if "entities" in more else "sendMessage", **message, **more)

    def answers(self, person):
        history = self.call("getUpdatesHistory", token=TOKEN)["result"]
        return [one["message"]["text"] for one in history if str(one["message"].get("chat_id")) == str(person)]


def check(mesh, emulator):
    """Returns what is wrong, or nothing."""
    answer_each_message(mesh)
    made = subprocess.run(mesh.command("channels", "add", "telegram", "--allow", "42", "--token", TOKEN, "--output", "json"), check=True, capture_output=True, text=True)
    account = json.loads(made.stdout)["id"]

    def status():
        shown = subprocess.run(mesh.command("channels", "status", account, "--output", "json"), check=True, capture_output=True, text=True)
        return "working" in shown.stdout and shown.stdout

    eventually("the account works", status)
    for number in range(20):
        emulator.write(42, f"message {number:02}")
    eventually("all are answered", lambda: all(any(f"message {n:02}" in text for text in emulator.answers(42)) for n in range(20)))
    emulator.write(42, "/status", entities=[{"type": "bot_command", "offset": 0, "length": 7}])
    eventually("the command is answered", lambda: any("model" in text.lower() for text in emulator.answers(42)))
    emulator.write(43, "a stranger")
    time.sleep(2)
    if answered := [text for text in emulator.answers(43) if "a stranger" in text]:
        return f"a stranger was answered: {answered}"
    said = "\n".join(emulator.answers(42))
    doubled = [n for n in range(20) if said.count(f"message {n:02}") != 1]
    return f"messages {doubled} were not answered once: {said}" if doubled else None
