//! From outputs to topics and JSON (SPEC 8). `docs/wire.md` is the contract, field by field.
//!
//! What the topic says is not said again in the body: an hourly result of a meter has 400 bytes for both. A line of a
//! replay has no topic, so it carries the topic's part as fields. Each output has one view of each part here.

use std::sync::Arc;

use serde::{Serialize, Serializer};
use xxhash_rust::xxh3::xxh3_64;

use crate::event::{
    Alert, AlertKind, Cause, Class, Firing, LateRecord, MetricResult, Output, Refused,
    RegionResult, WatermarkReport, WindowResult,
};
use crate::ids::{DeviceId, Generation, RegionId, SourceId, WindowId};
use crate::time::{ClockQuality, EventTime};
use crate::wire::record::Record;
use crate::wire::topic::escape;

/// Version of the upstream contract.
pub const SCHEMA: u32 = 1;

/// Who speaks: the part of every result's identity that is the same for all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Name of the gateway.
    pub gateway: Arc<str>,
    /// The life of the store that computed the result.
    pub generation: Generation,
}

/// An output, ready for the outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// Topic below the prefix.
    pub topic: String,
    /// JSON, UTF-8.
    pub payload: Vec<u8>,
    /// What it is worth when the outbox is full.
    pub class: Class,
    /// Equal for outputs of which only the last one matters: revisions of one window, watermarks of one region. An
    /// unsent one may be replaced by its successor. `None`: it stands for itself.
    pub supersedes: Option<u64>,
}

/// Encodes for the central broker.
pub fn encode(output: &Output, identity: &Identity) -> Encoded {
    let place = Place::of(output);
    let topic = place.topic();
    let payload = to_json(&Body::of(output, identity)).into_bytes();
    Encoded {
        supersedes: supersedes(output, &topic, identity),
        topic,
        payload,
        class: output.class(),
    }
}

/// Encodes as one line of a replay, without the line's end: type, cause and place, then the body. `line` is the number
/// of the input line that caused it, `None` at the end of the input.
pub fn encode_line(output: &Output, identity: &Identity, line: Option<u64>) -> String {
    let place = Place::of(output);
    let gateway = &identity.gateway;
    to_json(&Line {
        r#type: type_name(output),
        line,
        gateway,
        place,
        body: Body::of(output, identity),
    })
}

/// A view has no map with keys that are not text and nothing else that JSON cannot say.
fn to_json(view: &impl Serialize) -> String {
    serde_json::to_string(view).expect("a view of an output is always JSON")
}

fn type_name(output: &Output) -> &'static str {
    match output {
        Output::Window(_) => "window",
        Output::Region(_) => "region",
        Output::Late(_) => "late",
        Output::Refused(_) => "refused",
        Output::Watermark(_) => "watermark",
        Output::Alert(_) => "alert",
    }
}

/// The topic comes first: it has no control characters, so that no two identities make the same text.
fn supersedes(output: &Output, topic: &str, identity: &Identity) -> Option<u64> {
    let firing = match output {
        Output::Window(result) => &result.firing,
        Output::Region(result) => &result.firing,
        Output::Watermark(_) => return Some(xxh3_64(topic.as_bytes())),
        Output::Late(_) | Output::Refused(_) | Output::Alert(_) => return None,
    };
    let Identity { gateway, generation } = identity;
    Some(xxh3_64(format!("{topic}\n{generation}\n{}\n{gateway}", firing.start.0).as_bytes()))
}

#[derive(Serialize)]
struct Line<'a> {
    r#type: &'static str,
    line: Option<u64>,
    gateway: &'a str,
    #[serde(flatten)]
    place: Place<'a>,
    #[serde(flatten)]
    body: Body<'a>,
}

