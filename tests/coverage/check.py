"""Checks docs/spec-coverage.md: every row of the specification is in it once, and every test that
it names exists and ran.

    check.py [junit.xml]

A row says where the requirement is met and by which tests, or after `–` why it is not there. With
the report of a test run (nextest's JUnit file) a test counts if it passed in it; without one, if
the sources have a function of its name.
"""

import pathlib
import re
import sys
import xml.etree.ElementTree as ET

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "docs/spec-coverage.md"

# The rows of the specification's areas, first and last.
AREAS = {
    "AGT": (1, 26),
    "SYS": (1, 28),
    "BST": (1, 11),
    "CTX": (1, 18),
    "CMP": (1, 12),
    "AUT": (1, 9),
    "TOL": (1, 43),
    "POL": (1, 18),
    "SBX": (1, 11),
    "ACT": (1, 8),
    "EXT": (1, 7),
    "SUB": (1, 23),
    "UIC": (3, 5),
    "HBT": (1, 21),
    "CRN": (1, 23),
    "REM": (1, 13),
    "MEM": (1, 19),
    "KBN": (1, 8),
    "SKL": (1, 17),
}

ROW = re.compile(r"^\| *([A-Z]{3}-\d{3}) *\|([^|]*)\|([^|]*)\|")
TEST = re.compile(r"`([^`]+)`")


def wanted():
    return [f"{area}-{n:03}" for area, (first, last) in AREAS.items() for n in range(first, last + 1)]


def rows():
    """Row id, where, tests."""
    for number, line in enumerate(TABLE.read_text().splitlines(), 1):
        if found := ROW.match(line):
            yield number, found[1], found[2].strip(), TEST.findall(found[3])


def ran(report):
    """The names of the tests that passed, with and without their binary's."""
    passed = set()
    for case in ET.parse(report).getroot().iter("testcase"):
        if case.find("failure") is None and case.find("error") is None:
            passed |= {case.get("name"), f"{case.get('classname')} {case.get('name')}"}
    return passed


def written():
    """The names of all functions in the sources that could be tests; some are made by a macro, in
    whose table they are the first word of a line."""
    named = re.compile(r"\bfn (\w+)|^    (\w+): \w+ in \w+ is ", re.M)
    places = [ROOT / place for place in ("proto", "crates", "services", "cli", "tests")]
    sources = (path for place in places for path in place.rglob("*.rs"))
    found = (pair for path in sources for pair in named.findall(path.read_text()))
    return {name for pair in found for name in pair if name}


def main():
    wrong = []
    seen = {}
    tests = []
    for line, row, where, named in rows():
        if row in seen:
            wrong.append(f"line {line}: {row} is there twice, first in line {seen[row]}")
        seen[row] = line
        if not where:
            wrong.append(f"line {line}: {row} says neither where it is nor, after `–`, why not")
        elif not named and not where.startswith("–"):
            wrong.append(f"line {line}: {row} names no test")
        tests += [(line, row, test) for test in named]
    wrong += [f"{row} is missing" for row in wanted() if row not in seen]
    wrong += [f"{row} is no row of the specification" for row in seen if row not in wanted()]

    report = sys.argv[1] if len(sys.argv) > 1 else None
    known = ran(report) if report else written()
    for line, row, test in tests:
        name = test if report else test.split()[-1].split("::")[-1]
        if name not in known:
            wrong.append(f"line {line}: {row} names `{test}`, which {'did not pass' if report else 'is no function'}")

    for text in wrong:
        print(f"docs/spec-coverage.md: {text}", file=sys.stderr)
    open_rows = sum(where.startswith("–") for _, _, where, _ in rows())
    print(f"{len(seen)} rows, {len(seen) - open_rows} met, {len(tests)} tests named")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
