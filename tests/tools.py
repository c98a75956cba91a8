"""Prints which groups of tests need a tool that this machine lacks, one name per line.

A group is a module of tests with that name. `make test` leaves these tests out and names them;
with CI=true a missing tool is an error. With names of groups, only these are looked at:

    python3 tests/tools.py needs_packages needs_chromium
"""

import os
import pathlib
import shutil
import subprocess
import sys

import packages

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = ROOT / ".holdfast" / "test-packages"


def has_chromium():
    named = os.environ.get("HOLDFAST_CHROMIUM", "/usr/bin/chromium")
    return pathlib.Path(named).exists()


def has_faketime():
    return any(
        next(pathlib.Path(root).glob("**/faketime/libfaketimeMT.so.1"), None)
        for root in ("/usr/lib", "/usr/lib64", "/usr/local/lib")
    )


def has_packages():
    return shutil.which("node") and os.path.exists("/usr/bin/python3") and not packages.missing(PACKAGES)


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


def has_mounts():
    """Whether a file system can be mounted here: in a mount namespace, so that nothing is left behind."""
    mount = ["unshare", "-m", "mount", "-t", "tmpfs", "holdfast-test", "/mnt"]
    return os.geteuid() == 0 and succeeds(mount)


def has_io_limits():
    # Version 1 of control groups; in version 2 the limit holds for file systems that support it only.
    return os.access("/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device", os.W_OK)


def succeeds(argv):
    try:
        return subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:
        return False


def has_network_namespaces():
    """Whether network namespaces with virtual interfaces can be made: in one, so that nothing is left behind."""
    link = ["unshare", "-n", "ip", "link", "add", "type", "veth"]
    return os.geteuid() == 0 and succeeds(link)


# Need a kernel and a container that not every machine for tests has.
OPTIONAL = {"needs_cgroups", "needs_mounts", "needs_io_limits", "needs_network_namespaces"}

GROUPS = {
    "needs_cgroups": (has_cgroups, "use a machine with a writable cgroup v2 with the controllers cpu, memory and pids"),
    "needs_chromium": (has_chromium, "install Chromium (Debian: `apt-get install chromium`)"),
    "needs_faketime": (has_faketime, "install faketime (Debian: `apt-get install faketime`)"),
    "needs_ngircd": (lambda: shutil.which("ngircd", path="/usr/sbin"), "install ngircd (Debian: `apt-get install ngircd`)"),
    "needs_packages": (has_packages, "install Node.js with npm, and /usr/bin/python3 (Debian: `apt-get install npm`), then `make test-packages`"),
    "needs_pgbouncer": (lambda: shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin"), "install PgBouncer (Debian: `apt-get install pgbouncer`)"),
    "needs_mounts": (has_mounts, "run the tests as root, where file systems can be mounted"),
    "needs_io_limits": (has_io_limits, "run the tests as root with control groups that limit block devices"),
    "needs_network_namespaces": (
        has_network_namespaces,
        "run the tests as root, where network namespaces can be made, with iproute2",
    ),
    "needs_embedder": (lambda: (ROOT / ".holdfast/embedder").is_dir(), "install the embedding model (`make embedder`)"),
}


def main():
    wanted = sys.argv[1:] or GROUPS
    missing = [group for group in wanted if not GROUPS[group][0]()]
    for group in missing:
        print(f"tests: not run: `{group}`: {GROUPS[group][1]}", file=sys.stderr)
        print(group)
    sys.exit(bool(set(missing) - OPTIONAL) and os.environ.get("CI") == "true")


if __name__ == "__main__":
    main()
