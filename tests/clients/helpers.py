"""What the checks of channels share."""

import json
import socket
import subprocess
import time

PATIENCE_S = 60


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def eventually(what, found):
    """Calls `found` until it returns something, and returns it. A server may not listen yet."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            value = found()
        except OSError:
            value = None
        if value:
            return value
        time.sleep(0.2)
    raise AssertionError(f"waited in vain until {what}")


def answer_each_message(mesh):
    """Gives each message an answer of its own: by default, those of one time are answered together."""
    queue = json.dumps({"*": {"queue": {"mode": "followup", "cap": 100}}})
    subprocess.run(mesh.command("agents", "update", "main", "--channels", queue), check=True, stdout=subprocess.DEVNULL)
