"""Cline's CLI, set up by its command `auth`: it answers, and runs a command that the model asks for."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent / "node_modules" / ".bin" / "cline"
KILL = os.environ["HOLDFAST_KILL_RUNNERS"]
PROVIDER = ["-p", "openai-compatible", "-b", os.environ["OPENAI_BASE_URL"], "-k", os.environ["OPENAI_API_KEY"], "-m", "holdfast"]


def cline(home, *words):
    settings = home / "settings.json"
    settings.write_text(json.dumps({"telemetryOptOut": True, "autoUpdateEnabled": False}))
    environment = os.environ | {"HOME": str(home), "CLINE_GLOBAL_SETTINGS_PATH": str(settings), "NO_COLOR": "1"}
    # With a folder of data it starts no process that stays.
    done = subprocess.run([PROGRAM, *words, "--data-dir", home / "data"], cwd=home, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200)
    if done.returncode != 0:
        sys.exit(f"{words}: {done.stdout}{done.stderr}")
    return done.stdout


with tempfile.TemporaryDirectory() as folder:
    home = Path(folder)
    assert "Provider configured" in cline(home, "auth", *PROVIDER)
    said = cline(home, "say hi")
    assert said.strip() == "say hi", said
    print("answer ok", flush=True)
    said = cline(home, "--json", f"run curl -s {KILL}; echo Paris has 5 degrees")
    last = [json.loads(line) for line in said.splitlines() if line.startswith("{")][-1]
    results = json.loads(last["text"])
    assert results[0]["success"] and results[0]["result"].strip() == "Paris has 5 degrees", last
    print("tool ok", flush=True)
