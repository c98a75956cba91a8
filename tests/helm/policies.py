"""Rules that the chart's objects keep, compared with the sources of the services."""

import base64
import contextlib
import http.server
import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
import threading
from pathlib import Path

# Components of the chart that are services, and the folders of their sources.
SERVICES = {
    "gateway": "gateway",
    "agent-runner": "agent-runner",
    "channel-bridge": "channel-bridge",
    "scheduler": "scheduler",
    "memory-service": "memory",
    "secrets-service": "secrets",
}
# Names of the services in settings such as `mesh.memory_url`.
MESH_NAMES = {"gateway": "gateway", "memory": "memory-service", "secrets": "secrets-service"}
# Settings that name files of certificates.
TLS_FILES = {"tls.certificate", "tls.private_key", "tls.authorities", "nats.authorities", "redis.authorities", "ca"}
BACKENDS = {"database": "postgres", "nats": "nats", "redis": "redis"}
BACKEND_PORTS = {5432: "postgres", 4222: "nats", 6379: "redis", 26379: "sentinel"}
# Set where Redis has Sentinels.
SENTINELS = "HOLDFAST_REDIS__SENTINELS_FILE"

# What a service reads from Secrets only where the values say so.
OPTIONAL_SECRETS = {"memory.embedding.api_key", "redis.sentinels"}

# What is read by pods that are no services. Keys of Secrets, by component.
OTHER_SECRETS = {
    "migrate": {"database-admin-url"},
    "bootstrap": {"database-setup-url", "kek", "pepper"},
    "secrets": set(),
    "test": {"key"},
    "postgres": {"postgres-password", "logins.sql"},
    "nats": {"nats-passwords.conf"},
    "redis": {"redis-passwords.conf"},
    "operator": {"key"},
}
OTHER_EDGES = {
    "migrate": {"postgres"},
    "bootstrap": {"postgres", "api"},
    "secrets": {"api"},
    "test": {"gateway"},
    "postgres": set(),
    "nats": set(),
    "redis": set(),
    "operator": {"gateway", "api", "otlp"},
}
# Rights in the API of Kubernetes: verbs by component, for Secrets and nothing else.
RIGHTS = {"secrets": {"create"}, "bootstrap": {"create", "get"}}
# Rights of the operator: verbs by resource. Its tests run with the same file of rules.
OPERATOR_RIGHTS = {
    **{kind: {"get", "list", "watch", "patch"} for kind in ("tenants", "agents", "channels", "modelproviders")},
    **{f"{kind}/status": {"patch"} for kind in ("tenants", "agents", "channels", "modelproviders")},
    "tenants/finalizers": {"update"},
    "secrets": {"get", "list", "watch", "create", "patch"},
    "events": {"create", "patch"},
    "leases": {"create", "get", "update"},
}
# Rights of runners in the namespace of the commands' pods. Their tests run with the same file of rules.
RUNNER_RIGHTS = {"pods": {"create", "delete", "get", "list", "patch"}, "pods/exec": {"create", "get"}, "sandboxes": {"create", "delete", "list"}}
# Variable with that namespace.
COMMANDS = "HOLDFAST_RUNNER__PODS__NAMESPACE"
PRE_STOP_SECONDS, MARGIN_SECONDS = 5, 10
# Of the process itself, which a library exports.
PROCESS_METRICS = {"process_cpu_seconds_total", "process_resident_memory_bytes"}


class Sources:
    """What the code of the services says."""

    def __init__(self, root):
        self.root = root
        self.manual = (root / "docs" / "configuration.md").read_text()
        self.operating = (root / "docs" / "operating.md").read_text()
        self.settings = set(re.findall(r"`([a-z_]+(?:\.[a-z_0-9]+)+)`", self.manual))
        self.metrics, self.words, self.labels = set(), set(), set()
        for folder in ("crates", "services"):
            for path in (root / folder).glob("**/src/**/*.rs"):
                text = path.read_text()
                self.words |= set(re.findall(r'"([a-z_]+)"', text))
                self.labels |= set(re.findall(r'"([a-z_]+)" =>', text))
                for kind, name in re.findall(r'(counter|gauge|histogram)!\(\s*"(holdfast_[a-z_]+)"', text):
                    self.metrics |= {name} if kind != "histogram" else {name + end for end in ("_bucket", "_count", "_sum")}
        self.tables = {component: self.config_tables(folder) for component, folder in SERVICES.items()}
        self.text = {
            component: "\n".join(path.read_text() for path in (root / "services" / folder / "src").glob("**/*.rs"))
            for component, folder in SERVICES.items()
        }
        self.probes = set(re.findall(r'\.route\("(/[a-z]+)"', (root / "crates/doors/src/lib.rs").read_text()))

    def config_tables(self, folder):
        text = (self.root / "services" / folder / "src" / "config.rs").read_text()
        body = re.search(r"^pub struct Config \{(.*?)^\}", text, re.M | re.S)[1]
        return set(re.findall(r"^    pub ([a-z_]+):", body, re.M))

    def calls(self, component):
        named = {MESH_NAMES[name] for name in re.findall(r"mesh\.([a-z]+)_url", self.text[component])}
        return named - {component}

    def callers(self, component):
        return {other for other in SERVICES if component in self.calls(other)}

    def secrets(self, component):
        """Settings that a service reads from Secrets."""
        tables, wanted = self.tables[component], set()
        wanted |= {f"{table}.url" for table in BACKENDS if table in tables}
        if component == "secrets-service":
            wanted.add("secrets.kek")
        if "secrets-service" in self.calls(component):
            wanted.add("mesh.secrets_key")
        if "secrets" in tables and "secrets.pepper" in self.text[component]:
            wanted.add("secrets.pepper")
        if self.calls(component):
            wanted.add("mesh.key")
        if self.callers(component):
            wanted.add("mesh.caller_keys")
        # The public key follows from the secret one, where that is known.
        if "NodeCommandSigner" in self.text[component]:
            wanted.add("mesh.node_key")
        elif "node_public_key(" in self.text[component]:
            wanted.add("mesh.node_public_key")
        return wanted

    def edges(self, component, config):
        edges = {backend for table, backend in BACKENDS.items() if table in self.tables[component]}
        edges |= self.calls(component)
        if "egress" in self.tables[component] or (component == "memory-service" and 'engine = "openai"' in config):
            edges.add("internet")
        if "otlp_endpoint" in config:
            edges.add("otlp")
        return edges


# --- the objects -----------------------------------------------------------------------------------


