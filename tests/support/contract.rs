//! What is published, held to the schemas in `docs/schema`.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::Value;

/// The shipped schemas.
pub static CONTRACT: LazyLock<Contract> = LazyLock::new(Contract::shipped);

/// Of the lines of a replay, which have a schema besides that of their message.
pub const REPLAY_LINE: &str = "replay-line";

/// The schemas by kind: the first level of a topic below the prefix, and the name of the file.
pub struct Contract {
    schemas: BTreeMap<String, (Value, Validator)>,
}

impl Contract {
    fn shipped() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schema");
        let files = fs::read_dir(folder).expect("docs/schema is there");
        let schemas = files.map(|file| {
            let path = file.expect("readable").path();
            let kind = path.file_stem().expect("a name").to_string_lossy().into_owned();
            let schema = fs::read(&path).expect("readable");
            let schema: Value = serde_json::from_slice(&schema)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let validator = jsonschema::draft202012::new(&schema)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            (kind, (schema, validator))
        });
        Self { schemas: schemas.collect() }
    }

    /// All kinds, each with its schema.
    pub fn schemas(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.schemas.iter().map(|(kind, (schema, _))| (kind.as_str(), schema))
    }

    /// What is wrong with a message, or its topic below the prefix.
    pub fn check(&self, topic: &str, body: &Value) -> Result<(), String> {
        let levels: Vec<_> = topic.split('/').collect();
        let (schema, _) = self.kind(levels[0])?;
        let topics = schema["x-topics"].as_array().expect("each schema names its topics");
        let alike = |template: &&Value| {
            let template: Vec<_> = template.as_str().expect("text").split('/').collect();
            template.len() == levels.len()
                && template.iter().zip(&levels).all(|(name, level)| {
                    name == level || (name.starts_with('{') && !level.is_empty())
                })
        };
        if topics.iter().find(alike).is_none() {
            return Err(format!("{topic} is no topic of {topics:?}"));
        }
        if levels[0] == "quarantine" && !self.reasons().any(|reason| reason == levels[1]) {
            return Err(format!("{topic}: no such reason"));
        }
        self.check_kind(levels[0], body)
    }

    /// What is wrong with a line of a replay.
    pub fn check_line(&self, line: &Value) -> Result<(), String> {
        self.check_kind(REPLAY_LINE, line)?;
        let kind = line["type"].as_str().expect("a word");
        self.check_kind(if kind == "refused" { "quarantine" } else { kind }, line)
    }

    /// What is wrong with the body of a message of this kind.
    pub fn check_kind(&self, kind: &str, body: &Value) -> Result<(), String> {
        let (_, validator) = self.kind(kind)?;
        let errors: Vec<_> = validator
            .iter_errors(body)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        if errors.is_empty() { Ok(()) } else { Err(format!("{kind}: {errors:?} in {body}")) }
    }

    /// Why something may be refused.
    pub fn reasons(&self) -> impl Iterator<Item = &str> {
        let reasons = &self.schemas[REPLAY_LINE].0["properties"]["reason"]["enum"];
        reasons.as_array().expect("a list").iter().filter_map(Value::as_str)
    }

    fn kind(&self, kind: &str) -> Result<&(Value, Validator), String> {
        self.schemas.get(kind).ok_or_else(|| format!("{kind} has no schema"))
    }
}
