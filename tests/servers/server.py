"""What the scripts of this folder share: each starts one real server for tests, on loopback.

A script prints one line of JSON when its server takes connections, and ends with its server when
its standard input is closed. So nothing is left when the test that started it is killed.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

READY_TIMEOUT_S = 60


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def find_programs(*programs, packages):
    """Returns the paths of programs; ends with the command that installs them if one is missing."""
    search = os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin"
    paths = [shutil.which(program, path=search) for program in programs]
    if None in paths:
        missing = programs[paths.index(None)]
        sys.exit(f"error: there is no `{missing}`: install it (Debian: `apt-get install {packages}`)")
    return paths


def wait_for_port(port, process, log):
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            sys.exit(f"error: the server ended with {process.returncode}:\n{tail(log)}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"error: nothing listens on port {port} after {READY_TIMEOUT_S} s:\n{tail(log)}")


def tail(log):
    return "\n".join(Path(log).read_text(errors="replace").splitlines()[-30:])


def start(command, log, **options):
    """Starts a server in a process group of its own."""
    with open(log, "ab") as output:
        return subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            **options,
        )


def stop(*processes):
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
    for process in processes:
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def serve(description, *processes):
    """Prints how the server is reached, and stops it when standard input is closed."""
    print(json.dumps(description), flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        sys.stdin.read()
    finally:
        stop(*processes)
