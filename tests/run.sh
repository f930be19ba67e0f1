#!/usr/bin/env bash
# Runs every test, cheap ones first, and says in its last line what passed, failed and was skipped.
#
#   tests/run.sh           everything that fits into a coffee break
#   tests/run.sh --long    the long forms of the end-to-end tests, and the benches
#
# What the tests need and is missing is installed where that is possible (Debian, as root).
set -euo pipefail
cd "$(dirname "$0")/.."

long=0
[[ ${1:-} == --long ]] && long=1 && export TIDEGATE_LONG=1

log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
passed=0 failed=0 skipped=0
missing=()

# need PACKAGE COMMAND: installs a Debian package unless its command is there.
need() {
    command -v "$2" >/dev/null 2>&1 || [[ -x /usr/sbin/$2 ]] && return
    if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null 2>&1; then
        { apt-get install -y -qq "$1" || { apt-get update -qq && apt-get install -y -qq "$1"; }; } \
            >"$log/apt" 2>&1 </dev/null && return
    fi
    missing+=("$1")
}

# step SECONDS NAME COMMAND…: one step, with a time limit. Counts the tests that it says it ran; a step without
# tests counts as one.
step() {
    local limit=$1 name=$2 status=0 started=$SECONDS
    shift 2
    printf '%s … ' "$name"
    timeout --kill-after=10 "$limit" "$@" >"$log/step" 2>&1 </dev/null || status=$?
    local ok bad out
    ok=$(sum passed) bad=$(sum failed)
    # A test that starts itself again as a child process lists the child as ignored.
    out=$(grep -E '^test .* \.\.\. ignored' "$log/step" | grep -vc 'ignored, a child of' || true)
    ((status == 0 || bad > 0)) || bad=1
    ((ok + bad + out > 0)) || ok=1
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + out))
    printf '%s passed, %s failed, %s s\n' "$ok" "$bad" $((SECONDS - started))
    ((status == 0)) || tail -n 60 "$log/step"
}

sum() {
    { grep -oE "^test result: .*" "$log/step" || true; } |
        { grep -oE "[0-9]+ $1" || true; } | awk '{ n += $1 } END { print n + 0 }'
}

need mosquitto mosquitto
need mosquitto-clients mosquitto_pub
need faketime faketime

step 60 'format' cargo fmt --check
step 900 'lints' cargo clippy --all-targets --features phases -- -D warnings
step 600 'the core without I/O' cargo clippy --no-default-features --lib -- -D warnings
step 600 'documentation' env RUSTDOCFLAGS='-D warnings' cargo doc --no-deps --document-private-items
step 900 'unit tests' cargo test --lib --bins
step 300 'doc tests' cargo test --doc

# In the order of their cost. Those that need a broker come last.
for test in layering golden config cli store outbox model store_crash mqtt; do
    [[ -e tests/$test.rs || -e tests/$test/main.rs ]] || continue
    if [[ $test == mqtt && ${#missing[@]} -gt 0 ]]; then
        skipped=$((skipped + 1))
        continue
    fi
    step 900 "$test" cargo test --test "$test"
done
if ((${#missing[@]} == 0)); then
    step $((long ? 3600 : 1200)) 'end to end' cargo test --features phases --test e2e -- --test-threads=2
else
    skipped=$((skipped + 1))
fi
if ((long)); then
    for bench in replay live memory disk; do
        step 3600 "bench: $bench" cargo bench --bench "$bench"
        cat "$log/step"
    done
fi

for package in "${missing[@]}"; do
    echo "skipped what needs the package $package: it is missing and cannot be installed here"
done
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
