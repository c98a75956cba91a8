"""Claude Code with its default settings: it answers, continues a conversation, and runs a command that the model asks for."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent / "node_modules" / "@anthropic-ai" / "claude-code"
KILL = os.environ["HOLDFAST_KILL_RUNNERS"]
SILENT = dict.fromkeys(["DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING", "DISABLE_AUTOUPDATER", "DISABLE_BUG_COMMAND"], "1")


def ask(home, *words):
    environment = os.environ | SILENT | {"HOME": home, "ANTHROPIC_AUTH_TOKEN": os.environ["OPENAI_API_KEY"]}
    for variable in ["ANTHROPIC_API_KEY", "ANTHROPIC_MODEL"]:
        environment.pop(variable, None)
    command = [PACKAGE.parents[1] / ".bin" / "claude", "-p", *words]
    done = subprocess.run(command, cwd=home, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200)
    if done.returncode != 0:
        sys.exit(f"{words}: {done.stdout}{done.stderr}")
    return done.stdout


# Package managers may be set up not to run what fetches the program.
subprocess.run(["node", PACKAGE / "install.cjs"], cwd=PACKAGE, check=True, stdout=subprocess.DEVNULL)
with tempfile.TemporaryDirectory() as home:
    said = ask(home, "say hi")
    assert "say hi" in said, said
    print("answer ok", flush=True)
    said = ask(home, "--continue", "recall")
    assert "say hi" in said, said
    print("continued conversation ok", flush=True)
    said = ask(home, f"run curl -s {KILL}; echo Paris has 5 degrees", "--allowedTools", "Bash")
    assert "Paris has 5 degrees" in said and "run curl" not in said, said
    print("tool ok", flush=True)
