#!/usr/bin/env bash
# Takes one guarantee away at a time, in a copy of the sources, and demands that the tests see it.
#
#   tests/mutants/run.sh [mutant …]     all of them without arguments
#
# Of the session protocol's either its own tests or a scenario of the whole mesh must fail; of the
# others (agent.py, memory.py, hardening.py, vendors.py, trusted.py) each test that is named there.
# Takes some minutes for each: what depends on the changed file is compiled anew.
#
# A run that was stopped goes on: results are kept in $MUTANTS_TABLE, and what is there is not run
# again. Delete the file to begin anew.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
export CARGO_TARGET_DIR=${MUTANTS_TARGET_DIR:-$root/target/mutants}
table=${MUTANTS_TABLE:-$CARGO_TARGET_DIR/mutants.txt}
# Faster to compile and link; only a backtrace would need it.
export CARGO_PROFILE_DEV_DEBUG=0
# What a mutant leaves without a use is no error.
unset RUSTC_WORKSPACE_WRAPPER
# Always the same place: what was compiled for another one looks for its files there.
work=$CARGO_TARGET_DIR/work
copy=$work/source

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
    mkdir -p "$copy/.holdfast/test"
    python3 "$root/tests/mutants/mutate.py" --sync "$root" "$copy"
    ln -sfn "$root/.holdfast/test/pkg" "$copy/.holdfast/test/pkg"
}

# Writes a result to the table, whose file is read again by a run that goes on.
record() {
    printf '%-22s %-8s %s\n' "$1" "$2" "$3" | tee -a "$table"
}

# The result that the table has for a mutant and a test.
known() {
    awk -v mutant="$1" -v test="$2" '
        $1 == mutant { kept = $2; $1 = ""; $2 = ""; sub(/^ +/, ""); if ($0 == test) print kept }
    ' "$table" | tail -n 1
}

# Says `seen` if the tests fail, `missed` if they pass, `broken` if the mutant does not compile: that
# proves nothing.
judge() {
    local log=$1
    shift
    if ! (cd "$copy" && cargo test --quiet "$@" --no-run) >"$log" 2>&1; then
        echo "does not compile: $log" >&2
        echo broken
    elif (cd "$copy" && cargo test --quiet "$@") >"$log" 2>&1; then echo missed; else echo seen; fi
}

# As it was, and newer than the mutant.
restore() {
    python3 "$root/tests/mutants/mutate.py" --files "$1" | while read -r file; do
        cp "$root/$file" "$copy/$file"
    done
}

# A mutant that names its tests: each of them must fail.
named() {
    local mutant=$1 tests=$2 package target test where result is_applied=0
    while read -r package target test; do
        result=$(known "$mutant" "$package::$target $test")
        if [ -z "$result" ]; then
            if [ $is_applied = 0 ]; then
                python3 "$root/tests/mutants/mutate.py" "$mutant" "$copy"
                is_applied=1
            fi
            case $target in lib) where=(--lib) ;; bin) where=(--bins) ;; *) where=(--test "$target") ;; esac
            result=$(judge "$work/$mutant.log" -p "$package" "${where[@]}" "$test" </dev/null)
            record "$mutant" "$result" "$package::$target $test"
        fi
        if [ "$result" != seen ]; then missed=1; fi
    done <<<"$tests"
    if [ $is_applied = 1 ]; then restore "$mutant"; fi
}

# A mutant of the session protocol: its own tests or the scenario must fail.
protocol() {
    local mutant=$1 name own mesh log why
    name=$(scenario "$mutant")
    own=$(known "$mutant" "the session protocol's own tests")
    mesh=$(awk -v mutant="$mutant" -v name="$name:" '$1 == mutant && $3 == name { print $2 }' "$table" | tail -n 1)
    if [ -z "$own" ] || [ -z "$mesh" ]; then
        python3 "$root/tests/mutants/mutate.py" "$mutant" "$copy"
        # Older than the mutated sources, or the harness would take it for up to date.
        (cd "$copy" && cargo build --quiet -p holdfast)
        own=$(judge "$work/$mutant-session.log" -p holdfast-session --test it)
        log=$work/$mutant-chaos.log
        mesh=$(judge "$log" -p holdfast-tests --test chaos "$name")
        why=$(grep -m1 -E '^I[0-9]+ ' "$log" || grep -m1 -E '^Error:' "$log" || true)
        restore "$mutant"
        record "$mutant" "$own" "the session protocol's own tests"
        record "$mutant" "$mesh" "$name: ${why:0:110}"
    fi
    # One of the two is enough to keep the guarantee; none is a hole.
    if [ "$own" != seen ] && [ "$mesh" != seen ]; then missed=1; fi
}

eval "$(backends)"
prepare
touch "$table"
mutants=("$@")
if [ ${#mutants[@]} = 0 ]; then
    mapfile -t mutants < <(python3 "$root/tests/mutants/mutate.py" --list)
fi

missed=0
for mutant in "${mutants[@]}"; do
    tests=$(python3 "$root/tests/mutants/mutate.py" --tests "$mutant")
    if [ -n "$tests" ]; then named "$mutant" "$tests"; else protocol "$mutant"; fi
done

printf '\n%s: %s of %s results are `seen`\n' "$table" \
    "$(awk '$2 == "seen"' "$table" | wc -l)" "$(wc -l <"$table")"
exit $missed
