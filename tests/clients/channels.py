"""Runs channels of a running mesh against real servers: Matrix on Synapse, e-mail on Postfix and Dovecot.

    python3 tests/clients/channels.py --holdfast target/debug/holdfast [matrix] [email]

`make test-clients` calls it. E-mail needs root and Debian's packages (tests/servers/mail.py says which).
"""

import argparse
import email
import email.message
import imaplib
import json
import os
import shutil
import smtplib
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from helpers import answer_each_message, eventually
from run import ROOT, Mesh

SERVERS = ROOT / "tests" / "servers"


class Server:
    """A script of tests/servers, until its standard input is closed."""

    def __init__(self, script, *args):
        command = [sys.executable, SERVERS / f"{script}.py", *args]
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"error: the server of `{self.process.args[1]}` did not start")
        return json.loads(line)

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=60)


class Channels:
    """`holdfast channels` of a mesh."""

    def __init__(self, mesh):
        self.mesh = mesh
        answer_each_message(mesh)

    def call(self, *words):
        command = self.mesh.command("--output", "json", "channels", *words)
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return json.loads(done.stdout)

    def add(self, channel, settings, secrets):
        return self.call("add", channel, "--settings", json.dumps(settings), "--secrets", json.dumps(secrets))["id"]

    def change(self, account, settings, secrets):
        self.call("update", account, "--settings", json.dumps(settings), "--secrets", json.dumps(secrets))

    def enable(self, account, is_enabled):
        self.call("update", account, "--enabled", str(is_enabled).lower())

    def wait_for_state(self, account, state):
        def is_so():
            rows = self.call("status")
            return any(row["id"] == account and row["status"] == state for row in rows)
        eventually(f"the account is {state}", is_so)


