"""Installs programs that come as Python packages, pinned by version and hash."""

import os
import shutil
import subprocess
import sys


def install(requirement, directory):
    """Installs into `directory`, unless it has been done, and returns the directory of the programs.

    Raises `subprocess.CalledProcessError` if pip cannot: it has then printed why.
    """
    marker = directory / "installed"
    if not (marker.exists() and marker.read_text() == requirement):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        pins = directory / "requirements.txt"
        pins.write_text(requirement)
        argv = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-input", "--no-deps"]
        argv += ["--only-binary", ":all:", "--require-hashes", "--target", str(directory), "-r", str(pins)]
        env = {**os.environ, "PIP_USER": "0", "PIP_ROOT_USER_ACTION": "ignore"}
        subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, check=True)
        marker.write_text(requirement)
    return directory / "bin"
