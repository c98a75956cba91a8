#!/usr/bin/env bash
# Makes the Secrets of this installation that do not exist: keys of the services, and passwords of
# the bundled backends. KEYS_SECRET or BACKENDS_SECRET is empty where the operator has made it.
set -euo pipefail
. "$(dirname "$0")/kubernetes.sh"

key() { head -c 32 /dev/urandom | base64 --wrap=0; }
password() { head -c 24 /dev/urandom | od -A n -t x1 | tr -d ' \n'; }

if [ -n "${KEYS_SECRET:-}" ]; then
    gateway=$(key) runner=$(key) bridge=$(key) node=$(key)
    node_public=$(HOLDFAST_MESH__NODE_KEY=$node holdfast secrets node-key)
    create_secret "$KEYS_SECRET" "{
        \"kek\": \"$(key)\",
        \"pepper\": \"$(key)\",
        \"mesh-gateway\": \"$gateway\",
        \"mesh-agent-runner\": \"$runner\",
        \"mesh-channel-bridge\": \"$bridge\",
        \"callers-gateway\": \"channel-bridge=$bridge\",
        \"callers-memory-service\": \"gateway=$gateway,agent-runner=$runner\",
        \"node-key\": \"$node\",
        \"node-public-key\": \"$node_public\"}"
fi

if [ -n "${BACKENDS_SECRET:-}" ]; then
    admin=$(password) nats=$(password) redis=$(password)
    data="\"postgres-password\": \"$admin\",
        \"database-admin-url\": \"postgres://postgres:$admin@$POSTGRES_HOST:5432/holdfast\","
    logins=""
    for name in setup gateway runner scheduler memory bridge; do
        login=holdfast_$name
        [ "$name" = setup ] && login=holdfast
        secret=$(password)
        data="$data \"database-$name-url\": \"postgres://$login:$secret@$POSTGRES_HOST:5432/holdfast\","
        logins="${logins}create role $login login password '$secret'; "
    done
    create_secret "$BACKENDS_SECRET" "{ $data
        \"logins.sql\": \"$logins\",
        \"nats-url\": \"nats://holdfast:$nats@$NATS_HOST:4222\",
        \"nats-login.conf\": \"authorization { user: holdfast, password: \\\"$nats\\\" }\",
        \"redis-url\": \"redis://:$redis@$REDIS_HOST:6379\",
        \"redis-login.conf\": \"requirepass $redis\"}"
fi
