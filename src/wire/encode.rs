//! From outputs to topics and JSON (SPEC 8). `docs/wire.md` is the contract, field by field.
//!
//! What the topic says is not said again in the body: an hourly result of a meter has 400 bytes for
//! both. A line of a replay has no topic, so it carries the topic's part as fields. Each output has
//! one view of each part here; those of results are in `result`.

use std::sync::Arc;

use serde::{Serialize, Serializer};
use xxhash_rust::xxh3::xxh3_64;

use crate::event::{
    Alert, AlertKind, Class, GapCause, GapReport, LateRecord, Method, Output, PresenceCause,
    PresenceReport, PresenceState, Refused, RegionResult, TimeUnit, WatermarkReport, WindowResult,
};
use crate::ids::{DeviceId, Generation, RegionId, SourceId, WindowId};
use crate::time::{ClockQuality, EventTime};
use crate::wire::fields::Fields;
use crate::wire::record::Record;
use crate::wire::result::{RegionView, WindowView};
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
    /// Equal for outputs of which only the last one matters: revisions of one window, watermarks of
    /// one region, alerts of one device on one matter. An unsent one may be replaced by its successor. `None`: it stands for itself.
    pub supersedes: Option<u64>,
}

/// Encodes for the central broker; `fields` are what a result tells besides what it always does.
pub fn encode(output: &Output, identity: &Identity, fields: Fields) -> Encoded {
    let place = Place::of(output);
    let topic = place.topic();
    let payload = to_json(&Body::of(output, identity, fields)).into_bytes();
    Encoded {
        supersedes: supersedes(output, &topic, identity),
        topic,
        payload,
        class: output.class(),
    }
}

/// Encodes as one line of a replay, without the line's end: type, cause and place, then the body with all fields.
/// `line` is the number of the input line that caused it, `None` at the end of the input.
pub fn encode_line(output: &Output, identity: &Identity, line: Option<u64>) -> String {
    let place = Place::of(output);
    let gateway = &identity.gateway;
    to_json(&Line {
        r#type: type_name(output),
        line,
        gateway,
        place,
        body: Body::of(output, identity, Fields::ALL),
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
        Output::Presence(_) => "presence",
        Output::Gap(_) => "gateway-gap",
    }
}

/// The topic comes first: it has no control characters, so that no two identities make the same
/// text.
fn supersedes(output: &Output, topic: &str, identity: &Identity) -> Option<u64> {
    let firing = match output {
        Output::Window(result) => &result.firing,
        Output::Region(result) => &result.firing,
        Output::Alert(alert) => return Some(supersedes_alert(alert.kind, topic)),
        Output::Watermark(_) => return Some(xxh3_64(topic.as_bytes())),
        Output::Late(_) | Output::Refused(_) | Output::Presence(_) | Output::Gap(_) => return None,
    };
    let Identity { gateway, generation } = identity;
    Some(xxh3_64(format!("{topic}\n{generation}\n{}\n{gateway}", firing.start.0).as_bytes()))
}

/// Alerts on one matter take each other's place: the device's part in its region, its clock, and each of the others.
fn supersedes_alert(kind: AlertKind, topic: &str) -> u64 {
    let matter = match kind {
        AlertKind::HeldOut | AlertKind::BackIn => return xxh3_64(topic.as_bytes()),
        AlertKind::UnitChanged { .. } | AlertKind::SkippedHour { .. } => kind.as_str(),
        AlertKind::ClockCorrected(_) | AlertKind::ClockWrong(_) | AlertKind::ClockRight(_) => {
            "clock"
        }
    };
    xxh3_64(format!("{topic}\n{matter}").as_bytes())
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
    Presence { region: &'a str, device: &'a str },
    Gap {},
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
                Self::Watermark { region: region.as_ref().map(RegionId::as_str) }
            }
            Output::Alert(Alert { region, device, .. }) => {
                Self::Alert { region: region.as_str(), device: device.as_str() }
            }
            Output::Presence(PresenceReport { region, device, .. }) => {
                Self::Presence { region: region.as_str(), device: device.as_str() }
            }
            Output::Gap(_) => Self::Gap {},
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
            Self::Presence { region, device } => join("presence", &[region, device]),
            Self::Gap {} => "gateway-gap".into(),
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
    Alert(AlertView),
    Presence(PresenceView),
    Gap { start: i64, end: i64, cause: GapCause, clock: ClockQuality },
}

