"""Starts a mail server: Postfix for SMTP, Dovecot for IMAP, with users.

    python3 tests/servers/mail.py --dir DIR [--users anna,bob,agent]

Prints {"domain", "smtp": {"port", "submission_port"}, "imap": {"port", "tls_port"}, "certificate": path,
"users": {name: {"address", "password"}}}. The SMTP port takes mail for the users from anybody on
loopback. The submission port wants STARTTLS and a sign-in, as the IMAP port does; `certificate` is that of the
authority, and the servers' is for `localhost` and 127.0.0.1. Both programs must be started by root.
"""

import argparse
import os
import pwd
import secrets
import subprocess
import sys
from pathlib import Path

import server

DOMAIN = "example.test"

DOVECOT = """base_dir = {folder}/run
state_dir = {folder}/state
log_path = {folder}/dovecot.log
protocols = imap lmtp
listen = 127.0.0.1
ssl = yes
ssl_cert = <{folder}/certificate.pem
ssl_key = <{folder}/key.pem
disable_plaintext_auth = yes
auth_mechanisms = plain login
default_internal_user = {user}
default_internal_group = {group}
default_login_user = nobody
first_valid_uid = 1
mail_location = maildir:{folder}/mail/%n
auth_username_format = %Ln
namespace inbox {{
  inbox = yes
  mailbox Sent {{
    auto = subscribe
    special_use = \\Sent
  }}
}}
passdb {{
  driver = passwd-file
  args = scheme=PLAIN username_format=%n {folder}/users
}}
userdb {{
  driver = static
  args = uid={user} gid={group} home={folder}/mail/%n
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {imap}
  }}
  inet_listener imaps {{
    port = {imaps}
    ssl = yes
  }}
}}
service lmtp {{
  inet_listener lmtp {{
    address = 127.0.0.1
    port = {lmtp}
  }}
}}
service auth {{
  inet_listener {{
    address = 127.0.0.1
    port = {auth}
  }}
}}
service anvil {{
  chroot =
}}
"""

POSTFIX = """compatibility_level = 3.6
queue_directory = {folder}/queue
data_directory = {folder}/data
maillog_file = {folder}/postfix.log
maillog_file_prefixes = {folder}
mail_owner = postfix
myhostname = mail.{domain}
mydestination =
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
mynetworks = 127.0.0.0/8
virtual_mailbox_domains = {domain}
virtual_transport = lmtp:inet:127.0.0.1:{lmtp}
smtpd_relay_restrictions = permit_mynetworks, reject
smtpd_tls_cert_file = {folder}/certificate.pem
smtpd_tls_key_file = {folder}/key.pem
smtpd_tls_security_level = may
smtpd_sasl_type = dovecot
smtpd_sasl_path = inet:127.0.0.1:{auth}
smtpd_sasl_auth_enable = no
smtpd_client_connection_count_limit = 0
smtpd_client_connection_rate_limit = 0
default_transport = error:outside of the test
alias_maps =
alias_database =
biff = no
"""

# service type, private, unprivileged, chroot, wakeup, maxproc, command
MASTER = """127.0.0.1:{smtp} inet n - n - - smtpd
127.0.0.1:{submission} inet n - n - - smtpd
  -o smtpd_tls_security_level=encrypt
  -o smtpd_sasl_auth_enable=yes
  -o smtpd_relay_restrictions=permit_sasl_authenticated,reject
  -o smtpd_recipient_restrictions=permit_sasl_authenticated,reject
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
tlsmgr unix - - n 1000? 1 tlsmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
verify unix - - n - 1 verify
flush unix n - n 1000? 0 flush
proxymap unix - - n - - proxymap
proxywrite unix - - n - 1 proxymap
smtp unix - - n - - smtp
relay unix - - n - - smtp
error unix - - n - - error
retry unix - - n - - error
lmtp unix - - n - - lmtp
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
postlog unix-dgram n - n - 1 postlogd
"""


def write_certificates(openssl, folder):
    """Writes the certificate of an authority, and one of the servers that it issued."""
    def call(*words):
        subprocess.run([openssl, *words], check=True, stderr=subprocess.DEVNULL)

    key = ["-newkey", "rsa:2048", "-nodes"]
    authority, request, extensions = folder / "authority.pem", folder / "request.pem", folder / "extensions"
    call("req", "-x509", *key, "-days", "30", "-subj", "/CN=Authority of a test",
         "-keyout", folder / "authority-key.pem", "-out", authority)
    call("req", *key, "-subj", "/CN=localhost", "-keyout", folder / "key.pem", "-out", request)
    extensions.write_text("basicConstraints=CA:FALSE\nsubjectAltName=DNS:localhost,IP:127.0.0.1\n")
    call("x509", "-req", "-in", request, "-days", "30", "-CA", authority, "-CAkey", folder / "authority-key.pem",
         "-CAcreateserial", "-extfile", extensions, "-out", folder / "certificate.pem")
    return authority


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", required=True, type=Path, help="folder of the server, made if absent")
    parser.add_argument("--users", default="anna,bob,agent", help="names of users, separated by commas")
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("error: Postfix and Dovecot must be started by root")
    dovecot, postfix, openssl = server.find_programs(
        "dovecot", "postfix", "openssl", packages="dovecot-imapd dovecot-lmtpd postfix openssl"
    )
    if not Path("/usr/lib/dovecot/lmtp").exists():
        sys.exit("error: Dovecot has no LMTP: install it (Debian: `apt-get install dovecot-lmtpd`)")
    folder = args.dir.resolve()
    mail, configuration = folder / "mail", folder / "postfix"
    for path in (mail, configuration, folder / "queue", folder / "data"):
        path.mkdir(parents=True, exist_ok=True)
    # Both programs give up root's rights, so each folder above must be open to them.
    owner = pwd.getpwnam("postfix")
    os.chown(folder / "data", owner.pw_uid, 0)
    keeper = pwd.getpwnam("mail")
    os.chown(mail, keeper.pw_uid, keeper.pw_gid)
    authority = write_certificates(openssl, folder)
    users = {name: secrets.token_urlsafe(12) for name in filter(None, args.users.split(","))}
    (folder / "users").write_text("".join(f"{name}:{{PLAIN}}{password}\n" for name, password in users.items()))
    names = ("imap", "imaps", "lmtp", "auth", "smtp", "submission")
    values = {name: server.free_port() for name in names} | {"folder": folder, "domain": DOMAIN, "user": "mail", "group": "mail"}
    (folder / "dovecot.conf").write_text(DOVECOT.format(**values))
    (configuration / "main.cf").write_text(POSTFIX.format(**values))
    (configuration / "master.cf").write_text(MASTER.format(**values))
    log = folder / "server.log"
    imap = server.start([dovecot, "-F", "-c", folder / "dovecot.conf"], log)
    smtp = server.start([postfix, "-c", configuration, "start-fg"], log)
    try:
        server.wait_for_port(values["imap"], imap, log)
        server.wait_for_port(values["smtp"], smtp, log)
        server.serve(
            {
                "domain": DOMAIN,
                "smtp": {"port": values["smtp"], "submission_port": values["submission"]},
                "imap": {"port": values["imap"], "tls_port": values["imaps"]},
                "certificate": str(authority),
                "users": {name: {"address": f"{name}@{DOMAIN}", "password": password} for name, password in users.items()},
            },
            imap,
            smtp,
        )
    finally:
        # Its master is in a session of its own, and does not end with the command that started it.
        subprocess.run([str(postfix), "-c", str(configuration), "stop"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        server.stop(imap, smtp)


if __name__ == "__main__":
    main()
