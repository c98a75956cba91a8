#!/usr/bin/env python3
"""Images that this repository names, and the digests that pin their content.

    pin_images.py check              every image is named in a place that `write` pins, and in one version only;
                                     names the images without a digest
    pin_images.py check --released   the same, and each must have a digest
    pin_images.py write              asks the registries for digests, and writes them behind the tags
    pin_images.py write --missing    the same for images without a digest; others stay
    pin_images.py chart FILE         names the images of FILE (a line NAME@DIGEST each, as deploy/images.sh writes
                                     them) in the chart's values

A digest that the registry names is the content of the tag at this moment: compare it with the publisher's.
`write` needs docker with buildx.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# Files and lines that name an image of others: before the name, and the name.
PLACES = {
    "deploy/Dockerfile": re.compile(r"^(ARG [A-Z]+=)(\S+)$", re.M),
    "docker-compose.yml": re.compile(r"^(    image: )(\S+)$", re.M),
    "helm/holdfast/values.yaml": re.compile(r"^(    image: )(\S+)$", re.M),
}
VALUES = "helm/holdfast/values.yaml"

# Whatever names an image in a file of one of these kinds.
NAMED = re.compile(r"^\s*(?:-\s*)?(?:image|imageName|container): *[\"']?([^\s\"'{]+)|^FROM (?:--\S+ )*(\S+)|docker://(\S+)", re.M)
SKIPPED = {".git", ".holdfast", "node_modules", "target", "templates", "tests"}

# Built from this repository, and names that the reader replaces.
OURS = re.compile(r"^(holdfast(:\S+)?$|registry\.example\.com/|\$)")
DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")


def whole_name(image):
    """Name and tag without the digest, with what docker adds: `nats:2` is `docker.io/library/nats:2`."""
    name = image.split("@")[0]
    first, has_more, _ = name.partition("/")
    if not has_more:
        return f"docker.io/library/{name}"
    return name if "." in first or ":" in first else f"docker.io/{name}"


def images():
    """Yields the file and the name of each image that `write` pins."""
    for path, place in PLACES.items():
        for found in place.finditer((ROOT / path).read_text()):
            if not OURS.match(found[2]):
                yield path, found[2]


def files():
    """Yields the name and the text of each file that may name an image."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(set(folders) - SKIPPED)
        for name in sorted(names):
            if name.endswith((".yml", ".yaml")) or name.startswith("Dockerfile"):
                path = Path(folder, name)
                yield path.relative_to(ROOT).as_posix(), path.read_text()


def problems():
    pinned = {(path, image) for path, image in images()}
    for path, text in files():
        stages = set(re.findall(r"^FROM \S+ AS (\S+)", text, re.M)) | {"scratch"}
        for names in NAMED.findall(text):
            image = next(name for name in names if name)
            if not OURS.match(image) and image not in stages and (path, image) not in pinned:
                yield f"{path}: `{image}` is in no place that `pin_images.py write` pins (PLACES)"
    versions = {}
    for path, image in images():
        if ":" not in whole_name(image).rsplit("/", 1)[1] or whole_name(image).endswith(":latest"):
            yield f"{path}: `{image}` has no version"
        name = whole_name(image).rsplit(":", 1)[0]
        first = versions.setdefault(name, (path, image))
        if whole_name(first[1]) != whole_name(image) or first[1].partition("@")[2] != image.partition("@")[2]:
            yield f"{path}: `{image}` is `{first[1]}` in {first[0]}: name the same version and digest"


def check(is_released):
    found = list(problems())
    unpinned = [f"{path}: `{image}` has no digest" for path, image in images() if not DIGEST.search(image)]
    for problem in found + (unpinned if is_released else []):
        print(f"error: {problem}", file=sys.stderr)
    if unpinned and not is_released:
        print("\n".join(f"note: {line}; `make pin-images` writes it" for line in unpinned))
    return 1 if found or (is_released and unpinned) else 0


def digest_of(name):
    argv = ["docker", "buildx", "imagetools", "inspect", "--format", "{{.Manifest.Digest}}", name]
    try:
        digest = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        sys.exit(f"error: docker with buildx cannot ask the registry for {name}: see that it is installed and reaches the registry")
    if not DIGEST.search(f"@{digest}"):
        sys.exit(f"error: the registry names no digest of {name}: {digest}")
    return digest


def write(only_missing):
    names = sorted({whole_name(image) for _, image in images()})
    digests = {whole_name(image): image.partition("@")[2] for _, image in images() if only_missing and "@" in image}
    digests = {name: digests.get(name) or digest_of(name) for name in names}
    for path, place in PLACES.items():

        def pin(found):
            name = found[2].split("@")[0]
            return found[0] if OURS.match(name) else f"{found[1]}{name}@{digests[whole_name(name)]}"

        file = ROOT / path
        file.write_text(place.sub(pin, file.read_text()))
    print("\n".join(f"{name}@{digest}" for name, digest in digests.items()))
    return 0


def write_chart(listed):
    """Sets `image.repository`, `image.digest` and `image.services` of the chart's values."""
    lines = listed.read_text().split()
    if len(lines) != 2 or not all(DIGEST.search(line) for line in lines):
        sys.exit(f"error: {listed} does not name two images by digest: {lines}")
    services, image = sorted(lines, key=lambda line: not line.split("@")[0].endswith("-services"))
    repository, digest = image.split("@")
    if services.split("@")[0] != f"{repository}-services":
        sys.exit(f"error: {listed} does not name an image and its `-services`: {lines}")
    text = (ROOT / VALUES).read_text()
    for name, value in (("repository", repository), ("digest", digest), ("services", services)):
        text, count = re.subn(rf"^(image:\n(?:(?:  .*)?\n)*?  {name}: ).*$", lambda found: found[1] + value, text, count=1, flags=re.M)
        if count != 1:
            sys.exit(f"error: {VALUES} has no `image.{name}`")
    (ROOT / VALUES).write_text(text)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check").add_argument("--released", action="store_true")
    commands.add_parser("write").add_argument("--missing", action="store_true")
    commands.add_parser("chart").add_argument("file", type=Path)
    options = parser.parse_args()
    if options.command == "check":
        return check(options.released)
    return write(options.missing) if options.command == "write" else write_chart(options.file)


if __name__ == "__main__":
    sys.exit(main())
