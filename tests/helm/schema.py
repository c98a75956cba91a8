"""The schema of the chart's values. Its part `config` follows docs/configuration.md.

Every setting of the services is in that manual (a test of the command line sees to it), so the chart
refuses the same misspelt settings as the services, before anything is installed.
"""

import re

# What the chart or the image sets, what is mounted from Secrets, and what needs a volume.
OWNED = re.compile(
    r"(database|nats|redis)\.url|tls\..*|(nats|redis)\.authorities|nats\.(nkey|credentials)|telemetry\.otlp_authorities|database\.admin_url|redis\.(replicas|sentinels)"
    r"|mesh\.(?!clock_tolerance|accept_version_1).*|secrets\..*"
    r"|.*\.(listen|shutdown_grace)|operator\.(key|gateway_url|namespace|lease|lease_namespace)|gateway\.(http|grpc)|telemetry\.service_instance"
    r"|runner\.pool|runner\.scratch\.dir|runner\.archive|runner\.sandbox\.(hosted|backend)|runner\.pods\.(namespace|kubeconfig|address)|memory\.embedding\.(api_key|dir)|telemetry\.format"
)
# Structures that the manual describes in words.
TABLES = {
    "audio.transcription_models": {"type": "object", "additionalProperties": {"type": "string"}},
    "skills.registries": {"type": "array", "items": {"type": "object"}},
    "oidc.issuers": {"type": "array", "items": {"type": "object"}},
    "runner.prompt.channel_words": {"type": "object"},
    "runner.web.search.duckduckgo": {"type": "object"},
    "runner.web.search.searxng": {"type": "object"},
    "memory.former": {"type": "object"},
    "runner.pods.limits.cpu": {"type": "string"},
}
# They hold keys; tenants bring their own instead.
SECRETS = {"runner.web.search.perplexity", "runner.web.search.brave", "runner.web.search.tavily"}
# Lists that are empty by default, so that the manual shows no value.
LISTS = {
    "egress.allow",
    "gateway.mcp_origins",
    "proxies.trusted",
    "runner.web.allow",
    "runner.web.search.order",
    "runner.sandbox.readable",
    "runner.sandbox.guard.permitted",
    "runner.sandbox.guard.custom_deny_patterns",
    "runner.sandbox.guard.allow_patterns",
    "runner.mcp.allow",
    "runner.workload_identity.hosts",
    "runner.workload_identity.tenants",
    "runner.pods.image_pull_secrets",
    "runner.browser.args",
    "memory.mask",
    "memory.refuse",
}
ROW = re.compile(r"^\| `([a-z_]+(?:\.[a-z_0-9]+)+)` \|([^|]*)\| (.*) \|$", re.M)


def settings(manual):
    """Names, defaults and meanings of all settings that may be in the values."""
    found = {}
    for name, default, meaning in ROW.findall(manual):
        if not OWNED.fullmatch(name) and name not in SECRETS:
            found[name] = (default.strip().strip("`"), meaning)
    return found


def leaf(name, default):
    if name in TABLES:
        return TABLES[name]
    if name in LISTS:
        return {"type": "array", "items": {"type": "string"}}
    if default in ("true", "false") or name == "gateway.reflection":
        return {"type": "boolean"}
    if re.fullmatch(r"[0-9]+", default):
        return {"type": "number" if name == "memory.half_life_days" else "integer"}
    return {"type": "string"}


def config_schema(manual):
    root = closed({})
    for name, (default, meaning) in settings(manual).items():
        *tables, last = name.split(".")
        table = root
        for part in tables:
            table = table["properties"].setdefault(part, closed({}))
        table["properties"][last] = {**leaf(name, default), "description": meaning}
    return root


def closed(properties):
    return {"type": "object", "additionalProperties": False, "properties": properties}


TEXT = {"type": "string"}
BOOL = {"type": "boolean"}
OPEN = {"type": "object"}
LABELS = {"type": "object", "additionalProperties": {"type": "string"}}
OBJECTS = {"type": "array", "items": {"type": "object"}}
PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
QUANTITY = {"type": ["string", "number"], "pattern": "^[0-9.]+(m|[EPTGMk]i?)?$"}
SIZE = {"type": "string", "pattern": "^([0-9]+(Mi|Gi|Ti))?$"}
NAME = {"type": "string", "pattern": "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$"}
AMOUNTS = closed({"cpu": QUANTITY, "memory": QUANTITY, "ephemeral-storage": QUANTITY})
RESOURCES = closed({"requests": AMOUNTS, "limits": AMOUNTS})
PLACEMENT = {
    "priorityClassName": NAME,
    "nodeSelector": LABELS,
    "tolerations": OBJECTS,
    "affinity": OPEN,
}


