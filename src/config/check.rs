//! From what was written to what holds: defaults filled in, contradictions refused.

use super::finding::{ConfigErrors, Finding, KeyPath};
use super::layers::Layers;
use super::values::{Duration, Size, Whole, spoken};
use super::{Config, Engine, Log, Status, Store, clock, devices, links, policy, raw, sources};
use crate::engine::settings::{Combine, Limits, Scope};
use crate::ids::RegionId;
use crate::status::socket::LONGEST_PATH;
use crate::telemetry;
use crate::time::Span;

use std::ops::RangeInclusive;

/// Mistakes as they are found.
pub(super) struct Review<'a> {
    layers: &'a Layers,
    findings: Vec<Finding>,
}

impl Review<'_> {
    /// Notes what is wrong with the value at `path`, and what would be right.
    pub(super) fn refuse(&mut self, path: &KeyPath, message: impl Into<String>) {
        self.findings.push(self.layers.finding(path, message));
    }

    /// How many mistakes were found so far.
    pub(super) fn count(&self) -> usize {
        self.findings.len()
    }

    /// A name that is there, is not empty and was not given before.
    pub(super) fn distinct(&mut self, array: &str, key: &str, names: &[Option<&str>]) {
        for (at, name) in names.iter().enumerate() {
            let path = KeyPath::top(array).index(at).key(key);
            match name {
                None => self.refuse(&path, format!("missing; each [[{array}]] needs a {key}")),
                Some("") => self.refuse(&path, "empty; give it a name"),
                Some(name) if names[..at].contains(&Some(name)) => {
                    let message = format!("used twice; give each [[{array}]] its own {key}");
                    self.refuse(&path, message);
                }
                Some(_) => {}
            }
        }
    }

    /// A span within `range`, `default` when none is given.
    pub(super) fn span(
        &mut self,
        path: &KeyPath,
        given: Option<Duration>,
        default: Span,
        range: RangeInclusive<Span>,
    ) -> std::time::Duration {
        let span = given.map_or(default, |duration| duration.0);
        if !range.contains(&span) {
            let (least, most) = (spoken(*range.start()), spoken(*range.end()));
            self.refuse(path, format!("out of range; write a duration from {least} to {most}"));
        }
        std::time::Duration::from_millis(span.0.unsigned_abs())
    }

    pub(super) fn size(
        &mut self,
        path: &KeyPath,
        given: Option<Size>,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> u64 {
        let size = given.map_or(default, |size| size.0);
        if !range.contains(&size) {
            let (least, most) = (bytes(*range.start()), bytes(*range.end()));
            self.refuse(path, format!("out of range; write a size from {least} to {most}"));
        }
        size
    }
}

fn bytes(size: u64) -> String {
    bytesize::ByteSize::b(size).display().iec().to_string()
}

/// Checks everything, and tells every contradiction at once.
pub(super) fn config(layers: Layers) -> Result<Config, ConfigErrors> {
    let file = layers.merged()?;
    let mut review = Review { layers: &layers, findings: Vec::new() };
    let identity = links::identity(&mut review, file.gateway.unwrap_or_default());
    let gateway = identity.id.clone();
    let raw_clock = file.clock.unwrap_or_default();
    let gate = clock::gate(&mut review, &raw_clock);
    let clock = clock::clock(&mut review, raw_clock);
    let broker = links::broker(&mut review, file.broker.unwrap_or_default(), &gateway);
    let upstream = links::upstream(&mut review, file.upstream.unwrap_or_default(), &gateway);
    links::two_clients(&mut review, &broker, &upstream);
    let store = store(&mut review, file.store.unwrap_or_default());
    let status = status(&mut review, file.status.unwrap_or_default());
    let log = log(&mut review, file.log.unwrap_or_default());
    let flink = file.compat.is_some();
    let tables = policy::Tables {
        defaults: file.defaults.unwrap_or_default(),
        regions: file.region.unwrap_or_default(),
        devices: file.devices.unwrap_or_default(),
        sources: file.source.unwrap_or_default(),
    };
    let watermarks = file.watermarks.unwrap_or_default();
    let limits = file.limits.unwrap_or_default();
    let declared = devices::devices(&mut review, &tables);
    let mut engine = Engine {
        scope: scope(&mut review, &watermarks, flink),
        policies: policy::policies(&mut review, &tables, &declared, flink),
        regions: regions(&tables.regions),
        sources: sources::sources(
            &mut review,
            &tables.sources,
            file.window.as_deref().unwrap_or_default(),
            flink,
        ),
        region_rollups: file.rollups.unwrap_or_default().regions.unwrap_or(true),
        watermark_interval: watermark_interval(&watermarks, flink),
        gap_after: file
            .presence
            .and_then(|presence| presence.gap_after)
            .map_or(Span::from_mins(1), |gap| gap.0),
        limits: bounds(&limits, broker.max_payload),
    };
    devices::expect(&mut review, &declared, &mut engine.sources.sources);
    room_for_expected(&mut review, &engine);
    super::together::holds(&mut review, &engine);
    ConfigErrors::unless_empty(review.findings)?;
    Ok(Config {
        gateway,
        doubt: identity.doubt,
        clock,
        gate,
        broker,
        upstream,
        store,
        status,
        log,
        flink,
        engine,
        layers,
    })
}