/// What the topic says.
#[derive(Serialize)]
#[serde(untagged)]
enum Place<'a> {
    Window { window: &'a str, region: &'a str, device: &'a str },
    Region { window: &'a str, region: &'a str },
    Late { region: &'a str, device: &'a str },
    Refused { reason: &'a str, source: &'a str },
    Watermark { region: Option<&'a str> },
    Alert { region: &'a str, device: &'a str },
}

impl<'a> Place<'a> {
    fn of(output: &'a Output) -> Self {
        match output {
            Output::Window(WindowResult { firing, region, device, .. }) => Self::Window {
                window: firing.window.as_str(),
                region: region.as_str(),
                device: device.as_str(),
            },
            Output::Region(RegionResult { firing, region, .. }) => {
                Self::Region { window: firing.window.as_str(), region: region.as_str() }
            }
            Output::Late(LateRecord { region, device, .. }) => {
                Self::Late { region: region.as_str(), device: device.as_str() }
            }
            Output::Refused(Refused { reason, source, .. }) => {
                Self::Refused { reason: reason.as_str(), source: source.as_str() }
            }
            Output::Watermark(WatermarkReport { region, .. }) => {
                Self::Watermark { region: region.as_ref().map(|region| region.as_str()) }
            }
            Output::Alert(Alert { region, device, .. }) => {
                Self::Alert { region: region.as_str(), device: device.as_str() }
            }
        }
    }

    fn topic(&self) -> String {
        match self {
            Self::Window { window, region, device } => join("window", &[window, region, device]),
            Self::Region { window, region } => join("region", &[window, region]),
            Self::Late { region, device } => join("late", &[region, device]),
            Self::Refused { reason, source } => join("quarantine", &[reason, source]),
            Self::Watermark { region: Some(region) } => join("watermark", &[region]),
            Self::Watermark { region: None } => "watermark".into(),
            Self::Alert { region, device } => join("alert", &[region, device]),
        }
    }
}

fn join(root: &str, ids: &[&str]) -> String {
    ids.iter().fold(root.to_owned(), |topic, id| topic + "/" + &escape(id))
}

/// What the topic does not say.
#[derive(Serialize)]
struct Body<'a> {
    schema: u32,
    #[serde(serialize_with = "display")]
    generation: Generation,
    #[serde(flatten)]
    content: Content<'a>,
}

