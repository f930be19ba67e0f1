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
    ("status", 3),
    ("clock", 3),
    ("heap", 3),
    ("notify", 3),
    ("telemetry", 3),
    ("agent", 4),
    ("cli", 4),
    ("config", 4),
    ("demo", 4),
    ("record", 4),
    ("replay", 4),
    ("main", 4),
    ("lib", 4),
];

/// Small pieces that shells share: the lowest part of their layer.
const SHARED_BY_SHELLS: &[&str] = &["mqtt", "phase"];

const SHELLS: u8 = 3;
const ON_TOP: u8 = 4;

/// What the core must not name, besides the crates of the feature `shell`.
const INPUT_OUTPUT: &[&str] = &[
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "std::time",
    "print!",
    "println!",
    "dbg!",
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
            let below = path.strip_prefix(root().join("src")).unwrap().to_owned();
            let module = below.components().next().unwrap().as_os_str().to_string_lossy();
            let module = module.trim_end_matches(".rs").to_owned();
            let code = without_tests(&path, &fs::read_to_string(&path).unwrap());
            found.push(Source { path: below, module, code });
        }
    }
}

/// What comes before the tests of a file, which are a module at its end.
fn without_tests(path: &Path, text: &str) -> String {
    if path.ends_with("tests.rs") {
        return String::new();
    }
    let Some((code, tests)) = text.split_once("\n#[cfg(test)]\n") else { return text.to_owned() };
    let is_module = tests.lines().next().is_some_and(|line| line.contains("mod tests"));
    assert!(is_module, "{}: something else than tests comes last", path.display());
    code.to_owned()
}

/// Everything that is wrong, at once.
fn assert_none(rule: &str, offenders: &[String]) {
    assert!(offenders.is_empty(), "{rule}:\n  {}", offenders.join("\n  "));
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

/// The modules of the crate that a line names. `{` is a list behind `crate::`, which is not written here: it would
/// hide what it names on further lines.
fn imports(line: &str) -> impl Iterator<Item = &str> {
    let after = line.match_indices("crate::").map(|(at, found)| &line[at + found.len()..]);
    after.map(|rest| {
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        &rest[..end.unwrap_or(rest.len()).max(1)]
    })
}

/// Whether a line names `word`, and not a longer one that ends in it.
fn names(line: &str, word: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| !line[..at].ends_with(inside))
}

/// The crates that only the feature `shell` brings in.
fn shell_crates() -> Vec<String> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let quoted = manifest.split('"').filter_map(|text| text.strip_prefix("dep:"));
    let crates: Vec<_> = quoted.map(|name| format!("{}::", name.replace('-', "_"))).collect();
    assert!(crates.len() > 10, "only {crates:?} were found");
    crates
}

#[test]
fn a_module_imports_strictly_lower_layers() {
    let (mut seen, mut offenders) = (0, Vec::new());
    for source in sources() {
        let known =
            layer(&source.module).is_some() || SHARED_BY_SHELLS.contains(&source.module.as_str());
        assert!(known, "src/{} has no layer; give it one", source.path.display());
        for (number, line) in code_lines(&source.code) {
            let place = format!("src/{}:{number}", source.path.display());
            for to in imports(line) {
                if !may_import(&source.module, to) {
                    offenders.push(format!("{place}: {} names {to}", source.module));
                }
                seen += 1;
            }
            if line.contains("super::super") {
                offenders.push(format!("{place}: write the way from `crate::`"));
            }
        }
    }
    assert!(seen > 100, "only {seen} imports were found");
    assert_none("a module names another that is not below it", &offenders);
}

#[test]
fn the_core_names_no_input_or_output() {
    let crates = shell_crates();
    let banned = || INPUT_OUTPUT.iter().copied().chain(crates.iter().map(String::as_str));
    let mut offenders = Vec::new();
    for source in sources() {
        if layer(&source.module).is_none_or(|layer| layer >= SHELLS) {
            continue;
        }
        for (number, line) in code_lines(&source.code) {
            if let Some(named) = banned().find(|word| names(line, word)) {
                offenders.push(format!("src/{}:{number}: {named}", source.path.display()));
            }
        }
    }
    assert_none("the core does no input or output", &offenders);
}

#[test]
fn nothing_is_unwrapped_outside_tests() {
    let mut offenders = Vec::new();
    for source in sources() {
        for (number, line) in code_lines(&source.code) {
            if line.contains(".unwrap()") {
                offenders.push(format!("src/{}:{number}", source.path.display()));
            }
        }
    }
    assert_none("say why it holds, with `expect`", &offenders);
}

#[test]
fn a_file_holds_one_idea() {
    let mut offenders = Vec::new();
    for source in sources() {
        let lines = source.code.lines().count();
        if lines > LONGEST {
            offenders.push(format!("src/{}: {lines}", source.path.display()));
        }
    }
    assert_none("more lines before the tests than one idea takes", &offenders);
}

/// The text files of the repository with their names.
fn tracked() -> Vec<(String, String)> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output();
    let listed = String::from_utf8(listed.expect("git lists the files").stdout).unwrap();
    let names = listed.split('\0').filter(|name| !name.is_empty());
    let read = |name: &str| Some((name.to_owned(), fs::read_to_string(root().join(name)).ok()?));
    let found: Vec<_> = names.filter_map(read).collect();
    assert!(found.len() > 100, "only {} files were found", found.len());
    found
}

#[test]
fn no_path_of_one_machine_is_in_the_repository() {
    let folders = ["work", "root", "home", "Users"].map(|folder| format!("/{folder}/"));
    let mut offenders = Vec::new();
    for (name, text) in tracked() {
        for (number, line) in (1..).zip(text.lines()) {
            if folders.iter().any(|folder| line.contains(folder)) {
                offenders.push(format!("{name}:{number}: {line}"));
            }
        }
    }
    assert_none("a path that only one machine has", &offenders);
}

#[test]
fn a_link_of_the_documents_leads_somewhere() {
    let (mut seen, mut offenders) = (0, Vec::new());
    for (name, text) in tracked().into_iter().filter(|(name, _)| name.ends_with(".md")) {
        let folder = root().join(&name).parent().unwrap().to_owned();
        let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        for link in links.filter(|link| !link.is_empty() && !link.contains("://")) {
            seen += 1;
            if !folder.join(link).exists() {
                offenders.push(format!("{name}: {link}"));
            }
        }
    }
    assert!(seen > 20, "only {seen} links were found");
    assert_none("a link into nowhere", &offenders);
}

#[test]
fn the_rules_have_teeth() {
    assert!(!may_import("wire", "engine"));
    assert!(!may_import("time", "wire"));
    assert!(!may_import("ingress", "egress"));
    assert!(!may_import("engine", "mqtt"));
    assert!(!may_import("engine", "{"), "a list hides what it names");
    assert!(!may_import("mqtt", "store"));
    assert!(!may_import("mqtt", "phase"));
    assert!(may_import("ingress", "mqtt"));
    assert!(may_import("cli", "agent"));
    let named = "use crate::time::{A}; crate::store::x(); use crate::{wire, ids};";
    assert_eq!(imports(named).collect::<Vec<_>>(), ["time", "store", "{"]);
    assert!(names("use std::time::Duration;", "std::time"));
    assert!(names("fn read(db: &sled::Db)", "sled::"));
    assert!(!names("use crate::wire::bytesize::x;", "size::"));
}
