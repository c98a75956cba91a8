#!/usr/bin/env python3
"""Installs the public packages that tests run, each once: `tests/packages.py --dir .holdfast/test-packages`.

The tests do not install anything themselves: a busy package index would use up the time of a test.
"""

import argparse
import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

NPM = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]
# By the interpreter of the sandbox, for its version.
PIP = ["/usr/bin/python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
# How often an index is asked, and how many seconds it has each time.
ATTEMPTS = 3
TIMEOUT = 300

# By folder: the package, and a file that it must have.
NPM_PACKAGES = {
    "server-everything": (
        "@modelcontextprotocol/server-everything@2026.8.31",
        "node_modules/@modelcontextprotocol/server-everything/dist/index.js",
    ),
    "server-memory": (
        "@modelcontextprotocol/server-memory@2026.8.31",
        "node_modules/@modelcontextprotocol/server-memory/dist/index.js",
    ),
    "oidc-provider": ("oidc-provider@9.13.3", "node_modules/oidc-provider/package.json"),
}
PIP_PACKAGES = {"mcp-server-fetch": ("mcp-server-fetch==2026.10.24", "mcp_server_fetch/__main__.py")}
PACKAGES = NPM_PACKAGES | PIP_PACKAGES


class Problem(Exception):
    """Something a person must see and do something about; the text says what."""


def missing(home):
    """Names of the packages that are not installed, or in another version."""
    return [name for name in PACKAGES if not is_installed(home / name, PACKAGES[name])]


def is_installed(place, package):
    requirement, member = package
    marker = place / "installed"
    return marker.is_file() and marker.read_text() == requirement and (place / member).is_file()


def command(name, into):
    requirement = PACKAGES[name][0]
    if name in NPM_PACKAGES:
        return [*NPM, str(into), requirement]
    version = subprocess.run(PIP, capture_output=True, text=True, check=True).stdout.strip()
    options = ["--quiet", "--only-binary=:all:", "--python-version", version, "--target", str(into)]
    return [sys.executable, "-m", "pip", "install", *options, requirement]


def install(home, name):
    requirement, member = PACKAGES[name]
    print(f"installing {requirement} (once)", flush=True)
    new = home / f"{name}.new"
    for attempt in range(1, ATTEMPTS + 1):
        shutil.rmtree(new, ignore_errors=True)
        try:
            done = subprocess.run(
                command(name, new), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT, check=False
            )
            said = "" if done.returncode == 0 else done.stderr.strip()[-2000:]
        except subprocess.TimeoutExpired:
            said = f"it took longer than {TIMEOUT} s"
        if not said and (new / member).is_file():
            break
        print(f"attempt {attempt} of {ATTEMPTS}: {said or f'it has no `{member}`'}", file=sys.stderr, flush=True)
    else:
        raise Problem(f"{requirement} cannot be installed: see that the package index can be reached, and try again")
    (new / "installed").write_text(requirement)
    shutil.rmtree(home / name, ignore_errors=True)
    new.rename(home / name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dir", required=True, type=Path, help="where the packages are put")
    home = parser.parse_args().dir.resolve()
    try:
        home.mkdir(parents=True, exist_ok=True)
        # Only one at a time; the others wait, and find the work done.
        with open(home / "lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for name in missing(home):
                install(home, name)
    except (Problem, OSError) as error:
        sys.exit(f"packages.py: {error}")


if __name__ == "__main__":
    main()
