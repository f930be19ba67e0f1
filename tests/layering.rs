//! The house rules that a compiler does not keep: layers, sizes, a core without I/O, a repository without machines.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The layer of each module of the crate; a module imports strictly lower ones (the
/// data of the lowest layer may name each other).
const LAYERS: &[(&str, u8)] = &[
    ("time", 0),
    ("ids", 0),
    ("event", 0),
    ("wire", 1),
    ("engine", 2),
    ("ingress", 3),
    ("egress", 3),
    ("store", 3),
    ("clock", 3),
    ("telemetry", 3),
    ("agent", 4),
    ("cli", 4),
    ("config", 4),
    ("record", 4),
    ("replay", 4),
    ("main", 4),
    ("lib", 4),
];

/// Small pieces that shells share: the lowest part of their layer.
const SHARED_BY_SHELLS: &[&str] = &["mqtt", "phase"];

const SHELLS: u8 = 3;
const ON_TOP: u8 = 4;

/// What the core must not name.
const INPUT_OUTPUT: &[&str] = &[
    "std::fs",
    "std::net",
    "std::io",
    "std::env",
    "std::thread",
    "std::process",
    "std::time::Instant",
    "std::time::SystemTime",
    "tokio",
    "rumqttc",
    "sled::",
    "tracing",
    "clap",
    "libc::",
    "fastrand",
];

/// Longest file before its tests, in lines.
const LONGEST: usize = 450;

struct Source {
    path: PathBuf,
    /// Its first part below `src`: the module it belongs to.
    module: String,
    /// Without its tests.
    code: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    collect(&root().join("src"), &mut found);
    assert!(found.len() > 40, "only {} files were found", found.len());
    found
}

fn collect(folder: &Path, found: &mut Vec<Source>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("\n#[cfg(test)]\n").next().unwrap_or_default();
            let code = if path.ends_with("tests.rs") { String::new() } else { code.to_owned() };
            let below = path.strip_prefix(root().join("src")).unwrap();
            let module = below.components().next().unwrap().as_os_str().to_string_lossy();
            let module = module.trim_end_matches(".rs").to_owned();
            found.push(Source { path: below.to_owned(), module, code });
        }
    }
}

fn layer(module: &str) -> Option<u8> {
    LAYERS.iter().find(|(name, _)| *name == module).map(|(_, layer)| *layer)
}

/// Whether a module may name another.
fn may_import(from: &str, to: &str) -> bool {
    let shared = |module| SHARED_BY_SHELLS.contains(&module);
    match (layer(from), layer(to)) {
        _ if from == to => true,
        (Some(ON_TOP), _) => true,
        (Some(from), Some(to)) => to < from || (from == 0 && to == 0),
        (Some(from), None) => shared(to) && from == SHELLS,
        (None, Some(to)) => shared(from) && to < SHELLS,
        (None, None) => false,
    }
}

/// Code without what it says in comments.
fn code_lines(code: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..)
        .zip(code.lines())
        .map(|(number, line)| (number, line.split("//").next().unwrap_or_default()))
}

fn imports(line: &str) -> impl Iterator<Item = &str> {
    let after = line.match_indices("crate::").map(|(at, found)| &line[at + found.len()..]);
    after.map(|rest| {
        rest.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next().unwrap_or("")
    })
}

#[test]
fn a_module_imports_strictly_lower_layers() {
    let mut seen = 0;
    for source in sources() {
        let known =
            layer(&source.module).is_some() || SHARED_BY_SHELLS.contains(&source.module.as_str());
        assert!(known, "{} has no layer; give it one", source.path.display());
        for (number, line) in code_lines(&source.code) {
            for to in imports(line).filter(|to| !to.is_empty()) {
                let place = format!("src/{}:{number}", source.path.display());
                assert!(
                    may_import(&source.module, to),
                    "{place}: {} must not know {to}",
                    source.module
                );
                seen += 1;
            }
        }
    }
    assert!(seen > 100, "only {seen} imports were found");
}

#[test]
fn the_core_names_no_input_or_output() {
    for source in sources() {
        if layer(&source.module).is_none_or(|layer| layer >= SHELLS) {
            continue;
        }
        for (number, line) in code_lines(&source.code) {
            let named = INPUT_OUTPUT.iter().find(|name| line.contains(*name));
            assert_eq!(named, None, "src/{}:{number}: {line}", source.path.display());
        }
    }
}

#[test]
fn nothing_is_unwrapped_outside_tests() {
    for source in sources() {
        for (number, line) in code_lines(&source.code) {
            let bare = line.contains(".unwrap()");
            assert!(!bare, "src/{}:{number}: say why it holds with expect", source.path.display());
        }
    }
}

#[test]
fn a_file_holds_one_idea() {
    for source in sources() {
        let lines = source.code.lines().count();
        assert!(lines <= LONGEST, "src/{}: {lines} lines before its tests", source.path.display());
    }
}

#[test]
fn no_path_of_one_machine_is_in_the_repository() {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output();
    let listed = listed.expect("git lists the files").stdout;
    let folders = ["work", "root", "home", "farm"].map(|folder| format!("/{folder}/"));
    for name in String::from_utf8(listed).unwrap().split('\0').filter(|name| !name.is_empty()) {
        let Ok(text) = fs::read_to_string(root().join(name)) else { continue };
        for (number, line) in (1..).zip(text.lines()) {
            let found = folders.iter().find(|folder| line.contains(*folder));
            assert_eq!(found, None, "{name}:{number}: {line}");
        }
    }
}

#[test]
fn the_rules_have_teeth() {
    assert!(!may_import("wire", "engine"));
    assert!(!may_import("ingress", "egress"));
    assert!(!may_import("engine", "mqtt"));
    assert!(!may_import("mqtt", "store"));
    assert!(may_import("ingress", "mqtt"));
    assert!(may_import("cli", "agent"));
    assert_eq!(
        imports("use crate::time::{A}; crate::store::x()").collect::<Vec<_>>(),
        ["time", "store"]
    );
}
