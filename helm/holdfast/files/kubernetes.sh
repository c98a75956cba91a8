# Calls to the Kubernetes API for the jobs of this chart, with the token of their own account.

account=${ACCOUNT_DIR:-/var/run/secrets/kubernetes.io/serviceaccount}
api=${KUBERNETES_API:-https://kubernetes.default.svc}

# call METHOD PATH: sends stdin, if the method is POST, and prints the status code.
call() {
    local body=()
    [ "$1" = POST ] && body=(--header 'content-type: application/json' --data-binary @-)
    curl --silent --show-error --max-time 30 --retry 5 --retry-connrefused --request "$1" \
        --cacert "$account/ca.crt" --output /tmp/answer --write-out '%{http_code}' \
        --config <(printf 'header = "authorization: Bearer %s"\n' "$(cat "$account/token")") \
        "${body[@]}" "$api/api/v1/namespaces/$(cat "$account/namespace")/secrets$2"
}

fail() {
    echo "error: $1" >&2
    exit 1
}

# secret_exists NAME
secret_exists() {
    local status
    status=$(call GET "/$1")
    case $status in
        200) return 0 ;;
        404) return 1 ;;
        *) fail "the API answers $status for the Secret $1: $(head -c 500 /tmp/answer)" ;;
    esac
}

# create_secret NAME DATA: DATA is a JSON object of texts. An existing Secret is kept as it is.
create_secret() {
    local status
    status=$(printf '{"apiVersion":"v1","kind":"Secret","metadata":{"name":"%s","labels":%s},"stringData":%s}' \
        "$1" "$SECRET_LABELS" "$2" | call POST "")
    case $status in
        201) echo "the Secret $1 is made" ;;
        409) echo "the Secret $1 exists and is kept" ;;
        *) fail "the API answers $status when the Secret $1 is made: $(head -c 500 /tmp/answer)" ;;
    esac
}