def without_pool(name):
    """The component of which `name` is, or of whose pool it is: what holds for runners holds for pools."""
    return re.sub(r"^agent-runner-.*", "agent-runner", name or "")


def component(document):
    return without_pool(document["metadata"].get("labels", {}).get("app.kubernetes.io/component", ""))


def of_kind(documents, *kinds):
    return [document for document in documents if document["kind"] in kinds]


def pods(documents):
    """(component, object, spec and labels of its pod) of all pods."""
    for document in of_kind(documents, "Deployment", "StatefulSet", "Job"):
        template = document["spec"]["template"]
        yield component(document), document, template["spec"], template["metadata"]["labels"]
    for document in of_kind(documents, "Pod"):
        yield component(document), document, document["spec"], document["metadata"]["labels"]


def environment(container):
    return {variable["name"]: variable.get("value") for variable in container.get("env", [])}


def setting_name(variable):
    name = variable[len("HOLDFAST_") :]
    return (name[: -len("_FILE")] if name.endswith("_FILE") else name).replace("__", ".").lower()


def config_text(documents):
    return next(d["data"]["holdfast.toml"] for d in of_kind(documents, "ConfigMap") if d["metadata"]["name"].endswith("-config"))


# --- rules -----------------------------------------------------------------------------------------


def pods_are_restricted(documents, _sources):
    """The level `restricted` of the pod security standards, and a read-only root."""
    accounts = {d["metadata"]["name"]: d for d in of_kind(documents, "ServiceAccount")}
    used = {}
    for name, _, pod, _ in pods(documents):
        def require(holds, what, name=name):
            return [] if holds else [f"the pod `{name}` {what}"]

        security = pod.get("securityContext", {})
        yield from require(security.get("runAsNonRoot") is True and security.get("runAsUser", 0) > 0, "may run as root")
        yield from require(security.get("seccompProfile", {}).get("type") in ("RuntimeDefault", "Localhost"), "has no seccomp profile")
        yield from require(pod.get("automountServiceAccountToken") is False, "gets a token: set automountServiceAccountToken: false")
        yield from require(pod.get("enableServiceLinks") is False, "gets variables for each Service: set enableServiceLinks: false")
        for field in ("hostNetwork", "hostPID", "hostIPC"):
            yield from require(not pod.get(field), f"has {field}")
        account = pod.get("serviceAccountName")
        yield from require(account in accounts, f"has the account `{account}`, which the chart does not make")
        yield from require(used.setdefault(account, name) == name, f"shares the account `{account}` with `{used[account]}`")
        for volume in pod.get("volumes", []):
            kinds = set(volume) - {"name"}
            yield from require(kinds <= {"configMap", "secret", "projected", "emptyDir"}, f"has a volume of the kind {kinds}")
            if "emptyDir" in volume:
                yield from require("sizeLimit" in volume["emptyDir"], f"may fill the node's disk: give `{volume['name']}` a sizeLimit")
        for container in pod["containers"] + pod.get("initContainers", []):
            own = container.get("securityContext", {})
            yield from require(own.get("allowPrivilegeEscalation") is False, "may gain privileges")
            yield from require(own.get("readOnlyRootFilesystem") is True, "may write to its root")
            yield from require(own.get("capabilities") == {"drop": ["ALL"]}, "has capabilities")
            yield from require(not own.get("privileged"), "is privileged")
            yield from require(container.get("resources", {}).get("limits", {}).get("memory"), "has no limit of memory")
            yield from require(container.get("resources", {}).get("requests", {}).get("cpu"), "requests no CPU")
            image = container["image"]
            yield from require(re.search(r"@sha256:[0-9a-f]{64}$|:[\w.-]+$", image) and not image.endswith(":latest"), f"has the image `{image}`: name a version")
            yield from require(all("hostPort" not in port for port in container.get("ports", [])), "takes a port of its node")
    for account in accounts.values():
        if account.get("automountServiceAccountToken") is not False:
            yield f"the account `{account['metadata']['name']}` mounts its token"


def rights_are_least(documents, _sources):
    """No account has rights but those of the jobs that make Secrets, of the operator and of runners, each its own."""
    if of_kind(documents, "ClusterRole", "ClusterRoleBinding"):
        yield "there is a right in the whole cluster"
    yield from operator_rights_are_least([role for role in of_kind(documents, "Role") if component(role) == "operator"])
    runner_roles = [role for role in of_kind(documents, "Role") if component(role) == "agent-runner"]
    yield from runner_rights_are_least(documents, runner_roles)
    for role in of_kind(documents, "Role"):
        if component(role) in ("operator", "agent-runner"):
            continue
        name, verbs = component(role), set()
        for rule in role["rules"]:
            if rule["resources"] != ["secrets"] or rule["apiGroups"] != [""]:
                yield f"the role of `{name}` is about {rule['resources']}"
            if set(rule["verbs"]) - {"create"} and len(rule.get("resourceNames", [])) != 1:
                yield f"the role of `{name}` has {rule['verbs']} for every Secret: name one in resourceNames"
            verbs |= set(rule["verbs"])
        if verbs != RIGHTS.get(name, set()):
            yield f"the role of `{name}` has {sorted(verbs)} and should have {sorted(RIGHTS.get(name, set()))}"
    for binding in of_kind(documents, "RoleBinding"):
        names = [subject["name"] for subject in binding["subjects"]] + [binding["roleRef"]["name"]]
        if any(not name.endswith("-" + component(binding)) for name in names):
            yield f"the role binding `{binding['metadata']['name']}` connects {names}"
    for name, _, pod, _ in pods(documents):
        has_token = any("serviceAccountToken" in source for v in pod.get("volumes", []) for source in v.get("projected", {}).get("sources", []))
        if has_token != (name in RIGHTS or name == "operator" or (name == "agent-runner" and bool(runner_roles))):
            yield f"the pod `{name}` {'has a token that it does not need' if has_token else 'has no token'}"


def operator_rights_are_least(roles):
    granted = {}
    for role in roles:
        is_of_release = "namespace" not in role["metadata"] or role["metadata"]["namespace"] == "holdfast"
        for rule in role["rules"]:
            for resource in rule["resources"]:
                granted.setdefault(resource, set()).update(rule["verbs"])
            if is_of_release and rule["resources"] != ["leases"]:
                yield f"the operator has rights in the namespace of the release: {rule['resources']}"
            if "*" in rule["resources"] + rule["verbs"] + rule["apiGroups"]:
                yield f"the operator has a right with a wildcard: {rule}"
    if roles and granted != OPERATOR_RIGHTS:
        yield f"the operator has the rights {granted} and should have {OPERATOR_RIGHTS}"


