"""Runs programs of integrators against a running mesh, with their languages' packages installed.

    make test-clients                      # all whose toolchain is here
    make test-clients ARGS="python rust"   # some of them

Installs packages into `.holdfast/clients`, which is kept. With CI=true a missing toolchain is an error.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "grpc"
PROTO = ROOT / "proto"
MESSAGES = "holdfast/gateway/v1/messages.proto"
PYTHON_PACKAGES = ["grpcio", "grpcio-tools", "googleapis-common-protos", "grpcio-status"]
GO_PACKAGE = "holdfast.dev/example"
# Of Debian's packages protoc-gen-go-1-3, golang-google-grpc-dev and golang-google-genproto-dev.
GO_GENERATOR = Path("/usr/bin/protoc-gen-go")
GO_LIBRARIES = Path("/usr/share/gocode")


def run(command, **options):
    print("+", " ".join(str(word) for word in command), file=sys.stderr, flush=True)
    return subprocess.run([str(word) for word in command], check=True, **options)


def python(folder):
    """Returns the command of the example."""
    interpreter = folder / "venv" / "bin" / "python"
    if not interpreter.exists():
        venv.create(folder / "venv", with_pip=True)
        run([interpreter, "-m", "pip", "install", "--quiet", *PYTHON_PACKAGES])
    shutil.copy(EXAMPLES / "python" / "chat.py", folder)
    run([interpreter, "-m", "grpc_tools.protoc", "-I", PROTO, f"--python_out={folder}", f"--grpc_python_out={folder}", PROTO / MESSAGES])
    return [interpreter, folder / "chat.py"]


def typescript(folder):
    # The program finds the protos from where it is.
    home = folder / "examples" / "grpc" / "typescript"
    shutil.copytree(EXAMPLES / "typescript", home, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules"))
    shutil.copytree(PROTO / "holdfast", folder / "proto" / "holdfast", dirs_exist_ok=True)
    if not (home / "node_modules" / ".bin" / "tsx").exists():
        run(["npm", "install", "--no-audit", "--no-fund", "--silent"], cwd=home)
    run(["npm", "run", "--silent", "check"], cwd=home)
    return [home / "node_modules" / ".bin" / "tsx", home / "chat.ts"]


def go(folder):
    home = folder / "src" / GO_PACKAGE
    generated = home / "gen"
    generated.mkdir(parents=True, exist_ok=True)
    shutil.copy(EXAMPLES / "go" / "chat.go", home)
    # Debian's gRPC works with code of this older generator, which has the same names.
    options = f"plugins=grpc,paths=source_relative,M{MESSAGES}={GO_PACKAGE}/gen/holdfast/gateway/v1"
    run(["protoc", "-I", PROTO, f"--plugin=protoc-gen-go={GO_GENERATOR}", f"--go_out={options}:{generated}", MESSAGES])
    environment = os.environ | {"GO111MODULE": "off", "GOPATH": f"{folder}:{GO_LIBRARIES}", "GOCACHE": str(folder / "cache")}
    run(["go", "build", "-o", folder / "chat", "."], cwd=home, env=environment)
    return [folder / "chat"]


def rust(folder):
    run(["cargo", "build", "--quiet", "--target-dir", folder], cwd=EXAMPLES / "rust")
    return [folder / "debug" / "holdfast-grpc-example"]


# What prepares each example, and the programs and files that it needs.
EXAMPLE_BUILDERS = {
    "python": (python, []),
    "typescript": (typescript, ["node", "npm"]),
    "go": (go, ["go", "protoc", GO_GENERATOR, GO_LIBRARIES / "src/google.golang.org/grpc"]),
    "rust": (rust, ["cargo"]),
}


def is_there(tool):
    return tool.exists() if isinstance(tool, Path) else shutil.which(tool) is not None


class Mesh:
    """`holdfast up` in a folder of its own."""

    def __init__(self, holdfast, folder):
        self.holdfast, self.folder = holdfast, folder

    def command(self, *words):
        return [self.holdfast, "--dir", self.folder, *words]

    def __enter__(self):
        # Those of the tests are the same; otherwise they are fetched.
        packages, shared = self.folder / "backends" / "pkg", ROOT / ".holdfast" / "test" / "pkg"
        if shared.exists() and not packages.exists():
            packages.parent.mkdir(parents=True, exist_ok=True)
            packages.symlink_to(shared)
        run(self.command("up", "--detach", "--port-base", "0"), stdout=sys.stderr)
        state = json.loads((self.folder / "state.json").read_text())
        self.grpc = state["gateways"][0]["grpc"].removeprefix("http://")
        self.key = (self.folder / "dev.key").read_text().strip()
        return self

    def __exit__(self, *_):
        run(self.command("down"), stdout=sys.stderr)


def check(name, command, mesh):
    """The example is answered, and says in words why it is refused."""
    environment = os.environ | {"HOLDFAST_GRPC": mesh.grpc, "HOLDFAST_API_KEY": mesh.key}
    environment.pop("HOLDFAST_CA_FILE", None)
    answered = subprocess.run([*map(str, command), "this is", name], env=environment, capture_output=True, text=True, timeout=60)
    if answered.returncode != 0 or f"this is {name}" not in answered.stdout:
        return f"{name} was not answered: {answered.stdout}{answered.stderr}"
    refused = subprocess.run([*map(str, command), "hello"], env=environment | {"HOLDFAST_API_KEY": "hf_no_key"}, capture_output=True, text=True, timeout=60)
    if refused.returncode == 0 or "the key is not known" not in refused.stderr:
        return f"{name} does not say that the key is not known: {refused.stdout}{refused.stderr}"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--holdfast", type=Path, required=True)
    parser.add_argument("examples", nargs="*", metavar="example", help=", ".join(EXAMPLE_BUILDERS))
    chosen = parser.parse_args()
    unknown = set(chosen.examples) - set(EXAMPLE_BUILDERS)
    if unknown:
        parser.error(f"there is no example {', '.join(sorted(unknown))}: take {', '.join(EXAMPLE_BUILDERS)}")
    home = ROOT / ".holdfast" / "clients"
    failures = []
    with Mesh(chosen.holdfast.resolve(), home / "up") as mesh:
        for name in chosen.examples or EXAMPLE_BUILDERS:
            prepare, tools = EXAMPLE_BUILDERS[name]
            missing = [str(tool) for tool in tools if not is_there(tool)]
            if missing:
                print(f"{name}: not run, {', '.join(missing)} is not here", file=sys.stderr)
                failures += [f"{name}: {', '.join(missing)} is missing"] if os.environ.get("CI") == "true" else []
                continue
            folder = home / name
            folder.mkdir(parents=True, exist_ok=True)
            failure = check(name, prepare(folder), mesh)
            print(f"{name}: {failure or 'answered, and refused in words'}")
            failures += [failure] if failure else []
    sys.exit("\n".join(failures) if failures else 0)


if __name__ == "__main__":
    main()
