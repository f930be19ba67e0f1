//! Messages that say that a device is there or gone: last wills and their like (`[[source.status]]`).
//!
//! They come on topics of their own and are read apart from readings: no time in them is used, since that of a last will
//! is the time at which its device connected.

use serde_json::Value;

use crate::wire::reference::Reference;
use crate::wire::topic::{Segments, Template, TemplateError};

/// Whom a status is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A device.
    Device,
    /// What all devices of a region hang on: a bridge, a concentrator.
    Region,
    /// What all devices of its source hang on, of whatever region.
    Source,
}

/// How to read the status messages of one topic, as configured.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusSpec {
    /// Topic template.
    pub topic: String,
    /// Where the word is; `None`: the payload is the word, plain or as a JSON scalar.
    pub from: Option<Reference>,
    /// Words for there.
    pub online: Vec<String>,
    /// Words for gone.
    pub offline: Vec<String>,
    /// Whom it is about.
    pub scope: Scope,
    /// Segment of the topic, or the same for all; the device is not asked for where the scope is a region.
    pub device: Reference,
    /// As `device`.
    pub region: Reference,
}

/// What is wrong with a [`StatusSpec`]: the field, and why.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum StatusError {
    /// The topic template.
    #[error("topic: {0}")]
    Topic(#[from] TemplateError),
    /// A place that is neither in the topic nor a constant, or a segment that is not there.
    #[error("{0}: write `topic:name` with a name of the topic template, or `const:text`")]
    Place(&'static str),
    /// No word at all.
    #[error("offline: no word for it; without one nothing is told: offline = \"offline\"")]
    NoWord,
    /// A word of both sides.
    #[error("offline: `{0}` is a word for online too; write it once")]
    Both(String),
}

/// A segment of the topic, or a text.
#[derive(Clone, Debug)]
enum Place {
    Topic(usize),
    Const(Box<str>),
}

impl Place {
    fn of(from: &Reference, template: &Template, field: &'static str) -> Result<Self, StatusError> {
        match from {
            Reference::Const(text) => Ok(Self::Const(text.as_str().into())),
            Reference::Topic(name) => {
                template.segment(name).map(Self::Topic).ok_or(StatusError::Place(field))
            }
            Reference::Item(_) | Reference::Root(_) => Err(StatusError::Place(field)),
        }
    }

    fn read<'a>(&'a self, segments: &Segments<'a>) -> &'a str {
        match self {
            Self::Topic(number) => segments.get(*number),
            Self::Const(text) => text,
        }
    }
}

/// Where the word is.
#[derive(Clone, Debug)]
enum Word {
    Body,
    Pointer(Box<str>),
    Place(Place),
}

/// A [`StatusSpec`], compiled.
#[derive(Clone, Debug)]
pub struct StatusTopic {
    template: Template,
    word: Word,
    online: Vec<String>,
    offline: Vec<String>,
    scope: Scope,
    device: Place,
    region: Place,
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status<'a> {
    /// Whom it is about.
    pub scope: Scope,
    /// The device; of no meaning where the scope is a region.
    pub device: &'a str,
    /// Its region.
    pub region: &'a str,
    /// There, or gone. `None`: no word of either side.
    pub online: Option<bool>,
}

impl StatusTopic {
    /// Checks and compiles.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn new(spec: &StatusSpec) -> Result<Self, StatusError> {
        let template: Template = spec.topic.parse()?;
        if spec.offline.is_empty() {
            return Err(StatusError::NoWord);
        }
        if let Some(both) = spec.offline.iter().find(|word| spec.online.contains(word)) {
            return Err(StatusError::Both(both.clone()));
        }
        let word = match &spec.from {
            None => Word::Body,
            Some(Reference::Item(pointer) | Reference::Root(pointer)) => {
                Word::Pointer(pointer.as_str().into())
            }
            Some(from) => Word::Place(Place::of(from, &template, "from")?),
        };
        let device = match spec.scope {
            Scope::Device => Place::of(&spec.device, &template, "device")?,
            Scope::Region | Scope::Source => Place::Const("".into()),
        };
        let region = match spec.scope {
            Scope::Device | Scope::Region => Place::of(&spec.region, &template, "region")?,
            Scope::Source => Place::Const("".into()),
        };
        let (online, offline) = (spec.online.clone(), spec.offline.clone());
        Ok(Self { template, word, online, offline, scope: spec.scope, device, region })
    }

    /// The MQTT filter to subscribe to.
    pub fn filter(&self) -> String {
        self.template.filter()
    }

    /// What a message says; `None`: its topic is another.
    pub fn read<'a>(&'a self, topic: &'a str, payload: &[u8]) -> Option<Status<'a>> {
        let segments = self.template.matches(topic)?;
        let is = |words: &[String], word: &str| words.iter().any(|known| known == word);
        let online = self.word(&segments, payload).and_then(|word| {
            if is(&self.offline, &word) {
                Some(false)
            } else {
                is(&self.online, &word).then_some(true)
            }
        });
        let (device, region) = (self.device.read(&segments), self.region.read(&segments));
        let is_named = match self.scope {
            Scope::Device => !region.is_empty() && !device.is_empty(),
            Scope::Region => !region.is_empty(),
            Scope::Source => true,
        };
        Some(Status { scope: self.scope, device, region, online: online.filter(|_| is_named) })
    }

    fn word(&self, segments: &Segments<'_>, payload: &[u8]) -> Option<String> {
        match &self.word {
            Word::Place(place) => Some(place.read(segments).to_owned()),
            Word::Pointer(pointer) => {
                let value: Value = serde_json::from_slice(payload).ok()?;
                scalar(value.pointer(pointer)?)
            }
            Word::Body => {
                let text = std::str::from_utf8(payload).ok()?.trim();
                let value = serde_json::from_str::<Value>(text).ok();
                value.as_ref().and_then(scalar).or_else(|| Some(text.to_owned()))
            }
        }
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> StatusSpec {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        StatusSpec {
            topic: "tele/{device}/LWT".into(),
            from: None,
            online: words(&["Online", "true", "1"]),
            offline: words(&["Offline", "false", "0", ""]),
            scope: Scope::Device,
            device: Reference::Topic("device".into()),
            region: Reference::Const("north".into()),
        }
    }

    fn said(spec: &StatusSpec, topic: &str, payload: &str) -> Option<Option<bool>> {
        let compiled = StatusTopic::new(spec).expect("no mistake");
        compiled.read(topic, payload.as_bytes()).map(|status| status.online)
    }

    #[test]
    fn a_word_is_the_payload_plain_or_as_json() {
        let of = |payload| said(&spec(), "tele/m-1/LWT", payload);
        for (payload, online) in [
            ("Online", Some(true)),
            (" \"Offline\"\n", Some(false)),
            ("true", Some(true)),
            ("0", Some(false)),
            ("", Some(false)),
            ("Onlin", None),
            ("{\"a\":1}", None),
        ] {
            assert_eq!(of(payload), Some(online), "{payload}");
        }
        assert_eq!(said(&spec(), "tele/m-1/STATE", "Online"), None);
    }

    #[test]
    fn a_word_is_at_a_place_in_the_payload_or_in_the_topic() {
        let nested = StatusSpec { from: Some("/a/state".parse().expect("one")), ..spec() };
        assert_eq!(said(&nested, "tele/m/LWT", r#"{"a":{"state":"Online"}}"#), Some(Some(true)));
        assert_eq!(said(&nested, "tele/m/LWT", "Online"), Some(None));
        let by_topic = StatusSpec {
            topic: "spb/{region}/{kind}/{device}".into(),
            from: Some("topic:kind".parse().expect("one")),
            offline: vec!["DDEATH".into()],
            region: Reference::Topic("region".into()),
            ..spec()
        };
        let compiled = StatusTopic::new(&by_topic).expect("no mistake");
        let read = compiled.read("spb/g/DDEATH/m", b"\xff").expect("its topic");
        assert_eq!((read.region, read.device, read.online), ("g", "m", Some(false)));
        assert_eq!(compiled.filter(), "spb/+/+/+");
    }

    #[test]
    fn what_could_never_be_said_is_refused() {
        let error = |spec: StatusSpec| StatusTopic::new(&spec).expect_err("a mistake").to_string();
        assert!(error(StatusSpec { offline: vec![], ..spec() }).starts_with("offline: no word"));
        let both = StatusSpec { online: vec!["0".into()], ..spec() };
        assert!(error(both).starts_with("offline: `0` is a word for online too"));
        let device = "/id".parse().expect("one");
        assert!(error(StatusSpec { device, ..spec() }).starts_with("device: write `topic:name`"));
    }
}
