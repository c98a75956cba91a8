#!/usr/bin/env python3
"""Checks `proto/` with buf: its lint rules, and that nothing a client uses is removed or changed.

    check.py --dir DIR            checks; installs buf into DIR/buf once, by npm
    check.py --dir DIR --write    after an addition: writes contracts.binpb anew, then checks

`contracts.binpb` describes the contracts as they were accepted last. A change that breaks clients is
refused with --write too. The rules are in `proto/buf.yaml`. At the end some rules are broken in a
copy: a check that does not notice is a failure.

Needs Python 3.9, Node.js and npm.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROTO = ROOT / "proto"
HERE = ROOT / "tests" / "proto"
ACCEPTED = HERE / "contracts.binpb"
MESSAGES = "holdfast/gateway/v1/messages.proto"
APPROVALS = "holdfast/gateway/v1/approvals.proto"

# What is broken in a copy: the command that must fail, the file, a text and its replacement, and
# what the message must say.
BROKEN = [
    ("breaking", APPROVALS, "DECISION_DENY = 3;", "DECISION_DENY = 4;", "Decision"),
    ("breaking", APPROVALS, "rpc GetApproval(", "rpc ReadApproval(", "GetApproval"),
    ("breaking", MESSAGES, "  string text = ", "  bytes text = ", "type"),
    ("lint", APPROVALS, "DECISION_DENY = 3;", "DENY = 3;", "DECISION_"),
    ("lint", APPROVALS, "  // Returns one approval with its details.\n", "", "comment"),
    ("lint", APPROVALS, "(GetApprovalRequest)", "(ListApprovalsRequest)", "GetApprovalRequest"),
]


def install(directory):
    """Returns the path of buf, of the version and content that package-lock.json names."""
    lock = HERE / "package-lock.json"
    copy = directory / "package-lock.json"
    if not copy.exists() or copy.read_bytes() != lock.read_bytes() or not (directory / "node_modules").exists():
        if shutil.which("npm") is None:
            sys.exit("error: there is no `npm`: install it (Debian: `apt-get install npm`)")
        print("installing buf (once, 60 MB)", flush=True)
        directory.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / "package.json", directory)
        argv = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        pending = directory / "package-lock.json"
        shutil.copy(lock, pending)
        if subprocess.run(argv, cwd=directory, stdin=subprocess.DEVNULL).returncode:
            pending.unlink()
            sys.exit("error: npm cannot install buf: see that npm reaches a package registry, and try again")
    return directory / "node_modules" / ".bin" / "buf"


class Buf:
    def __init__(self, program, cache):
        self.program, self.environment = program, {**os.environ, "BUF_CACHE_DIR": str(cache)}

    def run(self, *args):
        """Returns what buf complains about; empty if nothing."""
        done = subprocess.run([self.program, *map(str, args)], env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return done.stdout + done.stderr if done.returncode else ""

    def lint(self, folder):
        return self.run("lint", folder)

    def breaking(self, folder):
        return self.run("breaking", folder, "--against", ACCEPTED)

    def describe(self, folder, target):
        return self.run("build", folder, "--as-file-descriptor-set", "--exclude-source-info", "-o", target)


def unnoticed(buf, folder):
    """Returns the rules that can be broken without a complaint."""
    problems = []
    for command, path, old, new, expected in BROKEN:
        text = (PROTO / path).read_text()
        file = folder / path
        if old not in text:
            problems.append(f"`{old}` is no longer in {path}: choose another text in check.py")
            continue
        file.write_text(text.replace(old, new, 1))
        complaint = getattr(buf, command)(folder)
        file.write_text(text)
        if expected not in complaint:
            problems.append(f"`{command}` does not notice `{new.strip()}` instead of `{old.strip()}` in {path}")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    directory = options.dir.resolve() / "buf"
    buf = Buf(install(directory), directory / "cache")

    problems = buf.lint(PROTO)
    if ACCEPTED.exists() or not options.write:
        problems += buf.breaking(PROTO)
    if problems:
        print(problems, end="")
        sys.exit("error: the contracts break the rules of proto/buf.yaml (see CONTRIBUTING.md)")
    with tempfile.TemporaryDirectory() as temporary:
        now = Path(temporary) / "now.binpb"
        if complaint := buf.describe(PROTO, now):
            sys.exit(f"error: {complaint}")
        if options.write:
            shutil.copyfile(now, ACCEPTED)
        if now.read_bytes() != ACCEPTED.read_bytes():
            sys.exit("error: the contracts have additions: accept them with `make proto-check ARGS=--write`")
        copy = Path(temporary) / "proto"
        shutil.copytree(PROTO, copy, ignore=shutil.ignore_patterns("src", "*.rs"))
        if problems := unnoticed(buf, copy):
            sys.exit("error: " + "\n".join(problems))
    print(f"the contracts keep the rules; {len(BROKEN)} breaches are noticed")


if __name__ == "__main__":
    main()