def service(least_grace=1, **more):
    return closed(
        {
            "replicas": {"type": "integer", "minimum": 0},
            "shutdownGrace": {"type": "integer", "minimum": least_grace, "maximum": 3600},
            "resources": RESOURCES,
            "topologySpread": BOOL,
            **PLACEMENT,
            "podLabels": LABELS,
            "podAnnotations": LABELS,
            "extraEgress": OBJECTS,
            **more,
        }
    )


def autoscaling(**more):
    count = {"type": "integer", "minimum": 1}
    percent = {"type": "integer", "minimum": 0, "maximum": 100}
    return closed({"enabled": BOOL, "minReplicas": count, "maxReplicas": count, "cpu": percent, **more})


def backend(**more):
    return closed(
        {"port": PORT, "peers": OBJECTS, "image": TEXT, "storage": SIZE, "resources": RESOURCES, **PLACEMENT, **more}
    )


def values_schema(manual):
    ingress = closed({"host": NAME, "tlsSecret": NAME, "annotations": LABELS})
    route = closed({"hostnames": {"type": "array", "items": NAME}})
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart holdfast; made by tests/helm/check.py --write",
        **closed(
            {
                "global": OPEN,
                "trustedAuthorities": NAME,
                "image": closed(
                    {
                        "repository": {"type": "string", "minLength": 1},
                        "tag": TEXT,
                        "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
                        "services": TEXT,
                        "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
                        "pullSecrets": {"type": "array", "items": NAME},
                    }
                ),
                "config": config_schema(manual),
                "keys": closed(
                    {
                        "existingSecret": NAME,
                        "previous": {"type": "array", "items": {"enum": ["kek", "pepper"]}, "uniqueItems": True},
                    }
                ),
                "tls": closed({"enabled": BOOL, "issuerRef": OPEN, "gatewayNames": {"type": "array", "items": NAME}}),
                "backends": closed(
                    {
                        "bundled": BOOL,
                        "caSecret": NAME,
                        "existingSecret": NAME,
                        "storageClass": NAME,
                        "postgres": backend(),
                        "nats": backend(),
                        "redis": backend(sentinel=closed({"enabled": BOOL, "port": PORT})),
                    }
                ),
                "migration": closed({"enabled": BOOL, "resources": RESOURCES}),
                "bootstrap": closed(
                    {
                        "enabled": BOOL,
                        "tenant": {"type": "string", "minLength": 1},
                        "secretName": NAME,
                        "model": TEXT,
                        "providerSecret": NAME,
                        "resources": RESOURCES,
                    }
                ),
                "jobs": closed(PLACEMENT),
                "gateway": service(autoscaling=autoscaling()),
                "agentRunner": service(
                    autoscaling=autoscaling(waitingSessions={"type": "integer", "minimum": 0}),
                    scratchSize=SIZE,
                    databaseSecret=NAME,
                ),
                "runnerPools": {
                    "type": "object",
                    "additionalProperties": False,
                    "patternProperties": {
                        "^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$": service(
                            autoscaling=autoscaling(waitingSessions={"type": "integer", "minimum": 0}),
                            scratchSize=SIZE,
                            databaseSecret=NAME,
                        )
                    },
                },
                "scheduler": service(),
                "memoryService": service(embeddingKeySecret=NAME),
                "secretsService": service(),
                "channelBridge": service(least_grace=46),
                "operator": closed(
                    {
                        "enabled": BOOL,
                        "replicas": {"type": "integer", "minimum": 0},
                        "namespace": NAME,
                        "keySecret": NAME,
                        "resources": RESOURCES,
                        **PLACEMENT,
                        "podLabels": LABELS,
                        "podAnnotations": LABELS,
                    }
                ),
                "commandPods": closed({"enabled": BOOL, "namespace": NAME}),
                "networkPolicy": closed(
                    {
                        "enabled": BOOL,
                        **{name: OBJECTS for name in ("dns", "clients", "platforms", "monitoring", "collectors")},
                        "internet": OBJECTS,
                        "apiServer": closed(
                            {
                                "cidrs": {"type": "array", "items": TEXT, "minItems": 1},
                                "ports": {"type": "array", "items": PORT, "minItems": 1},
                            }
                        ),
                    }
                ),
                "ingress": closed({"className": TEXT, "http": ingress, "grpc": ingress, "platforms": ingress}),
                "gatewayApi": closed({"parentRefs": OBJECTS, "http": route, "grpc": route, "platforms": route}),
                "monitoring": closed(
                    {
                        "serviceMonitor": closed(
                            {"enabled": BOOL, "interval": {"type": "string", "pattern": "^[0-9]+(s|m)$"}, "labels": LABELS}
                        ),
                        "dashboard": closed({"enabled": BOOL, "labels": LABELS}),
                        "prometheusRule": closed({"enabled": BOOL, "labels": LABELS}),
                        "runbook": TEXT,
                    }
                ),
            }
        ),
    }