fn display<S: Serializer>(generation: &Generation, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(generation)
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Window(WindowView<'a>),
    Region(RegionView<'a>),
    Late(LateView<'a>),
    Refused(RefusedView<'a>),
    Watermark { watermark: Option<i64>, clock: ClockQuality },
    Alert { kind: AlertKind, watermark: Option<i64> },
}

impl<'a> Body<'a> {
    fn of(output: &'a Output, identity: &Identity) -> Self {
        let content = match output {
            Output::Window(result) => Content::Window(WindowView::of(result)),
            Output::Region(result) => Content::Region(RegionView::of(result)),
            Output::Late(record) => Content::Late(LateView::of(record)),
            Output::Refused(refused) => Content::Refused(RefusedView::of(refused)),
            Output::Watermark(WatermarkReport { watermark, clock, .. }) => {
                Content::Watermark { watermark: watermark.and_then(finite_time), clock: *clock }
            }
            Output::Alert(Alert { kind, watermark, .. }) => {
                Content::Alert { kind: *kind, watermark: finite_time(*watermark) }
            }
        };
        Self { schema: SCHEMA, generation: identity.generation, content }
    }
}

/// `None` is infinity, the end of a replay.
fn finite_time(time: EventTime) -> Option<i64> {
    (time != EventTime::MAX).then_some(time.0)
}

#[derive(Serialize)]
struct FiringView {
    start: i64,
    end: i64,
    revision: u32,
    cause: Cause,
    watermark: Option<i64>,
    samples: u32,
    #[serde(skip_serializing_if = "is_zero")]
    stamped: u32,
    #[serde(skip_serializing_if = "is_false")]
    partial: bool,
    clock: ClockQuality,
}

fn is_zero<N: PartialEq + Default>(count: &N) -> bool {
    *count == N::default()
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl FiringView {
    fn of(firing: &Firing) -> Self {
        Self {
            start: firing.start.0,
            end: firing.end.0,
            revision: firing.revision,
            cause: firing.cause,
            watermark: firing.watermark.and_then(finite_time),
            samples: firing.samples,
            stamped: firing.stamped,
            partial: firing.partial,
            clock: firing.clock,
        }
    }
}

#[derive(Serialize)]
struct WindowView<'a> {
    #[serde(flatten)]
    firing: FiringView,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    coverage: Option<f64>,
    gap: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_at: Option<i64>,
    #[serde(serialize_with = "metrics")]
    metrics: &'a [MetricResult],
}

impl<'a> WindowView<'a> {
    fn of(result: &'a WindowResult) -> Self {
        let ends = result.metrics.iter().any(|metric| metric.first.or(metric.last).is_some());
        Self {
            firing: FiringView::of(&result.firing),
            expected: result.expected,
            coverage: finite(Some(result.coverage)),
            gap: result.largest_gap.0,
            first_at: ends.then_some(result.first.0),
            last_at: ends.then_some(result.last.0),
            metrics: &result.metrics,
        }
    }
}

#[derive(Serialize)]
struct RegionView<'a> {
    #[serde(flatten)]
    firing: FiringView,
    reporting: u32,
    devices: u32,
    #[serde(serialize_with = "metrics")]
    metrics: &'a [MetricResult],
}

impl<'a> RegionView<'a> {
    fn of(result: &'a RegionResult) -> Self {
        let RegionResult { firing, reporting, devices, metrics, .. } = result;
        let (reporting, devices) = (*reporting, *devices);
        Self { firing: FiringView::of(firing), reporting, devices, metrics }
    }
}

fn metrics<S: Serializer>(metrics: &[MetricResult], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(metrics.iter().map(|metric| (&metric.metric, MetricView::of(metric))))
}

#[derive(Serialize)]
struct MetricView<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    unit: &'a str,
    count: u32,
    #[serde(flatten)]
    aggregates: Aggregates,
}

/// Only what was asked for and is a number: JSON has no NaN.
#[derive(Serialize)]
struct Aggregates {
    #[serde(skip_serializing_if = "Option::is_none")]
    sum: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mean: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deviation: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sum_of_means: Option<f64>,
}

impl<'a> MetricView<'a> {
    fn of(metric: &'a MetricResult) -> Self {
        let aggregates = Aggregates {
            sum: finite(metric.sum),
            mean: finite(metric.mean),
            min: finite(metric.min),
            max: finite(metric.max),
            first: finite(metric.first),
            last: finite(metric.last),
            deviation: finite(metric.deviation),
            sum_of_means: finite(metric.sum_of_means),
        };
        Self { unit: &metric.unit, count: metric.count, aggregates }
    }
}

fn finite(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite())
}

#[derive(Serialize)]
struct LateView<'a> {
    source: &'a SourceId,
    time: i64,
    window: &'a WindowId,
    start: i64,
    end: i64,
    watermark: Option<i64>,
    arrival: Option<i64>,
    #[serde(flatten)]
    record: Record<'a>,
}

impl<'a> LateView<'a> {
    fn of(late: &'a LateRecord) -> Self {
        Self {
            source: &late.source,
            time: late.time.0,
            window: &late.window,
            start: late.start.0,
            end: late.end.0,
            watermark: finite_time(late.watermark),
            arrival: late.arrival.map(|arrival| arrival.0),
            record: Record::of(&late.content),
        }
    }
}

#[derive(Serialize)]
struct RefusedView<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<&'a RegionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<&'a DeviceId>,
    topic: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_time: Option<i64>,
    arrival: Option<i64>,
    length: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    #[serde(skip_serializing_if = "is_zero")]
    withheld: u64,
    #[serde(flatten)]
    record: Record<'a>,
}

impl<'a> RefusedView<'a> {
    fn of(refused: &'a Refused) -> Self {
        let whole = refused.digest.is_none();
        Self {
            region: refused.key.as_ref().map(|(region, _)| region),
            device: refused.key.as_ref().map(|(_, device)| device),
            topic: &refused.topic,
            device_time: refused.device_time,
            arrival: refused.arrival.map(|arrival| arrival.0),
            length: refused.length,
            sha256: refused.digest.as_ref().map(|digest| hex(digest)),
            withheld: refused.withheld,
            record: if whole {
                Record::of(&refused.content)
            } else {
                Record::bytes(&refused.content)
            },
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}
