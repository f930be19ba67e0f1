#!/usr/bin/env bash
# Runs every test, cheap ones first, and says in its last line what passed, failed and was skipped.
#
#   tests/run.sh           everything that fits into a coffee break
#   tests/run.sh --long    the long forms of the tests, armhf, and the benches
#
# Some steps need what not every host has: ARM's tools (arm64, armhf), a container with a systemd of its own (nspawn), a
# file system of the test's own (fuse). The last line says of each whether it ran. Those named in REQUIRE must have:
#
#   REQUIRE=arm64,nspawn,fuse tests/run.sh
#
# What the tests need and is missing is installed where that is possible (Debian, as root).
set -euo pipefail
REQUIRE=${REQUIRE-}
cd "$(dirname "$0")/.."

long=0
case ${1:-} in
'') ;;
--long) long=1 && export TIDEGATE_LONG=1 ;;
*) echo "usage: tests/run.sh [--long]" >&2 && exit 2 ;;
esac

for name in ${REQUIRE//,/ }; do
    case $name in
    arm64 | armhf | nspawn | fuse) ;;
    *) echo "REQUIRE: $name is none of arm64, armhf, nspawn, fuse" >&2 && exit 2 ;;
    esac
done

log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
passed=0 failed=0 skipped=0
broken=() absent=() capabilities=()

# has PACKAGE COMMAND: whether the command is there, once its Debian package was installed where that is possible.
has() {
    there() { command -v "$1" || [[ -x /usr/sbin/$1 ]]; }
    there "$2" >/dev/null 2>&1 && return
    if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null 2>&1; then
        apt_install "$1" >"$log/apt" 2>&1 </dev/null && return
    fi
    absent+=("$1: missing, and it cannot be installed here")
    return 1
}

apt_install() {
    export DEBIAN_FRONTEND=noninteractive
    timeout 300 apt-get install -y -qq "$1" ||
        { timeout 300 apt-get update -qq && timeout 300 apt-get install -y -qq "$1"; }
}

# step SECONDS NAME COMMAND…: one step, with a time limit. Counts the tests that it says it ran; a step without
# tests counts as one.
step() {
    local limit=$1 name=$2 status=0 started=$SECONDS ok bad out
    shift 2
    printf '%s … ' "$name"
    timeout --kill-after=10 "$limit" "$@" >"$log/step" 2>&1 </dev/null || status=$?
    # A test that cannot do its work here says so and passes.
    ok=$(($(sum passed) - $(count '^skipped: '))) bad=$(sum failed)
    # One that starts itself again as a child process lists the child as ignored.
    out=$(($(count '^skipped: ') + $(count '^test .* \.\.\. ignored') - $(count '\.\.\. ignored, a child of')))
    # A script ends with 77 where it can do nothing here, and says why.
    if ((status == 77)) && grep -q '^skipped: ' "$log/step"; then status=0 ok=0 bad=0 out=1; fi
    ((status == 0 || bad > 0)) || bad=1
    ((ok + bad + out > 0)) || ok=1
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + out))
    printf '%s passed, %s failed, %s skipped, %s s\n' "$ok" "$bad" "$out" $((SECONDS - started))
    grep -E '^(skipped|note): ' "$log/step" || true
    if ((status != 0)); then
        broken+=("$name")
        tail -n 60 "$log/step"
        # timeout(1) leaves with 124, or 137 where it had to kill.
        if ((status == 124 || status == 137)); then echo "$name: not done after $limit s"; fi
    fi
}

# capability NAME SECONDS COMMAND…: a step that needs what not every host has.
capability() {
    local before=$failed
    step "$2" "$1" "${@:3}"
    if ((failed > before)); then
        capabilities+=("$1 failed")
    elif grep -q '^skipped: ' "$log/step"; then
        capabilities+=("$1 skipped")
    else
        capabilities+=("$1 ran")
    fi
}

# skip NAME REASON
skip() {
    skipped=$((skipped + 1))
    echo "$1 … skipped: $2"
}

sum() {
    { grep -oE '^test result: .*' "$log/step" || true; } |
        { grep -oE "[0-9]+ $1" || true; } | awk '{ n += $1 } END { print n + 0 }'
}

count() {
    grep -cE "$1" "$log/step" || true
}

