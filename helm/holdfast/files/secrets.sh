#!/usr/bin/env bash
# Makes the Secrets of this installation that do not exist: keys of the services, passwords of the
# bundled backends, and an authority with certificates of the services. KEYS_SECRET and
# SECRETS_KEYS_SECRET, BACKENDS_SECRET, BUS_SECRET or CERTIFICATES_SECRET is empty where the operator
# makes them.
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

# Of the secrets service, for installations that have the other keys, too.
if [ -n "${SECRETS_KEYS_SECRET:-}" ]; then
    gateway=$(key) runner=$(key) bridge=$(key)
    create_secret "$SECRETS_KEYS_SECRET" "{
        \"secrets-gateway\": \"$gateway\",
        \"secrets-agent-runner\": \"$runner\",
        \"secrets-channel-bridge\": \"$bridge\",
        \"callers-secrets-service\": \"gateway=$gateway,agent-runner=$runner,channel-bridge=$bridge\"}"
fi

if [ -n "${BACKENDS_SECRET:-}" ]; then
    admin=$(password)
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
        \"logins.sql\": \"$logins\"}"
fi

if [ -n "${BUS_SECRET:-}" ]; then
    nats=$(password) redis=$(password) passwords=""
    data="\"nats-url\": \"nats://holdfast:$nats@$NATS_HOST:4222\",
        \"redis-url\": \"redis://:$redis@$REDIS_HOST:6379\","
    for name in gateway runner scheduler bridge; do
        secret=$(password)
        passwords="${passwords}HOLDFAST_BUS_${name^^}_PASSWORD=\\\"$secret\\\"\\n"
        data="$data \"nats-$name-url\": \"nats://holdfast_$name:$secret@$NATS_HOST:4222\",
            \"redis-$name-url\": \"redis://holdfast_$name:$secret@$REDIS_HOST:6379\","
    done
    # Lines NAME="password": variables in the configuration of NATS, and of the shell in redis.sh.
    create_secret "$BUS_SECRET" "{ $data
        \"nats-passwords.conf\": \"${passwords}HOLDFAST_NATS_PASSWORD=\\\"$nats\\\"\\n\",
        \"redis-passwords.conf\": \"${passwords}HOLDFAST_REDIS_PASSWORD=\\\"$redis\\\"\\n\"}"
fi

# certificate NAME EXTENSIONS SIGNER…: makes NAME.key and NAME.crt in /tmp, for ten years.
certificate() {
    local name=$1 extensions=$2
    shift 2
    openssl ecparam -name prime256v1 -genkey -noout -out "/tmp/$name.key"
    openssl req -new -key "/tmp/$name.key" -subj "/CN=$name" -out "/tmp/$name.csr"
    openssl x509 -req -in "/tmp/$name.csr" -days 3650 -out "/tmp/$name.crt" "$@" \
        -extfile <(printf '%s\n' "$extensions") 2>/dev/null
}

# entry NAME: key and certificate as members of a JSON object.
entry() {
    printf '"%s.crt": "%s", "%s.key": "%s"' "$1" "$(one_line "/tmp/$1.crt")" "$1" "$(one_line "/tmp/$1.key")"
}
one_line() { sed -z 's/\n/\\n/g' "$1"; }

if [ -n "${CERTIFICATES_SECRET:-}" ]; then
    umask 077
    certificate authority 'basicConstraints=critical,CA:TRUE
keyUsage=critical,keyCertSign,cRLSign
subjectKeyIdentifier=hash' -signkey /tmp/authority.key
    # Its key is not kept: whoever has it can pass for any service.
    data="\"authority.crt\": \"$(one_line /tmp/authority.crt)\""
    # Each is NAME=DNS-NAME,…
    for one in $CERTIFICATES; do
        name=${one%%=*}
        certificate "$name" "subjectAltName=DNS:$(printf '%s' "${one#*=}" | sed 's/,/,DNS:/g')
extendedKeyUsage=serverAuth,clientAuth
keyUsage=critical,digitalSignature" -CA /tmp/authority.crt -CAkey /tmp/authority.key -CAcreateserial
        data="$data, $(entry "$name")"
    done
    # In one Secret, so that all are of the same authority whenever the job ends.
    create_secret "$CERTIFICATES_SECRET" "{$data}"
fi
