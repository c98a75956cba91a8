"""Starts Synapse, a Matrix homeserver, with users and an application service.

    python3 tests/servers/matrix.py --dir DIR [--appservice http://127.0.0.1:PORT] [--users anna,bob]

Installs the package `matrix-synapse` into DIR/venv, which may be shared by `--venv`. Prints {"url",
"server_name", "users": {name: {"id", "password", "access_token"}}, "appservice": {"id", "as_token",
"hs_token", "sender"}}. The application service owns the users `@holdfast_…` and the user `@holdfast`.
"""

import argparse
import hashlib
import hmac
import json
import secrets
import sys
import subprocess
import urllib.request
import venv
from pathlib import Path

import server

PACKAGE = "matrix-synapse==1.163.2"
SERVER_NAME = "example.test"

# Without limits of rates: tests send as fast as they can.
CONFIGURATION = """server_name: {name}
pid_file: {folder}/homeserver.pid
listeners:
  - port: {port}
    bind_addresses: ["127.0.0.1"]
    type: http
    tls: false
    resources: [{{names: [client, federation]}}]
database: {{name: sqlite3, args: {{database: "{folder}/homeserver.db"}}}}
log_config: {folder}/log.yaml
media_store_path: {folder}/media
signing_key_path: {folder}/signing.key
registration_shared_secret: "{secret}"
macaroon_secret_key: "{secret}"
form_secret: "{secret}"
report_stats: false
trusted_key_servers: []
suppress_key_server_warning: true
url_preview_enabled: false
presence: {{enabled: false}}
app_service_config_files: {appservices}
rc_message: {{per_second: 10000, burst_count: 10000}}
rc_registration: {{per_second: 10000, burst_count: 10000}}
rc_joins: {{local: {{per_second: 10000, burst_count: 10000}}, remote: {{per_second: 10000, burst_count: 10000}}}}
rc_invites:
  per_room: {{per_second: 10000, burst_count: 10000}}
  per_user: {{per_second: 10000, burst_count: 10000}}
  per_issuer: {{per_second: 10000, burst_count: 10000}}
rc_login:
  address: {{per_second: 10000, burst_count: 10000}}
  account: {{per_second: 10000, burst_count: 10000}}
  failed_attempts: {{per_second: 10000, burst_count: 10000}}
"""

LOGGING = """version: 1
formatters: {plain: {format: "%(asctime)s %(levelname)s %(name)s %(message)s"}}
handlers: {console: {class: logging.StreamHandler, formatter: plain}}
root: {level: WARNING, handlers: [console]}
"""

APPSERVICE = """id: holdfast
url: {url}
as_token: {as_token}
hs_token: {hs_token}
sender_localpart: holdfast
rate_limited: false
namespaces:
  users: [{{exclusive: true, regex: "@holdfast_.*:example\\\\.test"}}]
  rooms: []
  aliases: []
"""


def install(folder):
    python = folder / "bin" / "python"
    if not (folder / "installed").exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", PACKAGE], check=True, stdout=sys.stderr)
        (folder / "installed").touch()
    return python


def post(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


def register(url, secret, name):
    """Registers a user by the shared secret (Synapse's admin API)."""
    address = f"{url}/_synapse/admin/v1/register"
    nonce = post(address)["nonce"]
    password = secrets.token_urlsafe(12)
    signed = "\0".join([nonce, name, password, "notadmin"]).encode()
    mac = hmac.new(secret.encode(), signed, hashlib.sha1).hexdigest()
    made = post(address, {"nonce": nonce, "username": name, "password": password, "admin": False, "mac": mac})
    return {"id": made["user_id"], "password": password, "access_token": made["access_token"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", required=True, type=Path, help="folder of the server, made if absent")
    parser.add_argument("--venv", type=Path, help="folder of the installed package (default: DIR/venv)")
    parser.add_argument("--appservice", help="address at which the application service takes events")
    parser.add_argument("--users", default="anna,bob", help="names of users, separated by commas")
    args = parser.parse_args()
    folder = args.dir.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    python = install((args.venv or folder / "venv").resolve())
    port, secret = server.free_port(), secrets.token_hex(16)
    tokens = {"as_token": secrets.token_hex(16), "hs_token": secrets.token_hex(16)}
    appservices = []
    if args.appservice:
        registration = folder / "appservice.yaml"
        registration.write_text(APPSERVICE.format(url=args.appservice, **tokens))
        appservices = [str(registration)]
    (folder / "log.yaml").write_text(LOGGING)
    configuration = folder / "homeserver.yaml"
    configuration.write_text(
        CONFIGURATION.format(name=SERVER_NAME, folder=folder, port=port, secret=secret, appservices=json.dumps(appservices))
    )
    command = [python, "-m", "synapse.app.homeserver", "--config-path", configuration]
    subprocess.run([*command, "--generate-keys"], check=True, stdout=sys.stderr)
    log = folder / "homeserver.log"
    process = server.start(command, log)
    server.wait_for_port(port, process, log)
    url = f"http://127.0.0.1:{port}"
    description = {"url": url, "server_name": SERVER_NAME, "users": {}}
    for name in filter(None, args.users.split(",")):
        description["users"][name] = register(url, secret, name)
    if args.appservice:
        description["appservice"] = {"id": "holdfast", "sender": f"@holdfast:{SERVER_NAME}", **tokens}
    server.serve(description, process)


if __name__ == "__main__":
    main()