def runner_rights_are_least(documents, roles):
    namespaces = {environment(pod["containers"][0]).get(COMMANDS) for name, _, pod, _ in pods(documents) if name == "agent-runner"} - {None}
    if {role["metadata"].get("namespace") for role in roles} != namespaces:
        yield f"runners have rights in {[role['metadata'].get('namespace') for role in roles]}, and make pods in {sorted(namespaces)}"
    granted = {resource: set(rule["verbs"]) for role in roles for rule in role["rules"] for resource in rule["resources"]}
    if roles and granted != RUNNER_RIGHTS:
        yield f"runners have the rights {granted} and should have {RUNNER_RIGHTS}"


def commands_reach_the_proxy_only(documents, _sources):
    """The namespace of the commands' pods has a policy for all pods that allows nothing, or the runners' proxy."""
    policies = of_kind(documents, "NetworkPolicy")
    for name, _, pod, labels in pods(documents):
        variables = environment(pod["containers"][0])
        namespace, listen = variables.get(COMMANDS), variables.get("HOLDFAST_RUNNER__PODS__LISTEN")
        if name != "agent-runner" or namespace is None:
            continue
        found = [d["spec"] for d in policies if d["metadata"].get("namespace") == namespace]
        closed = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": []}
        if len(found) != 1 or {**found[0], "egress": []} != {**closed, "egress": []}:
            yield f"commands in `{namespace}` are not closed off: {found}"
            continue
        egress, port = found[0]["egress"], int((listen or ":0").rpartition(":")[2])
        if not listen:
            if egress:
                yield f"commands in `{namespace}` have no proxy and may reach {egress}"
            continue
        peers = egress[0]["to"] if len(egress) == 1 and egress[0]["ports"] == [{"protocol": "TCP", "port": port}] else []
        runners = [peer for peer in peers if selected_component(peer.get("podSelector")) and "agent-runner" in selected_component(peer["podSelector"])]
        own = [peer for peer in runners if selects(peer["podSelector"], labels)]
        if not own or runners != peers or any("namespaceSelector" not in peer for peer in peers):
            yield f"commands in `{namespace}` may reach {egress}, and their proxy is at the port {port} of `{name}`"
        rules = [rule for d in policies if component(d) == name and selects(d["spec"]["podSelector"], labels) for rule in d["spec"].get("ingress") or []]
        admitted = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
        if not any(rule["from"] == [admitted] and rule["ports"] == [{"protocol": "TCP", "port": port}] for rule in rules):
            yield f"the proxy of `{name}` does not admit the pods of `{namespace}`"


def mounted_keys(pod):
    """(Secret, key, path) of all keys in the volumes of a pod."""
    for volume in pod.get("volumes", []):
        paths = [m["mountPath"] for c in pod["containers"] for m in c.get("volumeMounts", []) if m["name"] == volume["name"]]
        sources = volume.get("projected", {}).get("sources", []) + [{"secret": volume[kind]} for kind in volume if kind == "secret"]
        for source in sources:
            if "secret" in source:
                secret = source["secret"]
                for item in secret.get("items", [{"key": "*", "path": "*"}]):
                    yield secret.get("name") or secret.get("secretName"), item["key"], f"{paths[0] if paths else ''}/{item['path']}"


def secrets_are_mounted_where_they_are_read(documents, sources):
    for name, _, pod, _ in pods(documents):
        container = pod["containers"][0]
        variables = environment(container)
        mounted = list(mounted_keys(pod))
        keys = {key for _, key, _ in mounted}
        for variable in container.get("env", []):
            if "secretKeyRef" in variable.get("valueFrom", {}):
                yield f"`{name}` gets a secret as the variable {variable['name']}: mount it as a file"
        if container.get("envFrom") and name != "bootstrap":
            yield f"`{name}` gets variables from elsewhere"
        tls = {path for setting, path in ((setting_name(v), path) for v, path in variables.items()) if setting in TLS_FILES}
        if "/run/holdfast-backends/ca.crt" in (path for _, _, path in mounted):
            tls.add("/run/holdfast-backends/ca.crt")
        keys = {key for _, key, path in mounted if path not in tls}
        if name not in SERVICES:
            if tls - {path for _, _, path in mounted} or keys != OTHER_SECRETS[name]:
                yield f"`{name}` mounts the keys {sorted(keys)} and reads {sorted(OTHER_SECRETS[name])} (OTHER_SECRETS in tests/helm/policies.py)"
            continue
        by_file = {setting_name(variable): path for variable, path in variables.items() if re.fullmatch("HOLDFAST_.*_FILE", variable)}
        given = {setting for setting in by_file if ".previous_" not in setting and setting not in OPTIONAL_SECRETS}
        if given != sources.secrets(name):
            yield f"`{name}` is given the secrets {sorted(given)}; its sources read {sorted(sources.secrets(name))}"
        for setting in by_file:
            if ".previous_" in setting and setting.replace("previous_", "") not in given:
                yield f"`{name}` is given {setting}, whose present form it does not read"
        if {path for _, _, path in mounted} != set(by_file.values()) | tls:
            yield f"`{name}` mounts {sorted(path for _, _, path in mounted)} and reads {sorted(set(by_file.values()) | tls)}"
        own = {key for _, key, path in mounted if path in tls and path.startswith("/run/holdfast-tls/")}
        if own not in ({"tls.crt", "tls.key", "ca.crt"}, {f"{name}.crt", f"{name}.key", "authority.crt"}, set()):
            yield f"`{name}` has the certificate of another service: {sorted(own)}"
        for setting, path in by_file.items():
            key = next((key for _, key, at in mounted if at == path), "")
            of_itself = {"mesh.key": f"mesh-{name}", "mesh.secrets_key": f"secrets-{name}", "mesh.caller_keys": f"callers-{name}"}
            if key != of_itself.get(setting, key):
                yield f"`{name}` has the key of another service: {setting} from {key}"
            if setting == "database.url" and key not in (f"database-{part}-url" for part in (name, name.split("-")[-1], name.split("-")[0])):
                yield f"`{name}` has the database login of another service: {key}"


