"""What the programs of this folder share: the client's tool, and what its answer has to be."""

import os
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
