"""Runs programs of integrators and platforms of channels against a running mesh, with their packages.

    make test-clients                      # all whose toolchain is here
    make test-clients ARGS="python rust"   # some of them

| kind | programs |
|---|---|
| examples of gRPC | the folders of `examples/grpc` |
| clients of OpenAI's API, of Anthropic's and of AG-UI | official SDKs, agent frameworks, coding agents and front ends: the table in `programs.py` |

Installs packages into the folder of `--dir`, which is kept. With CI=true a missing toolchain is an error.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import venv
from functools import partial
from pathlib import Path

import openclaw
import programs
import slack
import telegram

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


# Programs that are driven by a file of their own, and what they need.
DRIVEN = {
    "openclaw": (openclaw.check, ["npm", openclaw.CHROMIUM]),
}

# Platforms of channels, and what they need.
PLATFORMS = {"slack": (slack, ["npm", "node"]), "telegram": (telegram, ["npm", "node"])}
# Channels that tests/clients/channels.py runs against real servers, and the programs that these need.
CHANNELS = {"matrix": [], "email": ["dovecot", "postfix"]}


def is_there(tool):
    path = os.environ["PATH"] + ":/usr/sbin"
    return tool.exists() if isinstance(tool, Path) else shutil.which(tool, path=path) is not None


def channel_failure(name, holdfast):
    script = Path(__file__).with_name("channels.py")
    done = subprocess.run([sys.executable, script, "--holdfast", holdfast, name])
    return f"{name}: failed, see above" if done.returncode else None


class Mesh:
    """`holdfast up` in a folder of its own."""

    def __init__(self, holdfast, folder, words=(), variables=None):
        self.holdfast, self.folder, self.words = holdfast, folder, words
        self.environment = os.environ | (variables or {})

    def command(self, *words):
        return [self.holdfast, "--dir", self.folder, *words]

    def __enter__(self):
        # Those of the tests are the same; otherwise they are fetched.
        packages, shared = self.folder / "backends" / "pkg", ROOT / ".holdfast" / "test" / "pkg"
        if shared.exists() and not packages.exists():
            packages.parent.mkdir(parents=True, exist_ok=True)
            packages.symlink_to(shared)
        run(self.command("up", "--detach", "--port-base", "0", *self.words), stdout=sys.stderr, env=self.environment)
        state = json.loads((self.folder / "state.json").read_text())
        self.grpc = state["gateways"][0]["grpc"].removeprefix("http://")
        self.http = state["gateways"][0]["http"].removeprefix("http://")
        self.bridge = state["bridge"]["http"]
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


def is_missing(name, tools, failures):
    missing = [str(tool) for tool in tools if not is_there(tool)]
    if missing:
        print(f"{name}: not run, {', '.join(missing)} is not here", file=sys.stderr)
        failures += [f"{name}: {', '.join(missing)} is missing"] if os.environ.get("CI") == "true" else []
    return bool(missing)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--holdfast", type=Path, required=True)
    parser.add_argument("--dir", type=Path, default=ROOT / ".holdfast" / "clients", help="folder of packages and meshes")
    known = [*EXAMPLE_BUILDERS, *programs.PROGRAMS, *DRIVEN, *PLATFORMS, *CHANNELS]
    parser.add_argument("examples", nargs="*", metavar="example", help=", ".join(known))
    chosen = parser.parse_args()
    unknown = set(chosen.examples) - set(known)
    if unknown:
        parser.error(f"there is no example {', '.join(sorted(unknown))}: take {', '.join(known)}")
    home, names = chosen.dir.resolve(), chosen.examples or known
    holdfast, failures = chosen.holdfast.resolve(), []
    if examples := [name for name in names if name in EXAMPLE_BUILDERS]:
        with Mesh(holdfast, home / "up") as mesh:
            for name in examples:
                prepare, tools = EXAMPLE_BUILDERS[name]
                if is_missing(name, tools, failures):
                    continue
                folder = home / name
                folder.mkdir(parents=True, exist_ok=True)
                failure = check(name, prepare(folder), mesh)
                print(f"{name}: {failure or 'answered, and refused in words'}")
                failures += [failure] if failure else []
    if driven := [name for name in names if name in DRIVEN]:
        with Mesh(holdfast, home / "up") as mesh:
            for name in driven:
                program, tools = DRIVEN[name]
                if is_missing(name, tools, failures):
                    continue
                folder = home / name
                folder.mkdir(parents=True, exist_ok=True)
                failure = program(folder, f"http://{mesh.http}", mesh.key)
                print(f"{name}: {failure or 'did its work'}")
                failures += [failure] if failure else []
    for name in [name for name in names if name in PLATFORMS]:
        platform, tools = PLATFORMS[name]
        if is_missing(name, tools, failures):
            continue
        with platform.Emulator(home / name) as emulator:
            # The platform is empty each time, and so is the mesh.
            folder = home / f"up-{name}"
            shutil.rmtree(folder, ignore_errors=True)
            with Mesh(holdfast, folder, variables=emulator.variables) as mesh:
                failure = platform.check(mesh, emulator)
        print(f"{name}: {failure or 'answered'}")
        failures += [failure] if failure else []
    for name in [name for name in names if name in CHANNELS]:
        if not is_missing(name, CHANNELS[name], failures):
            failures += filter(None, [channel_failure(name, holdfast)])
    known_programs = [name for name in names if name in programs.PROGRAMS]
    if chosen_programs := [name for name in known_programs if not is_missing(name, programs.needed_tools(name), failures)]:
        open_mesh = partial(Mesh, holdfast, home / "up-programs")
        failures += programs.run_programs(open_mesh, home / "programs", chosen_programs)
    sys.exit("\n".join(failures) if failures else 0)


if __name__ == "__main__":
    main()
