//! One value as a message has it, and the lenient readings of it.

use std::borrow::Cow;

use crate::wire::profile::TimeFormat;
use crate::wire::timestamp::{self, Reading};

/// Longest id that is read, in bytes: two of them, escaped, fit into a topic.
pub(super) const MAX_ID: usize = 1_024;

/// A scalar, still as text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scalar<'a> {
    /// Nothing there, or `null`.
    Absent,
    /// `true` or `false`.
    Bool(&'a str),
    /// A number as it is written.
    Number(&'a str),
    /// A string without escapes, or a segment of the topic.
    Text(&'a str),
    /// A string with escapes, quotes included.
    Escaped(&'a str),
    /// An array or an object.
    Nested,
}

/// Something is there that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unreadable;

impl<'a> Scalar<'a> {
    /// What `raw`, one JSON value or nothing, is.
    #[inline]
    pub(super) fn of(raw: &'a str) -> Self {
        match raw.as_bytes().first() {
            None | Some(b'n') => Self::Absent,
            Some(b'"') if raw.bytes().any(|byte| byte == b'\\') => Self::Escaped(raw), // too short for a search
            Some(b'"') => Self::Text(raw.get(1..raw.len() - 1).unwrap_or_default()),
            Some(b't' | b'f') => Self::Bool(raw),
            Some(b'{' | b'[') => Self::Nested,
            Some(_) => Self::Number(raw),
        }
    }

    /// The text that needs no decoding, which is nearly every one.
    #[inline]
    pub(super) fn plain(self) -> Option<&'a str> {
        match self {
            Self::Bool(text) | Self::Number(text) | Self::Text(text) => Some(text),
            Self::Absent | Self::Escaped(_) | Self::Nested => None,
        }
    }

    /// As text: strings as they say, numbers and booleans as JSON writes them.
    pub(super) fn text(self) -> Result<Option<Cow<'a, str>>, Unreadable> {
        match self {
            Self::Absent => Ok(None),
            Self::Bool(text) | Self::Number(text) | Self::Text(text) => Ok(Some(text.into())),
            Self::Escaped(raw) => serde_json::from_str(raw).map(Some).map_err(|_| Unreadable),
            Self::Nested => Err(Unreadable),
        }
    }

    /// As an id: a number or a text of 1 to [`MAX_ID`] bytes.
    #[inline]
    pub(super) fn id(self) -> Result<Cow<'a, str>, Unreadable> {
        if matches!(self, Self::Bool(_)) {
            return Err(Unreadable);
        }
        let id = match self.plain() {
            Some(id) => id.into(),
            None => self.text()?.ok_or(Unreadable)?,
        };
        if (1..=MAX_ID).contains(&id.len()) { Ok(id) } else { Err(Unreadable) }
    }

    /// As a finite number times `scale`; a blank string is no value.
    #[inline]
    pub(super) fn value(self, scale: f64) -> Result<Option<f64>, Unreadable> {
        if let Self::Number(text) = self {
            return number(text, scale).map(Some);
        }
        let Some(text) = self.not_bool()?.text()? else { return Ok(None) };
        match text.trim() {
            "" => Ok(None),
            text => number(text, scale).map(Some),
        }
    }

    /// As a time; a blank string is none.
    #[inline]
    pub(super) fn time(self, format: &TimeFormat) -> Result<Option<Reading>, Unreadable> {
        if let (Self::Number(text), TimeFormat::EpochS | TimeFormat::EpochMs) = (self, format) {
            return timestamp::read(text, format).map(Some).ok_or(Unreadable);
        }
        let Some(text) = self.not_bool()?.text()? else { return Ok(None) };
        if text.trim().is_empty() {
            return Ok(None);
        }
        timestamp::read(&text, format).map(Some).ok_or(Unreadable)
    }

    fn not_bool(self) -> Result<Self, Unreadable> {
        if matches!(self, Self::Bool(_)) { Err(Unreadable) } else { Ok(self) }
    }
}

#[inline]
fn number(text: &str, scale: f64) -> Result<f64, Unreadable> {
    let value = short_number(text).or_else(|| text.parse().ok()).ok_or(Unreadable)?;
    let value = value * scale;
    if value.is_finite() { Ok(value) } else { Err(Unreadable) }
}

