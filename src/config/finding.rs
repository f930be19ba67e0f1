//! What is wrong or unwise in a configuration, where it stands, and what would be right.

use std::fmt;

/// The place of a value in the configuration: `source[0].metric[1].unit`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KeyPath(pub Vec<Segment>);

/// One step of a [`KeyPath`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    /// Into a table, by name.
    Key(String),
    /// Into an array, by position.
    Index(usize),
}

impl KeyPath {
    /// A key of the top level.
    pub(super) fn top(key: &str) -> Self {
        Self::default().key(key)
    }

    /// From a dotted name such as `broker.port`.
    pub(super) fn dotted(name: &str) -> Self {
        Self(name.split('.').map(|key| Segment::Key(key.to_owned())).collect())
    }

    /// A key of the table at this place.
    pub(super) fn key(&self, key: &str) -> Self {
        self.step(Segment::Key(key.to_owned()))
    }

    /// An element of the array at this place.
    pub(super) fn index(&self, index: usize) -> Self {
        self.step(Segment::Index(index))
    }

    /// Whether `self` is `other` or lies around it.
    pub(super) fn holds(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }

    fn step(&self, segment: Segment) -> Self {
        let mut path = self.clone();
        path.0.push(segment);
        path
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Key(key) if at == 0 => f.write_str(key)?,
                Segment::Key(key) => write!(f, ".{key}")?,
                Segment::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// In a file as a whole: it cannot be read, or something is missing from it.
    File(String),
    /// In a file, at a line and column (both from 1).
    Line {
        /// The file as it was named.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
    },
    /// In an environment variable of this name.
    Environment(String),
    /// Nowhere: a default, or no file was given.
    Nowhere,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => f.write_str(file),
            Self::Line { file, line, column } => write!(f, "{file}:{line}:{column}"),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::Nowhere => f.write_str("configuration"),
        }
    }
}

/// One mistake, or one warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where it was written.
    pub origin: Origin,
    /// Which key: `source[0].metric[1].unit`; empty for a file as a whole.
    pub key: String,
    /// The value as written, shortened; `None` when there is none.
    pub value: Option<String>,
    /// What is wrong or unwise, and what would be right.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.origin)?;
        match (self.key.as_str(), &self.value) {
            ("", _) => {}
            (key, Some(value)) => write!(f, "{key} = {value}: ")?,
            (key, None) => write!(f, "{key}: ")?,
        }
        f.write_str(&self.message)
    }
}

/// All mistakes that were found, in the order of files and lines; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(Vec<Finding>);

impl ConfigErrors {
    /// `Ok` when there is no mistake.
    pub(super) fn unless_empty(mut findings: Vec<Finding>) -> Result<(), Self> {
        if findings.is_empty() {
            return Ok(());
        }
        findings.sort_by(|a, b| a.origin.cmp(&b.origin));
        findings.dedup();
        Err(Self(findings))
    }

    /// The mistakes.
    pub fn findings(&self) -> &[Finding] {
        &self.0
    }
}

impl From<Finding> for ConfigErrors {
    fn from(finding: Finding) -> Self {
        Self(vec![finding])
    }
}

impl fmt::Display for ConfigErrors {
    /// One mistake a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, finding) in self.0.iter().enumerate() {
            let newline = if at == 0 { "" } else { "\n" };
            write!(f, "{newline}{finding}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
