"""Runs the pods of a rendered chart as processes of this machine, as kubelet and kube-proxy would.

Every container gets exactly its rendered environment, arguments, user, mounted files and probes,
above a root that it cannot write to, in a network of its own with an address of its own. A Service
has an address, too, whose connections go to pods that are ready. A Deployment is updated as the
chart says: a new pod must be ready before an old one is stopped, by preStop, SIGTERM and its grace.

Needs bubblewrap, iproute2 and root in a network namespace that may be changed.
"""

import asyncio
import itertools
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import check  # noqa: E402
import policies  # noqa: E402

READY_SECONDS = 90
PATH = "/opt/bin:/usr/bin:/bin"
# The image without a shell, as the values of the tests name it.
SERVICES_IMAGE = "holdfast-services:test"
HOST = "10.77.0.1"


class Network:
    """The network of the pods: a bridge of this network namespace, with connections to Services."""

    def __init__(self):
        self.pod_addresses = (f"10.77.{1 + n // 250}.{1 + n % 250}" for n in itertools.count())
        self.service_addresses = (f"10.77.255.{n}" for n in itertools.count(1))
        self.numbers, self.connections = itertools.count(), set()
        # With an address of its own: otherwise the bridge takes the lowest one of its pods', and loses
        # the packets of those that remember the one before.
        ip("link set lo up", "link add pods address 02:00:00:00:00:01 type bridge", f"addr add {HOST}/16 dev pods", "link set pods up")
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def pod(self):
        """Makes the network of a pod: (the process that keeps it, its address)."""
        keeper = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE)
        own = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{keeper.pid}/ns/net") == own:
            time.sleep(0.005)
        address, end = next(self.pod_addresses), f"pod{next(self.numbers)}"
        ip(f"link add {end} type veth peer name eth0 netns {keeper.pid}", f"link set {end} master pods up")
        ip("link set lo up", f"addr add {address}/16 dev eth0", "link set eth0 up", inside=keeper.pid)
        return keeper, address

    def service(self, ports, endpoints):
        """An address whose connections to `ports` (number: target) go to one of `endpoints()`."""
        address = next(self.service_addresses)
        ip(f"addr add {address}/32 dev pods")
        for number, target in ports.items():
            asyncio.run_coroutine_threadsafe(self.listen(address, number, target, endpoints), self.loop).result()
        return address

    async def listen(self, address, number, target, endpoints):
        async def connected(reader, writer):
            # The event loop itself keeps no task alive.
            self.connections.add(asyncio.current_task())
            asyncio.current_task().add_done_callback(self.connections.discard)
            ready = endpoints()
            random.shuffle(ready)
            for pod in ready:
                try:
                    pod_reader, pod_writer = await asyncio.open_connection(pod, target)
                except OSError:
                    continue
                await asyncio.gather(copy(reader, pod_writer), copy(pod_reader, writer))
                return
            writer.transport.abort()

        await asyncio.start_server(connected, address, number)


async def copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()


def ip(*lines, inside=None):
    argv = ["nsenter", f"--net=/proc/{inside}/ns/net"] if inside else []
    done = subprocess.run([*argv, "ip", "-batch", "-"], input="\n".join(lines), capture_output=True, text=True)
    if done.returncode:
        raise check.Problem(f"no network can be made for pods: {done.stderr}")


class Pod:
    """One pod of a workload, with its process."""

    def __init__(self, kubelet, workload, number):
        self.workload, self.name = workload, f"{workload}-{number}"
        self.spec, self.holdfast = kubelet.workloads[workload], kubelet.holdfast
        self.container = self.spec["containers"][0]
        self.maps = kubelet.maps
        # Only the volumes of the database outlive a pod.
        self.place = kubelet.place / (workload if "data" in kubelet.claims(workload) else self.name)
        self.keeper, self.address = kubelet.network.pod()
        self.process = self.pid = None
        # Connections go to it; it was ready once and is not being stopped.
        self.is_ready = self.serves = False

    def log(self):
        return (self.place / "log").read_text()[-4000:]

    def probe(self, name):
        get = self.container[name].get("httpGet")
        named = (get or self.container[name]["tcpSocket"])["port"]
        port = next(port["containerPort"] for port in self.container["ports"] if port["name"] == named)
        try:
            if get is None:
                socket.create_connection((self.address, port), timeout=2).close()
                return 200
            url = f"{get.get('scheme', 'HTTP').lower()}://{self.address}:{port}{get['path']}"
            # As kubelet, which verifies no certificate.
            return urllib.request.urlopen(url, timeout=5, context=ssl._create_unverified_context()).status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def wait(self, probe, status=200):
        deadline = time.monotonic() + READY_SECONDS
        while self.probe(probe) != status:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise check.Problem(f"the {probe} of {self.name} is not {status}:\n{self.log()}")
            time.sleep(0.2)
        self.is_ready = self.serves = probe == "readinessProbe" and status == 200

    def stop(self):
        """preStop, SIGTERM, and the time that is left; returns the seconds."""
        self.is_ready = self.serves = False
        hook = self.container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command")
        start = time.monotonic()
        if hook:
            inside = ["nsenter", "--target", str(self.pid), "--mount", "--pid", "--root"]
            subprocess.run([*inside, *hook], env={"PATH": PATH}, check=True)
        os.kill(self.pid, signal.SIGTERM)
        try:
            code = self.process.wait(max(self.spec["terminationGracePeriodSeconds"] - (time.monotonic() - start), 1))
        except subprocess.TimeoutExpired:
            raise check.Problem(f"`{self.name}` did not stop in its grace period:\n{self.log()}") from None
        self.keeper.kill()
        if code:
            raise check.Problem(f"`{self.name}` ended with {code}:\n{self.log()}")
        return time.monotonic() - start

    def kill(self):
        if self.process and self.process.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self.process.wait()
        self.keeper.kill()