/// Reads up to 15 digits with or without a point. Both the digits and the power of ten are exact
/// doubles then, so their quotient is the nearest double, the same that the long way gives (Clinger
/// 1990).
#[inline]
fn short_number(text: &str) -> Option<f64> {
    const POWERS: [f64; 16] =
        [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |tail| (true, tail));
    if !(1..=16).contains(&digits.len()) {
        return None;
    }
    let (mut value, mut count, mut point) = (0_i64, 0, None);
    for byte in digits.bytes() {
        match byte {
            b'0'..=b'9' => (value, count) = (value * 10 + i64::from(byte - b'0'), count + 1),
            b'.' if point.is_none() => point = Some(count),
            _ => return None,
        }
    }
    if !(1..=15).contains(&count) {
        return None;
    }
    let value = value as f64 / POWERS[point.map_or(0, |point| count - point)];
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::DeviceTime;
    use proptest::prelude::*;

    fn value(raw: &str) -> Result<Option<f64>, Unreadable> {
        Scalar::of(raw).value(1.0)
    }

    #[test]
    fn numbers_are_read_from_numbers_and_from_strings() {
        assert_eq!(value("12.5"), Ok(Some(12.5)));
        assert_eq!(value("-0"), Ok(Some(-0.0)));
        assert_eq!(value("\"12.5\""), Ok(Some(12.5)));
        assert_eq!(value("\" 1.25e1\\t\""), Ok(Some(12.5)));
        assert_eq!(value("1e-400"), Ok(Some(0.0)));
        assert_eq!(Scalar::of("3").value(0.5), Ok(Some(1.5)));
    }

    #[test]
    fn nothing_null_and_blank_are_absent() {
        for raw in ["", "null", "\"\"", "\"  \""] {
            assert_eq!(value(raw), Ok(None), "{raw}");
            assert_eq!(Scalar::of(raw).time(&TimeFormat::EpochS), Ok(None), "{raw}");
        }
    }

    #[test]
    fn what_is_no_finite_number_is_unreadable() {
        for raw in ["true", "\"nan\"", "\"-inf\"", "1e400", "\"x\"", "\"5V\"", "{}", "[1]"] {
            assert_eq!(value(raw), Err(Unreadable), "{raw}");
        }
        assert_eq!(Scalar::of("1e300").value(1e300), Err(Unreadable));
        assert_eq!(value(r#""\ud800""#), Err(Unreadable));
    }

    #[test]
    fn an_id_is_a_number_or_a_text_of_limited_length() {
        assert_eq!(Scalar::of("17").id().as_deref(), Ok("17"));
        assert_eq!(Scalar::of(r#""a\/b""#).id().as_deref(), Ok("a/b"));
        assert!(Scalar::Text(&"x".repeat(MAX_ID)).id().is_ok());
        assert!(Scalar::Text(&"x".repeat(MAX_ID + 1)).id().is_err());
        for raw in ["", "null", "\"\"", "true", "{}"] {
            assert_eq!(Scalar::of(raw).id(), Err(Unreadable), "{raw}");
        }
    }

    #[test]
    fn a_time_is_read_as_its_format_says() {
        let time = |raw, format| {
            let reading = Scalar::of(raw).time(&format)?;
            Ok(reading.and_then(|reading| reading.stamp.time()))
        };
        assert_eq!(
            time("1749946087916", TimeFormat::EpochMs),
            Ok(Some(DeviceTime(1_749_946_087_916)))
        );
        assert_eq!(time("\"5\"", TimeFormat::EpochS), Ok(Some(DeviceTime(5_000))));
        let iso = "\"1970-01-01T00:00:01\\u005a\"";
        assert_eq!(time(iso, TimeFormat::Rfc3339), Ok(Some(DeviceTime(1_000))));
        assert_eq!(time("5", TimeFormat::Rfc3339), Err(Unreadable));
        assert_eq!(time("true", TimeFormat::EpochS), Err(Unreadable));
        assert_eq!(time("true", TimeFormat::Auto(None)), Err(Unreadable));
    }

    proptest! {
        #[test]
        fn short_numbers_are_read_as_the_standard_library_reads_them(
            text in "-?[0-9]{0,9}\\.?[0-9]{0,9}",
        ) {
            if let Some(value) = short_number(&text) {
                prop_assert_eq!(Ok(value.to_bits()), text.parse().map(f64::to_bits));
            }
        }
    }
}
