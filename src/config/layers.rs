//! Files and environment, laid over each other, and where each value was written.
//!
//! Later files win over earlier ones and the environment over all. Tables are merged key by key. An array (`[[source]]`,
//! `rollups = […]`) is replaced as a whole by a later layer: half a list of sources would belong to nobody.

use super::explain::explain;
use super::finding::{ConfigErrors, Finding, KeyPath, Origin, Segment};
use super::{raw, secret, text::Text};

use config::FileFormat;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What the names of environment variables begin with; `__` separates the keys, `_` stands for `-`.
pub const ENVIRONMENT_PREFIX: &str = "TIDEGATE_";

/// The variable that names the configuration file where the command line names none.
pub const FILE_VARIABLE: &str = "TIDEGATE_CONFIG";

/// Variables that begin with the prefix but belong to the command line, or to tests (`phase`).
const NOT_CONFIGURATION: [&str; 3] = [FILE_VARIABLE, "TIDEGATE_LOG", "TIDEGATE_HOLD_AT"];

/// More mistakes than anybody reads at once.
const MOST_FINDINGS: usize = 100;

/// A value longer than this is shown shortened, in characters.
const LONGEST_SHOWN: usize = 60;

/// The layers of a configuration.
#[derive(Clone, Debug, Default)]
pub(super) struct Layers {
    /// Files; later ones win.
    files: Vec<Text>,
    /// Variables, by the key that they set.
    variables: Vec<Variable>,
}

#[derive(Clone, Debug)]
struct Variable {
    name: String,
    key: KeyPath,
    value: String,
}

