//! What a device sent, inside a message of ours.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// A record as received: as JSON where every reader can read it as that, else its bytes.
#[derive(Serialize)]
pub(super) enum Record<'a> {
    /// JSON on one line.
    #[serde(rename = "record", serialize_with = "embed")]
    Json(Cow<'a, str>),
    /// Anything else: RFC 4648, with padding.
    #[serde(rename = "record_base64")]
    Bytes(String),
}

impl<'a> Record<'a> {
    /// All of a record.
    pub(super) fn of(content: &'a [u8]) -> Self {
        match std::str::from_utf8(content) {
            Ok(text) if Readable::all_of(text).is_ok() => Self::Json(one_line(text)),
            _ => Self::bytes(content),
        }
    }

    /// Bytes that are no record, or not all of one.
    pub(super) fn bytes(content: &[u8]) -> Self {
        Self::Bytes(STANDARD.encode(content))
    }
}

/// JSON has line ends only between its tokens, where a blank says the same.
fn one_line(text: &str) -> Cow<'_, str> {
    if text.contains(['\n', '\r']) { text.replace(['\n', '\r'], " ").into() } else { text.into() }
}

fn embed<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    let raw: &RawValue = serde_json::from_str(text).map_err(serde::ser::Error::custom)?;
    raw.serialize(serializer)
}

/// JSON that usual readers accept: at most this deep, numbers within a double, strings of whole
/// characters. Reads all of it and keeps nothing.
struct Readable {
    levels_left: u32,
}

impl Readable {
    /// Well below what readers refuse (64 levels and up), since the record stands inside our own
    /// message.
    const LEVELS: u32 = 32;

    fn all_of(text: &str) -> Result<(), serde_json::Error> {
        let mut parser = serde_json::Deserializer::from_str(text);
        Self { levels_left: Self::LEVELS }.deserialize(&mut parser)?;
        parser.end()
    }

    fn inside<E: Error>(&self) -> Result<Self, E> {
        let levels_left = self.levels_left.checked_sub(1);
        levels_left.map(|levels_left| Self { levels_left }).ok_or_else(|| E::custom("too deep"))
    }
}

impl<'de> DeserializeSeed<'de> for Readable {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<(), D::Error> {
        parser.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Readable {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(self.inside()?)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_entry_seed(self.inside()?, self.inside()?)?.is_some() {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn json(content: &[u8]) -> String {
        serde_json::to_string(&Record::of(content)).unwrap()
    }

    #[test]
    fn json_is_embedded_as_it_was_written() {
        assert_eq!(json(br#" {"a":1.50,"a":null} "#), r#"{"record":{"a":1.50,"a":null}}"#);
        assert_eq!(json(b"[1,\n2]"), r#"{"record":[1, 2]}"#);
        assert_eq!(json(b"{\r\n\"a\":\n1}"), r#"{"record":{  "a": 1}}"#);
        let deep = "[".repeat(32) + &"]".repeat(32);
        assert_eq!(json(deep.as_bytes()), format!(r#"{{"record":{deep}}}"#));
        assert_eq!(json(b"17"), r#"{"record":17}"#);
    }

    #[test]
    fn what_a_reader_could_refuse_is_sent_as_bytes() {
        let deep = "[".repeat(33) + &"]".repeat(33);
        for content in ["{\"a\":", "", "nan", "1e400", r#""\ud800""#, "\"\n\"", "1 2", &deep] {
            let expected = format!(r#"{{"record_base64":"{}"}}"#, STANDARD.encode(content));
            assert_eq!(json(content.as_bytes()), expected, "{content}");
        }
        assert_eq!(json(b"\"\xff\""), r#"{"record_base64":"Iv8i"}"#);
    }

    proptest! {
        #[test]
        fn any_content_makes_one_line_of_json(
            content in any::<Vec<u8>>(), text in "[\\[\\]{}\",:0-9eE.\\\\u\n ]*",
        ) {
            for content in [content.as_slice(), text.as_bytes()] {
                let json = json(content);
                prop_assert!(!json.contains('\n'));
                prop_assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{}", json);
            }
        }
    }
}