def variables_are_settings(documents, sources):
    for name, _, pod, _ in pods(documents):
        for container in pod["containers"]:
            for variable in environment(container):
                if variable.startswith("HOLDFAST_") and "__" in variable and setting_name(variable) not in sources.settings:
                    yield f"`{name}` sets {variable}, and docs/configuration.md has no `{setting_name(variable)}`"
            if name in SERVICES and container.get("args") != [name]:
                yield f"`{name}` runs `holdfast {container.get('args')}`"


def selected_component(selector):
    return without_pool((selector or {}).get("matchLabels", {}).get("app.kubernetes.io/component")) or None


def selects(selector, labels):
    return all(labels.get(key) == value for key, value in selector["matchLabels"].items())


def egress_edges(policy, ports):
    """Targets of a policy's egress rules, and their ports."""
    for rule in policy["spec"].get("egress") or []:
        numbers = {port["port"] for port in rule.get("ports", [])}
        peers = rule.get("to", [])
        inside = {selected_component(peer.get("podSelector")) for peer in peers} - {None}
        blocks = {peer["ipBlock"]["cidr"] for peer in peers if "ipBlock" in peer}
        if inside:
            for target in inside & set(ports):
                yield target, numbers
        elif numbers == {53}:
            continue
        elif "0.0.0.0/0" in blocks and not numbers:
            yield "internet", numbers
        elif blocks and numbers == {443, 6443}:
            yield "api", numbers
        elif blocks:
            continue  # extraEgress
        elif len(numbers) == 1 and numbers <= set(BACKEND_PORTS):
            yield BACKEND_PORTS[next(iter(numbers))], numbers
        elif len(numbers) == 1:
            yield "otlp", numbers
        else:
            yield f"anything at {sorted(numbers)}", numbers


def edges_are_connections(documents, sources):
    """Each edge in the policies is a connection of the code, and the other way round."""
    policies = [d for d in of_kind(documents, "NetworkPolicy") if component(d) != "default"]

    default = [d for d in of_kind(documents, "NetworkPolicy") if component(d) == "default"]
    if not default or set(default[0]["spec"]["policyTypes"]) != {"Ingress", "Egress"} or default[0]["spec"].get("ingress"):
        yield "there is no policy that refuses what no other allows"
    config = config_text(documents)
    ports = {name: {port["containerPort"] for port in pod["containers"][0].get("ports", [])} for name, _, pod, _ in pods(documents)}
    egress, ingress = set(), set()
    for name, _, pod, labels in pods(documents):
        own = [d for d in policies if component(d) == name]
        policy = next((d for d in own if selects(d["spec"]["podSelector"], labels)), own[0] if own else None)
        if policy is None:
            yield f"the pod `{name}` has no policy"
            continue
        for selecting in [policy, *default]:
            if not selects(selecting["spec"]["podSelector"], labels):
                yield f"the policy `{selecting['metadata']['name']}` does not select the pod `{name}`"
        if set(policy["spec"]["policyTypes"]) != {"Ingress", "Egress"}:
            yield f"the policy of `{name}` is not about both directions"
        found = dict(egress_edges(policy, ports))
        variables = environment(pod["containers"][0])
        in_code = sources.edges(name, config) if name in SERVICES else OTHER_EDGES[name]
        if COMMANDS in variables:
            in_code = in_code | {"api"}
        if "redis" in in_code and any(SENTINELS in environment(pod["containers"][0]) for _, _, pod, _ in pods(documents)):
            in_code = in_code | {"sentinel"}
        if set(found) != in_code:
            yield f"`{name}` may reach {sorted(found)}; its sources connect to {sorted(in_code)}"
        by_url = connections_by_url(variables)
        if name in SERVICES and {target for target, _ in by_url} != in_code - {"internet", "otlp", "api"}:
            yield f"`{name}` is given the addresses of {sorted(target for target, _ in by_url)}; its sources connect to {sorted(in_code)}"
        for target, numbers in found.items():
            if target in ports:
                egress.add((name, target, tuple(sorted(numbers))))
                if not numbers or not numbers <= ports[target]:
                    yield f"`{name}` may reach ports {sorted(numbers)} of `{target}`, which listens on {sorted(ports[target])}"
        for target, port in by_url:
            if port and port not in found.get(target, ()):
                yield f"`{name}` calls `{target}` at the port {port}, which its policy does not allow"
        for rule in policy["spec"].get("ingress") or []:
            numbers = tuple(sorted(port["port"] for port in rule.get("ports", [])))
            if not rule.get("from") or not numbers:
                yield f"the policy of `{name}` admits everybody, or to every port"
            for peer in rule.get("from", []):
                caller = selected_component(peer.get("podSelector"))
                if caller in ports:
                    ingress.add((caller, name, numbers))
    for caller, target, numbers in egress - ingress:
        yield f"`{caller}` may reach `{target}` at {numbers}, and `{target}` does not admit it"
    for caller, target, numbers in ingress - egress:
        yield f"`{target}` admits `{caller}` at {numbers}, which may not reach it"


def connections_by_url(variables):
    """(target, port) of each address that a container is given; the port is 0 if it is in a Secret."""
    found = set()
    for variable, value in variables.items():
        table = re.fullmatch(r"HOLDFAST_(DATABASE|NATS|REDIS)__URL_FILE", variable)
        if table:
            found.add((BACKENDS[table[1].lower()], 0))
        if variable == SENTINELS:
            found.add(("sentinel", 0))
        called = re.fullmatch(r"HOLDFAST_MESH__([A-Z]+)_URL", variable)
        if called:
            target = MESH_NAMES[called[1].lower()]
            host, port = re.fullmatch(r"https?://([a-z-]+):(\d+)", value).groups()
            found.add((target if host.endswith("-" + target) else host, int(port)))
    return found


def calls_are_encrypted_or_plain_text_is_permitted(documents, _sources):
    """All services speak TLS and are called and probed by it, or all are permitted to speak plain text."""
    schemes = set()
    for name, _, pod, _ in pods(documents):
        container = pod["containers"][0]
        variables = environment(container)
        if name in SERVICES:
            has_tls, is_plain = "HOLDFAST_TLS__CERTIFICATE" in variables, variables.get("HOLDFAST_TLS__ALLOW_PLAIN") == "true"
            if has_tls == is_plain:
                yield f"`{name}` has {'a certificate and may speak plain text' if has_tls else 'neither a certificate nor the permission to speak plain text'}"
            schemes.add("https" if has_tls else "http")
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                schemes.add(container[probe].get("httpGet", {}).get("scheme", "HTTP").lower())
        schemes |= {value.partition("://")[0] for variable, value in variables.items() if re.fullmatch(r"HOLDFAST_(URL|MESH__[A-Z]+_URL)", variable)}
    for monitor in of_kind(documents, "ServiceMonitor"):
        schemes |= {endpoint.get("scheme", "http") for endpoint in monitor["spec"]["endpoints"]}
    if len(schemes) != 1:
        yield f"services are called and probed by {sorted(schemes)}"
    secrets = {d["spec"]["secretName"] for d in of_kind(documents, "Certificate")}
    mounted = {secret for name, _, pod, _ in pods(documents) for secret, _, path in mounted_keys(pod) if name in SERVICES and path == "/run/holdfast-tls/tls.crt"}
    if secrets and secrets != mounted:
        yield f"cert-manager makes {sorted(secrets)}, and pods wait for {sorted(mounted)}"


