//! Values as people write them: durations, sizes, dates, whole numbers, references.

use super::explain::suggest;
use super::zones;
use crate::mqtt;
use crate::time::{DeviceTime, Span};
use crate::wire::fields::Field;
use crate::wire::pointer;
use crate::wire::profile::{Reference, ReferenceError, TimeFormatName};
use crate::wire::timestamp::Zone;

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use std::fmt;

/// Longer than anything that makes sense here, and far from overflowing: 10 years.
const LONGEST: Span = Span::from_hours(10 * 365 * 24);

/// A day in milliseconds.
const DAY: i64 = 86_400_000;

/// A type that is written as a string.
trait Written: Sized {
    /// What is expected, with an example.
    const EXPECTED: &'static str;
    /// Reads the string, or says what is wrong with it and what would be right.
    fn read(text: &str) -> Result<Self, String>;
}

struct WrittenVisitor<T>(std::marker::PhantomData<T>);

impl<T: Written> Visitor<'_> for WrittenVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::read(text).map_err(E::custom)
    }
}

macro_rules! written {
    ($($name:ident),*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(WrittenVisitor(std::marker::PhantomData))
            }
        }
    )*};
}

written!(Duration, Size, Date, Place, Format, Pointer, Told, ZoneName);

/// A duration: `"2m"`, `"1h 30m"`, `"500ms"`, `"30 days"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Duration(pub Span);

impl Written for Duration {
    const EXPECTED: &'static str = "a duration such as \"30s\", \"2m\", \"1h 30m\" or \"7d\"";

    fn read(text: &str) -> Result<Self, String> {
        let expected = || format!("expected {}", Self::EXPECTED);
        let (mut rest, mut total, mut last) = (text.trim(), 0_i64, i64::MAX);
        if rest.is_empty() {
            return Err(expected());
        }
        while !rest.is_empty() {
            let (number, unit, tail) = part(rest).ok_or_else(expected)?;
            let millis = if unit.is_empty() { Err(unitless(tail)) } else { unit_of(unit) }?;
            if millis >= last {
                return Err("write each unit once, the largest first: \"1h 30m\"".to_owned());
            }
            let sum = number.parse().ok().and_then(|number: i64| number.checked_mul(millis));
            let sum = sum.and_then(|span| span.checked_add(total));
            let within = sum.filter(|total| *total <= LONGEST.0);
            total = within.ok_or("longer than ten years")?;
            (rest, last) = (tail, millis);
        }
        Ok(Self(Span(total)))
    }
}

/// Number, unit and what follows; `None` where no number is.
fn part(text: &str) -> Option<(&str, &str, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(digits);
    let rest = rest.trim_start();
    let letters = rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(letters);
    (!number.is_empty()).then(|| (number, unit, rest.trim_start()))
}

fn unitless(tail: &str) -> String {
    match tail.chars().next() {
        Some('.' | ',') => "a fraction; write whole numbers: \"1h 30m\", \"1500ms\"".to_owned(),
        _ => "a number without a unit; write \"0s\", \"90s\", \"2m\", \"1h\" or \"7d\"".to_owned(),
    }
}

/// A unit in milliseconds, or what to write instead.
fn unit_of(unit: &str) -> Result<i64, String> {
    Ok(match unit {
        "ms" | "millisecond" | "milliseconds" => 1,
        "s" | "sec" | "secs" | "second" | "seconds" => 1_000,
        "m" | "min" | "mins" | "minute" | "minutes" => 60_000,
        "h" | "hour" | "hours" => 3_600_000,
        "d" | "day" | "days" => DAY,
        "w" | "week" | "weeks" => 7 * DAY,
        "M" | "mo" | "mon" | "month" | "months" | "y" | "yr" | "year" | "years" => {
            return Err("months and years have no fixed length; write minutes as `m`, longer \
                        spans in days: \"30d\""
                .to_owned());
        }
        "us" | "µs" | "μs" | "ns" => {
            return Err("finer than a millisecond; write whole milliseconds: \"5ms\"".to_owned());
        }
        _ => {
            let units = ["ms", "s", "m", "min", "h", "d", "day", "days"];
            let known = units.iter().find(|known| known.eq_ignore_ascii_case(unit));
            let remedy = known
                .map_or_else(|| suggest(unit, &units), |known| format!("did you mean `{known}`?"));
            return Err(format!("unknown unit `{unit}`; {remedy}"));
        }
    })
}

