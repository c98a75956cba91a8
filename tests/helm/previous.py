#!/usr/bin/env python3
"""Prints chart and program of the version that tests/helm/PREVIOUS names, built below DIR if they are not there.

    previous.py --dir DIR
"""

import argparse
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", required=True, type=Path)
    place = parser.parse_args().dir.resolve()
    commit = (ROOT / "tests" / "helm" / "PREVIOUS").read_text().strip()
    source, program = place / commit, place / "target" / "debug" / "holdfast"
    built = place / "built"
    if not (built.exists() and built.read_text() == commit):
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir(parents=True)
        archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(source)], input=archive, check=True)
        # Cargo's output goes to stderr.
        cargo = os.environ.get("CARGO", "cargo")
        argv = [cargo, "build", "--locked", "-p", "holdfast", "--target-dir", str(place / "target")]
        subprocess.run(argv, cwd=source, check=True)
        built.write_text(commit)
    print(source / "helm" / "holdfast", program)


if __name__ == "__main__":
    main()
