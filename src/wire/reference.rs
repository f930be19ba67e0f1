//! How a source names a place and a time format.

use std::fmt;
use std::str::FromStr;

use crate::wire::pointer::{self, PointerError};

/// Where a value comes from. Written `topic:name`, `/json/pointer`, `root:/json/pointer` or
/// `const:text`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// `topic:name`: a named segment of the topic template.
    Topic(String),
    /// `/json/pointer`: a place in the item (RFC 6901), in the whole payload where there are no
    /// items. The empty pointer is the item itself, for payloads that are one bare value.
    Item(String),
    /// `root:/json/pointer`: a place in the payload, outside the item.
    Root(String),
    /// `const:text`: always the same.
    Const(String),
}

/// What is wrong with the text of a reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// None of the four forms.
    #[error(
        "`{0}` is not a reference: write `topic:name` for a segment of the topic, `/json/pointer` \
         for a place in the item, `root:/json/pointer` for one in the payload, or `const:text`"
    )]
    Form(String),
    /// A pointer that is not one.
    #[error("`{pointer}` is not a JSON Pointer: {error}")]
    Pointer {
        /// As written.
        pointer: String,
        /// What is wrong with it.
        error: PointerError,
    },
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        if text.is_empty() || text.starts_with('/') {
            return checked(text).map(Self::Item);
        }
        match text.split_once(':') {
            Some(("topic", name)) if !name.is_empty() => Ok(Self::Topic(name.into())),
            Some(("root", pointer)) => checked(pointer).map(Self::Root),
            Some(("const", text)) => Ok(Self::Const(text.into())),
            _ => Err(ReferenceError::Form(text.into())),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic(name) => write!(f, "topic:{name}"),
            Self::Item(pointer) => f.write_str(pointer),
            Self::Root(pointer) => write!(f, "root:{pointer}"),
            Self::Const(text) => write!(f, "const:{text}"),
        }
    }
}

fn checked(pointer: &str) -> Result<String, ReferenceError> {
    let named = |error| ReferenceError::Pointer { pointer: pointer.into(), error };
    pointer::check(pointer).map_err(named)?;
    Ok(pointer.into())
}

/// How a device time is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeFormat {
    /// `epoch_s`: seconds since the epoch; integer, fraction, or either as a string.
    EpochS,
    /// `epoch_ms`: milliseconds since the epoch; integer, fraction, or either as a string.
    EpochMs,
    /// `rfc3339`: RFC 3339 with `T` or a blank, 0 to 9 fraction digits, `Z` or an offset.
    Rfc3339,
}

/// A time format that is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a time format: write `epoch_s`, `epoch_ms` or `rfc3339`")]
pub struct TimeFormatError(pub String);

impl FromStr for TimeFormat {
    type Err = TimeFormatError;

    fn from_str(text: &str) -> Result<Self, TimeFormatError> {
        match text {
            "epoch_s" => Ok(Self::EpochS),
            "epoch_ms" => Ok(Self::EpochMs),
            "rfc3339" => Ok(Self::Rfc3339),
            _ => Err(TimeFormatError(text.into())),
        }
    }
}
