"""Starts ngircd, an IRC server.

    python3 tests/servers/irc.py --dir DIR [--password WORD]

Prints {"host", "port"}.
"""

import argparse
from pathlib import Path

import server

CONFIGURATION = """[Global]
Name = irc.example.test
Info = Server of a test
Listen = 127.0.0.1
Ports = {port}
PidFile = {folder}/ngircd.pid
MotdPhrase = Welcome
{password}
[Limits]
MaxConnectionsIP = 0
MaxNickLength = 30
PingTimeout = 20
PongTimeout = 10
[Options]
DNS = no
Ident = no
PAM = no
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", required=True, type=Path, help="folder of the server, made if absent")
    parser.add_argument("--password", help="password that clients must give")
    args = parser.parse_args()
    folder = args.dir.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    [program] = server.find_programs("ngircd", packages="ngircd")
    port = server.free_port()
    password = f"Password = {args.password}" if args.password else ""
    configuration = folder / "ngircd.conf"
    configuration.write_text(CONFIGURATION.format(port=port, folder=folder, password=password))
    log = folder / "ngircd.log"
    process = server.start([program, "--nodaemon", "--config", configuration], log)
    server.wait_for_port(port, process, log)
    server.serve({"host": "127.0.0.1", "port": port}, process)


if __name__ == "__main__":
    main()