class Kubelet:
    """The pods of an installation, below a folder."""

    def __init__(self, network, place, packages, api):
        self.network, self.place, self.packages, self.api = network, place, packages, api
        self.addresses, self.pods, self.numbers = {"localhost": "127.0.0.1"}, [], itertools.count(1)
        # ConfigMaps that the chart does not make.
        self.own_maps = {}
        # Processes end with the thread that started them (--die-with-parent).
        self.starter = ThreadPoolExecutor(1)
        self.lock = threading.Lock()

    def apply(self, documents, holdfast):
        """Takes over a render and the program of its image; pods that run stay as they are."""
        self.holdfast = holdfast
        self.maps = self.own_maps | {d["metadata"]["name"]: d["data"] for d in policies.of_kind(documents, "ConfigMap")}
        self.workloads = {name: pod for name, _, pod, _ in policies.pods(documents)}
        self.objects = {name: document for name, document, _, _ in policies.pods(documents)}
        for service in policies.of_kind(documents, "Service"):
            name, component = service["metadata"]["name"], policies.component(service)
            if name not in self.addresses:
                self.addresses[name] = self.network.service(self.ports(service, component), lambda component=component: self.endpoints(component))
        (self.place / "hosts").write_text("".join(f"{address} {name}\n" for name, address in self.addresses.items()))

    def ports(self, service, component):
        named = {port["name"]: port["containerPort"] for port in self.workloads[component]["containers"][0]["ports"]}
        return {port["port"]: named.get(port["targetPort"], port["targetPort"]) for port in service["spec"]["ports"]}

    def endpoints(self, component):
        return [pod.address for pod in self.pods if pod.workload == component and pod.is_ready]

    def claims(self, workload):
        return [claim["metadata"]["name"] for claim in self.objects[workload]["spec"].get("volumeClaimTemplates", [])]

    def replicas(self, workload):
        return self.objects[workload]["spec"].get("replicas", 1)

    def of(self, workload):
        return [pod for pod in self.pods if pod.workload == workload]

    # --- containers --------------------------------------------------------------------------------

    def volume(self, pod, name):
        """The folder of a volume, with the files that Kubernetes would put there."""
        folder = pod.place / name
        if folder.exists():
            return folder
        folder.mkdir(parents=True)
        volume = next((v for v in pod.spec.get("volumes", []) if v["name"] == name), {})
        sources = volume.get("projected", {}).get("sources", [])
        sources += [{kind: volume[kind]} for kind in ("secret", "configMap") if kind in volume]
        for source in sources:
            for path, text in self.files(pod, source):
                (folder / path).write_text(text)
        return folder

    def files(self, pod, source):
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
            yield from pod.maps[source["configMap"]["name"]].items()

    def command(self, pod, argv, info):
        user = str(pod.spec["securityContext"]["runAsUser"])
        passwd = self.place / f"passwd-{user}"
        passwd.write_text(f"app:x:{user}:{user}::/:/bin/sh\n")
        line = ["nsenter", f"--net=/proc/{pod.keeper.pid}/ns/net"]
        line += ["bwrap", "--unshare-user", "--uid", user, "--gid", user, "--unshare-pid", "--unshare-ipc", "--as-pid-1"]
        line += ["--die-with-parent", "--info-fd", str(info), "--clearenv", "--proc", "/proc", "--dev", "/dev"]
        if pod.container["image"] == SERVICES_IMAGE:
            root = self.root(pod.holdfast)
            for name in ("usr", "lib", "lib64", "etc/ssl", "etc/passwd", "etc/nsswitch.conf"):
                line += ["--ro-bind", str(root / name), f"/{name}"]
        else:
            for folder in ("/usr", "/etc/ssl"):
                line += ["--ro-bind", folder, folder]
            for name in ("bin", "lib", "lib64", "sbin"):
                line += ["--symlink", f"usr/{name}", f"/{name}"]
            line += ["--ro-bind", str(passwd), "/etc/passwd", "--ro-bind", str(self.packages), "/opt/packages"]
            line += ["--ro-bind", str(pod.holdfast), "/opt/bin/holdfast"]
        line += ["--ro-bind", str(self.place / "hosts"), "/etc/hosts"]
        for mount in sorted(pod.container.get("volumeMounts", []), key=lambda mount: len(mount["mountPath"])):
            source = self.volume(pod, mount["name"]) / mount.get("subPath", "")
            line += ["--ro-bind" if mount.get("readOnly") else "--bind", str(source), mount["mountPath"]]
        line += ["--remount-ro", "/"]
        variables = {name: value or pod.name for name, value in policies.environment(pod.container).items() if value != ""}
        variables |= {"PATH": PATH, "KUBERNETES_API": f"http://{HOST}:{self.api.server_port}"}
        for name, value in variables.items():
            line += ["--setenv", name, value]
        return line + ["--", *argv]

    def root(self, holdfast):
        """The files of the image without a shell, with this program."""
        root = self.place / f"root-{holdfast.stat().st_ino}"
        with self.lock:
            if not root.exists():
                subprocess.run([check.ROOT / "deploy" / "root.sh", root, holdfast], check=True)
        return root

    def start(self, workload, argv=None, text=None):
        """Starts a pod of a workload."""
        pod = Pod(self, workload, next(self.numbers))
        argv = argv or pod.container.get("command") or ["holdfast", *pod.container["args"]]
        pod.place.mkdir(exist_ok=True)
        log = (pod.place / "log").open("a")
        read, write = os.pipe()
        line = self.command(pod, argv, write)
        options = {"pass_fds": [write], "stdin": subprocess.PIPE, "stdout": log, "stderr": log, "text": True}
        pod.process = self.starter.submit(subprocess.Popen, line, **options).result()
        os.close(write)
        self.pods.append(pod)
        with os.fdopen(read) as info:
            try:
                pod.pid = json.loads(info.read())["child-pid"]
            except ValueError:
                raise check.Problem(f"`{pod.name}` does not start:\n{pod.log()}") from None
        if text is not None:
            pod.process.stdin.write(text)
        pod.process.stdin.close()
        return pod

    def run(self, workload, argv=None, text=None):
        """Runs a container to its end, which must be a success; returns its log."""
        pod = self.start(workload, argv, text)
        code = pod.process.wait()
        pod.keeper.kill()
        self.pods.remove(pod)
        if code:
            raise check.Problem(f"`{pod.name}` failed:\n{pod.log()}")
        return pod.log()

    def stop(self, pod):
        seconds = pod.stop()
        self.pods.remove(pod)
        return seconds

    def roll(self, workload):
        """A Deployment's update: one new pod becomes ready, then one old pod is stopped."""
        old = self.of(workload)
        for number in range(max(self.replicas(workload), len(old))):
            if number < self.replicas(workload):
                self.start(workload).wait("readinessProbe")
            if number < len(old):
                self.stop(old[number])

    def watch_readiness(self):
        """Asks the readiness of pods that serve, as often as the chart says, until the program ends."""

        def watch():
            failures = {}
            while True:
                for pod in [pod for pod in self.pods if pod.serves and "httpGet" in pod.container["readinessProbe"]]:
                    failures[pod] = 0 if pod.probe("readinessProbe") == 200 else failures.get(pod, 0) + 1
                    is_ready = pod.serves and failures[pod] < pod.container["readinessProbe"]["failureThreshold"]
                    if is_ready != pod.is_ready:
                        print(f"note: {pod.name} is {'ready again' if is_ready else 'not ready'}")
                    pod.is_ready = is_ready
                time.sleep(3)

        threading.Thread(target=watch, daemon=True).start()

    def kill(self):
        for pod in self.pods:
            pod.kill()


def side_by_side(function, items):
    """Calls the function for all items at the same time; returns the results in their order."""
    items = list(items)
    with ThreadPoolExecutor(len(items)) as pool:
        return list(pool.map(function, items))
