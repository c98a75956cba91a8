"""Continue's CLI: it answers, continues a conversation, and runs a command that the model asks for."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent / "node_modules" / ".bin" / "cn"
KILL = os.environ["HOLDFAST_KILL_RUNNERS"]
CONFIG = f"""
name: Holdfast
version: 1.0.0
schema: v1
models:
  - name: holdfast
    model: holdfast
    provider: openai
    apiBase: {os.environ["OPENAI_BASE_URL"]}
    apiKey: {os.environ["OPENAI_API_KEY"]}
    roles: [chat]
"""


def ask(home, *words):
    # Without a terminal it would read the prompt from standard input.
    environment = os.environ | {"HOME": home, "FORCE_NO_TTY": "true", "CONTINUE_METRICS_ENABLED": "0"}
    command = [PROGRAM, "--config", Path(home) / "config.yaml", *words]
    done = subprocess.run(command, cwd=home, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200)
    if done.returncode != 0:
        sys.exit(f"{words}: {done.stdout}{done.stderr}")
    return done.stdout


with tempfile.TemporaryDirectory() as home:
    (Path(home) / "config.yaml").write_text(CONFIG)
    said = ask(home, "-p", "say hi")
    assert said.strip() == "say hi", said
    print("answer ok", flush=True)
    said = ask(home, "--resume", "-p", "recall")
    assert said.strip().endswith("say hi"), said
    print("continued conversation ok", flush=True)
    said = ask(home, "--auto", "-p", f"run curl -s {KILL}; echo Paris has 5 degrees")
    assert "Paris has 5 degrees" in said and "run curl" not in said, said
    print("tool ok", flush=True)
