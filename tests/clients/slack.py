"""Slack's Web API as the npm package `emulate` has it: a message goes in by a signed event, and the
answer of the agent is in the history, with the metadata by which the bridge finds it again."""

import hashlib
import hmac
import json
import subprocess
import sys
import time
import urllib.request

from helpers import eventually, free_port

# Later versions of `emulate` are another project. It needs a newer Node.js than Debian has.
PACKAGES = ["emulate@0.12.2", "node@22"]
BOT_TOKEN, SIGNING_SECRET = "xoxb-local-test", "signing-secret-0123456789"
SEED = {"slack": {
    "team": {"name": "Acme", "domain": "acme"},
    "users": [{"name": "anna", "real_name": "Anna", "email": "anna@example.com"}],
    "channels": [{"name": "general"}],
    "bots": [{"name": "holdfast"}],
    "tokens": [{"token": BOT_TOKEN, "user": "anna"}],
}}


class Emulator:
    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        self.api_base = f"http://127.0.0.1:{self.port}/api"
        self.variables = {"HOLDFAST_BRIDGE__SLACK__API_BASE": self.api_base}

    def __enter__(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        modules = self.folder / "node_modules"
        if not (modules / "emulate").exists():
            subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent", *PACKAGES], cwd=self.folder, check=True)
        seed = self.folder / "seed.json"
        seed.write_text(json.dumps(SEED))
        command = [modules / ".bin" / "node", modules / "emulate" / "dist" / "index.js", "start", "--service", "slack", "--port", self.port, "--seed", seed]
        self.process = subprocess.Popen([str(word) for word in command], stdout=sys.stderr)
        eventually("emulate answers", lambda: self.call("auth.test")["ok"])
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=20)

    def call(self, method, **body):
        request = urllib.request.Request(f"{self.api_base}/{method}", data=json.dumps(body).encode(), headers={"authorization": f"Bearer {BOT_TOKEN}", "content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)


def post_event(bridge, account, event):
    body = json.dumps({"type": "event_callback", "event": event}).encode()
    now = str(int(time.time()))
    signature = hmac.new(SIGNING_SECRET.encode(), f"v0:{now}:".encode() + body, hashlib.sha256).hexdigest()
    request = urllib.request.Request(f"{bridge}/slack/{account}", data=body, headers={"x-slack-request-timestamp": now, "x-slack-signature": f"v0={signature}"})
    with urllib.request.urlopen(request, timeout=20) as response:
        return response.status


def check(mesh, emulator):
    """Returns what is wrong, or nothing."""
    channel = next(one["id"] for one in emulator.call("conversations.list")["channels"] if one["name"] == "general")
    settings = {"mode": "events", "groups": {"allow": [channel], "mention_only": False}}
    secrets = {"bot_token": BOT_TOKEN, "signing_secret": SIGNING_SECRET}
    made = subprocess.run(mesh.command("channels", "add", "slack", "--settings", json.dumps(settings), "--secrets", json.dumps(secrets), "--output", "json"), check=True, capture_output=True, text=True)
    account = json.loads(made.stdout)["id"]

    def status():
        shown = subprocess.run(mesh.command("channels", "status", account, "--output", "json"), check=True, capture_output=True, text=True)
        return "working" in shown.stdout and shown.stdout

    working = eventually("the account works", status)
    if "signed in to" not in working:
        return f"the status does not say as whom the account is signed in: {working}"
    event = {"type": "message", "channel": channel, "channel_type": "channel", "user": "U0PERSON", "text": "tell me about slack", "ts": "1700000000.000100"}
    for _ in range(2):
        if post_event(mesh.bridge, account, event) != 200:
            return "a signed event was not taken"

    def answers():
        messages = emulator.call("conversations.history", channel=channel)["messages"]
        return [one for one in messages if one.get("metadata", {}).get("event_type") == "holdfast_delivery"]

    eventually("the answer is in the history", answers)
    time.sleep(2)
    found = answers()
    if len(found) != 1 or not found[0]["metadata"]["event_payload"]["delivery_id"].startswith("dlv_"):
        return f"there is not one answer with the id of its delivery: {found}"
    return None