/// A size in bytes: `"64 MiB"`, `"256 KiB"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Size(pub u64);

impl Written for Size {
    const EXPECTED: &'static str = "a size such as \"256 KiB\" or \"64 MiB\"";

    fn read(text: &str) -> Result<Self, String> {
        let expected = || format!("expected {}", Self::EXPECTED);
        if !text.ends_with(|last: char| last.is_ascii_alphabetic()) {
            return Err(format!("a size without a unit; {}", expected()));
        }
        text.parse::<bytesize::ByteSize>().map(|size| Self(size.as_u64())).map_err(|_| expected())
    }
}

/// A moment: `"2020-01-01"` (midnight UTC) or `"2020-01-01T06:00:00+01:00"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Date(pub DeviceTime);

impl Written for Date {
    const EXPECTED: &'static str = "a date such as \"2020-01-01\" or \"2020-01-01T06:00:00Z\"";

    fn read(text: &str) -> Result<Self, String> {
        let day = text.parse::<chrono::NaiveDate>().ok();
        let midnight = day.map(|day| day.and_time(chrono::NaiveTime::MIN).and_utc());
        let moment = chrono::DateTime::parse_from_rfc3339(text).ok().map(|moment| moment.to_utc());
        midnight
            .or(moment)
            .map(|moment| Self(DeviceTime(moment.timestamp_millis())))
            .ok_or_else(|| format!("expected {}", Self::EXPECTED))
    }
}

/// A reference: `topic:device`, `/power`, `root:/gateway`, `const:north`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place(pub Reference);

impl Written for Place {
    const EXPECTED: &'static str = "a reference such as \"/power\", \"topic:device\" or \
                                    \"const:north\"";

    fn read(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|error| match error {
            ReferenceError::Form(_) if text.contains(':') => format!("expected {}", Self::EXPECTED),
            ReferenceError::Form(_) => {
                let expected = Self::EXPECTED;
                format!("expected {expected}; for a field of the payload write \"/{text}\"")
            }
            ReferenceError::Pointer { .. } => error.to_string(),
        })
    }
}

/// How a time is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Format(pub TimeFormatName);

impl Written for Format {
    const EXPECTED: &'static str =
        "a time format such as \"auto\", \"epoch_ms\", \"rfc3339\" or \"local\"";

    fn read(text: &str) -> Result<Self, String> {
        let known = TimeFormatName::ALL.map(|(name, _)| name);
        text.parse()
            .map(Self)
            .map_err(|_| format!("unknown time format `{text}`; {}", suggest(text, &known)))
    }
}

/// The name of a time zone.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ZoneName(pub Zone);

impl Written for ZoneName {
    const EXPECTED: &'static str = "the name of a time zone such as \"Europe/Amsterdam\"";

    fn read(text: &str) -> Result<Self, String> {
        zones::zone(text).map(Self)
    }
}

/// A JSON Pointer (RFC 6901): `/values`, or empty for the whole.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pointer(pub String);

impl Written for Pointer {
    const EXPECTED: &'static str = "a JSON Pointer such as \"/values\"";

