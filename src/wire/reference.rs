//! How a source names a place and a time format.

use std::fmt;
use std::str::FromStr;

use crate::wire::pointer::{self, PointerError};
use crate::wire::timestamp::Zone;

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

/// How a device time is written, with all that reading it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimeFormat {
    /// `epoch_s`: seconds since the epoch; integer, fraction, or either as a string.
    EpochS,
    /// `epoch_ms`: milliseconds since the epoch, the same.
    EpochMs,
    /// `epoch_us`: microseconds since the epoch, the same.
    EpochUs,
    /// `epoch_ns`: nanoseconds since the epoch, the same.
    EpochNs,
    /// `auto`: any of these by its magnitude, or text; text without an offset where there is a
    /// zone.
    Auto(Option<Zone>),
    /// `rfc3339`: RFC 3339 and its common variants, with an offset.
    Rfc3339,
    /// `local`: the same, in a zone where the text has no offset.
    Local(Zone),
    /// `local_dmy`: date and time of day in a zone, the day first.
    LocalDmy(Zone),
    /// `uptime_s`: seconds since the device was started; or days, hours, minutes and seconds.
    UptimeS,
    /// `uptime_ms`: milliseconds since the device was started.
    UptimeMs,
}

/// As in a configuration, with the zone.
impl fmt::Display for TimeFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EpochS => f.write_str("epoch_s"),
            Self::EpochMs => f.write_str("epoch_ms"),
            Self::EpochUs => f.write_str("epoch_us"),
            Self::EpochNs => f.write_str("epoch_ns"),
            Self::Auto(None) => f.write_str("auto"),
            Self::Auto(Some(zone)) => write!(f, "auto, in {} where it has no offset", zone.name()),
            Self::Rfc3339 => f.write_str("rfc3339"),
            Self::Local(zone) => write!(f, "local, in {}", zone.name()),
            Self::LocalDmy(zone) => write!(f, "local_dmy, in {}", zone.name()),
            Self::UptimeS => f.write_str("uptime_s"),
            Self::UptimeMs => f.write_str("uptime_ms"),
        }
    }
}

/// The name of a time format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the `TimeFormat` of that name")]
pub enum TimeFormatName {
    EpochS,
    EpochMs,
    EpochUs,
    EpochNs,
    Auto,
    Rfc3339,
    Local,
    LocalDmy,
    UptimeS,
    UptimeMs,
}

/// A time format that is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a time format")]
pub struct TimeFormatError(pub String);

/// A zone where none is read, or none where one is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZoneError {
    /// Local times mean nothing without.
    #[error("missing; say whose local time it is: zone = \"Europe/Amsterdam\"")]
    Missing,
    /// The format says all.
    #[error("not read with this format, which needs none; leave it out, or write as = \"local\"")]
    Useless,
}

impl TimeFormatName {
    /// All names, as they are written.
    pub const ALL: [(&str, Self); 10] = [
        ("epoch_s", Self::EpochS),
        ("epoch_ms", Self::EpochMs),
        ("epoch_us", Self::EpochUs),
        ("epoch_ns", Self::EpochNs),
        ("auto", Self::Auto),
        ("rfc3339", Self::Rfc3339),
        ("local", Self::Local),
        ("local_dmy", Self::LocalDmy),
        ("uptime_s", Self::UptimeS),
        ("uptime_ms", Self::UptimeMs),
    ];

    /// The format itself.
    ///
    /// # Errors
    /// It needs a zone, or has no use for one.
    pub fn with(self, zone: Option<Zone>) -> Result<TimeFormat, ZoneError> {
        let needed = |zone: Option<Zone>| zone.ok_or(ZoneError::Missing);
        Ok(match self {
            Self::Auto => TimeFormat::Auto(zone),
            Self::Local => TimeFormat::Local(needed(zone)?),
            Self::LocalDmy => TimeFormat::LocalDmy(needed(zone)?),
            _ if zone.is_some() => return Err(ZoneError::Useless),
            Self::EpochS => TimeFormat::EpochS,
            Self::EpochMs => TimeFormat::EpochMs,
            Self::EpochUs => TimeFormat::EpochUs,
            Self::EpochNs => TimeFormat::EpochNs,
            Self::Rfc3339 => TimeFormat::Rfc3339,
            Self::UptimeS => TimeFormat::UptimeS,
            Self::UptimeMs => TimeFormat::UptimeMs,
        })
    }
}

impl FromStr for TimeFormatName {
    type Err = TimeFormatError;

    fn from_str(text: &str) -> Result<Self, TimeFormatError> {
        let known = Self::ALL.into_iter().find(|(name, _)| *name == text);
        known.map(|(_, format)| format).ok_or_else(|| TimeFormatError(text.into()))
    }
}
