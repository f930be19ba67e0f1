//! What the engine says: results, late records, refused records, watermarks, alerts.
//!
//! These are data, not text: `wire::encode` turns them into topics and JSON. An output is complete in itself; whoever
//! gets it needs nothing else to know which hour of which device it speaks of.

mod alert;
mod presence;

use std::sync::Arc;

use crate::ids::{DeviceId, MetricId, RegionId, SourceId, WindowId};
use crate::time::{ArrivalTime, ClockQuality, EventTime, Span};

pub use self::alert::{Alert, AlertKind, TimeUnit};
pub use self::presence::{GapCause, GapReport, PresenceCause, PresenceReport, PresenceState};

/// Everything that leaves the engine.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// A window of one device: the base window or a larger multiple of it.
    Window(WindowResult),
    /// A window of all devices of a region.
    Region(RegionResult),
    /// A record whose window is final.
    Late(LateRecord),
    /// A record or message that was refused.
    Refused(Refused),
    /// Progress of event time in a region or of the whole gateway.
    Watermark(WatermarkReport),
    /// Something an operator should look at.
    Alert(Alert),
    /// A device came or went.
    Presence(PresenceReport),
    /// The gateway itself heard nothing for a while.
    Gap(GapReport),
}

/// What an output is worth when the outbox is full: the least first, and that goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Progress of event time. The next one says all that a lost one did.
    Watermark,
    /// A message of which nothing could be read.
    Malformed,
    /// A record with a time that cannot be right.
    Quarantined,
    /// A record whose window is final.
    Late,
    /// A window of a device or a region.
    Window,
    /// Something an operator should look at.
    Alert,
    /// A device came or went, or the gateway did.
    Presence,
}

impl Output {
    /// What it is worth when the outbox is full.
    pub fn class(&self) -> Class {
        match self {
            Self::Window(_) | Self::Region(_) => Class::Window,
            Self::Late(_) => Class::Late,
            Self::Refused(refused) => refused.reason.class(),
            Self::Watermark(_) => Class::Watermark,
            Self::Alert(_) => Class::Alert,
            Self::Presence(_) | Self::Gap(_) => Class::Presence,
        }
    }
}

/// Why a window fired (SPEC 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// A heartbeat raised the watermark past its end.
    Heartbeat,
    /// The bounded out-of-orderness fallback did.
    Bounded,
    /// The device (or partition) was idle and the clock did.
    Idle,
    /// A record arrived after the window had fired and before it was final.
    Element,
    /// The end of a replayed file.
    End,
}

/// What every window result says, of a device or a region.
#[derive(Clone, Debug, PartialEq)]
pub struct Firing {
    /// Name of the window, `hour`.
    pub window: WindowId,
    /// First instant inside.
    pub start: EventTime,
    /// First instant after it.
    pub end: EventTime,
    /// 0 for the first firing of this window, then 1, 2, …; each holds the whole window so far.
    pub revision: u32,
    /// Why it fired.
    pub cause: Cause,
    /// The watermark that closed it; `None` is infinity, the end of a replay.
    pub watermark: Option<EventTime>,
    /// Records with a value in it.
    pub samples: u32,
    /// How many of these carry the arrival time because their own stamp was unusable.
    pub stamped: u32,
    /// How many of these carry their device time corrected by the offset of the device's clock.
    pub corrected: u32,
    /// The window began before the store that computed it existed.
    pub partial: bool,
    /// Quality of the gateway's clock when it fired.
    pub clock: ClockQuality,
}

/// A fired window of one device.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowResult {
    /// Identity, cause and counts.
    pub firing: Firing,
    /// The source that describes the device.
    pub source: SourceId,
    /// The device's region.
    pub region: RegionId,
    /// The device (the key).
    pub device: DeviceId,
    /// Samples that a device reporting at its configured interval would have sent; `None` without an interval.
    pub expected: Option<u32>,
    /// Share of the window's slots (`engine::coverage`) that hold a sample, 0 to 1.
    pub coverage: f64,
    /// Longest run of empty slots.
    pub largest_gap: Span,
    /// Lowest event time of a sample.
    pub first: EventTime,
    /// Highest event time of a sample.
    pub last: EventTime,
    /// One entry per metric of the source that has a value, in configured order.
    pub metrics: Vec<MetricResult>,
}

/// The aggregates of one metric. `None` where the configuration does not ask for it.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricResult {
    /// Name of the metric.
    pub metric: MetricId,
    /// Its unit as configured, may be empty.
    pub unit: Arc<str>,
    /// Values in it; always known, at least 1.
    pub count: u32,
    /// Sum of the values.
    pub sum: Option<f64>,
    /// Arithmetic mean of the samples.
    pub mean: Option<f64>,
    /// Least value.
    pub min: Option<f64>,
    /// Greatest value.
    pub max: Option<f64>,
    /// The earliest arrived at the lowest event time.
    pub first: Option<f64>,
    /// The latest arrived at the highest event time.
    pub last: Option<f64>,
    /// Standard deviation of the samples (population, divided by n).
    pub deviation: Option<f64>,
    /// Regions only: the sum of the devices' means.
    pub sum_of_means: Option<f64>,
}