def pods_start_and_stop_as_services_do(documents, sources):
    for name, deployment, pod, labels in pods(documents):
        if name not in SERVICES:
            continue
        container = pod["containers"][0]
        variables = environment(container)
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        listens = {int(value.rpartition(":")[2]) for value in variables.values() if value and value.startswith("0.0.0.0:")}
        if listens != set(ports.values()):
            yield f"`{name}` listens on {sorted(listens)} and names the ports {sorted(ports.values())}"
        paths = {probe: container.get(probe, {}).get("httpGet", {}) for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
        wanted = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
        for probe, get in paths.items():
            if get.get("path") != wanted[probe] or wanted[probe] not in sources.probes or get.get("port") not in ports:
                yield f"the {probe} of `{name}` is {get or 'missing'}"
        stop = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command")
        if stop != ["holdfast", "wait", str(PRE_STOP_SECONDS)]:
            yield f"`{name}` does not wait {PRE_STOP_SECONDS} s in preStop until no new calls come"
        grace = next(int(value[:-1]) for variable, value in variables.items() if variable.endswith("__SHUTDOWN_GRACE"))
        least = grace + PRE_STOP_SECONDS + MARGIN_SECONDS
        if pod["terminationGracePeriodSeconds"] < least:
            yield f"`{name}` is killed after {pod['terminationGracePeriodSeconds']} s; its drain needs {least} s"
        if deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] != 0:
            yield f"an update of `{name}` stops pods before new ones are ready"
        for kind, selector in (("Service", lambda d: d["spec"]["selector"]), ("PodDisruptionBudget", lambda d: d["spec"]["selector"]["matchLabels"])):
            own = [d for d in of_kind(documents, kind) if d["metadata"]["name"] == deployment["metadata"]["name"]]
            if len(own) != 1 or any(labels.get(key) != value for key, value in selector(own[0]).items()):
                yield f"`{name}` has no {kind} that selects its pods"
        service = next(iter(d for d in of_kind(documents, "Service") if component(d) == name), None)
        # Pods of commands reach the proxy of one runner, at the address of its pod.
        served = {(port, number) for port, number in ports.items() if port != "commands"}
        if service and {(p["targetPort"], p["port"]) for p in service["spec"]["ports"]} != served:
            yield f"the Service of `{name}` and its pods have different ports"
        scaled = any(d["metadata"]["name"] == deployment["metadata"]["name"] for d in of_kind(documents, "HorizontalPodAutoscaler"))
        if scaled == ("replicas" in deployment["spec"]):
            yield f"`{name}` has {'both' if scaled else 'neither'} a number of replicas and an autoscaler"


def routes_are_doors(documents, _sources):
    """Only what is meant for others is reachable from outside, with TLS."""
    allowed = {"gateway": {"/", "/v1", "/mcp", "/ws", "/console", "/docs"}, "channel-bridge": {"/matrix", "/slack", "/telegram", "/webhook", "/whatsapp", "/widget"}}
    for ingress in of_kind(documents, "Ingress"):
        hosts = {host for tls in ingress["spec"].get("tls", []) for host in tls["hosts"] if tls.get("secretName")}
        for rule in ingress["spec"]["rules"]:
            if rule["host"] not in hosts:
                yield f"the Ingress of {rule['host']} has no certificate"
            for path in rule["http"]["paths"]:
                service = path["backend"]["service"]
                if path["path"] not in allowed.get(component(ingress), ()) or not service["name"].endswith(component(ingress)):
                    yield f"{rule['host']}{path['path']} leads to {service['name']}"
                if (path["path"] == "/") != (service["port"]["name"] == "grpc"):
                    yield f"{rule['host']}{path['path']} leads to the port {service['port']['name']}"
    for route in of_kind(documents, "HTTPRoute"):
        for rule in route["spec"]["rules"]:
            paths = {match["path"]["value"] for match in rule.get("matches", [{"path": {"value": "/"}}])}
            if not paths <= allowed[component(route)] - {"/"}:
                yield f"the route {route['metadata']['name']} leads {sorted(paths)} to {component(route)}"


def dashboard_queries(documents):
    """(title of the panel, query) of all dashboards."""
    for document in of_kind(documents, "ConfigMap"):
        if document["metadata"]["name"].endswith("-dashboard"):
            for panel in json.loads(document["data"]["holdfast.json"])["panels"]:
                for target in panel.get("targets", ()):
                    yield panel["title"], target["expr"]


def change_panel(documents, old, new):
    board = next(d for d in of_kind(documents, "ConfigMap") if d["metadata"]["name"].endswith("-dashboard"))
    assert old in board["data"]["holdfast.json"], old
    board["data"]["holdfast.json"] = board["data"]["holdfast.json"].replace(old, new)


