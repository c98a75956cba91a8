"""Breaks one thing in a copy of the sources: `mutate.py <mutant> <root of the copy>`.

Each mutant is a list of (file, text, replacement). A text that is not found, or found twice, ends
it with an error: a mutant that changes nothing would prove nothing.

    mutate.py --list                 the protocol's mutants, then those that name their tests, by crate
    mutate.py --files <mutant>       the files that it changes
    mutate.py --tests <mutant>       of the latter: a line for each package, target and test that
                                     must fail
    mutate.py --sync <root> <copy>   makes the copy equal to the tracked and new files of the sources; a
                                     file that is equal keeps its time, and with it what was compiled
    mutate.py --check <root>         whether each can still be applied, and whether the tests that it names
                                     exist, without changing anything
"""

import pathlib
import re
import shutil
import subprocess
import sys

import agent
import hardening
import memory
import trusted
import vendors

SESSION = "crates/session/src/"

MUTANTS = {
    # A write is taken from whoever once had the session.
    "fence": [
        (
            SESSION + "sessions.rs",
            "if lease.epoch == claim.epoch\n"
            "                && lease.owner == Some(claim.runner.as_uuid())\n"
            "                && lease.state == SessionState::Running =>",
            "if lease.session == claim.session =>",
        ),
        (
            SESSION + "protocol/append.rs",
            "epoch = $3 and owner = $12\n                  and state = 'RUNNING'\n"
            "                  and next_entry = coalesce($11, next_entry)",
            "coalesce($11::bigint, $3) >= 0 and $12::uuid is not null",
        ),
        (
            SESSION + "protocol/complete.rs",
            "epoch = $12 and owner = $29\n              and state = 'RUNNING'\n"
            "              and next_entry = coalesce($18, next_entry)",
            "coalesce($18::bigint, $12) >= 0 and $29::uuid is not null",
        ),
        (SESSION + "protocol/complete.rs", "is_some_and(|at| at != lease.next_entry)", "is_some_and(|at| at < 0)"),
        (
            SESSION + "protocol/complete.rs",
            "and l.state = 'RUNNING' and l.epoch = \",",
            "and 0 <= \",",
        ),
        # Reading is fenced too, which would hide a stale owner's writes.
        (
            SESSION + "protocol/load.rs",
            "and l.epoch = $4\n          and l.owner = $6\"",
            "and $4::bigint > 0 and $6::uuid is not null\"",
        ),
    ],
    # Two transactions change a session at once.
    "row-lock": [
        (
            SESSION + "sessions.rs",
            'select_lease!("for update")',
            'select_lease!("")',
        ),
        (SESSION + "protocol/ingest.rs", "\n            for update) l\";", ") l\";"),
        (SESSION + "protocol/append.rs", "\n                for update),", "),"),
        (SESSION + "protocol/complete.rs", "\n            for update),", "),"),
    ],
    # A message that is sent again is another message.
    "idempotency-key": [
        (
            SESSION + "protocol/ingest.rs",
            ".bind(messages.iter().map(|m| m.idem_key.as_str()).collect::<Vec<_>>())\n"
            "        .bind(hashes)",
            ".bind(messages.iter().map(|_| Uuid::now_v7().to_string()).collect::<Vec<_>>())\n"
            "        .bind(hashes)",
        ),
    ],
    # What a lost bridge was sending is sent again, on any channel.
    "sending-state": [
        (SESSION + "delivery.rs", ".bind(class != DeliveryClass::Plain)", ".bind(true)"),
    ],
}

# Those that name their tests themselves.
NAMED = {**agent.MUTANTS, **memory.MUTANTS, **hardening.MUTANTS, **vendors.MUTANTS, **trusted.MUTANTS}

CHANGES = {**MUTANTS, **{name: mutant.changes for name, mutant in NAMED.items()}}


def mutated(mutant: str, root: pathlib.Path) -> dict[pathlib.Path, str]:
    """What the files of a copy would be."""
    sources: dict[pathlib.Path, str] = {}
    for name, text, replacement in CHANGES[mutant]:
        path = root / name
        source = sources.get(path) or path.read_text()
        found = source.count(text)
        if found != 1:
            sys.exit(f"{mutant}: `{text}` is {found} times in {name}, and should be there once")
        sources[path] = source.replace(text, replacement)
    return sources


def check_tests(root: pathlib.Path) -> None:
    """Ends with an error if a mutant names a test that is in no file."""
    sources = [path.read_text() for part in ("crates", "services", "cli", "tests") for path in (root / part).rglob("*.rs")]
    known = {name for source in sources for name in re.findall(r"\bfn (\w+)\(", source)}
    for mutant, named in NAMED.items():
        for _, _, test in named.tests:
            if test.rsplit("::", 1)[-1] not in known:
                sys.exit(f"{mutant}: there is no test `{test}`")


def sync(root: pathlib.Path, copy: pathlib.Path) -> None:
    """Copies what differs, and removes what the sources do not have."""
    listed = subprocess.run(
        ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True, capture_output=True, text=True,
    )
    names = {name for name in listed.stdout.split("\0") if name and (root / name).is_file()}
    for path in [path for path in copy.rglob("*") if path.is_file() and not path.is_symlink()]:
        if str(path.relative_to(copy)) not in names:
            path.unlink()
    for name in names:
        source, target = root / name, copy / name
        if not target.is_file() or source.read_bytes() != target.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            # A new time, later than that of what was compiled.
            shutil.copyfile(source, target)
            target.chmod(source.stat().st_mode)


def main() -> None:
    match sys.argv[1:]:
        case ["--list"]:
            # By the changed files: what one mutant compiled is least different from what the next needs.
            named = sorted(NAMED, key=lambda name: sorted(file for file, _, _ in CHANGES[name]))
            print("\n".join([*MUTANTS, *named]))
        case ["--sync", root, copy]:
            sync(pathlib.Path(root), pathlib.Path(copy))
        case ["--files", mutant]:
            print("\n".join(sorted({name for name, _, _ in CHANGES[mutant]})))
        case ["--tests", mutant]:
            tests = NAMED[mutant].tests if mutant in NAMED else []
            print("\n".join(" ".join(test) for test in tests))
        case ["--check", root]:
            for mutant in CHANGES:
                mutated(mutant, pathlib.Path(root))
            check_tests(pathlib.Path(root))
        case [mutant, root]:
            for path, source in mutated(mutant, pathlib.Path(root)).items():
                path.write_text(source)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
