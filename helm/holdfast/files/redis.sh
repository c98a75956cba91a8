#!/bin/sh
# Starts Valkey with the users of redis-users.conf. Their passwords are variables, which the file
# HOLDFAST_PASSWORDS_FILE sets where there is one. Arguments are passed on.
set -eu
[ -z "${HOLDFAST_PASSWORDS_FILE:-}" ] || . "$HOLDFAST_PASSWORDS_FILE"
users=$(grep '^user ' "$(dirname "$0")/redis-users.conf")
# By stdin, since others could read arguments.
eval "exec valkey-server \"\$@\" - <<END
$users
END"
