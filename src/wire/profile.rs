//! A source, compiled: how to read one kind of device, without code.

use crate::ids::SourceId;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Reference {
    /// `topic:name`: a named segment of the topic template.
    Topic(String),
    /// `/json/pointer`: a place in the item (RFC 6901), the whole payload where there are no items.
    Item(String),
    /// `root:/json/pointer`: a place in the payload, outside the item.
    Root(String),
    /// `const:text`: always the same.
    Const(String),
}

/// How a device time is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeFormat {
    /// Seconds since the epoch; integer, fraction, or either as a string.
    EpochS,
    /// Milliseconds since the epoch; integer, fraction, or either as a string.
    EpochMs,
    /// RFC 3339 with `T` or a blank, 0 to 9 fraction digits, `Z` or an offset.
    Rfc3339,
}

/// True where the referenced scalar, as text, is one of `equals`.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// What is compared.
    pub from: Reference,
    /// The values that make it true; numbers and booleans are compared as JSON writes them.
    pub equals: Vec<String>,
}

/// One metric of a source.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricField {
    /// Where the value is.
    pub from: Reference,
    /// Factor applied to it.
    pub scale: f64,
}

/// A source as configured, still to be checked and compiled by [`Profile::new`].
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileSpec {
    /// Its name.
    pub source: SourceId,
    /// MQTT filters to subscribe to; empty: derived from the topic template.
    pub subscribe: Vec<String>,
    /// Topic template, `meters/{region}/{device}/{kind}`.
    pub topic: String,
    /// The device (the key of its windows).
    pub device: Reference,
    /// The region.
    pub region: Reference,
    /// The device time; `None`: the device sends none, and the arrival time is the event time.
    pub time: Option<(Reference, TimeFormat)>,
    /// Which records are heartbeats.
    pub heartbeat: Option<Condition>,
    /// Which records mark their partition idle (replay with `compat = "flink"` only).
    pub idle: Option<Condition>,
    /// Which messages are ignored by rule.
    pub ignore: Option<Condition>,
    /// JSON Pointer of an array of samples; `None`: the payload is the one item.
    pub items: Option<String>,
    /// The metrics, in configured order.
    pub metrics: Vec<MetricField>,
}

/// A compiled source. See `wire::decode` for reading with it.
#[derive(Debug)]
pub struct Profile {
    spec: ProfileSpec,
}

/// What is wrong with a source's description.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ProfileError {}

impl Profile {
    /// Checks and compiles.
    pub fn new(spec: ProfileSpec) -> Result<Self, ProfileError> {
        Ok(Self { spec })
    }

    /// The name of the source.
    pub fn source(&self) -> &SourceId {
        &self.spec.source
    }

    /// MQTT filters to subscribe to.
    pub fn filters(&self) -> &[String] {
        &self.spec.subscribe
    }
}
