#!/usr/bin/env bash
# Makes the Debian package; its last line is where it lies.
#
#   packaging/build.sh                       for this machine
#   packaging/build.sh --target TRIPLE       for another: aarch64-unknown-linux-gnu, armv7-unknown-linux-gnueabihf
#   … --no-build                             around a binary that was built before, in target/[TRIPLE/]release
#   … --version VERSION                      another version in the name of the package only
#   … --output FILE                          to there
#
# Needs Rust and cargo-deb (`cargo install cargo-deb`). What Cargo reads from the environment (CARGO_TARGET_DIR,
# CARGO_PROFILE_RELEASE_…) holds.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    echo "usage: packaging/build.sh [--target TRIPLE] [--no-build] [--version VERSION] [--output FILE]" >&2
    exit 64
}

arguments=()
while (($#)); do
    case $1 in
    --target) arguments+=(--target "${2:?}") && shift ;;
    --version) arguments+=(--deb-version "${2:?}") && shift ;;
    --no-build) arguments+=(--no-build) ;;
    --output) arguments+=(--output "${2:?}") && shift ;;
    *) usage ;;
    esac
    shift
done
command -v cargo-deb >/dev/null || { echo 'packaging/build.sh: cargo-deb is missing: cargo install cargo-deb' >&2 && exit 69; }

# Made by this machine for itself, whatever the package is for, and without what the package leaves out.
made=target/package
rm -rf $made
env -u CARGO_TARGET_DIR -u CARGO_BUILD_TARGET -u RUSTC \
    cargo run --quiet --no-default-features --features shell --example pages -- $made >&2
gzip -9n $made/man/*
gzip -9nc CHANGELOG.md >$made/changelog.gz
mkdir $made/debian
install -m 755 packaging/debian/* $made/debian/
IFS=' ,' read -r _ _ _ _ format _ records <$made/written-by
sed -i "s/@FORMAT@/$format/; s/@RECORDS@/$records/" $made/debian/preinst

# The profile strips already, and for another machine strip(1) would have to be that one's.
cargo deb --quiet --no-strip "${arguments[@]}"