def metrics_are_exported(documents, sources):
    for rule in of_kind(documents, "PrometheusRule"):
        for group in rule["spec"]["groups"]:
            for one in group["rules"]:
                names = set(re.findall(r"\b(holdfast_[a-z_]+|up)\{", one["expr"]))
                if not names:
                    yield f"the alert {one['alert']} looks at no metric"
                for name in names - sources.metrics - {"up"}:
                    yield f"the alert {one['alert']} looks at {name}, which no service exports"
                if any(f'{name}{{namespace="holdfast"' not in one["expr"] for name in names):
                    yield f"the alert {one['alert']} looks at other namespaces too"
                for label, values in re.findall(r'\b([a-z_]+)[!=]=?~?"([^"]*)"', one["expr"]):
                    if label not in ("namespace", "service") and (label not in sources.labels or set(values.split("|")) - sources.words):
                        yield f"the alert {one['alert']} asks for {label}={values}, which is not in the sources"
    for title, expr in dashboard_queries(documents):
        names = set(re.findall(r"\b(holdfast_[a-z_]+|process_[a-z_]+)\{", expr))
        if not names:
            yield f"the panel {title} looks at no metric"
        for name in names - sources.metrics - PROCESS_METRICS:
            yield f"the panel {title} looks at {name}, which no service exports"
        if any(f'{name}{{namespace="holdfast"' not in expr for name in names):
            yield f"the panel {title} looks at other namespaces too"
        labels = {label.strip() for by in re.findall(r"by \(([^)]*)\)", expr) for label in by.split(",")}
        for label in labels - sources.labels - {"le", "pod", "service"}:
            yield f"the panel {title} groups by {label}, which no metric has"
    for scaler in of_kind(documents, "HorizontalPodAutoscaler"):
        for metric in scaler["spec"]["metrics"]:
            name = metric.get("external", {}).get("metric", {}).get("name")
            if name and name not in sources.metrics:
                yield f"`{component(scaler)}` is scaled by {name}, which no service exports"
    for monitor in of_kind(documents, "ServiceMonitor"):
        for endpoint in monitor["spec"]["endpoints"]:
            if endpoint["path"] not in sources.probes:
                yield f"there are no metrics at {endpoint['path']}"


def names_are_unique(documents, _sources):
    """What has a name twice is refused, or one of both is lost."""

    def twice(names):
        names = list(names)
        return sorted({str(name) for name in names if names.count(name) > 1})

    for name in twice((d["kind"], d["metadata"]["name"]) for d in documents):
        yield f"the object {name} is there twice"
    for name, _, pod, _ in pods(documents):
        lists = {"volume": pod.get("volumes", [])}
        for container in pod["containers"]:
            lists |= {"variable": container.get("env", []), "port": container.get("ports", [])}
            for path in twice(mount["mountPath"] for mount in container.get("volumeMounts", [])):
                yield f"`{name}` mounts {path} twice"
        for kind, found in lists.items():
            for one in twice(item["name"] for item in found):
                yield f"`{name}` has the {kind} {one} twice"


RULES = [
    names_are_unique,
    pods_are_restricted,
    rights_are_least,
    secrets_are_mounted_where_they_are_read,
    variables_are_settings,
    edges_are_connections,
    commands_reach_the_proxy_only,
    calls_are_encrypted_or_plain_text_is_permitted,
    pods_start_and_stop_as_services_do,
    routes_are_doors,
    metrics_are_exported,
]


def check(documents, sources):
    return [error for rule in RULES for error in rule(documents, sources)]


def check_runbook(documents, sources):
    """Each alert has an entry in the runbook, and each entry an alert."""
    rules = [one["alert"] for rule in of_kind(documents, "PrometheusRule") for group in rule["spec"]["groups"] for one in group["rules"]]
    entries = re.findall(r"^### (Holdfast[A-Za-z]+)$", sources.operating, re.M)
    found = [f"docs/operating.md has no entry `### {name}`: write what to do" for name in set(rules) - set(entries)]
    return found + [f"docs/operating.md has an entry {name}, and no alert has this name" for name in set(entries) - set(rules)]


# --- the scripts of the jobs -----------------------------------------------------------------------

FAKE_HOLDFAST = """#!/bin/sh
[ "$1 $2" = "secrets node-key" ] && echo "public-key-of-$HOLDFAST_MESH__NODE_KEY" && exit
[ "$1 $2" = "bootstrap --tenant" ] && mkdir -p "$HOLDFAST_DIR" && echo "hf_$3_$$" >"$HOLDFAST_DIR/dev.key"
"""


class Api(http.server.BaseHTTPRequestHandler):
    """The part of the API of Kubernetes that the scripts use."""

    def answer(self, status, body=None):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body or {}).encode())

    def is_allowed(self):
        return self.headers["authorization"] == "Bearer the-token"

    def do_GET(self):
        name = self.path.rpartition("/")[2]
        known = self.path == f"/api/v1/namespaces/here/secrets/{name}" and name in self.server.secrets
        self.answer((200 if known else 404) if self.is_allowed() else 403)

    def do_POST(self):
        try:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        except ValueError as error:
            self.answer(400, {"message": str(error)})
            return
        name = body["metadata"]["name"]
        if not self.is_allowed() or self.path != "/api/v1/namespaces/here/secrets":
            self.answer(403)
        elif name in self.server.secrets:
            self.answer(409)
        else:
            self.server.secrets[name] = body["stringData"]
            self.answer(201)

    def log_message(self, *args):
        pass


