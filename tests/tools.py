"""Prints which groups of tests need a tool that this machine lacks, one name per line.

A group is a module of tests with that name. `make test` leaves these tests out and names them;
with CI=true a missing tool is an error.
"""

import os
import pathlib
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def has_chromium():
    named = os.environ.get("HOLDFAST_CHROMIUM", "/usr/bin/chromium")
    return pathlib.Path(named).exists()


def has_faketime():
    return any(
        next(pathlib.Path(root).glob("**/faketime/libfaketimeMT.so.1"), None)
        for root in ("/usr/lib", "/usr/lib64", "/usr/local/lib")
    )


def has_packages():
    return all(shutil.which(tool) for tool in ("npm", "node", "bash")) and os.path.exists("/usr/bin/python3")


def has_cgroups():
    own = pathlib.Path("/proc/self/cgroup").read_text().splitlines()
    path = next((line[4:] for line in own if line.startswith("0::/")), None)
    group = pathlib.Path("/sys/fs/cgroup") / (path or "")
    controllers = group / "cgroup.controllers"
    return (
        path is not None
        and controllers.exists()
        and {"cpu", "memory", "pids"} <= set(controllers.read_text().split())
        and os.access(group / "cgroup.subtree_control", os.W_OK)
    )


# Needs a kernel and a container that not every machine for tests has.
OPTIONAL = {"needs_cgroups"}

GROUPS = {
    "needs_cgroups": (has_cgroups, "a writable cgroup v2 with the controllers cpu, memory and pids"),
    "needs_chromium": (has_chromium, "Chromium (Debian: `apt-get install chromium`)"),
    "needs_faketime": (has_faketime, "faketime (Debian: `apt-get install faketime`)"),
    "needs_packages": (has_packages, "Node.js with npm, and /usr/bin/python3 (Debian: `apt-get install npm`)"),
    "needs_embedder": (lambda: (ROOT / ".holdfast/embedder").is_dir(), "the embedding model (`make embedder`)"),
}


def main():
    missing = [group for group, (is_there, _) in GROUPS.items() if not is_there()]
    for group in missing:
        print(f"tests: not run: `{group}`: it needs {GROUPS[group][1]}", file=sys.stderr)
        print(group)
    sys.exit(bool(set(missing) - OPTIONAL) and os.environ.get("CI") == "true")


if __name__ == "__main__":
    main()
