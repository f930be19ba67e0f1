#!/usr/bin/env bash
# Builds for ARM gateways without a container engine, and tests under emulation what came out.
#
#   tests/arm.sh arm64 armhf              with few optimisations: a few minutes each
#   tests/arm.sh --release arm64 armhf    also what is shipped, target/TRIPLE/release/tidegate, and how large it is
#
# For each processor: the unit tests and the golden cases run on it; replays give the same bytes as on this host; the
# agent passes end-to-end tests between two real mosquittos. `PROPTEST_CASES` is 16 where it is not set.
#
# Needs a C cross compiler, qemu-user-static, mosquitto, and Rust's standard library for the target. What is missing is
# installed where that is possible: from Debian as root, the library by rustup too. Ends with 77, and says what is missing,
# where it cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."

# What a gateway may spend on it, in bytes.
largest=$((6 * 1024 * 1024))

release=0 arches=()
for argument in "$@"; do
    case $argument in
    --release) release=1 ;;
    arm64 | armhf) arches+=("$argument") ;;
    *) arches=() && break ;;
    esac
done
if ((${#arches[@]} == 0)); then
    echo 'usage: tests/arm.sh [--release] arm64|armhf…' >&2
    exit 2
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export CARGO_TERM_COLOR=never

# --- What is needed -------------------------------------------------------------------------------------------------

root_on_debian() {
    [[ $(id -u) == 0 ]] && command -v apt-get dpkg >/dev/null
}

there() {
    command -v "$1" >/dev/null || [[ -x /usr/sbin/$1 ]]
}

apt_install() {
    DEBIAN_FRONTEND=noninteractive timeout 600 apt-get install -y -qq "$@" >>"$scratch/apt" 2>&1 </dev/null
}

# One try more with a fresh index.
packages() {
    root_on_debian || return
    apt_install "$@" || { timeout 300 apt-get update -qq >>"$scratch/apt" 2>&1 && apt_install "$@"; }
}

# needs COMMAND PACKAGE…
needs() {
    there "$1" || packages "${@:2}" || missing "$1 (Debian: ${*:2})"
}

missing() {
    echo "skipped: $arch: $1 is missing, and cannot be installed here"
    if [[ -s $scratch/apt ]]; then tail -n 3 "$scratch/apt"; fi
    return 77
}

# has_std RUSTC: whether that compiler has the standard library for the target.
has_std() {
    local rlibs
    command -v "$1" >/dev/null || return
    rlibs=$("$1" --print target-libdir --target "$target" 2>/dev/null) && compgen -G "$rlibs/libstd-*.rlib" >/dev/null
}

# Debian's Rust and its library for the target, both of one version: without a named one, apt takes what it finds for each.
debian_std() {
    root_on_debian || return
    local version oldest added=0
    oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    if ! dpkg --print-foreign-architectures | grep -qx "$arch"; then
        dpkg --add-architecture "$arch" && added=1
    fi
    if timeout 300 apt-get update -qq >"$scratch/apt" 2>&1; then
        version=$(apt-cache policy rustc-web | awk '/Candidate:/ { print $2 }')
        dpkg --compare-versions "$version" ge "$oldest" &&
            apt_install "rustc-web=$version" "libstd-rust-web-dev:$arch=$version" && return
    fi
    echo "note: $arch: Debian's Rust library cannot be had today: $(grep -m 1 '^E:' "$scratch/apt" | cut -c 1-160)"
    # An index that does not load would fail every later update of this host.
    if ((added)); then
        dpkg --remove-architecture "$arch" && timeout 300 apt-get update -qq >>"$scratch/apt" 2>&1
    fi
    return 1
}

# Sets `RUSTC` to a compiler for the target.
compiler() {
    export RUSTC=rustc
    has_std rustc && return
    if debian_std && has_std /usr/bin/rustc; then
        RUSTC=/usr/bin/rustc
        return
    fi
    command -v rustup >/dev/null && timeout 300 rustup target add "$target" >>"$scratch/apt" 2>&1 && has_std rustc
}

prepare() {
    needs mosquitto mosquitto || return
    if [[ $target != "$host" ]]; then
        needs "$gnu-gcc" "gcc-$gnu" "libc6-dev-$arch-cross" || return
        needs "$qemu" qemu-user-static || return
    fi
    compiler || missing "Rust's standard library for $target (Debian: libstd-rust-web-dev:$arch; rustup target add $target)" || return
    emulator=''
    if [[ $target != "$host" ]]; then
        # Debian's library for Rust brings a C library, and that is found first: only its own loader goes with it. With another
        # one each thread that is made hangs.
        emulator=$qemu
        [[ -e $loader ]] || emulator+=" -L /usr/$gnu"
    fi
}

# --- Building and running -------------------------------------------------------------------------------------------

# Sets what is named by processor.
processor() {
    arch=$1
    case $arch in
    arm64)
        target=aarch64-unknown-linux-gnu gnu=aarch64-linux-gnu
        qemu=qemu-aarch64-static loader=/lib/ld-linux-aarch64.so.1
        ;;
    armhf)
        target=armv7-unknown-linux-gnueabihf gnu=arm-linux-gnueabihf
        qemu=qemu-arm-static loader=/lib/ld-linux-armhf.so.3
        ;;
    esac
    binary=target/$target/debug/tidegate
}

# cargo for the target.
cross() {
    local name=${target^^}
    name=${name//-/_}
    if [[ -n $emulator ]]; then
        export "CARGO_TARGET_${name}_LINKER=$gnu-gcc" "CC_${target//-/_}=$gnu-gcc" "CARGO_TARGET_${name}_RUNNER=$emulator"
    fi
    timeout 1500 cargo "$@" --no-default-features --target "$target"
}

# The tests, and the binary beside them, which can be held still for kills in the end-to-end tests. Checks of overflow
# stay on: a count that fits 64 bits only is found by them.
quick() {
    CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 \
        cross test --features phases --lib --bins --test golden --test portable "$@"
}

# What is shipped.
shipped() {
    cross build --release --features shell || return
    binary=target/$target/release/tidegate
    local size
    size=$(stat -c %s $binary)
    echo "note: $arch: $binary has $size bytes"
    if ((size > largest)); then
        echo "$arch: $size bytes are more than $largest"
        return 1
    fi
}

# One program that stands for the agent on its processor. Signals reach the agent: the shell is replaced.
wrapper() {
    printf '#!/bin/sh\nexec %s %q "$@"\n' "$emulator" "$PWD/$binary" >"$scratch/tidegate"
    chmod +x "$scratch/tidegate"
}

emulated() {
    timeout 300 "$scratch/tidegate" "$@"
}

native() {
    target/debug/tidegate "$@"
}

# The tests of the host's own build, with this agent in place of theirs.
end_to_end() {
    wrapper
    local tests=(whole_run::)
    if ((!release)); then tests+=(kills::); fi
    env -u RUSTC TIDEGATE="$scratch/tidegate" timeout 900 \
        cargo test --features phases --test e2e -- --show-output --test-threads=2 "${tests[@]}"
}

# --- The same bytes -------------------------------------------------------------------------------------------------

# A golden case as an operator would configure it: tests/golden.rs compares the native answer with Flink's.
golden() {
    cat >"$scratch/golden.toml" <<'TOML'
compat = "flink"
[rollups]
regions = false
[defaults]
allowed-lateness = "10m"
[[region]]
name = "all"
lateness = "2m"
[[source]]
name = "golden"
topic = "golden"
device = "/device"
region = "const:all"
time = { from = "/ts", as = "epoch_ms" }
heartbeat = { from = "/kind", equals = "heartbeat" }
metric = [{ name = "power", from = "/power", aggregates = ["sum", "mean", "min", "max", "first", "last", "deviation"] }]
TOML
    "$1" -c "$scratch/golden.toml" replay --source golden tests/golden/05-heartbeat/input.jsonl
}

morning() {
    "$1" -c examples/morning.toml replay examples/morning.jsonl
}

# Both processors give the same bytes. The host's agent is that of the end-to-end tests.
same_bytes() {
    [[ $(emulated --version) == "$(native --version)" ]] || return
    local replay
    for replay in morning golden; do
        "$replay" native >"$scratch/native" 2>"$scratch/books" || return
        "$replay" emulated >"$scratch/emulated" 2>"$scratch/emulated-books" || return
        [[ -s $scratch/native ]] || return
        diff "$scratch/native" "$scratch/emulated" && diff "$scratch/books" "$scratch/emulated-books" || return
    done
}

# --- All of it ------------------------------------------------------------------------------------------------------

# step NAME COMMAND…
step() {
    local started=$SECONDS
    "${@:2}" || { echo "$arch: $1 failed" && return 1; }
    echo "note: $arch: $1, $((SECONDS - started)) s"
}

all() {
    prepare || return
    step 'compiled' quick --no-run || return
    step 'unit tests and golden cases' quick || return
    if ((release)); then step 'what is shipped' shipped || return; fi
    step 'end to end' end_to_end || return
    step 'the same bytes' same_bytes
}

host=$(rustc -vV | sed -n 's/^host: //p')
export PROPTEST_CASES=${PROPTEST_CASES:-16}
left=0
for arch in "${arches[@]}"; do
    processor "$arch"
    all && code=0 || code=$?
    case $code in
    0) echo "$arch: passed" ;;
    77) ((left)) || left=77 ;;
    *) left=1 ;;
    esac
done
exit "$left"