impl<'a> Body<'a> {
    fn of(output: &'a Output, identity: &Identity, fields: Fields) -> Self {
        let content = match output {
            Output::Window(result) => Content::Window(WindowView::of(result, fields)),
            Output::Region(result) => Content::Region(RegionView::of(result, fields)),
            Output::Late(record) => Content::Late(LateView::of(record)),
            Output::Refused(refused) => Content::Refused(RefusedView::of(refused)),
            Output::Watermark(WatermarkReport { watermark, clock, .. }) => {
                Content::Watermark { watermark: watermark.and_then(finite_time), clock: *clock }
            }
            Output::Alert(alert) => Content::Alert(AlertView::of(alert)),
            Output::Presence(report) => Content::Presence(PresenceView::of(report)),
            Output::Gap(GapReport { start, end, cause, clock }) => {
                Content::Gap { start: start.0, end: end.0, cause: *cause, clock: *clock }
            }
        };
        Self { schema: SCHEMA, generation: identity.generation, content }
    }
}

/// `None` is infinity, the end of a replay.
pub(super) fn finite_time(time: EventTime) -> Option<i64> {
    (time != EventTime::MAX).then_some(time.0)
}

pub(super) fn is_zero<N: PartialEq + Default>(count: &N) -> bool {
    *count == N::default()
}

#[derive(Serialize)]
struct AlertView {
    kind: &'static str,
    watermark: Option<i64>,
    clock: ClockQuality,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit_before: Option<TimeUnit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<TimeUnit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<i64>,
}

impl AlertView {
    fn of(alert: &Alert) -> Self {
        let mut view = Self {
            kind: alert.kind.as_str(),
            watermark: finite_time(alert.watermark).filter(|_| alert.watermark != EventTime::MIN),
            clock: alert.clock,
            unit_before: None,
            unit: None,
            time: None,
            offset: alert.kind.clock_offset().map(|offset| offset.0),
        };
        match alert.kind {
            AlertKind::HeldOut | AlertKind::BackIn => {}
            AlertKind::UnitChanged { before, unit } => {
                (view.unit_before, view.unit) = (Some(before), Some(unit));
            }
            AlertKind::SkippedHour { time } => view.time = Some(time.0),
            AlertKind::ClockCorrected(_) | AlertKind::ClockWrong(_) | AlertKind::ClockRight(_) => {}
        }
        view
    }
}

#[derive(Serialize)]
struct LateView<'a> {
    source: &'a SourceId,
    time: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_time: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<Method>,
    window: &'a WindowId,
    start: i64,
    end: i64,
    watermark: Option<i64>,
    arrival: Option<i64>,
    clock: ClockQuality,
    #[serde(flatten)]
    record: Record<'a>,
}

