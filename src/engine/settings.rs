//! What the engine is told: sources, windows, policies, limits. Types that cannot be wrong; `config` makes them.

use crate::engine::gate::GateSettings;
use crate::engine::presence::PresencePolicy;
use crate::ids::{DeviceId, MetricId, RegionId, SourceId, WindowId};
use crate::time::{DeviceTime, Span};
use crate::wire::profile::Profile;
use crate::wire::status::StatusTopic;

use std::collections::BTreeSet;
use std::sync::Arc;

/// Everything the engine is told.
#[derive(Debug)]
pub struct Settings {
    /// Whose watermark closes a window.
    pub scope: Scope,
    /// Whether there is a clock: arrival times are real, so guards, idleness and closing by clock hold. Off in
    /// `compat = "flink"` and in a replay of payloads without arrival times.
    pub clock: ClockRules,
    /// Duplicates are left out (off in `compat = "flink"`).
    pub deduplicate: bool,
    /// The sources, in the order in which their topic templates are tried.
    pub sources: Vec<SourceSettings>,
    /// All windows, base windows and larger multiples; sources name them by index.
    pub windows: Vec<WindowSpec>,
    /// All metrics, merged by name over the sources; sources name them by index.
    pub metrics: Vec<MetricSpec>,
    /// Regions that are declared, whether or not anything of them was heard.
    pub regions: Vec<RegionId>,
    /// Lateness and the like, by default, region, source and for some devices.
    pub policies: Policies,
    /// Region roll-ups are computed.
    pub region_rollups: bool,
    /// A watermark that advanced is published this often; zero: on every advance.
    pub watermark_interval: Span,
    /// A gap of the gateway is told when it is at least this long.
    pub gap_after: Span,
    /// How messages are held until the clock is good.
    pub gate: GateSettings,
    /// Bounds.
    pub limits: Limits,
}

/// Whose watermark closes a window (SPEC 3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The device's own: a slow neighbour costs nothing.
    Device,
    /// The minimum over the regions, one generator per region, as Flink does with partitions.
    Region(Combine),
}

/// How region scope combines partitions that went idle (the two ways of Flink).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    /// Splits of one source: a partition that comes back behind holds the minimum at once.
    Split,
    /// A union of sources: one that comes back behind is left out until it has caught up.
    Union,
}

/// Whether arrival times are real.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockRules {
    /// They are: guards of SPEC 2.4, idleness and closing by clock hold.
    Applied,
    /// There are none, or they are not to count: only data closes windows.
    Absent,
}

/// One source.
#[derive(Debug)]
pub struct SourceSettings {
    /// How to read it.
    pub profile: Profile,
    /// Index of its base window.
    pub base: usize,
    /// Indices of larger multiples of the base window, each a merge of it.
    pub multiples: Vec<usize>,
    /// Its topics that say who is there.
    pub statuses: Vec<StatusTopic>,
    /// Devices that are to be there, whether or not anything of them was heard: region and name.
    pub expects: Vec<(RegionId, DeviceId)>,
    /// For each metric of the profile, in its order: which one it is, and what is asked of it.
    pub metrics: Vec<SourceMetric>,
    /// Its readings are sent as soon as they are stamped, so that they tell of the device's clock as heartbeats do.
    pub live: bool,
}

/// A metric as one source has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceMetric {
    /// Index into [`Settings::metrics`].
    pub metric: usize,
    /// What a device's window tells.
    pub aggregates: Aggregates,
    /// What is kept of it: more than `aggregates` where another source has the same metric and their regions tell
    /// both. The engine widens it.
    pub kept: Aggregates,
}

impl SourceMetric {
    /// A metric of which `aggregates` are told.
    pub fn new(metric: usize, aggregates: Aggregates) -> Self {
        Self { metric, aggregates, kept: aggregates }
    }
}

/// Which aggregates a metric is asked for. The count is always kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "each is the aggregate of that name")]
pub struct Aggregates {
    pub sum: bool,
    pub mean: bool,
    pub min: bool,
    pub max: bool,
    pub first: bool,
    pub last: bool,
    pub deviation: bool,
}

