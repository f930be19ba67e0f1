//! `docs/configuration.md` against the program: the same options, and the defaults that it states.

use super::described;
use std::collections::BTreeSet;
use tidegate::config::Config;

const REFERENCE: &str = include_str!("../../docs/configuration.md");
const SOURCE: &str = "[[source]]\nname = \"a\"\ntopic = \"{b}/{device}\"\n";

/// A section of the reference, what precedes an option of it in a file, and whether the options of `[defaults]` may
/// stand there too.
const SECTIONS: &[(&str, &str, bool)] = &[
    ("## Top level", "", false),
    ("## [gateway]", "[gateway]\n", false),
    ("## [clock]", "[clock]\n", false),
    ("## [broker]", "[broker]\n", false),
    ("## [upstream]", "[upstream]\n", false),
    ("## [store]", "[store]\n", false),
    ("## [status]", "[status]\n", false),
    ("## [defaults]", "[defaults]\n", false),
    ("## [watermarks]", "[watermarks]\n", false),
    ("## [presence]", "[presence]\n", false),
    ("## [limits]", "[limits]\n", false),
    ("## [rollups]", "[rollups]\n", false),
    ("## [[window]]", "[[window]]\n", false),
    ("## [[region]]", "[[region]]\n", true),
    ("## [[source]]", "[[source]]\n", true),
    ("### time", "[[source]]\n[source.time]\n", false),
    ("### heartbeat, ignore, idle", "[[source]]\n[source.heartbeat]\n", false),
    ("### heartbeat, ignore, idle", "[[source]]\n[source.ignore]\n", false),
    ("### heartbeat, ignore, idle", "[[source]]\n[source.idle]\n", false),
    ("### metric", "[[source]]\n[[source.metric]]\n", false),
    ("### status", "[[source]]\n[[source.status]]\n", false),
    ("## [[devices]]", "[[devices]]\n", true),
];

/// A row of a table: option, unit, range, default, meaning.
type Row = [&'static str; 5];

/// The rows of one section.
fn rows(section: &str) -> Vec<Row> {
    let lines = REFERENCE.lines().skip_while(|line| *line != section).skip(1);
    let lines = lines.take_while(|line| !line.starts_with('#'));
    let cells = |line: &'static str| {
        let line = line.strip_prefix("| `")?.strip_suffix(" |")?;
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [option, rest @ ..]: Row =
            cells.try_into().unwrap_or_else(|cells| panic!("{line}: {cells:?}"));
        let [unit, range, default, meaning] = rest;
        Some([option.trim_end_matches('`'), unit, range, default, meaning])
    };
    lines.filter_map(cells).collect()
}

fn documented(section: &str) -> BTreeSet<String> {
    rows(section).iter().map(|row| row[0].to_owned()).collect()
}

/// What the program takes at this place, by its own word.
fn accepted(before: &str) -> BTreeSet<String> {
    let toml = format!("{before}zzzzzzzz = 1\n");
    let errors = Config::from_toml(&toml).map(|_| ()).expect_err("no such option");
    let mut unknown = errors
        .findings()
        .iter()
        .filter_map(|finding| finding.message.strip_prefix("unknown key `zzzzzzzz`; known here: "));
    let known = unknown.next().unwrap_or_else(|| panic!("{before}: {errors}"));
    known.split(", ").map(str::to_owned).collect()
}

#[test]
fn what_is_accepted_is_documented_and_what_is_documented_is_accepted() {
    let everywhere = documented("## [defaults]");
    for (section, before, policy) in SECTIONS {
        let mut known = documented(section);
        assert!(!known.is_empty(), "{section} has no options");
        if *policy {
            known.extend(everywhere.iter().cloned());
        }
        assert_eq!(known, accepted(before), "left: documented in {section}, right: accepted");
    }
    let headings = REFERENCE.lines().filter(|line| line.starts_with('#')).skip(1);
    let known: BTreeSet<_> = SECTIONS.iter().map(|(section, ..)| *section).collect();
    assert_eq!(headings.collect::<BTreeSet<_>>(), known, "every section is held to the program");
}

#[test]
fn every_option_has_a_unit_and_a_meaning() {
    for (section, ..) in SECTIONS {
        for [option, unit, _, _, meaning] in rows(section) {
            assert!(!unit.is_empty() && !meaning.is_empty(), "{section}: {option}");
        }
    }
}

#[test]
fn the_documented_default_is_the_default() {
    let of = |toml: &str| {
        let config = Config::from_toml(toml).unwrap_or_else(|errors| panic!("{toml}\n{errors}"));
        described(&config)
    };
    let mut stated = 0;
    for (section, before, _) in SECTIONS {
        let before = match *section {
            "## [watermarks]" => "[watermarks]\nscope = \"region\"\n".to_owned(),
            "## [[window]]" => "[[window]]\nname = \"hour\"\nsize = \"1h\"\n".to_owned(),
            "## [[source]]" => SOURCE.to_owned(),
            "### metric" => format!("{SOURCE}[[source.metric]]\nname = \"p\"\nfrom = \"/p\"\n"),
            "### status" => format!("{SOURCE}[[source.status]]\ntopic = \"s/{{device}}\"\n"),
            _ => (*before).to_owned(),
        };
        for [option, _, _, default, _] in rows(section) {
            let Some(value) = default.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'))
            else {
                continue;
            };
            let before = if option == "scope" { "[watermarks]\n" } else { &before };
            let toml = format!("{before}{option} = {value}\n");
            assert_eq!(of(&toml), of(before), "{section}: {option} = {value}");
            stated += 1;
        }
    }
    assert!(stated >= 35, "only {stated} defaults are stated");
}
