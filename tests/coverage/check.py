"""Checks docs/spec-coverage.md: each requirement has one row, a valid status and existing files,
and each test that a row names exists and passed.

    check.py [junit.xml [GROUP...]]

With the report of a test run (nextest's JUnit file) a named test must have passed in it: a skipped
test does not count. A requirement whose tests are in a GROUP that was left out because this machine
lacks a tool is not counted as met. Without a report a test must be a function in the sources.
"""

import pathlib
import re
import sys
import xml.etree.ElementTree as ET
from collections import Counter

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "docs/spec-coverage.md"

# The areas of the specification and the number of requirements in each; ids count from 001.
AREAS = {
    "PLT": 21, "CFG": 9, "GWP": 21, "UIC": 8, "CHN": 30, "RTE": 20, "SES": 22, "STM": 28,
    "AGT": 26, "SYS": 28, "BST": 11, "CTX": 18, "CMP": 12, "AUT": 9, "BHV": 21, "PRM": 10,
    "TDO": 13, "WLG": 9, "WSP": 12, "SLF": 12, "ECO": 11, "TOL": 43, "POL": 18, "SBX": 11,
    "ACT": 8, "EXT": 7, "SUB": 23, "HBT": 21, "CRN": 23, "REM": 13, "MEM": 19, "KBN": 8,
    "SKL": 17, "OBS": 9, "PRF": 17, "TST": 13,
}

ROW = re.compile(r"^\| *([A-Z]{3}-\d{3}) *\|(.*)\|\s*$")
COLUMNS = ("required", "status", "where", "tests")
TEST = re.compile(r"`([^`]+)`")
FILE = re.compile(r"[\w.@-]+(?:/[\w.@*-]+)+")

# Tests that go through a running service, the runner or the command line.
PRODUCT = re.compile(
    r"(?:(?:gateway|agent-runner|memory|scheduler|secrets|channel-bridge)::it|holdfast::\w+|holdfast::bin/holdfast node::tests|holdfast-tests::\w+)[ :]"
)


def expected_ids():
    return [f"{area}-{n:03}" for area, count in AREAS.items() for n in range(1, count + 1)]


def read_rows():
    """Line number, id and the four cells of each row, or an error text in place of the cells."""
    for number, line in enumerate(TABLE.read_text().splitlines(), 1):
        if found := ROW.match(line):
            cells = [cell.strip() for cell in found[2].replace("\\|", "\0").split("|")]
            cells = [cell.replace("\0", "|") for cell in cells]
            yield number, found[1], dict(zip(COLUMNS, cells)) if len(cells) == 4 else None


def passed_tests(report):
    """Names of the tests that passed, as `binary name`."""
    passed = set()
    for case in ET.parse(report).getroot().iter("testcase"):
        if not any(case.find(tag) is not None for tag in ("failure", "error", "skipped")):
            passed.add(f"{case.get('classname')} {case.get('name')}")
    return passed


def functions():
    """Names of all functions in the sources; some tests are made by a macro, in whose table they
    are the first word of a line."""
    named = re.compile(r"\bfn (\w+)|^    (\w+): \w+ in \w+ is ", re.M)
    folders = [ROOT / folder for folder in ("proto", "crates", "services", "cli", "tests")]
    sources = (path for folder in folders for path in folder.rglob("*.rs"))
    pairs = (pair for path in sources for pair in named.findall(path.read_text()))
    return {name for pair in pairs for name in pair if name}


def check_row(cells):
    """What is wrong with the cells of a row."""
    if not cells["required"]:
        yield "has no sentence that says what is required"
    status, _, missing = cells["status"].partition(":")
    tests = TEST.findall(cells["tests"])
    if status not in ("met", "partial", "absent"):
        yield f"has the status `{cells['status']}`: write met, `partial: …` or absent"
    if status == "partial" and not missing.strip():
        yield "is partial and does not say what is missing"
    if status in ("met", "partial") and not cells["where"]:
        yield "does not say where it is built"
    if status == "partial" and not tests:
        yield "names no test"
    if status == "met" and not any(PRODUCT.match(test) for test in tests):
        yield "is met and names no test through the running product"
    for path in FILE.findall(cells["where"]):
        if not any(ROOT.glob(path)):
            yield f"names `{path}`, which does not exist"


def main():
    wrong = []
    seen = {}
    status_of = {}
    named = []
    for line, row, cells in read_rows():
        if row in seen:
            wrong.append(f"line {line}: {row} is there twice, first in line {seen[row]}")
        seen[row] = line
        if cells is None:
            wrong.append(f"line {line}: {row} does not have five columns")
            continue
        wrong += [f"line {line}: {row} {text}" for text in check_row(cells)]
        status_of[row] = cells["status"].partition(":")[0]
        named += [(line, row, test) for test in TEST.findall(cells["tests"])]
    wrong += [f"{row} is missing" for row in expected_ids() if row not in seen]
    wrong += [f"{row} is no row of the specification" for row in seen if row not in expected_ids()]

    report, left_out = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else (None, [])
    known = passed_tests(report) if report else functions()
    unproven = set()
    for line, row, test in named:
        if any(f"{group}::" in test for group in left_out):
            unproven.add(row)
        elif (test if report else test.split()[-1].split("::")[-1]) not in known:
            what = "did not pass or was skipped" if report else "is no function"
            wrong.append(f"line {line}: {row} names `{test}`, which {what}")

    for text in wrong:
        print(f"docs/spec-coverage.md: {text}", file=sys.stderr)
    for row in unproven:
        status_of[row] = "not tested here"
    statuses = Counter(status_of.values())
    names = ["met", "partial", "absent"] + ["not tested here"] * bool(unproven)
    counts = ", ".join(f"{statuses[status]} {status}" for status in names)
    print(f"{len(seen)} of {len(expected_ids())} requirements: {counts}; {len(named)} tests named")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
