#!/usr/bin/env bash
# Takes one guarantee away at a time, in a copy of the sources, and demands that the tests see it.
#
#   tests/mutants/run.sh [mutant …]     all of them without arguments
#
# Of the session protocol's either its own tests or a scenario of the whole mesh must fail; of the
# agent's (agent.py) and the memory's (memory.py) each test that is named there.
# Takes some minutes for each: what depends on the session protocol is compiled anew.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
export CARGO_TARGET_DIR=${MUTANTS_TARGET_DIR:-$root/target/mutants}
# Always the same place: what was compiled for another one looks for its files there.
work=$CARGO_TARGET_DIR/work
copy=$work/source
trap 'rm -rf "$work"' EXIT

# Which tests must see which mutant: those of the protocol, and one scenario of the whole mesh.
scenario() {
    case $1 in
        fence) echo a_runner_that_wakes_up_after_its_lease_writes_nothing ;;
        row-lock) echo whatever_dies_no_message_is_lost_and_none_is_doubled ;;
        idempotency-key) echo an_acceptance_whose_answer_is_lost_is_one_message ;;
        sending-state) echo a_bridge_that_dies_in_a_send_repeats_it_only_under_a_key ;;
        *) echo "there is no mutant \`$1\`; there are: $(python3 "$root/tests/mutants/mutate.py" --list | tr '\n' ' ')" >&2; exit 2 ;;
    esac
}

# The copy has no backends of its own: it uses those of the sources, and their packages.
backends() {
    python3 "$root/deploy/dev/backends.py" up --fast --json --dir "$root/.holdfast/test" |
        python3 -c '
import json, sys
state = json.load(sys.stdin)
for name, url in [
    ("DATABASE__ADMIN_URL", state["postgres"]["admin_url"]),
    ("DATABASE__URL", state["postgres"]["url"]),
    ("NATS__URL", state["nats"]["url"]),
    ("REDIS__URL", state["redis"]["url"]),
]:
    print(f"export HOLDFAST_{name}={url}")
'
}

prepare() {
    rm -rf "$work"
    mkdir -p "$copy"
    # Newer than what was compiled before, which may have been a mutant.
    tar -C "$root" --exclude=./target --exclude=./.git --exclude=./.holdfast -cf - . | tar -C "$copy" -xmf -
    mkdir -p "$copy/.holdfast/test"
    ln -s "$root/.holdfast/test/pkg" "$copy/.holdfast/test/pkg"
}

# Says `seen` if the tests fail, `missed` if they pass; what does not compile proves nothing.
judge() {
    local log=$1
    shift
    if ! (cd "$copy" && cargo test --quiet "$@" --no-run) >"$log" 2>&1; then
        echo "does not compile:" >&2
        tail -n 30 "$log" >&2
        exit 1
    fi
    if (cd "$copy" && cargo test --quiet "$@") >"$log" 2>&1; then echo missed; else echo seen; fi
}

eval "$(backends)"
prepare
mutants=("$@")
if [ ${#mutants[@]} = 0 ]; then
    mapfile -t mutants < <(python3 "$root/tests/mutants/mutate.py" --list)
fi

# As it was, and newer than the mutant.
restore() {
    python3 "$root/tests/mutants/mutate.py" --files "$1" | while read -r file; do
        cp "$root/$file" "$copy/$file"
    done
}

missed=0
table=""
for mutant in "${mutants[@]}"; do
    tests=$(python3 "$root/tests/mutants/mutate.py" --tests "$mutant")
    if [ -n "$tests" ]; then
        python3 "$root/tests/mutants/mutate.py" "$mutant" "$copy"
        while read -r package target test; do
            case $target in lib) where=(--lib) ;; *) where=(--test "$target") ;; esac
            result=$(judge "$work/$mutant.log" -p "$package" "${where[@]}" "$test" </dev/null)
            table+=$(printf '%-22s %-8s %s' "$mutant" "$result" "$package::$target $test")$'\n'
            if [ "$result" = missed ]; then missed=1; fi
        done <<<"$tests"
        restore "$mutant"
        continue
    fi
    name=$(scenario "$mutant")
    python3 "$root/tests/mutants/mutate.py" "$mutant" "$copy"
    # Older than the mutated sources, or the harness would take it for up to date.
    (cd "$copy" && cargo build --quiet -p holdfast)
    protocol=$(judge "$work/$mutant-session.log" -p holdfast-session --test it)
    mesh=$(judge "$work/$mutant-chaos.log" -p holdfast-tests --test chaos "$name")
    log=$work/$mutant-chaos.log
    why=$(grep -m1 -E '^I[0-9]+ ' "$log" || grep -m1 -E '^Error:' "$log" || true)
    restore "$mutant"
    table+=$(printf '%-22s %-8s %s' "$mutant" "$protocol" "the session protocol's own tests")$'\n'
    table+=$(printf '%-22s %-8s %s' "$mutant" "$mesh" "$name: ${why:0:110}")$'\n'
    # One of the two is enough to keep the guarantee; none is a hole.
    if [ "$protocol" = missed ] && [ "$mesh" = missed ]; then missed=1; fi
done

printf '%-22s %-8s %s\n%s' mutant result tests "$table"
exit $missed