@contextlib.contextmanager
def api_server(address="127.0.0.1"):
    server = http.server.ThreadingHTTPServer((address, 0), Api)
    server.secrets = {}
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def check_scripts(root, documents):
    """Runs the scripts of the jobs, with the variables of their pods, against an API of our own."""
    if not all(map(shutil.which, ("bash", "curl", "openssl"))):
        return ["the scripts of the jobs need bash, curl and openssl here: install them"]
    found = []
    if not re.search(r"apt-get install[^&]*\bcurl\b", (root / "deploy" / "Dockerfile").read_text()):
        found.append("the image has no curl, which the scripts of the jobs use (deploy/Dockerfile)")
    with tempfile.TemporaryDirectory() as place, api_server() as server:
        place = Path(place)
        (place / "holdfast").write_text(FAKE_HOLDFAST)
        (place / "holdfast").chmod(stat.S_IRWXU)
        for name, text in (("token", "the-token"), ("namespace", "here"), ("ca.crt", "")):
            (place / name).write_text(text)

        def run(name):
            pod = next(pod for component, _, pod, _ in pods(documents) if component == name)
            env = {**environment(pod["containers"][0]), "HOLDFAST_DIR": str(place / "dir"), "ACCOUNT_DIR": str(place)}
            env = {key: value for key, value in env.items() if value is not None}
            env |= {"PATH": f"{place}:{os.environ['PATH']}", "KUBERNETES_API": f"http://127.0.0.1:{server.server_port}"}
            script = root / "helm" / "holdfast" / "files" / Path(pod["containers"][0]["command"][1]).name
            done = subprocess.run(["bash", str(script)], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if done.returncode:
                found.append(f"{script.name} fails: {done.stderr}")
            for values in server.secrets.values():
                if any(value in done.stdout + done.stderr for value in values.values() if value):
                    found.append(f"{script.name} shows a secret in its log")

        run("secrets")
        run("bootstrap")
        before = json.dumps(server.secrets)
        run("secrets")
        run("bootstrap")
        if json.dumps(server.secrets) != before:
            found.append("the scripts change Secrets that exist")
        found += check_made_secrets(server.secrets, documents)
    return found


def check_made_secrets(secrets, documents):
    found = []
    for name, _, pod, _ in pods(documents):
        for secret, key, _ in mounted_keys(pod):
            if key not in secrets.get(secret, {}):
                found.append(f"`{name}` waits for the key {key} of the Secret {secret}, which no job makes")
    keys = next((values for values in secrets.values() if "kek" in values), {})
    keys = {**keys, **next((values for values in secrets.values() if "callers-secrets-service" in values), {})}
    callers = ("gateway", "agent-runner", "channel-bridge")
    for name in ("kek", "pepper", "node-key", *(f"{kind}-{caller}" for kind in ("mesh", "secrets") for caller in callers)):
        if len(base64.b64decode(keys.get(name, ""))) != 32:
            found.append(f"the key {name} does not have 32 bytes in base64")
    if keys.get("node-public-key") != f"public-key-of-{keys.get('node-key')}":
        found.append("gateways do not know the public key of runners")
    if keys.get("callers-secrets-service") != ",".join(f"{caller}={keys.get(f'secrets-{caller}')}" for caller in callers):
        found.append("the secrets service does not know the keys of those that call it")
    callers = f"gateway={keys.get('mesh-gateway')},agent-runner={keys.get('mesh-agent-runner')}"
    if keys.get("callers-memory-service") != callers or keys.get("callers-gateway") != f"channel-bridge={keys.get('mesh-channel-bridge')}":
        found.append("the called services do not know the keys of those that call them")
    found += check_made_certificates(next((one for one in secrets.values() if "authority.crt" in one), {}))
    values = [value for one in secrets.values() for value in one.values()]
    if len(set(values)) != len(values):
        found.append("two secrets are equal")
    backends = next((one for one in secrets.values() if "database-admin-url" in one), {})
    for name, url in backends.items():
        login = re.fullmatch(r"postgres://(\w+):(\w+)@[a-z-]+:5432/holdfast", url)
        if name.startswith("database-") and not login:
            found.append(f"{name} is no URL of the bundled Postgres")
        if login and login[1] != "postgres" and f"create role {login[1]} login password '{login[2]}';" not in backends["logins.sql"]:
            found.append(f"the bundled Postgres does not make the login of {name}")
    buses = next((one for one in secrets.values() if "nats-url" in one), {})
    for name, url in buses.items():
        login = re.fullmatch(r"(nats|redis)://(?:holdfast_)?(\w*):(\w+)@[a-z-]+:\d+", url)
        if name.endswith("-url") and not login:
            found.append(f"{name} is no URL of the bundled NATS or Redis")
        elif login:
            backend, user, password = login.groups()
            variable = f"HOLDFAST_BUS_{user.upper()}_PASSWORD" if user not in ("", "holdfast") else f"HOLDFAST_{backend.upper()}_PASSWORD"
            if f'{variable}="{password}"\n' not in buses[f"{backend}-passwords.conf"]:
                found.append(f"the bundled {backend} is not told the password of {name}")
    return found


def check_made_certificates(files):
    """Each service has a certificate of the authority, for its own names, and nobody can issue others."""
    found = ["the key of the authority is kept"] if "authority.key" in files else []
    with tempfile.TemporaryDirectory() as place:
        for name, text in files.items():
            (Path(place) / name).write_text(text)
        for service in SERVICES:
            if f"{service}.crt" not in files:
                found.append(f"the job makes no certificate of {service}")
                continue
            for purpose in ("sslserver", "sslclient"):
                argv = ["openssl", "verify", "-CAfile", "authority.crt", "-purpose", purpose]
                argv += ["-verify_hostname", f"holdfast-{service}", f"{service}.crt"]
                done = subprocess.run(argv, cwd=place, capture_output=True, text=True)
                if done.returncode:
                    found.append(f"the certificate of {service} is not valid: {done.stderr or done.stdout}")
    return found


# --- the rules themselves --------------------------------------------------------------------------


def deployment(documents, name):
    return next(d for d in of_kind(documents, "Deployment") if component(d) == name)["spec"]["template"]["spec"]


def policy(documents, name):
    return next(d for d in of_kind(documents, "NetworkPolicy") if component(d) == name)["spec"]


def set_variable(pod, name, value):
    pod["containers"][0]["env"].append({"name": name, "value": value})


def first(documents, kind):
    return of_kind(documents, kind)[0]


def rule_named(documents, alert):
    return next(r for d in of_kind(documents, "PrometheusRule") for r in d["spec"]["groups"][0]["rules"] if r["alert"] == alert)


# What each rule must notice: (rule, profile, a change that breaks it).
BREAKS = [
    (names_are_unique, "trial", lambda d: d.append(d[0])),
    (names_are_unique, "trial", lambda d: set_variable(deployment(d, "gateway"), "HOLDFAST_CONFIG", "/x")),
    (pods_are_restricted, "trial", lambda d: deployment(d, "gateway")["securityContext"].pop("runAsNonRoot")),
    (pods_are_restricted, "trial", lambda d: deployment(d, "gateway").pop("automountServiceAccountToken")),
    (pods_are_restricted, "trial", lambda d: deployment(d, "gateway").update(serviceAccountName="holdfast-scheduler")),
    (pods_are_restricted, "trial", lambda d: deployment(d, "scheduler")["containers"][0]["securityContext"].update(readOnlyRootFilesystem=False)),
    (pods_are_restricted, "trial", lambda d: first(d, "StatefulSet")["spec"]["template"]["spec"]["containers"][0].update(image="postgres:latest")),
    (rights_are_least, "trial", lambda d: first(d, "Role")["rules"][0]["verbs"].append("list")),
    (rights_are_least, "everything", lambda d: next(r for r in of_kind(d, "Role") if component(r) == "operator")["rules"][0]["verbs"].append("delete")),
    (rights_are_least, "everything", lambda d: [r["metadata"].pop("namespace") for r in of_kind(d, "Role") if component(r) == "operator"]),
    (rights_are_least, "trial", lambda d: first(d, "RoleBinding")["subjects"][0].update(name="holdfast-gateway")),
    (secrets_are_mounted_where_they_are_read, "trial", lambda d: deployment(d, "scheduler")["volumes"].append({"name": "x", "secret": {"secretName": "holdfast-keys"}})),
    (secrets_are_mounted_where_they_are_read, "trial", lambda d: deployment(d, "agent-runner").update(volumes=deployment(d, "gateway")["volumes"])),
    (secrets_are_mounted_where_they_are_read, "trial", lambda d: set_variable(deployment(d, "agent-runner"), "HOLDFAST_SECRETS__PEPPER_FILE", "/run/holdfast/pepper")),
    (secrets_are_mounted_where_they_are_read, "trial", lambda d: set_variable(deployment(d, "gateway"), "HOLDFAST_SECRETS__KEK_FILE", "/run/holdfast/kek")),
    (variables_are_settings, "trial", lambda d: set_variable(deployment(d, "gateway"), "HOLDFAST_GATEWAY__CALL", "1")),
    (edges_are_connections, "trial", lambda d: policy(d, "scheduler")["egress"].append({"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]})),
    (edges_are_connections, "trial", lambda d: policy(d, "gateway")["egress"].pop(0)),
    (edges_are_connections, "trial", lambda d: policy(d, "memory-service")["ingress"].pop(0)),
    (edges_are_connections, "trial", lambda d: policy(d, "memory-service")["ingress"][0].pop("from")),
    (rights_are_least, "everything", lambda d: next(r for r in of_kind(d, "Role") if component(r) == "agent-runner")["rules"][0]["verbs"].append("update")),
    (rights_are_least, "everything", lambda d: [r["metadata"].pop("namespace") for r in of_kind(d, "Role") if component(r) == "agent-runner"]),
    (commands_reach_the_proxy_only, "everything", lambda d: policy(d, "commands")["egress"].append({})),
    (commands_reach_the_proxy_only, "everything", lambda d: policy(d, "commands")["egress"][0]["to"].append({"ipBlock": {"cidr": "0.0.0.0/0"}})),
    (commands_reach_the_proxy_only, "everything", lambda d: policy(d, "commands")["ingress"].append({})),
    (commands_reach_the_proxy_only, "everything", lambda d: policy(d, "agent-runner").update(ingress=[])),
    (commands_reach_the_proxy_only, "everything", lambda d: [set_variable(p, "HOLDFAST_RUNNER__PODS__LISTEN", "") for n, _, p, _ in pods(d) if n == "agent-runner"]),
    (edges_are_connections, "everything", lambda d: policy(d, "operator")["egress"].pop(1)),
    (edges_are_connections, "production", lambda d: policy(d, "scheduler")["egress"].pop(1)),
    (edges_are_connections, "everything", lambda d: policy(d, "scheduler")["egress"].pop(3)),
    (edges_are_connections, "everything", lambda d: deployment(d, "scheduler")["containers"][0].update(env=[v for v in deployment(d, "scheduler")["containers"][0]["env"] if v["name"] != SENTINELS])),
    (edges_are_connections, "trial", lambda d: d.remove(next(p for p in of_kind(d, "NetworkPolicy") if component(p) == "default"))),
    (edges_are_connections, "trial", lambda d: next(v for v in deployment(d, "agent-runner")["containers"][0]["env"] if v["name"].endswith("MEMORY_URL")).update(value="http://holdfast-gateway:18790")),
    (calls_are_encrypted_or_plain_text_is_permitted, "trial", lambda d: set_variable(deployment(d, "gateway"), "HOLDFAST_TLS__CERTIFICATE", "/x")),
    (calls_are_encrypted_or_plain_text_is_permitted, "upgrade", lambda d: deployment(d, "gateway")["containers"][0]["livenessProbe"]["httpGet"].update(scheme="HTTP")),
    (calls_are_encrypted_or_plain_text_is_permitted, "everything", lambda d: first(d, "ServiceMonitor")["spec"]["endpoints"][0].pop("scheme")),
    (calls_are_encrypted_or_plain_text_is_permitted, "everything", lambda d: d.remove(first(d, "Certificate"))),
    (secrets_are_mounted_where_they_are_read, "upgrade", lambda d: deployment(d, "scheduler").update(volumes=[*(v for v in deployment(d, "scheduler")["volumes"] if v["name"] != "tls"), *(v for v in deployment(d, "gateway")["volumes"] if v["name"] == "tls")])),
    (pods_start_and_stop_as_services_do, "trial", lambda d: deployment(d, "channel-bridge").update(terminationGracePeriodSeconds=40)),
    (pods_start_and_stop_as_services_do, "trial", lambda d: deployment(d, "gateway")["containers"][0]["livenessProbe"]["httpGet"].update(path="/readyz")),
    (pods_start_and_stop_as_services_do, "trial", lambda d: first(d, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"].update({"app.kubernetes.io/component": "x"})),
    (pods_start_and_stop_as_services_do, "trial", lambda d: deployment(d, "gateway")["containers"][0].pop("lifecycle")),
    (routes_are_doors, "production", lambda d: of_kind(d, "Ingress")[1]["spec"]["rules"][0]["http"]["paths"][0].update(path="/")),
    (routes_are_doors, "production", lambda d: first(d, "Ingress")["spec"].pop("tls")),
    (routes_are_doors, "everything", lambda d: first(d, "HTTPRoute")["spec"]["rules"][0].pop("matches")),
    (metrics_are_exported, "production", lambda d: rule_named(d, "HoldfastDeadLetters").update(expr='holdfast_dead{namespace="holdfast"} > 0')),
    (metrics_are_exported, "production", lambda d: rule_named(d, "HoldfastRunnersCrash").update(expr='holdfast_runner_swept_total{namespace="holdfast",what="orphans"} > 0')),
    (metrics_are_exported, "production", lambda d: rule_named(d, "HoldfastDeadLetters").update(expr="sum(increase(holdfast_session_dead_letters_total{}[15m])) > 0")),
    (metrics_are_exported, "production", lambda d: change_panel(d, "holdfast_model_tokens_total", "holdfast_model_words_total")),
    (metrics_are_exported, "production", lambda d: change_panel(d, "sum by (provider, kind)", "sum by (provider, tenant)")),
]


def check_that_rules_notice(renders, sources, copy):
    found = []
    for number, (rule, profile, change) in enumerate(BREAKS):
        documents = copy(renders[profile])
        change(documents)
        if not list(rule(documents, sources)):
            found.append(f"the rule {rule.__name__} does not notice the change {number} of BREAKS (tests/helm/policies.py)")
    unbroken = {rule.__name__ for rule in RULES} - {rule.__name__ for rule, _, _ in BREAKS}
    return found + [f"no change of BREAKS is for the rule {name}" for name in unbroken]
