#!/usr/bin/env bash
# Makes the first tenant, and stores a key with every scope in the Secret ADMIN_KEY_SECRET. Once: if
# that Secret exists, nothing is done.
set -euo pipefail
. "$(dirname "$0")/kubernetes.sh"

if secret_exists "$ADMIN_KEY_SECRET"; then
    echo "the Secret $ADMIN_KEY_SECRET exists: nothing to do"
    exit 0
fi
# The migration runs at the same time, so the first attempts may fail.
attempt=1
until holdfast bootstrap --tenant "$TENANT" >/dev/null; do
    [ "$attempt" -lt 60 ] || fail "no tenant could be made: see the lines above, and the log of the migration"
    attempt=$((attempt + 1))
    sleep 5
done
create_secret "$ADMIN_KEY_SECRET" "{\"key\": \"$(tr -d '\n' <"$HOLDFAST_DIR/dev.key")\"}"
