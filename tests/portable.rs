//! What would break the binary on another board (pain 39): an allocator or a C library of its own, and pages that are
//! taken to be 4 KiB long.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Allocators and libraries that fix the size of a page, or that want a C compiler for the target.
const UNWANTED: [&str; 10] = [
    "jemalloc",
    "mimalloc",
    "tcmalloc",
    "snmalloc",
    "rpmalloc",
    "aws-lc",
    "openssl-sys",
    "native-tls",
    "memmap",
    "page_size",
];

/// Crates with this ending that bring no C library to Linux: declarations, or for other systems.
const HARMLESS: [&str; 6] = [
    "core-foundation-sys",
    "js-sys",
    "linux-raw-sys",
    "security-framework-sys",
    "web-sys",
    "windows-sys",
];

/// What of our own code would have to know how long a page is.
const BY_PAGES: [&str; 6] =
    ["global_allocator", "mmap(", "PAGE_SIZE", "_SC_PAGESIZE", "O_DIRECT", "madvise"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The names of all crates that may come into the program, on whatever system; those of the tests do not.
fn crates() -> Vec<String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root()).args(["tree", "--locked", "--offline", "--target=all"]);
    let output = cargo.args(["--edges=normal,build", "--prefix=none"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let tree = String::from_utf8(output.stdout).unwrap();
    let names: Vec<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.len() > 100 && names.contains(&"sled"), "{names:?}");
    names.into_iter().map(str::to_owned).collect()
}

#[test]
fn pain_39_no_crate_brings_an_allocator_or_a_c_library_of_its_own() {
    let unwanted = |name: &String| {
        UNWANTED.iter().any(|word| name.contains(word))
            || (name.ends_with("-sys") && !HARMLESS.contains(&name.as_str()))
    };
    let found: Vec<_> = crates().into_iter().filter(unwanted).collect();
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn pain_39_our_own_code_knows_no_page_size() {
    let (mut folders, mut files) = (vec![root().join("src")], Vec::<PathBuf>::new());
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    assert!(files.len() > 40, "only {} files were found", files.len());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let found = BY_PAGES.iter().find(|word| text.contains(**word));
        assert_eq!(found, None, "{}", file.display());
    }
}

/// Where a part of the binary comes to lie: its alignment, its address, its place in the file.
#[derive(Debug)]
struct Segment {
    align: u64,
    address: u64,
    offset: u64,
}

const ARM: u64 = 40;
const AARCH64: u64 = 183;
const LOAD: u64 = 1;

/// The machine, and what is loaded of a little-endian ELF file.
fn loaded(bytes: &[u8]) -> (u64, Vec<Segment>) {
    assert_eq!((&bytes[..4], bytes[5]), (&b"\x7fELF"[..], 1), "a little-endian ELF file");
    let wide = bytes[4] == 2;
    let number = |at: usize, length: usize| {
        bytes[at..at + length].iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
    };
    let [table, size, count] = if wide { [32, 54, 56] } else { [28, 42, 44] };
    let word = if wide { 8 } else { 4 };
    let [offset, address, align] = if wide { [8, 16, 48] } else { [4, 8, 28] };
    let place = |index: u64| (number(table, word) + index * number(size, 2)) as usize;
    let segments = (0..number(count, 2)).map(place).filter(|&at| number(at, 4) == LOAD);
    let segment = |at: usize| Segment {
        align: number(at + align, word),
        address: number(at + address, word),
        offset: number(at + offset, word),
    };
    (number(18, 2), segments.map(segment).collect())
}

/// Pages are up to 64 KiB long on ARM64, whose kernel may run 32-bit programs, too; a Raspberry Pi 5 has them with 16 KiB.
#[test]
fn pain_39_the_segments_of_the_binary_go_with_every_page_size() {
    let (machine, segments) = loaded(&fs::read(env!("CARGO_BIN_EXE_tidegate")).unwrap());
    let longest = if matches!(machine, ARM | AARCH64) { 64 << 10 } else { 4 << 10 };
    assert!(segments.len() > 1, "code and data: {segments:?}");
    for segment in segments {
        assert!(segment.align >= longest, "{segment:x?}");
        assert_eq!(segment.address % segment.align, segment.offset % segment.align, "{segment:x?}");
    }
}