fn store(review: &mut Review<'_>, raw: raw::Store) -> Store {
    let table = KeyPath::top("store");
    let path = raw.path.unwrap_or_else(|| "/var/lib/tidegate/store".into());
    if path.as_os_str().is_empty() {
        review.refuse(&table.key("path"), "empty; write a directory: \"/var/lib/tidegate/store\"");
    }
    Store {
        path,
        commit_interval: review.span(
            &table.key("commit-interval"),
            raw.commit_interval,
            Span::from_secs(10),
            Span::ZERO..=Span::from_mins(10),
        ),
        outbox_quota: review.size(
            &table.key("outbox-quota"),
            raw.outbox_quota,
            64 << 20,
            1 << 20..=1 << 40,
        ),
    }
}

fn status(review: &mut Review<'_>, raw: raw::Status) -> Status {
    let path = KeyPath::dotted("status.socket");
    match raw.socket.as_ref().map(|socket| socket.as_os_str().len()) {
        Some(0) => review.refuse(
            &path,
            "empty; write a path, \"/run/tidegate/tidegate.sock\", or set status.enabled = false",
        ),
        Some(length) if length > LONGEST_PATH => review.refuse(
            &path,
            format!("{length} bytes long; a socket's path has at most {LONGEST_PATH}"),
        ),
        _ => {}
    }
    Status { enabled: raw.enabled.unwrap_or(true), socket: raw.socket }
}

fn log(review: &mut Review<'_>, raw: raw::Log) -> Log {
    let level = raw.level.unwrap_or_else(|| telemetry::USUAL_LEVEL.to_owned());
    if let Err(reason) = telemetry::directives(&level) {
        review.refuse(&KeyPath::dotted("log.level"), reason);
    }
    Log { level }
}

fn scope(review: &mut Review<'_>, raw: &raw::Watermarks, flink: bool) -> Scope {
    let default = if flink { raw::Scope::Region } else { raw::Scope::Device };
    let combine = match raw.combine {
        Some(raw::Combine::Union) => Combine::Union,
        Some(raw::Combine::Split) | None => Combine::Split,
    };
    if raw.scope.unwrap_or(default) == raw::Scope::Region {
        return Scope::Region(combine);
    }
    if raw.combine.is_some() {
        let message = "nothing to combine: a device's windows close by its own watermark; \
                       set scope = \"region\" or leave it out";
        review.refuse(&KeyPath::dotted("watermarks.combine"), message);
    }
    Scope::Device
}

fn watermark_interval(raw: &raw::Watermarks, flink: bool) -> Span {
    let default = if flink { Span::ZERO } else { Span::from_mins(1) };
    raw.publish_interval.map_or(default, |interval| interval.0)
}

fn regions(regions: &[raw::Region]) -> Vec<RegionId> {
    regions.iter().filter_map(|region| region.name.as_deref()).map(RegionId::from).collect()
}

/// Who is expected takes room, whether it speaks or not.
fn room_for_expected(review: &mut Review<'_>, engine: &Engine) {
    let expected: usize = engine.sources.sources.iter().map(|source| source.expects.len()).sum();
    let room = engine.limits.max_devices;
    if expected > room {
        let message =
            format!("{expected} devices are expected, and there is room for {room}; raise it");
        review.refuse(&KeyPath::dotted("limits.max-devices"), message);
    }
}

fn bounds(raw: &raw::Limits, max_payload: usize) -> Limits {
    let default = Limits::default();
    Limits {
        max_devices: count(raw.max_devices, default.max_devices),
        max_open_windows: count(raw.max_open_windows, default.max_open_windows),
        max_remembered: count(raw.max_remembered, default.max_remembered),
        max_payload,
        refused_per_hour: raw
            .refused_per_hour
            .map_or(default.refused_per_hour, |n| u32::try_from(n.0).unwrap_or(u32::MAX)),
    }
}

fn count<const MIN: u64, const MAX: u64>(given: Option<Whole<MIN, MAX>>, default: usize) -> usize {
    given.map_or(default, |number| usize::try_from(number.0).unwrap_or(usize::MAX))
}