impl Aggregates {
    /// What either asks for.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            sum: self.sum | other.sum,
            mean: self.mean | other.mean,
            min: self.min | other.min,
            max: self.max | other.max,
            first: self.first | other.first,
            last: self.last | other.last,
            deviation: self.deviation | other.deviation,
        }
    }
}

/// A tumbling window, aligned to `offset` after the epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowSpec {
    /// Its name.
    pub name: WindowId,
    /// Its length; at least a second.
    pub size: Span,
    /// Where it starts, `0 <= offset < size`.
    pub offset: Span,
}

/// A metric.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricSpec {
    /// Its name.
    pub name: MetricId,
    /// Its unit, may be empty.
    pub unit: Arc<str>,
}

/// When a fired window that changes again is told again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Revisions {
    /// With every record that changes it (Flink's way).
    Immediate,
    /// At most once per window and this span, and before the window is final.
    Coalesced(Span),
}

/// What is done about a device's clock that is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Correct {
    /// Its times are corrected.
    On,
    /// Its offset is reported, and nothing is moved.
    Flag,
    /// Nobody looks.
    Off,
}

/// The parameters that can be set by default, region, source and for some devices, resolved for one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// `D`: how far behind the highest event time a record is still expected.
    pub lateness: Span,
    /// After this much listened silence a device is idle.
    pub idle_timeout: Span,
    /// How long after its firing a window is kept for late records.
    pub allowed_lateness: Span,
    /// A device further behind its region's highest watermark than this no longer holds the region's.
    pub max_hold: Span,
    /// A device time later than now by more than this is quarantined.
    pub future_tolerance: Span,
    /// An event time older than this is quarantined.
    pub past_limit: Span,
    /// A device time before this is unusable.
    pub not_before: DeviceTime,
    /// What is done about a clock that is off.
    pub correct: Correct,
    /// A device's clock that is behind by no more than this is not told from a slow network.
    pub slow_tolerance: Span,
    /// When a window is told again.
    pub revisions: Revisions,
    /// The interval at which the device reports, where it is known.
    pub interval: Option<Span>,
    /// When it is offline.
    pub presence: PresencePolicy,
}

impl Default for Policy {
    /// The documented defaults.
    fn default() -> Self {
        Self {
            lateness: Span::from_mins(2),
            idle_timeout: Span::from_mins(5),
            allowed_lateness: Span::from_hours(2),
            max_hold: Span::from_mins(30),
            future_tolerance: Span::from_secs(30),
            past_limit: Span::from_hours(30 * 24),
            not_before: DeviceTime(1_577_836_800_000), // 2020-01-01
            correct: Correct::On,
            slow_tolerance: Span::from_mins(5),
            revisions: Revisions::Coalesced(Span::from_secs(30)),
            interval: None,
            presence: PresencePolicy::default(),
        }
    }
}

impl Policy {
    /// How an idle device follows the clock: its lateness, and how far behind its region it may be.
    pub(super) fn follows_by(&self) -> (Span, Span) {
        (self.lateness, self.max_hold)
    }
}

/// Some parameters of a [`Policy`]; what is `None` is left as it was.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
#[allow(missing_docs, reason = "each overrides the parameter of that name in `Policy`")]
pub struct PolicyPatch {
    pub lateness: Option<Span>,
    pub idle_timeout: Option<Span>,
    pub allowed_lateness: Option<Span>,
    pub max_hold: Option<Span>,
    pub future_tolerance: Option<Span>,
    pub past_limit: Option<Span>,
    pub not_before: Option<DeviceTime>,
    pub correct: Option<Correct>,
    pub slow_tolerance: Option<Span>,
    pub revisions: Option<Revisions>,
    pub interval: Option<Span>,
    pub offline_after: Option<Span>,
    pub will_debounce: Option<Span>,
    pub flap_count: Option<u8>,
    pub flap_window: Option<Span>,
    pub forget_after: Option<Span>,
}

