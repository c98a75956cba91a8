"""Runs the property tests of the parsers of untrusted input for a while each: `fuzz.py [seconds] [parser …]`.

Each test begins with its corpus, which stands beside it, or with inputs made for its parser, and mutates
them. `make test` runs each with a few hundred inputs; here each has a minute. An input that fails is
printed and kept in `proptest-regressions` beside the source, and every later run begins with it.
"""

import json
import os
import subprocess
import sys
import time

# Parser: package, and the tests that read what anybody can send.
PARSERS = {
    "openai": ("gateway", ["openai::chat::tests::any_body_", "openai::responses::tests::any_body_"]),
    "ag-ui": ("gateway", ["agui::input::tests::any_body_"]),
    "websocket": ("gateway", ["ws::request::tests::any_frame_", "ws::frames::tests::", "ws::recorder::tests::the_end_of_any_bytes_"]),
    "openai-text": ("gateway", ["openai::sent_text::tests::"]),
    "policy": ("holdfast-agent", ["policy::tests::properties::", "policy::name::tests::", "policy::glob::tests::"]),
    "policy-path": ("holdfast-agent", ["policy::path::tests::"]),
    "shell": ("holdfast-agent", ["policy::shell::tests::"]),
    "shell-parts": ("agent-runner", ["command_parts::tests::any_line_", "command_parts::tests::a_program_is_found_"]),
    "patch": ("holdfast-tools", ["files::patch::tests::"]),
    "path": ("holdfast-tools", ["files::path::tests::"]),
    "tree-path": ("holdfast-types", ["tree_path::tests::"]),
    "cron": ("holdfast-schedule", ["cron::tests::"]),
    "reminder": ("holdfast-schedule", ["reminder::time::tests::"]),
    "interval": ("holdfast-schedule", ["interval::tests::"]),
    "skill": ("holdfast-skills", ["manifest::tests::"]),
    "skill-archive": ("holdfast-skills", ["archive::tests::"]),
    "package": ("holdfast-skills", ["agent_package::tests::"]),
    "ics": ("holdfast-tools", ["connections::ics::tests::"]),
    "email": ("holdfast-tools", ["connections::email::tests::"]),
    "html": ("holdfast-documents", ["html::tests::any_bytes_"]),
    "encoding": ("holdfast-documents", ["encoding::tests::any_bytes_"]),
    "rtf": ("holdfast-documents", ["rtf::tests::any_bytes_", "rtf::compression::tests::any_bytes_"]),
    "old-office": (
        "holdfast-documents",
        [
            "compound::old_word::paragraphs::tests::any_bytes_",
            "compound::old_word::tests::any_change_",
            "compound::old_slides::tests::any_",
        ],
    ),
    "outlook": ("holdfast-documents", ["compound::outlook::tests::any_change_"]),
    "mcp": ("holdfast-mcp", ["tool::tests::any_tool_", "tool_result::tests::any_result_"]),
    "telegram": ("channel-bridge", ["telegram::judge::tests::any_update_"]),
    "markdown": ("channel-bridge", ["telegram::render::tests::", "split::tests::"]),
    "mail-results": ("channel-bridge", ["email::authentication::header::tests::"]),
    "mail-sender": ("channel-bridge", ["email::sender::tests::", "email::judge::tests::any_"]),
    "webhook": ("channel-bridge", ["webhook::inbound::tests::any_signed_body_", "webhook::inbound::tests::a_body_that_was_changed_"]),
    "sse": ("holdfast-llm", ["http::sse::tests::"]),
    "openai-stream": ("holdfast-llm", ["openai::decode::tests::"]),
    "responses-stream": ("holdfast-llm", ["responses::decode::tests::"]),
    "anthropic-stream": ("holdfast-llm", ["anthropic::decode::tests::"]),
    "gemini-stream": ("holdfast-llm", ["gemini::decode::tests::"]),
    "ollama-stream": ("holdfast-llm", ["ollama::decode::tests::"]),
    "session-key": ("holdfast-types", ["session_key::tests::"]),
    "id": ("holdfast-types", ["id::tests::any_text_"]),
    "command": ("holdfast-types", ["command::tests::", "directive::tests::"]),
    "token": ("holdfast-directory", ["token::tests::"]),
    "context": ("holdfast-grpc", ["context::tests::only_an_unchanged_"]),
    "untrusted": ("holdfast-tools", ["untrusted::tests::"]),
    "approval": ("holdfast-tools", ["approval::tests::"]),
    "approval-request": ("agent-runner", ["approvals::request::tests::"]),
}

FIRST_CASES = 256


def test_binaries() -> "dict[str, str]":
    """Builds the tests of all libraries, with the features that `make test` builds them with."""
    command = ["cargo", "test", "--quiet", "--workspace", "--lib", "--no-run", "--message-format", "json"]
    built = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    return {
        message["target"]["name"].replace("_", "-"): message["executable"]
        for message in messages
        if message.get("executable")
    }


def source_dir(package: str) -> str:
    """Where the package's tests are run, as cargo does."""
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    manifest = next(each["manifest_path"] for each in found["packages"] if each["name"] == package)
    return os.path.dirname(manifest)


def run(parser: str, seconds: float, binaries: "dict[str, str]") -> bool:
    package, tests = PARSERS[parser]
    if package not in binaries:
        sys.exit(f"{package} has no tests of its library")
    binary, folder = binaries[package], source_dir(package)
    cases, done, began = FIRST_CASES, 0, time.monotonic()
    while True:
        environment = {**os.environ, "PROPTEST_CASES": str(cases)}
        started = time.monotonic()
        ended = subprocess.run([binary, *tests], cwd=folder, env=environment, capture_output=True, text=True)
        if ended.returncode != 0:
            print(f"{parser}: FAILED after {done} inputs\n{ended.stdout[-4000:]}")
            return False
        if " 0 passed" in ended.stdout:
            print(f"{parser}: no test of {package} is named {tests}")
            return False
        done += cases
        took, left = time.monotonic() - started, began + seconds - time.monotonic()
        if left <= 0:
            break
        # About a quarter of the time that is left, so that each run draws new inputs.
        cases = max(FIRST_CASES, int(cases * min(8.0, left / 4 / max(took, 0.01))))
    print(f"{parser}: {done} inputs for each test in {time.monotonic() - began:.0f} s", flush=True)
    return True


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60
    parsers = sys.argv[2:] or list(PARSERS)
    binaries = test_binaries()
    results = [run(parser, seconds, binaries) for parser in parsers]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
