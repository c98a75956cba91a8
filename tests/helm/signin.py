"""A person signs in at an identity provider over https, from the command line, and talks.

The provider is the npm package `oidc-provider`, with a certificate of an authority of its own.
"""

import json
import re
import subprocess
import sys

import check
import kubelet as kubelets

SCRIPT = check.ROOT / "cli" / "tests" / "first_minute" / "people" / "provider.mjs"
PORT = 8443
URL = f"https://{kubelets.HOST}:{PORT}"

# Follows redirects with the provider's cookies, as a browser does, to the program that waits on loopback.
BROWSER = """
import ssl, sys, urllib.request
tls = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=sys.argv[2]))
urllib.request.build_opener(tls, urllib.request.HTTPCookieProcessor()).open(sys.argv[1], timeout=30).read()
"""


def install(directory):
    """Installs the packages of tests if they are missing; returns the provider's folder."""
    packages = directory / "test-packages"
    done = subprocess.run([sys.executable, check.ROOT / "tests" / "packages.py", "--dir", packages], stdin=subprocess.DEVNULL)
    if done.returncode:
        raise check.Problem("the identity provider is not installed")
    return (packages / "oidc-provider").resolve()


class Provider:
    """A running provider in the network of the pods; it is ended by `kill`."""

    def __init__(self, package, place):
        self.place = place
        self.authority = place / "authority.crt"
        options = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        openssl("req", "-x509", *options, "-keyout", place / "authority.key", "-out", self.authority, "-subj", "/CN=authority")
        names = ["-addext", f"subjectAltName=IP:{kubelets.HOST}", "-addext", "basicConstraints=critical,CA:FALSE"]
        signer = ["-CA", self.authority, "-CAkey", place / "authority.key"]
        openssl("req", "-x509", *options, *names, *signer, "-keyout", place / "key", "-out", place / "crt", "-subj", "/CN=provider")
        argv = ["node", SCRIPT, package, str(PORT), "first", kubelets.HOST, place / "crt", place / "key"]
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if "ready" not in self.process.stdout.readline():
            raise check.Problem("the identity provider does not start")

    def kill(self):
        self.process.kill()
        self.process.wait()


def openssl(*args):
    done = subprocess.run(["openssl", *map(str, args)], capture_output=True, text=True)
    if done.returncode:
        raise check.Problem(f"openssl {args[0]}: {done.stderr}")


class Person:
    """A machine with the command line, in a network of its own."""

    def __init__(self, kubelet, provider):
        self.kubelet, self.provider = kubelet, provider
        self.keeper, _ = kubelet.network.pod()
        (provider.place / "gateway.crt").write_text(kubelet.api.secrets["holdfast-certificates"]["authority.crt"])
        self.home = provider.place / "home"
        self.home.mkdir()

    def inside(self, *argv):
        line = ["nsenter", f"--net=/proc/{self.keeper.pid}/ns/net", "bwrap", "--ro-bind", "/", "/", "--dev", "/dev"]
        line += ["--bind", self.home, self.home, "--ro-bind", self.kubelet.place / "hosts", "/etc/hosts", "--die-with-parent"]
        line += ["--clearenv", "--setenv", "HOLDFAST_DIR", self.home, "--setenv", "HOLDFAST_URL", "https://holdfast-gateway:18790"]
        line += ["--setenv", "HOLDFAST_CA_FILE", self.provider.place / "gateway.crt", "--setenv", "SSL_CERT_FILE", self.provider.authority]
        return [str(part) for part in [*line, "--", *argv]]

    def run(self, *args):
        done = subprocess.run(self.inside(self.kubelet.holdfast, *args), stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            raise check.Problem(f"holdfast {args[0]}: {done.stderr}")
        return done.stdout

    def sign_in(self):
        argv = self.inside(self.kubelet.holdfast, "login", "--no-browser", "--issuer", URL, "--client-id", "holdfast")
        login = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = ""
        while not (address := re.search(rf"{URL}/\S+", said)):
            line = login.stdout.readline()
            if not line:
                raise check.Problem(f"holdfast login: {said}")
            said += line
        browser = self.inside(sys.executable, "-c", BROWSER, address[0], self.provider.authority)
        done = subprocess.run(browser, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        said += login.stdout.read()
        if done.returncode or login.wait():
            raise check.Problem(f"nobody can sign in: {said}{done.stderr}")

    def close(self):
        self.keeper.kill()


def talk(kubelet, provider):
    """Signs in, talks, and signs out; returns what was seen."""
    person = Person(kubelet, provider)
    try:
        person.sign_in()
        who = json.loads(person.run("whoami", "--output", "json"))
        answer = person.run("chat", "hello").strip()
        person.run("logout")
    finally:
        person.close()
    if not answer:
        raise check.Problem("a person who signed in is not answered")
    return f"{who['name']} signed in as {who['role']} of {who['tenant']} and was answered"