    fn read(text: &str) -> Result<Self, String> {
        match pointer::check(text) {
            Ok(()) => Ok(Self(text.to_owned())),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// A field that results tell, or all of them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Told(pub Vec<Field>);

impl Told {
    /// What is told in any case: identity, what a result is worth without the rest, and the values.
    const ALWAYS: [&str; 10] = [
        "schema",
        "generation",
        "start",
        "revision",
        "samples",
        "stamped",
        "partial",
        "reporting",
        "devices",
        "metrics",
    ];
}

impl Written for Told {
    const EXPECTED: &'static str = "a field of results such as \"unit\", or \"all\"";

    fn read(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self(Field::ALL.to_vec()));
        }
        if Self::ALWAYS.contains(&text) {
            return Err("told in any case; leave it out".to_owned());
        }
        let found = Field::ALL.into_iter().find(|field| field.as_str() == text);
        found.map(|field| Self(vec![field])).ok_or_else(|| {
            let mut known = Field::ALL.map(Field::as_str).to_vec();
            known.push("all");
            format!("no field of results is called `{text}`; {}", suggest(text, &known))
        })
    }
}

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Whole<const MIN: u64, const MAX: u64>(pub u64);

struct WholeVisitor<const MIN: u64, const MAX: u64>;

impl<const MIN: u64, const MAX: u64> Visitor<'_> for WholeVisitor<MIN, MAX> {
    type Value = Whole<MIN, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {MIN} to {MAX}")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        if (MIN..=MAX).contains(&number) {
            return Ok(Whole(number));
        }
        Err(E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
        }
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Whole<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_u64(WholeVisitor)
    }
}

/// A version of MQTT: `5`, `"5"` or `"3.1.1"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Version(pub mqtt::Version);

struct VersionVisitor;

impl Visitor<'_> for VersionVisitor {
    type Value = Version;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a version of MQTT, 5 or \"3.1.1\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Version, E> {
        let known = [mqtt::Version::V5, mqtt::Version::V311];
        let version = known.into_iter().find(|version| version.as_str() == text.trim());
        version.map(Version).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Version, E> {
        match number {
            5 => Ok(Version(mqtt::Version::V5)),
            number => Err(E::invalid_value(Unexpected::Unsigned(number), &self)),
        }
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Version, E> {
        self.visit_u64(u64::try_from(number).unwrap_or(0))
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(VersionVisitor)
    }
}

/// One scalar or several, as text: what a condition compares with.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scalars(pub Vec<String>);

struct ScalarsVisitor;

impl<'de> Visitor<'de> for ScalarsVisitor {
    type Value = Scalars;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a number, true, false, or an array of them")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Scalars, E> {
        Ok(Scalars(vec![text.to_owned()]))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Scalars, E> {
        Ok(Scalars(vec![value.to_string()]))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Scalars, E> {
        Ok(Scalars(vec![number.to_string()]))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Scalars, E> {
        Ok(Scalars(vec![number.to_string()]))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Scalars, E> {
        Ok(Scalars(vec![serde_json::Value::from(number).to_string()]))
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Scalars, A::Error> {
        let mut all = Vec::new();
        while let Some(mut scalars) = seq.next_element::<Scalars>()? {
            all.append(&mut scalars.0);
        }
        Ok(Scalars(all))
    }
}

impl<'de> Deserialize<'de> for Scalars {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarsVisitor)
    }
}

/// A span as operators write it, `1h 30m` or `30d`; [`Duration`] reads it back.
pub(super) fn spoken(span: Span) -> String {
    let mut rest = span.0.max(0);
    let mut parts = Vec::new();
    for (millis, unit) in [(DAY, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")] {
        if rest >= millis {
            parts.push(format!("{}{unit}", rest / millis));
        }
        rest %= millis;
    }
    if parts.is_empty() { "0s".to_owned() } else { parts.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spoken_is_read_back() {
        for (millis, text) in [
            (0, "0s"),
            (1, "1ms"),
            (90_000, "1m 30s"),
            (30 * DAY, "30d"),
            (DAY + 3_600_001, "1d 1h 1ms"),
        ] {
            assert_eq!(spoken(Span(millis)), text);
            assert_eq!(Duration::read(text), Ok(Duration(Span(millis))));
        }
    }
}
