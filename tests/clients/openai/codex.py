"""Codex with a provider of its own and the Responses API: it answers, continues a conversation, and runs a command that the model asks for."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent / "node_modules" / ".bin" / "codex"
KILL = os.environ["HOLDFAST_KILL_RUNNERS"]
CONFIG = f"""
model = "holdfast"
model_provider = "holdfast"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.holdfast]
name = "Holdfast"
base_url = "{os.environ["OPENAI_BASE_URL"]}"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
"""


def ask(home, *words):
    environment = os.environ | {"CODEX_HOME": home}
    command = [PROGRAM, "exec", "--skip-git-repo-check", *words]
    done = subprocess.run(command, cwd=home, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200)
    if done.returncode != 0:
        sys.exit(f"{words}: {done.stdout}{done.stderr}")
    return done.stdout


with tempfile.TemporaryDirectory() as home:
    (Path(home) / "config.toml").write_text(CONFIG)
    said = ask(home, "say hi")
    assert "say hi" in said, said
    print("answer ok", flush=True)
    said = ask(home, "resume", "--last", "recall")
    assert "say hi" in said, said
    print("continued conversation ok", flush=True)
    # Its sandbox has no network, through which the runners are killed.
    said = ask(home, "--dangerously-bypass-approvals-and-sandbox", f"run curl -s {KILL}; echo Paris has 5 degrees")
    assert "Paris has 5 degrees" in said and "run curl" not in said, said
    print("tool ok", flush=True)