impl Layers {
    /// Reads files and takes the variables of `env` that are meant for us.
    pub(super) fn read(
        paths: &[PathBuf],
        env: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigErrors> {
        let mut findings = Vec::new();
        let mut files = Vec::new();
        for path in paths {
            match read_file(path) {
                Ok(text) => files.push(text),
                Err(finding) => findings.push(finding),
            }
        }
        let env: BTreeMap<String, String> = env.into_iter().collect();
        let mut variables = Vec::new();
        for (name, value) in env.into_iter().filter(|(name, _)| is_ours(name)) {
            match variable(name, value) {
                Ok(variable) => variables.push(variable),
                Err(finding) => findings.push(finding),
            }
        }
        ConfigErrors::unless_empty(findings)?;
        Ok(Self { files, variables })
    }

    /// One layer, from text.
    pub(super) fn of_text(name: &str, toml: &str) -> Result<Self, ConfigErrors> {
        Ok(Self { files: vec![Text::parse(name, toml)?], variables: Vec::new() })
    }

    /// The layers as one, in its types; or every mistake of shape.
    pub(super) fn merged(&self) -> Result<raw::File, ConfigErrors> {
        let (mut tree, endless) = self.tree()?;
        let message = "expected a finite value; `nan` and `inf` are none";
        let mut findings: Vec<_> = endless.iter().map(|path| self.finding(path, message)).collect();
        // serde stops at the first mistake. It is taken out of the tree and the rest is read again, until nothing is
        // wrong: so all are told at once.
        loop {
            let error = match serde_path_to_error::deserialize::<_, raw::File>(&tree) {
                Ok(file) => return ConfigErrors::unless_empty(findings).map(|()| file),
                Err(error) => error,
            };
            let path = key_path(error.path());
            if self.retype(&mut tree, &path) {
                continue;
            }
            let message = match secret::remedy(&path) {
                Some(remedy) => remedy.to_owned(),
                None => explain(&error.inner().to_string()),
            };
            findings.push(self.finding(&path, message));
            if findings.len() >= MOST_FINDINGS || !remove(&mut tree, &path) {
                ConfigErrors::unless_empty(std::mem::take(&mut findings))?;
            }
        }
    }

    /// A finding about the value at `path`.
    pub(super) fn finding(&self, path: &KeyPath, message: impl Into<String>) -> Finding {
        let (origin, value) = self.locate(path);
        let value = value.map(shortened);
        Finding { origin, key: path.to_string(), value, message: message.into() }
    }

    /// Whether somebody wrote the value at `path`.
    pub(super) fn has(&self, path: &KeyPath) -> bool {
        let mut variables = self.variables.iter();
        variables.any(|variable| variable.key == *path)
            || self.files.iter().any(|text| text.depth(path) == path.0.len())
    }

    /// All layers as one, and where `nan` or `inf` stood, for which JSON has only `null`.
    fn tree(&self) -> Result<(Json, Vec<KeyPath>), ConfigErrors> {
        let mut builder = config::Config::builder();
        for text in &self.files {
            builder = builder.add_source(config::File::from_str(text.raw(), FileFormat::Toml));
        }
        let merged = builder.add_source(self.environment()).build().map_err(|error| {
            // Only what it is: the lines after the first quote the text, and with it what may be a secret.
            let error = error.to_string();
            self.finding(&KeyPath::default(), error.lines().next().unwrap_or_default())
        })?;
        let mut endless = Vec::new();
        let tree = json(merged.cache, &KeyPath::default(), &mut endless);
        Ok((tree, endless))
    }

    fn environment(&self) -> config::Environment {
        let variables = self.variables.iter();
        let keys = variables.map(|variable| (variable.key.to_string(), variable.value.clone()));
        config::Environment::default().source(Some(keys.collect()))
    }

    /// A variable is text; where text does not fit, a number or a truth value is tried.
    fn retype(&self, tree: &mut Json, path: &KeyPath) -> bool {
        if !self.variables.iter().any(|variable| variable.key == *path) {
            return false;
        }
        let Some(value) = find(tree, &path.0) else { return false };
        let typed = value.as_str().and_then(|text| serde_json::from_str::<Json>(text.trim()).ok());
        match typed {
            Some(typed @ (Json::Number(_) | Json::Bool(_))) => {
                *value = typed;
                true
            }
            _ => false,
        }
    }

    /// Where the value at `path` was written, or, for a missing one, the table that lacks it.
    fn locate(&self, path: &KeyPath) -> (Origin, Option<String>) {
        let mut variables = self.variables.iter();
        if let Some(variable) = variables.find(|variable| variable.key.holds(path)) {
            let value = secret::shown(path, format!("{:?}", variable.value));
            return (Origin::Environment(variable.name.clone()), Some(value));
        }
        match self.file_of(path) {
            Some(text) => {
                let (origin, value) = text.locate(path);
                (origin, value.map(|value| secret::shown(path, value)))
            }
            None => (self.whole(path), None),
        }
    }

    /// The file that decides about `path`: the last one that has most of it.
    fn file_of(&self, path: &KeyPath) -> Option<&Text> {
        let array = path.0.iter().position(|segment| matches!(segment, Segment::Index(_)));
        let array = array.map(|at| KeyPath(path.0[..at].to_vec()));
        let files = self.files.iter();
        match array {
            Some(array) => files.rev().find(|text| text.depth(&array) == array.0.len()),
            None => files.max_by_key(|text| text.depth(path)).filter(|text| text.depth(path) > 0),
        }
    }

    fn whole(&self, path: &KeyPath) -> Origin {
        let below = self.variables.iter().find(|v| !path.0.is_empty() && path.holds(&v.key));
        match (below, self.files.last()) {
            (Some(variable), _) => Origin::Environment(variable.name.clone()),
            (None, Some(text)) => Origin::File(text.name().to_owned()),
            (None, None) => Origin::Nowhere,
        }
    }
}

fn shortened(value: String) -> String {
    match value.char_indices().nth(LONGEST_SHOWN) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value,
    }
}

fn read_file(path: &Path) -> Result<Text, Finding> {
    let name = path.display().to_string();
    let toml = std::fs::read_to_string(path).map_err(|error| Finding {
        origin: Origin::File(name.clone()),
        key: String::new(),
        value: None,
        message: format!("cannot be read: {error}"),
    })?;
    Text::parse(&name, &toml)
}