/// A fired window of a region: the merge of its devices' windows.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionResult {
    /// Identity, cause and counts.
    pub firing: Firing,
    /// The region.
    pub region: RegionId,
    /// Devices with a sample in the window.
    pub reporting: u32,
    /// Devices known in the region when it fired.
    pub devices: u32,
    /// Merged statistics; `first` and `last` are never set.
    pub metrics: Vec<MetricResult>,
}

/// How an event time was made that is not the device time as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// The estimated offset of the device's clock was added to it.
    Offset,
    /// The arrival time took its place.
    Arrival,
}

/// What an event time was before it was corrected or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Raw device time, where one could be read.
    pub device_time: Option<i64>,
    /// What was added to it.
    pub offset: Option<Span>,
    /// How the event time was made.
    pub method: Method,
}

/// A record that came after its window was final. Forwarded whole.
#[derive(Clone, Debug, PartialEq)]
pub struct LateRecord {
    /// The source that describes the device.
    pub source: SourceId,
    /// The device's region.
    pub region: RegionId,
    /// The device.
    pub device: DeviceId,
    /// Its event time.
    pub time: EventTime,
    /// How that was made, where it is not the device time as written.
    pub moved: Option<Moved>,
    /// The window it would have gone to.
    pub window: WindowId,
    /// Start of that window.
    pub start: EventTime,
    /// End of that window.
    pub end: EventTime,
    /// The watermark when it arrived.
    pub watermark: EventTime,
    /// When it arrived; `None` where nobody knows: in a replay of payloads without arrival times, or of what was held
    /// when the gateway was switched off and never had the time.
    pub arrival: Option<ArrivalTime>,
    /// Quality of the gateway's clock.
    pub clock: ClockQuality,
    /// The record as received: the payload, or its item of an array.
    pub content: Vec<u8>,
}

/// Why a record or a message was refused. The names are part of the upstream contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Quarantined: device time later than now + `future-tolerance`.
    Future,
    /// Quarantined: event time older than `past-limit`.
    Past,
    /// Quarantined: no usable device time and no arrival time to take its place, or one of a time when the gateway was
    /// on and never knew what time it was.
    NoTime,
    /// Quarantined: the region and device already belong to another source.
    OtherSource,
    /// Malformed: not valid UTF-8 or not the configured codec.
    Syntax,
    /// Malformed: nothing there.
    Empty,
    /// Malformed: valid, but neither device nor region nor anything else the source asks for could be read.
    Shape,
    /// Oversize: more than `max-payload`.
    Oversize,
}

impl Reason {
    /// What a message refused for it is worth when the outbox is full.
    pub fn class(self) -> Class {
        match self {
            Self::Future | Self::Past | Self::NoTime | Self::OtherSource => Class::Quarantined,
            Self::Syntax | Self::Empty | Self::Shape | Self::Oversize => Class::Malformed,
        }
    }

    /// Its name in topics and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Future => "future",
            Self::Past => "past",
            Self::NoTime => "no-time",
            Self::OtherSource => "other-source",
            Self::Syntax => "syntax",
            Self::Empty => "empty",
            Self::Shape => "shape",
            Self::Oversize => "oversize",
        }
    }
}

/// A record or message that was refused, with what is needed to see why.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// Why.
    pub reason: Reason,
    /// The source whose topic it came on.
    pub source: SourceId,
    /// Region and device, where they could be read.
    pub key: Option<(RegionId, DeviceId)>,
    /// The topic it came on.
    pub topic: String,
    /// Raw device time, where one could be read.
    pub device_time: Option<i64>,
    /// The offset that was added to it before it was refused.
    pub offset: Option<Span>,
    /// When it arrived; `None` as of a late record.
    pub arrival: Option<ArrivalTime>,
    /// Quality of the gateway's clock.
    pub clock: ClockQuality,
    /// The first bytes of what was received, at most [`Refused::CONTENT_LIMIT`].
    pub content: Vec<u8>,
    /// Length of all that was received, in bytes.
    pub length: u64,
    /// SHA-256 of all that was received, where `content` is not all of it.
    pub digest: Option<[u8; 32]>,
    /// How many like it were withheld since the last one that was told.
    pub withheld: u64,
}

impl Refused {
    /// How much of a refused payload is kept, in bytes.
    pub const CONTENT_LIMIT: usize = 4096;
}

/// A watermark as published. It never moves back.
#[derive(Clone, Debug, PartialEq)]
pub struct WatermarkReport {
    /// `None` is the gateway's: the minimum over its regions.
    pub region: Option<RegionId>,
    /// No record with event time at or below it is still expected; `None` is infinity, the end of a replay.
    pub watermark: Option<EventTime>,
    /// Quality of the gateway's clock.
    pub clock: ClockQuality,
}
