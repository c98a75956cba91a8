"""What the programs of this folder share: the client's tool, and what its answer has to be."""

import json
import os
import subprocess
import time
import urllib.request

QUESTION = "How is the weather?"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def degrees(city):
    """The tool. Before it answers, every runner of the mesh is killed."""
    urllib.request.urlopen(os.environ["HOLDFAST_KILL_RUNNERS"], timeout=30).read()
    return f"{city} has {len(city)} degrees"


def check(text):
    assert "Paris has 5 degrees and Rome has 4 degrees" in text, text


def count_sessions(wanted=None):
    """Number of the tenant's sessions. Those of housekeeping are deleted with the answer: `wanted` is waited for."""
    command = [*json.loads(os.environ["HOLDFAST_COMMAND"]), "sessions", "list", "--limit", "1000", "--output", "json"]
    for _ in range(50):
        count = len(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        if wanted is None or count == wanted:
            break
        time.sleep(0.2)
    return count
