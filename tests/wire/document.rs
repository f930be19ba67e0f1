//! `docs/wire.md`: what it says of fields, and its examples.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::contract::{CONTRACT, REPLAY_LINE};

const DOCUMENT: &str = include_str!("../../docs/wire.md");

/// Lines of the section under the heading that begins like this, up to the next one of its level.
fn section(heading: &str) -> Vec<&'static str> {
    let level = heading.split(' ').next().expect("hashes");
    let above = |line: &&str| {
        let hashes = line.split(' ').next().unwrap_or_default();
        !(hashes.starts_with('#') && hashes.len() <= level.len())
    };
    let mut lines = DOCUMENT.lines().skip_while(|line| !line.starts_with(heading));
    assert!(lines.next().is_some(), "docs/wire.md has no section {heading:?}");
    lines.take_while(above).collect()
}

/// The fields in the tables of a section, short of its subsections.
fn fields(heading: &str) -> BTreeSet<String> {
    let lines = section(heading).into_iter().take_while(|line| !line.starts_with('#'));
    let first_cells = lines.filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let words = first_cells.flat_map(|cell| cell.split('`').step_by(2));
    words.filter(|word| !word.trim().is_empty()).map(str::to_owned).collect()
}

/// The sections that describe the fields of a kind, and those of its metrics.
fn sections(kind: &str) -> (Vec<String>, Vec<&'static str>) {
    let own = format!("## `{kind}");
    let every = "## Every message".to_owned();
    match kind {
        REPLAY_LINE => (vec!["## Lines of a replay".into()], vec![]),
        "window" => {
            (vec![every, "## Results".into(), own], vec!["### Metrics", "### Metrics of devices"])
        }
        "region" => {
            (vec![every, "## Results".into(), own], vec!["### Metrics", "### Metrics of regions"])
        }
        _ => (vec![every, own], vec![]),
    }
}

fn names(properties: &Value) -> BTreeSet<String> {
    properties.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
}

#[test]
fn every_field_of_a_schema_is_documented_and_every_documented_field_is_in_the_schema() {
    for (kind, schema) in CONTRACT.schemas() {
        let (body, metrics) = sections(kind);
        let documented: BTreeSet<_> = body.iter().flat_map(|heading| fields(heading)).collect();
        assert_eq!(
            documented,
            names(&schema["properties"]),
            "{kind}: left documented, right schema"
        );
        let documented: BTreeSet<_> = metrics.iter().flat_map(|heading| fields(heading)).collect();
        let schema = names(&schema["$defs"]["metric"]["properties"]);
        assert_eq!(documented, schema, "metrics of {kind}: left documented, right schema");
    }
}

#[test]
fn every_topic_has_a_schema_and_a_section() {
    let topics = CONTRACT.schemas().flat_map(|(_, schema)| {
        schema["x-topics"].as_array().into_iter().flatten().filter_map(Value::as_str)
    });
    let of_schemas: BTreeSet<_> = topics.map(str::to_owned).collect();
    assert_eq!(fields("## Topics"), of_schemas, "left the table of topics, right the schemas");
    let headings = DOCUMENT.lines().filter(|line| line.starts_with("## `"));
    let of_sections: BTreeSet<_> =
        headings.flat_map(|line| line.split('`').skip(1).step_by(2)).map(str::to_owned).collect();
    assert_eq!(of_sections, of_schemas, "left the sections, right the schemas");
}

#[test]
fn every_reason_to_refuse_is_documented() {
    let known: BTreeSet<_> = CONTRACT.reasons().map(str::to_owned).collect();
    assert_eq!(fields("### Reasons"), known);
}

/// What stands in the fences of a language.
fn blocks(lines: &[&str], language: &str) -> Vec<String> {
    let (text, fence) = (lines.join("\n"), format!("```{language}\n"));
    let after = text.split(&fence).skip(1);
    after.filter_map(|rest| Some(rest.split_once("\n```")?.0.to_owned())).collect()
}

#[test]
fn every_example_is_what_its_schema_says() {
    let mut seen = 0;
    for (kind, _) in CONTRACT.schemas() {
        let (body, _) = sections(kind);
        let examples = blocks(&section(body.last().expect("at least one")), "json");
        assert!(!examples.is_empty(), "{kind} has no example");
        for example in examples {
            let example = serde_json::from_str(&example).expect("JSON");
            let checked = match kind {
                REPLAY_LINE => CONTRACT.check_line(&example),
                kind => CONTRACT.check_kind(kind, &example),
            };
            assert_eq!(checked, Ok(()));
            seen += 1;
        }
    }
    let all: Vec<_> = DOCUMENT.lines().collect();
    assert_eq!(blocks(&all, "json").len(), seen, "an example outside of the sections of messages");
}

#[test]
fn the_statement_that_is_shown_is_that_of_the_example() {
    let lines: Vec<_> = DOCUMENT.lines().collect();
    let example = include_str!("../../examples/consumer/window.sql").trim_end();
    assert_eq!(blocks(&lines, "sql"), [example]);
}