# Test targets, those with a time limit of their own first; whatever is new in tests/ comes at the end.
in_order() {
    local known='layering golden wire times config cli store outbox model store_crash demo mqtt clock links check e2e' found
    found=$(basename -a -s .rs tests/*.rs && for main in tests/*/main.rs; do basename "$(dirname "$main")"; done)
    for name in $known; do grep -x "$name" <<<"$found" || true; done
    grep -vxF "$(tr ' ' '\n' <<<"$known")" <<<"$found" || true
}

step 60 'format' cargo fmt --check
step 300 'dependencies' tests/dependencies.sh
grep '^advisories: RustSec' "$log/step" || true
step 900 'lints' cargo clippy --all-targets --features phases -- -D warnings
step 900 'lints, as for a gateway' cargo clippy --all-targets --no-default-features --features shell -- -D warnings
step 600 'lints, of the core without I/O' cargo clippy --all-targets --no-default-features -- -D warnings
step 600 'documentation' env RUSTDOCFLAGS='-D warnings' cargo doc --no-deps --document-private-items
step 1500 'unit tests' cargo test --lib --bins
# The same features are tested on ARM.
if [[ ,$REQUIRE, != *,arm64,* ]]; then
    step 1500 'unit tests, as for a gateway' cargo test --lib --bins --no-default-features --features shell
fi
step 300 'doc tests' cargo test --doc

has mosquitto mosquitto || true
has faketime faketime || true
has sqlite3 sqlite3 || true
has groff-base groff || true
# Its package starts a service that sets the host's clock: it is installed only where nothing would start it.
if [[ -d /run/systemd/system ]] && ! { command -v chronyd || [[ -x /usr/sbin/chronyd ]]; } >/dev/null; then
    absent+=('chrony: missing, and installing it would change who keeps this host'"'"'s clock')
else
    has chrony chronyd || true
fi
release=()
if ((long)); then release=(--release); fi
for test in $(in_order); do
    case $test in
    store_power) continue ;; # below
    mqtt | clock | links | check | e2e)
        if [[ ${absent[*]-} == *mosquitto:* ]]; then
            skip "$test" 'no mosquitto'
            continue
        fi
        ;;
    esac
    case $test in
    e2e)
        without=()
        if [[ ${absent[*]-} == *faketime:* ]]; then
            skip 'three hours without the agent' 'no faketime'
            without=(--skip after_three_hours_away)
        fi
        step $((long ? 3600 : 1200)) 'e2e' \
            cargo test --features phases --test e2e -- --show-output --test-threads=2 "${without[@]}"
        ;;
    # Ten thousand devices are for a build that is fast.
    presence) step $((long ? 3600 : 900)) "$test" cargo test ${release[@]+"${release[@]}"} --test "$test" -- --show-output ;;
    clock) step 300 "$test" cargo test --test "$test" -- --show-output --test-threads=2 ;;
    wire)
        without=()
        if [[ ${absent[*]-} == *sqlite3:* ]]; then
            skip 'the example consumer' 'no sqlite3'
            without=(--skip consumer)
        fi
        step 900 "$test" cargo test --test "$test" -- --show-output "${without[@]}"
        ;;
    *) step 900 "$test" cargo test --test "$test" -- --show-output ;;
    esac
done
# Each compiles most of the agent again.
capability arm64 1800 tests/arm.sh arm64
# The other one of ARM where it is asked for: what differs from the first, 32 bit, changes seldom.
if ((long)) || [[ ,$REQUIRE, == *,armhf,* ]]; then capability armhf 1800 tests/arm.sh armhf; fi
capability nspawn 1800 tests/systemd.sh
capability fuse 900 cargo test --test store_power -- --show-output
if ((long)); then
    for bench in replay live memory disk; do
        step 3600 "bench: $bench" cargo bench --bench "$bench"
        cat "$log/step"
    done
fi

for name in ${REQUIRE//,/ }; do
    [[ " ${capabilities[*]} " == *" $name skipped "* ]] || continue
    broken+=("$name: skipped, and REQUIRE names it") failed=$((failed + 1))
done
if ((${#absent[@]})); then printf '%s\n' "${absent[@]}"; fi
if ((${#broken[@]})); then printf 'failed: %s\n' "${broken[@]}"; fi
echo "$passed passed, $failed failed, $skipped skipped$(printf ', %s' "${capabilities[@]}" | sed 's/^,/;/')"
((failed == 0))