impl<'a> LateView<'a> {
    fn of(late: &'a LateRecord) -> Self {
        Self {
            source: &late.source,
            time: late.time.0,
            device_time: late.moved.and_then(|moved| moved.device_time),
            offset: late.moved.and_then(|moved| moved.offset).map(|offset| offset.0),
            method: late.moved.map(|moved| moved.method),
            window: &late.window,
            start: late.start.0,
            end: late.end.0,
            watermark: finite_time(late.watermark),
            arrival: late.arrival.map(|arrival| arrival.0),
            clock: late.clock,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<Method>,
    arrival: Option<i64>,
    clock: ClockQuality,
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
            offset: refused.offset.map(|(offset, _)| offset.0),
            method: refused.offset.map(|(_, method)| method),
            arrival: refused.arrival.map(|arrival| arrival.0),
            clock: refused.clock,
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

#[derive(Serialize)]
struct PresenceView {
    state: PresenceState,
    since: i64,
    cause: PresenceCause,
    last_seen: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outage: Option<i64>,
    clock: ClockQuality,
}

impl PresenceView {
    fn of(report: &PresenceReport) -> Self {
        Self {
            state: report.state,
            since: report.since.0,
            cause: report.cause,
            last_seen: report.last_seen.map(|at| at.0),
            outage: report.outage.map(|span| span.0),
            clock: report.clock,
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Cause, Firing, MetricResult, Reason};
    use crate::time::{ArrivalTime, Span};
    use crate::wire::fields::Field;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn identity() -> Identity {
        Identity { gateway: "gw-0017".into(), generation: Generation(0x9f3c_0a1b_2c3d_4e5f) }
    }

    fn firing() -> Firing {
        Firing {
            window: "hour".into(),
            start: EventTime(1_749_945_600_000),
            end: EventTime(1_749_949_200_000),
            revision: 0,
            cause: Cause::Heartbeat,
            watermark: Some(EventTime(1_749_949_205_916)),
            samples: 360,
            stamped: 0,
            corrected: 0,
            partial: false,
            clock: ClockQuality::Synchronised,
        }
    }

    fn metric() -> MetricResult {
        MetricResult {
            metric: "power".into(),
            unit: "W".into(),
            count: 360,
            sum: Some(729_271.250_000_000_1),
            mean: Some(2_025.753_472_222_222_4),
            min: Some(1_980.125),
            max: Some(2_101.5),
            first: None,
            last: None,
            deviation: None,
            sum_of_means: None,
        }
    }

    fn window() -> WindowResult {
        WindowResult {
            firing: firing(),
            source: "meters".into(),
            region: "north".into(),
            device: "m-0003".into(),
            expected: Some(360),
            coverage: 1.0,
            largest_gap: Span::ZERO,
            first: EventTime(1_749_945_600_916),
            last: EventTime(1_749_949_190_916),
            metrics: vec![metric()],
        }
    }

    fn region() -> RegionResult {
        let metric = MetricResult { sum_of_means: Some(4_051.5), ..metric() };
        let (region, metrics) = ("north".into(), vec![metric]);
        RegionResult { firing: firing(), region, reporting: 2, devices: 3, metrics }
    }

    fn late() -> LateRecord {
        LateRecord {
            source: "meters".into(),
            region: "north".into(),
            device: "m-0003".into(),
            time: EventTime(1_749_946_087_916),
            moved: None,
            window: "hour".into(),
            start: EventTime(1_749_945_600_000),
            end: EventTime(1_749_949_200_000),
            watermark: EventTime(1_749_956_400_000),
            arrival: Some(ArrivalTime(1_749_956_401_000)),
            clock: ClockQuality::Synchronised,
            content: br#"{"device":"m-0003","power":2025.750}"#.to_vec(),
        }
    }

    fn refused(reason: Reason) -> Refused {
        Refused {
            reason,
            source: "meters".into(),
            key: None,
            topic: "meters/north/m-0003/data".into(),
            device_time: None,
            offset: None,
            arrival: None,
            clock: ClockQuality::Synchronised,
            content: b"{\"a\":".to_vec(),
            length: 5,
            digest: None,
            withheld: 0,
        }
    }

    fn watermark(region: Option<&str>) -> Output {
        let watermark = Some(EventTime(1_749_949_205_916));
        let region = region.map(Into::into);
        Output::Watermark(WatermarkReport { region, watermark, clock: ClockQuality::Holdover })
    }

    fn alert() -> Output {
        Output::Alert(Alert {
            kind: AlertKind::HeldOut,
            region: "north".into(),
            device: "m-0003".into(),
            watermark: EventTime(5),
            clock: ClockQuality::Synchronised,
        })
    }

    fn body(output: &Output) -> Value {
        let encoded = encode(output, &identity(), Fields::ALL);
        let body: Value = serde_json::from_slice(&encoded.payload).unwrap();
        assert_eq!((&body["schema"], &body["generation"]), (&json!(1), &json!("9f3c0a1b2c3d4e5f")));
        body
    }

    fn topic(output: &Output) -> String {
        encode(output, &identity(), Fields::ALL).topic
    }

    #[test]
    fn a_result_tells_what_is_asked_for() {
        let ends = MetricResult { first: Some(1.0), ..metric() };
        let fewer = MetricResult { metric: "flow".into(), count: 7, ..metric() };
        let window = Output::Window(WindowResult { metrics: vec![ends, fewer], ..window() });
        let told = |fields| {
            let payload = encode(&window, &identity(), fields).payload;
            serde_json::from_slice::<Value>(&payload).unwrap()
        };
        let none = told([].into_iter().collect());
        for field in Field::ALL {
            let one = told([field].into_iter().collect());
            let of_metric = matches!(field, Field::Unit | Field::Count);
            let place = if of_metric { "/metrics/power/" } else { "/" }.to_owned() + field.as_str();
            let all = told(Fields::ALL).pointer(&place).cloned();
            assert!(all.is_some(), "{field:?}");
            assert_eq!(
                (none.pointer(&place), one.pointer(&place)),
                (None, all.as_ref()),
                "{field:?}"
            );
        }
        let always = json!({
            "schema": 1, "generation": "9f3c0a1b2c3d4e5f", "start": 1_749_945_600_000_i64, "revision": 0,
            "samples": 360, "metrics": none["metrics"],
        });
        assert_eq!(none, always);
        assert_eq!(none["metrics"]["flow"]["count"], 7, "not as many as the samples");
    }

    #[test]
    fn each_output_has_its_topic_and_escapes_its_ids() {
        assert_eq!(topic(&Output::Window(window())), "window/hour/north/m-0003");
        assert_eq!(topic(&Output::Region(region())), "region/hour/north");
        assert_eq!(topic(&Output::Late(late())), "late/north/m-0003");
        assert_eq!(
            topic(&Output::Refused(refused(Reason::OtherSource))),
            "quarantine/other-source/meters"
        );
        assert_eq!(topic(&watermark(Some("north"))), "watermark/north");
        assert_eq!(topic(&watermark(None)), "watermark");
        assert_eq!(topic(&alert()), "alert/north/m-0003");
        let odd = WindowResult { region: "".into(), device: "a/b#%".into(), ..window() };
        assert_eq!(topic(&Output::Window(odd)), "window/hour/%/a%2Fb%23%25");
        assert_eq!(topic(&watermark(Some(""))), "watermark/%");
    }

    #[test]
    fn exceptions_are_said_only_where_there_are_any() {
        let firing =
            Firing { stamped: 2, partial: true, watermark: None, cause: Cause::End, ..firing() };
        let metric =
            MetricResult { first: Some(1.0), last: Some(2.0), deviation: Some(0.5), ..metric() };
        let result = WindowResult { firing, metrics: vec![metric], expected: None, ..window() };
        let body = body(&Output::Window(result));
        assert_eq!((&body["stamped"], &body["partial"]), (&json!(2), &json!(true)));
        assert_eq!((&body["watermark"], &body["cause"]), (&Value::Null, &json!("end")));
        assert_eq!(body["first_at"], json!(1_749_945_600_916_i64));
        assert_eq!(body["last_at"], json!(1_749_949_190_916_i64));
        assert_eq!(body["metrics"]["power"]["deviation"], json!(0.5));
        assert!(body.get("expected").is_none());
    }

    #[test]
    fn infinity_is_null_wherever_a_watermark_is_told() {
        let infinite = |output| assert_eq!(body(&output)["watermark"], Value::Null);
        let firing = Firing { watermark: Some(EventTime::MAX), ..firing() };
        infinite(Output::Window(WindowResult { firing, ..window() }));
        infinite(Output::Late(LateRecord { watermark: EventTime::MAX, ..late() }));
    }

    #[test]
    fn a_region_says_how_many_devices_it_is_made_of() {
        let body = body(&Output::Region(region()));
        assert_eq!((&body["reporting"], &body["devices"]), (&json!(2), &json!(3)));
        assert_eq!(body["metrics"]["power"]["sum_of_means"], json!(4051.5));
    }

    #[test]
    fn numbers_that_json_cannot_write_are_left_out() {
        let metric = MetricResult { sum: Some(f64::INFINITY), mean: Some(f64::NAN), ..metric() };
        let result = WindowResult { metrics: vec![metric], coverage: f64::NAN, ..window() };
        let body = body(&Output::Window(result));
        assert!(body.get("coverage").is_none());
        let metric = body["metrics"]["power"].as_object().unwrap();
        assert!(
            !metric.contains_key("sum")
                && !metric.contains_key("mean")
                && metric.contains_key("min")
        );
    }

    #[test]
    fn a_late_record_is_forwarded_whole() {
        let encoded = encode(&Output::Late(late()), &identity(), Fields::ALL);
        let text = String::from_utf8(encoded.payload).unwrap();
        assert_eq!(
            text,
            "{\"schema\":1,\"generation\":\"9f3c0a1b2c3d4e5f\",\"source\":\"meters\",\
             \"time\":1749946087916,\"window\":\"hour\",\"start\":1749945600000,\
             \"end\":1749949200000,\"watermark\":1749956400000,\"arrival\":1749956401000,\
             \"clock\":\"synchronised\",\"record\":{\"device\":\"m-0003\",\"power\":2025.750}}"
        );
        let bytes = LateRecord { content: vec![0xff], arrival: None, ..late() };
        let body = body(&Output::Late(bytes));
        assert_eq!((&body["record_base64"], &body["arrival"]), (&json!("/w=="), &Value::Null));
    }

    #[test]
    fn a_refused_message_says_what_was_received() {
        let broken = body(&Output::Refused(refused(Reason::Syntax)));
        assert_eq!(broken["record_base64"], json!("eyJhIjo="));
        assert_eq!(
            (&broken["topic"], &broken["length"]),
            (&json!("meters/north/m-0003/data"), &json!(5))
        );
        assert!(broken.get("withheld").is_none() && broken.get("device").is_none());
        let cut = body(&Output::Refused(Refused {
            key: Some(("north".into(), "m".into())),
            device_time: Some(7),
            content: b"1".to_vec(),
            length: 5_000,
            digest: Some([0xab; 32]),
            withheld: 9,
            ..refused(Reason::Future)
        }));
        assert_eq!((&cut["region"], &cut["device"]), (&json!("north"), &json!("m")));
        assert_eq!((&cut["device_time"], &cut["withheld"]), (&json!(7), &json!(9)));
        assert_eq!(
            (&cut["sha256"], &cut["record_base64"]),
            (&json!("ab".repeat(32)), &json!("MQ=="))
        );
    }

    #[test]
    fn watermarks_and_alerts_are_short() {
        let watermark = encode(&watermark(None), &identity(), Fields::ALL).payload;
        let expected = "{\"schema\":1,\"generation\":\"9f3c0a1b2c3d4e5f\",\
                        \"watermark\":1749949205916,\"clock\":\"holdover\"}";
        assert_eq!(String::from_utf8(watermark).unwrap(), expected);
        let expected = "{\"schema\":1,\"generation\":\"9f3c0a1b2c3d4e5f\",\
                        \"kind\":\"held-out\",\"watermark\":5,\"clock\":\"synchronised\"}";
        assert_eq!(
            String::from_utf8(encode(&alert(), &identity(), Fields::ALL).payload).unwrap(),
            expected
        );
    }

    #[test]
    fn a_revision_supersedes_the_one_before_and_nothing_else() {
        let key = |result: WindowResult| {
            encode(&Output::Window(result), &identity(), Fields::ALL).supersedes.unwrap()
        };
        let first = key(window());
        let revised = Firing { revision: 3, cause: Cause::Element, samples: 361, ..firing() };
        assert_eq!(first, key(WindowResult { firing: revised, ..window() }));
        let next = Firing { start: firing().end, ..firing() };
        let day = Firing { window: "day".into(), ..firing() };
        let mut others = vec![
            key(WindowResult { firing: next, ..window() }),
            key(WindowResult { firing: day, ..window() }),
            key(WindowResult { device: "m-0004".into(), ..window() }),
            key(WindowResult { region: "south".into(), ..window() }),
            encode(&Output::Region(region()), &identity(), Fields::ALL).supersedes.unwrap(),
            encode(
                &Output::Window(window()),
                &Identity { generation: Generation(1), ..identity() },
                Fields::ALL,
            )
            .supersedes
            .unwrap(),
            encode(
                &Output::Window(window()),
                &Identity { gateway: "b".into(), ..identity() },
                Fields::ALL,
            )
            .supersedes
            .unwrap(),
        ];
        others.push(first);
        others.sort_unstable();
        others.dedup();
        assert_eq!(others.len(), 8);
    }

    #[test]
    fn only_the_last_watermark_of_a_region_and_alert_of_a_device_matter() {
        let key = |output: &Output| encode(output, &identity(), Fields::ALL).supersedes;
        assert_eq!(key(&watermark(Some("a"))), key(&watermark(Some("a"))));
        assert_ne!(key(&watermark(Some("a"))), key(&watermark(None)));
        assert!(key(&watermark(None)).is_some());
        assert_eq!(key(&alert()), key(&alert()));
        assert_ne!(key(&alert()), key(&watermark(None)));
        let alone = [Output::Late(late()), Output::Refused(refused(Reason::Past))];
        assert!(alone.iter().all(|output| key(output).is_none()));
    }

    #[test]
    fn an_alert_is_superseded_by_news_of_the_same_thing_only() {
        let key = |kind| {
            let Output::Alert(alert) = alert() else { unreachable!() };
            encode(&Output::Alert(Alert { kind, ..alert }), &identity(), Fields::ALL).supersedes
        };
        let changed = |before, unit| AlertKind::UnitChanged { before, unit };
        let skipped = |time| AlertKind::SkippedHour { time: EventTime(time) };
        let (there, back) = (
            changed(TimeUnit::Seconds, TimeUnit::Text),
            changed(TimeUnit::Text, TimeUnit::Seconds),
        );
        assert_eq!(key(AlertKind::HeldOut), key(AlertKind::BackIn));
        assert_eq!((key(there), key(skipped(1))), (key(back), key(skipped(2))));
        let kinds = [key(AlertKind::HeldOut), key(there), key(skipped(1))];
        assert!(kinds[0] != kinds[1] && kinds[1] != kinds[2] && kinds[0] != kinds[2]);
    }

    #[test]
    fn an_alert_says_what_its_kind_is_about() {
        let told = |kind, watermark| {
            let (region, device) = ("north".into(), "m".into());
            let clock = ClockQuality::Suspect;
            let mut body = body(&Output::Alert(Alert { kind, region, device, watermark, clock }));
            let body = body.as_object_mut().unwrap();
            body.retain(|key, _| !["schema", "generation", "clock"].contains(&key.as_str()));
            json!(body)
        };
        let (before, unit) = (TimeUnit::Seconds, TimeUnit::Microseconds);
        assert_eq!(
            told(AlertKind::UnitChanged { before, unit }, EventTime(7)),
            json!({ "kind": "unit-changed", "watermark": 7, "unit_before": "seconds", "unit": "microseconds" })
        );
        assert_eq!(
            told(AlertKind::SkippedHour { time: EventTime(5) }, EventTime::MIN),
            json!({ "kind": "skipped-hour", "watermark": null, "time": 5 })
        );
        assert_eq!(
            told(AlertKind::BackIn, EventTime::MAX),
            json!({ "kind": "back-in", "watermark": null })
        );
        for unit in TimeUnit::ALL {
            assert_eq!(json!(unit), json!(unit.as_str()));
        }
    }

    #[test]
    fn keys_of_what_supersedes_what_stay_the_same_over_versions() {
        // The outbox keeps them on disk.
        let key = |output| encode(&output, &identity(), Fields::ALL).supersedes;
        assert_eq!(key(Output::Window(window())), Some(1_993_129_059_857_949_692));
        assert_eq!(key(watermark(Some("north"))), Some(2_815_046_449_065_670_283));
    }

    #[test]
    fn the_least_valuable_goes_first() {
        let class = |output| encode(&output, &identity(), Fields::ALL).class;
        let ranked = [
            class(watermark(None)),
            class(Output::Refused(refused(Reason::Oversize))),
            class(Output::Refused(refused(Reason::NoTime))),
            class(Output::Late(late())),
            class(Output::Region(region())),
            class(alert()),
            Class::Presence,
        ];
        assert!(ranked.is_sorted_by(|a, b| a < b), "{ranked:?}");
    }

    #[test]
    fn reasons_have_one_name() {
        use Reason::*;
        for reason in [Future, Past, NoTime, OtherSource, Syntax, Empty, Shape, Oversize] {
            assert_eq!(json!(reason), json!(reason.as_str()));
        }
    }

    #[test]
    fn a_line_is_the_body_with_type_cause_and_place_before_it() {
        let outputs = [
            Output::Window(WindowResult { device: "m".into(), ..window() }),
            Output::Region(region()),
            Output::Late(late()),
            Output::Refused(refused(Reason::Syntax)),
            watermark(None),
            alert(),
        ];
        let places = [
            r#"window","line":7,"gateway":"gw","window":"hour","region":"north","device":"m","#,
            r#"region","line":7,"gateway":"gw","window":"hour","region":"north","#,
            r#"late","line":7,"gateway":"gw","region":"north","device":"m-0003","#,
            r#"refused","line":7,"gateway":"gw","reason":"syntax","source":"meters","#,
            r#"watermark","line":7,"gateway":"gw","region":null,"#,
            r#"alert","line":7,"gateway":"gw","region":"north","device":"m-0003","#,
        ];
        let identity = Identity { gateway: "gw".into(), ..identity() };
        for (output, place) in outputs.iter().zip(places) {
            let body = String::from_utf8(encode(output, &identity, Fields::ALL).payload).unwrap();
            let line = format!(r#"{{"type":"{place}{}"#, &body[1..]);
            assert_eq!(encode_line(output, &identity, Some(7)), line);
        }
        assert!(
            encode_line(&alert(), &identity, None).starts_with(r#"{"type":"alert","line":null,"#)
        );
    }

    #[test]
    fn the_contract_shows_these_messages_and_names_every_field() {
        const CONTRACT: &str = include_str!("../../docs/wire.md");
        let plain = [
            Output::Window(window()),
            Output::Region(region()),
            Output::Late(late()),
            Output::Refused(refused(Reason::Syntax)),
            watermark(None),
            alert(),
        ];
        for output in &plain {
            let payload = encode(output, &identity(), Fields::default()).payload;
            let text = String::from_utf8(payload).unwrap();
            assert!(CONTRACT.contains(&format!("```json\n{text}\n```")), "{text}");
        }
        let firing = Firing { stamped: 1, partial: true, ..firing() };
        let metric =
            MetricResult { first: Some(1.0), last: Some(2.0), deviation: Some(0.5), ..metric() };
        let all = Refused {
            key: Some(("north".into(), "m".into())),
            device_time: Some(7),
            digest: Some([0; 32]),
            withheld: 1,
            ..refused(Reason::Future)
        };
        let full = [
            Output::Window(WindowResult { firing, metrics: vec![metric], ..window() }),
            Output::Refused(all),
        ];
        for output in plain.iter().chain(&full) {
            let line: Value =
                serde_json::from_str(&encode_line(output, &identity(), Some(7))).unwrap();
            let metric = line.pointer("/metrics/power").and_then(Value::as_object);
            for field in line.as_object().into_iter().chain(metric).flat_map(|fields| fields.keys())
            {
                assert!(CONTRACT.contains(&format!("`{field}`")), "{field}");
            }
        }
    }

    proptest! {
        #[test]
        fn every_line_is_one_line_of_json_with_each_field_once(
            id in any::<String>(), content in any::<Vec<u8>>(), value: f64,
        ) {
            let metric = MetricResult { metric: id.as_str().into(), sum: Some(value), ..metric() };
            let device = DeviceId::from(id.as_str());
            let metrics = vec![metric];
            let window = WindowResult { device: device.clone(), metrics, ..window() };
            let late = LateRecord { device, content: content.clone(), ..late() };
            let refused = Refused { topic: id, content, ..refused(Reason::Shape) };
            for output in [Output::Window(window), Output::Late(late), Output::Refused(refused)] {
                let line = encode_line(&output, &identity(), None);
                let fields: Vec<String> = keys(&line);
                let once: std::collections::BTreeSet<&String> = fields.iter().collect();
                prop_assert_eq!(once.len(), fields.len());
                let topic = encode(&output, &identity(), Fields::ALL).topic;
                prop_assert!(!line.contains('\n') && !topic.contains(['+', '#', '\0']));
            }
        }
    }

    /// The keys of an object as written, repeated ones too.
    fn keys(line: &str) -> Vec<String> {
        struct Keys;
        impl<'de> serde::de::Visitor<'de> for Keys {
            type Value = Vec<String>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Vec<String>, A::Error> {
                let mut keys = Vec::new();
                while let Some((key, _)) = map.next_entry::<String, Value>()? {
                    keys.push(key);
                }
                Ok(keys)
            }
        }
        let mut parser = serde_json::Deserializer::from_str(line);
        serde::Deserializer::deserialize_map(&mut parser, Keys).unwrap()
    }
}