impl PolicyPatch {
    fn apply(&self, policy: &mut Policy) {
        fn set<T: Copy>(value: &mut T, patch: Option<T>) {
            if let Some(patch) = patch {
                *value = patch;
            }
        }
        set(&mut policy.lateness, self.lateness);
        set(&mut policy.idle_timeout, self.idle_timeout);
        set(&mut policy.allowed_lateness, self.allowed_lateness);
        set(&mut policy.max_hold, self.max_hold);
        set(&mut policy.future_tolerance, self.future_tolerance);
        set(&mut policy.past_limit, self.past_limit);
        set(&mut policy.not_before, self.not_before);
        set(&mut policy.correct, self.correct);
        set(&mut policy.slow_tolerance, self.slow_tolerance);
        set(&mut policy.revisions, self.revisions);
        set(&mut policy.interval, self.interval.map(Some));
        let presence = &mut policy.presence;
        set(&mut presence.offline_after, self.offline_after);
        set(&mut presence.will_debounce, self.will_debounce);
        set(&mut presence.flap_count, self.flap_count);
        set(&mut presence.flap_window, self.flap_window);
        set(&mut presence.forget_after, self.forget_after.map(Some));
    }
}

/// The layers of parameters. Later layers win: default, region, source, devices (in their order).
#[derive(Clone, Debug, Default)]
pub struct Policies {
    /// For everything.
    pub default: Policy,
    /// By region.
    pub regions: Vec<(RegionId, PolicyPatch)>,
    /// By source.
    pub sources: Vec<(SourceId, PolicyPatch)>,
    /// For some devices.
    pub devices: Vec<(DeviceClass, PolicyPatch)>,
}

/// Some devices that have something in common.
#[derive(Clone, Debug, PartialEq)]
pub enum DeviceClass {
    /// Those with such a name: `*` is any text, `?` any one character.
    Pattern(String),
    /// These.
    Named(Arc<BTreeSet<(RegionId, DeviceId)>>),
}

impl DeviceClass {
    fn contains(&self, region: &str, device: &str) -> bool {
        match self {
            Self::Pattern(pattern) => wildmatch::WildMatch::new(pattern).matches(device),
            Self::Named(all) => all.contains(&(region.into(), device.into())),
        }
    }
}

impl Policies {
    /// What holds for one device.
    pub fn resolve(&self, region: &str, source: &str, device: &str) -> Policy {
        let mut policy = self.resolve_region(region);
        let sources = self.sources.iter().filter(|(name, _)| name.as_str() == source);
        let devices = self.devices.iter().filter(|(class, _)| class.contains(region, device));
        sources
            .map(|(_, patch)| patch)
            .chain(devices.map(|(_, patch)| patch))
            .for_each(|patch| patch.apply(&mut policy));
        policy
    }

    /// The least lateness of anybody.
    pub fn least_lateness(&self) -> Span {
        let regions = self.regions.iter().map(|(_, patch)| patch);
        let sources = self.sources.iter().map(|(_, patch)| patch);
        let devices = self.devices.iter().map(|(_, patch)| patch);
        let patched = regions.chain(sources).chain(devices).filter_map(|patch| patch.lateness);
        patched.fold(self.default.lateness, Span::min)
    }

    /// What holds for a region as such.
    pub fn resolve_region(&self, region: &str) -> Policy {
        let mut policy = self.default;
        self.regions
            .iter()
            .filter(|(name, _)| name.as_str() == region)
            .for_each(|(_, patch)| patch.apply(&mut policy));
        policy
    }
}

/// Bounds on what the engine holds. All are counted when they are met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Devices; records of further ones are counted `no-room`.
    pub max_devices: usize,
    /// Base windows that one device may have open; records for further ones are counted `no-room`.
    pub max_open_windows: usize,
    /// Messages remembered to recognise duplicates, over all devices.
    pub max_remembered: usize,
    /// Payloads longer than this are refused as `oversize`, in bytes.
    pub max_payload: usize,
    /// Refused messages told per source and hour; further ones are counted as withheld.
    pub refused_per_hour: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_devices: 50_000,
            max_open_windows: 1_000,
            max_remembered: 262_144,
            max_payload: 256 * 1024,
            refused_per_hour: 60,
        }
    }
}