class Matrix:
    """A person's client of a homeserver."""

    def __init__(self, url, user):
        self.url, self.token, self.id = url, user["access_token"], user["id"]

    def call(self, method, path, body=None, content_type="application/json"):
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {self.token}", "content-type": content_type}
        request = urllib.request.Request(f"{self.url}/_matrix/{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)

    def open_room(self, invited, **options):
        body = {"preset": "private_chat", "invite": invited, **options}
        return self.call("POST", "client/v3/createRoom", body)["room_id"]

    def members(self, room):
        return self.call("GET", f"client/v3/rooms/{urllib.parse.quote(room)}/joined_members")["joined"]

    def send(self, room, content):
        txn = f"t{time.monotonic_ns()}"
        return self.call("PUT", f"client/v3/rooms/{urllib.parse.quote(room)}/send/m.room.message/{txn}", content)["event_id"]

    def write(self, room, text, **more):
        return self.send(room, {"msgtype": "m.text", "body": text, **more})

    def events(self, room, sender):
        found = self.call("GET", f"client/v3/rooms/{urllib.parse.quote(room)}/messages?dir=b&limit=100")["chunk"]
        return [event for event in reversed(found) if event["sender"] == sender and event["type"] == "m.room.message"]

    def answers(self, room, sender, text):
        """Events of a sender that contain a text."""
        return [event for event in self.events(room, sender) if text in event["content"].get("body", "")]


def check_conversation(anna, agent, restart):
    """Invites, direct messages, threads, rooms, files; nothing is lost or doubled over a restart."""
    direct = anna.open_room([agent], is_direct=True)
    eventually("the invitation is accepted", lambda: agent in anna.members(direct))
    anna.write(direct, "the first *word*")
    [answer] = eventually("the answer is there", lambda: anna.answers(direct, agent, "the first *word*"))
    assert "<em>word</em>" in answer["content"]["formatted_body"], answer
    root = anna.write(direct, "a root")
    eventually("the root is answered", lambda: anna.answers(direct, agent, "a root"))
    anna.write(direct, "in a thread", **{"m.relates_to": {"rel_type": "m.thread", "event_id": root}})
    [answer] = eventually("the thread is answered", lambda: anna.answers(direct, agent, "in a thread"))
    assert answer["content"]["m.relates_to"]["event_id"] == root, answer

    restart(lambda: [anna.write(direct, f"while away {n:02}") for n in range(30)])
    eventually("the last one is answered", lambda: anna.answers(direct, agent, "while away 29"))
    time.sleep(3)
    events = anna.events(direct, agent)
    said = "\n".join(event["content"]["body"] for event in events)
    missing = [n for n in range(30) if f"while away {n:02}" not in said]
    assert not missing, f"messages {missing} were lost: {said}"

    uploaded = anna.call("POST", "media/v3/upload?filename=list.txt", b"milk and bread", "text/plain")
    anna.send(direct, {"msgtype": "m.file", "body": "list.txt", "url": uploaded["content_uri"], "info": {"mimetype": "text/plain"}})
    eventually("the file is answered", lambda: anna.answers(direct, agent, "list.txt"))

    encrypted = anna.open_room([agent], is_direct=True, initial_state=[
        {"type": "m.room.encryption", "state_key": "", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}])
    eventually("an encrypted room gets a notice", lambda: anna.answers(encrypted, agent, "cannot read encrypted"))


def check_stranger(bob, agent):
    room = bob.open_room([agent], is_direct=True)
    def is_declined():
        found = bob.call("GET", f"client/v3/rooms/{urllib.parse.quote(room)}/members?not_membership=join")["chunk"]
        return any(event["state_key"] == agent and event["content"]["membership"] == "leave" for event in found)
    eventually("the stranger's invitation is declined", is_declined)


def check_group(anna, bob, agent, channels, account, settings, secrets):
    room = anna.open_room([bob.id, agent])
    bob.call("POST", f"client/v3/rooms/{urllib.parse.quote(room)}/join", {})
    eventually("the room is joined", lambda: agent in anna.members(room))
    channels.change(account, settings | {"groups": {"allow": [room]}}, secrets)
    time.sleep(4)
    bob.write(room, "just talking")
    bob.write(room, "a question", **{"m.mentions": {"user_ids": [agent]}})
    [answer] = eventually("the mention is answered", lambda: anna.answers(room, agent, "a question"))
    assert "m.in_reply_to" in answer["content"]["m.relates_to"], answer
    assert not anna.answers(room, agent, "just talking"), "a message without a mention was answered"


def check_matrix(mesh, folder):
    channels = Channels(mesh)
    venv = Path(os.environ.get("HOLDFAST_SYNAPSE_VENV", folder.parent / "synapse"))
    nowhere = {"homeserver": "http://127.0.0.1:1", "mode": "appservice", "allow": ["@anna:example.test"]}
    pushed = channels.add("matrix", nowhere, {"access_token": "x", "hs_token": "0123456789abcdef"})
    bridge = mesh.bridge
    args = ["--dir", folder / "matrix", "--venv", venv, "--users", "anna,bob,agent"]
    with Server("matrix", *args, "--appservice", f"{bridge}/matrix/{pushed}") as server:
        users, service = server["users"], server["appservice"]
        anna, bob = Matrix(server["url"], users["anna"]), Matrix(server["url"], users["bob"])
        settings = {"homeserver": server["url"], "allow": [anna.id]}

        secrets = {"access_token": users["agent"]["access_token"]}
        polled = channels.call("add", "matrix", "--name", "polled", "--settings", json.dumps(settings), "--secrets", json.dumps(secrets))["id"]
        channels.wait_for_state(polled, "working")

        def restart_account(account):
            def restart(while_away):
                channels.enable(account, False)
                time.sleep(4)
                while_away()
                channels.enable(account, True)
            return restart

        check_conversation(anna, users["agent"]["id"], restart_account(polled))
        check_stranger(bob, users["agent"]["id"])
        check_group(anna, bob, users["agent"]["id"], channels, polled, settings, secrets)

        by_push = settings | {"mode": "appservice", "user": "@holdfast_bot:example.test"}
        tokens = {"access_token": service["as_token"], "hs_token": service["hs_token"]}
        channels.change(pushed, by_push, tokens)
        channels.wait_for_state(pushed, "working")
        check_conversation(anna, by_push["user"], restart_account(pushed))
        refused = urllib.request.Request(
            f"{bridge}/matrix/{pushed}/_matrix/app/v1/transactions/1", b'{"events": []}',
            {"authorization": "Bearer wrong"}, method="PUT")
        try:
            urllib.request.urlopen(refused, timeout=10)
            raise AssertionError("a transaction with a wrong token was taken")
        except urllib.error.HTTPError as error:
            assert error.code == 401, error
    return "answered by sync and as an application service"


# The servers of the test check no senders: the mails come with what a server would write.
VERIFIED = "mail.example.test; dmarc=pass header.from=example.test"


class Mailbox:
    """A person's mail client."""

    def __init__(self, server, name):
        self.server, self.user = server, server["users"][name]

    def write(self, to, subject, text, **headers):
        headers.setdefault("Authentication_Results", VERIFIED)
        mail = email.message.EmailMessage()
        mail["From"], mail["To"], mail["Subject"] = self.user["address"], to, subject
        mail["Message-ID"] = f"<{time.monotonic_ns()}@example.test>"
        for name, value in headers.items():
            mail[name.replace("_", "-")] = value
        mail.set_content(text)
        return self.hand_over(mail)

    def hand_over(self, mail):
        with smtplib.SMTP("127.0.0.1", self.server["smtp"]["port"], timeout=20) as smtp:
            smtp.send_message(mail)
        return mail

    def mails(self, folder="INBOX"):
        context = ssl.create_default_context(cafile=self.server["certificate"])
        with imaplib.IMAP4_SSL("localhost", self.server["imap"]["tls_port"], ssl_context=context, timeout=20) as imap:
            imap.login(self.user["address"].split("@")[0], self.user["password"])
            imap.select(folder, readonly=True)
            _, [uids] = imap.search(None, "ALL")
            fetched = [imap.fetch(uid, "(FLAGS BODY.PEEK[])")[1] for uid in uids.split()]
        found = []
        for parts in fetched:
            mail = email.message_from_bytes(parts[0][1], policy=email.policy.default)
            mail.is_seen = b"\\Seen" in parts[0][0] or any(isinstance(part, bytes) and b"\\Seen" in part for part in parts)
            found.append(mail)
        return found

    def answers(self, text):
        return [mail for mail in self.mails() if text in mail.get_body(("plain",)).get_content()]


def check_email(mesh, folder, server):
    channels = Channels(mesh)
    agent, anna, bob = (Mailbox(server, name) for name in ("agent", "anna", "bob"))
    address = agent.user["address"]
    settings = {
        "address": address, "user": "agent", "allow": [anna.user["address"]], "authserv": "mail.example.test",
        "imap": {"host": "localhost", "port": server["imap"]["tls_port"]},
        "smtp": {"host": "localhost", "port": server["smtp"]["submission_port"], "security": "starttls"},
    }
    account = channels.add("email", settings, {"password": agent.user["password"]})
    channels.wait_for_state(account, "working")

    first = anna.write(address, "Lunch", "When do we eat?")
    [answer] = eventually("the answer is there", lambda: anna.answers("When do we eat?"))
    assert answer["Subject"] == "Re: Lunch", answer["Subject"]
    assert answer["In-Reply-To"] == first["Message-ID"] and answer["Auto-Submitted"] == "auto-replied"
    quoted = "At noon.\n\nOn Mon, 5 Jan 2026, agent wrote:\n> the quoted words\n"
    anna.write(address, "Re: Lunch", quoted, In_Reply_To=answer["Message-ID"], References=f'{first["Message-ID"]} {answer["Message-ID"]}')
    [second] = eventually("the thread goes on", lambda: anna.answers("At noon."))
    assert first["Message-ID"] in second["References"] and "quoted words" not in second.get_body(("plain",)).get_content()

    bob.write(address, "x", "let me in")
    anna.write(address, "x", "I am away", Auto_Submitted="auto-replied")
    anna.write(address, "x", "forged", Authentication_Results="mail.example.test; dmarc=fail header.from=example.test")
    anna.write(address, "x", "forged by default", Authentication_Results="mx.google.com; dmarc=pass header.from=example.test")
    mail = email.message.EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = anna.user["address"], address, "a file"
    mail["Message-ID"], mail["Authentication-Results"] = "<file@example.test>", VERIFIED
    mail.set_content("see the list")
    mail.add_attachment(b"milk", maintype="text", subtype="csv", filename="list.csv")
    anna.hand_over(mail)
    anna.hand_over(mail)

    channels.enable(account, False)
    time.sleep(4)
    for n in range(5):
        anna.write(address, f"away {n}", f"while away {n}")
    channels.enable(account, True)
    eventually("the last one is answered", lambda: anna.answers("while away 4"))
    eventually("the file is answered", lambda: anna.answers("see the list"))
    time.sleep(5)
    for text in ["When do we eat?", "At noon.", "see the list", *(f"while away {n}" for n in range(5))]:
        assert len(anna.answers(text)) == 1, f"{text}: {len(anna.answers(text))} answers"
    assert not anna.answers("I am away") and not anna.answers("forged") and not bob.mails()
    seen = {mail["Subject"]: mail.is_seen for mail in agent.mails()}
    assert seen["Lunch"] and not seen["x"], seen
    sent = [mail for mail in agent.mails("Sent") if mail["Subject"] == "Re: Lunch"]
    assert len(sent) == 2, [mail["Subject"] for mail in agent.mails("Sent")]

    channels.change(account, settings, {"password": "wrong"})
    channels.wait_for_state(account, "failing")
    return "answered in its threads, and nothing else"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--holdfast", type=Path, required=True)
    parser.add_argument("channels", nargs="*", metavar="channel", help="matrix, email")
    chosen = parser.parse_args()
    home = ROOT / ".holdfast" / "channels"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    os.environ["HOLDFAST_EGRESS__ALLOW"] = json.dumps(["127.0.0.1", "localhost"])
    holdfast = chosen.holdfast.resolve()
    names = chosen.channels or ["matrix", "email"]
    if "email" in names:
        with Server("mail", "--dir", home / "mail") as server:
            # The services trust the test server's certificate beside those of the machine.
            trusted = home / "trusted.pem"
            own = Path(os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"))
            trusted.write_text(own.read_text() + Path(server["certificate"]).read_text())
            before = os.environ.get("SSL_CERT_FILE")
            os.environ["SSL_CERT_FILE"] = str(trusted)
            with Mesh(holdfast, home / "up-email", {}) as mesh:
                print("email:", check_email(mesh, home, server))
            if before is None:
                del os.environ["SSL_CERT_FILE"]
            else:
                os.environ["SSL_CERT_FILE"] = before
    if "matrix" in names:
        with Mesh(holdfast, home / "up-matrix", {}) as mesh:
            print("matrix:", check_matrix(mesh, home))


if __name__ == "__main__":
    main()
