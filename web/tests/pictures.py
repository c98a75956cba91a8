#!/usr/bin/env python3
"""Makes the pictures that docs/console-tour.md shows, from those that the browser tests have taken.

    HOLDFAST_TEST_PICTURES=1 npx playwright test screenshots --project desktop
    python3 tests/pictures.py

Run both in web/. The pictures become small, as they are part of the binary: a palette, and no more pixels
than a page of the book can show. Those that the tour no longer shows are deleted. Needs Pillow.
"""

import io
import re
import sys
from pathlib import Path

from PIL import Image

WEB = Path(__file__).resolve().parents[1]
TAKEN = WEB.parent / ".holdfast" / "pictures"
DOCS = WEB.parent / "docs"
TARGET = DOCS / "console"

WIDTH = {"phone": 390, "": 1200}
MAX_BYTES = 120_000
MAX_TOTAL_BYTES = 4_000_000
# Tried in this order until a picture is small enough.
COLORS = (128, 64, 32)


def shrink(path):
    """Returns a PNG file of a picture with as many colors as its size allows."""
    picture = Image.open(path).convert("RGB")
    width = WIDTH["phone" if path.stem.endswith("-phone") else ""]
    if picture.width > width:
        picture = picture.resize((width, round(picture.height * width / picture.width)), Image.Resampling.LANCZOS)
    for colors in COLORS:
        file = io.BytesIO()
        picture.quantize(colors, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
        if file.tell() <= MAX_BYTES:
            return file.getvalue()
    sys.exit(f"pictures: {path.name} has {file.tell()} bytes with {COLORS[-1]} colors; {MAX_BYTES} are the most")


def main():
    names = re.findall(r"\]\(console/([\w-]+\.png)\)", (DOCS / "console-tour.md").read_text())
    if missing := [name for name in names if not (TAKEN / name).is_file()]:
        sys.exit(f"pictures: take them first: {', '.join(missing)}")
    TARGET.mkdir(exist_ok=True)
    for old in TARGET.glob("*.png"):
        if old.name not in names:
            old.unlink()
    for name in names:
        (TARGET / name).write_bytes(shrink(TAKEN / name))
    total = sum((TARGET / name).stat().st_size for name in names)
    if total > MAX_TOTAL_BYTES:
        sys.exit(f"pictures: they have {total} bytes together; {MAX_TOTAL_BYTES} are the most")
    print(f"pictures: {len(names)}, {total // 1000} kB")


if __name__ == "__main__":
    main()