fn is_ours(name: &str) -> bool {
    name.starts_with(ENVIRONMENT_PREFIX) && !NOT_CONFIGURATION.contains(&name)
}

/// The key that a variable sets: `TIDEGATE_UPSTREAM__CLIENT_ID` sets `upstream.client-id`.
fn variable(name: String, value: String) -> Result<Variable, Finding> {
    let rest = &name[ENVIRONMENT_PREFIX.len()..];
    let plain = |level: &str| {
        let mut chars = level.chars();
        chars.next().is_some_and(|first| first.is_ascii_alphabetic())
            && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let remedy = match (rest.split_once('_'), rest.contains("__")) {
        _ if secret::remedy(&KeyPath::top(rest)).is_some() => secret::REMEDY.to_owned(),
        (Some((section, key)), false) => {
            format!("two underscores follow the section: {ENVIRONMENT_PREFIX}{section}__{key}")
        }
        _ if !rest.split("__").all(plain) => {
            let example = format!("{ENVIRONMENT_PREFIX}UPSTREAM__HOST");
            format!("write section and key, {example}; lists are set in files only")
        }
        _ => {
            let key = KeyPath::dotted(&rest.to_lowercase().replace("__", ".").replace('_', "-"));
            return Ok(Variable { name, key, value });
        }
    };
    Err(Finding {
        origin: Origin::Environment(name),
        key: String::new(),
        value: None,
        message: format!("names no key; {remedy}"),
    })
}

fn key_path(path: &serde_path_to_error::Path) -> KeyPath {
    use serde_path_to_error::Segment as Step;
    let segments = path.iter().filter_map(|step| match step {
        Step::Seq { index } => Some(Segment::Index(*index)),
        Step::Map { key } => Some(Segment::Key(key.clone())),
        Step::Enum { .. } | Step::Unknown => None,
    });
    KeyPath(segments.collect())
}

fn find<'a>(tree: &'a mut Json, path: &[Segment]) -> Option<&'a mut Json> {
    path.iter().try_fold(tree, |value, segment| match segment {
        Segment::Key(key) => value.get_mut(key),
        Segment::Index(index) => value.get_mut(index),
    })
}

/// Takes the key that holds the value at `path` out of its table; elements of an array stay, so that positions hold.
fn remove(tree: &mut Json, path: &KeyPath) -> bool {
    let Some(at) = path.0.iter().rposition(|segment| matches!(segment, Segment::Key(_))) else {
        return false;
    };
    let Segment::Key(key) = &path.0[at] else { return false };
    let table = find(tree, &path.0[..at]).and_then(Json::as_object_mut);
    table.is_some_and(|table| table.remove(key).is_some())
}

/// The value at `path`; paths of numbers that are not finite are added to `endless`.
fn json(value: config::Value, path: &KeyPath, endless: &mut Vec<KeyPath>) -> Json {
    use config::ValueKind as Kind;
    match value.kind {
        Kind::Nil => Json::Null,
        Kind::Boolean(value) => value.into(),
        Kind::I64(number) => number.into(),
        Kind::U64(number) => number.into(),
        Kind::I128(number) => number.to_string().into(),
        Kind::U128(number) => number.to_string().into(),
        Kind::Float(number) => {
            endless.extend((!number.is_finite()).then(|| path.clone()));
            number.into()
        }
        Kind::String(text) => text.into(),
        Kind::Table(table) => {
            let inside = table.into_iter().map(|(key, value)| {
                let value = json(value, &path.key(&key), endless);
                (key, value)
            });
            inside.collect()
        }
        Kind::Array(array) => {
            let inside = array.into_iter().enumerate();
            inside.map(|(at, value)| json(value, &path.index(at), endless)).collect()
        }
    }
}
