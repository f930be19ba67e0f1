//! Sources, and the windows and metrics that they share.

use super::check::Review;
use super::explain::suggest;
use super::finding::KeyPath;
use super::raw;
use crate::engine::settings::{Aggregates, MetricSpec, SourceMetric, WindowSpec};
use crate::ids::{DeviceId, RegionId, SourceId};
use crate::time::Span;
use crate::wire::profile::{
    Condition, MetricField, Profile, ProfileError, ProfileSpec, Reference, TimeFormat, ZoneError,
};
use crate::wire::status::StatusSpec;
use crate::wire::topic::Template;

/// The base window of a source that names none.
const BASE: &str = "hour";

/// Sources, and what they name by index.
#[derive(Clone, Debug, Default)]
pub(super) struct Sources {
    pub(super) windows: Vec<WindowSpec>,
    pub(super) metrics: Vec<MetricSpec>,
    pub(super) sources: Vec<Source>,
}

/// One source, its profile not yet compiled.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) spec: ProfileSpec,
    pub(super) base: usize,
    pub(super) multiples: Vec<usize>,
    pub(super) statuses: Vec<StatusSpec>,
    /// Devices that have to be there, each once.
    pub(super) expects: Vec<(RegionId, DeviceId)>,
    pub(super) metrics: Vec<SourceMetric>,
    pub(super) live: bool,
}

/// Checks sources and windows. The distinctness of names is checked with the policies.
pub(super) fn sources(
    review: &mut Review<'_>,
    sources: &[raw::Source],
    windows: &[raw::Window],
    flink: bool,
) -> Sources {
    let mut all = Sources { windows: self::windows(review, windows), ..Sources::default() };
    if windows.is_empty() {
        all.windows = usual_windows(sources);
    }
    for (at, raw) in sources.iter().enumerate() {
        let path = KeyPath::top("source").index(at);
        let source = source(review, &path, raw, &mut all, flink);
        all.sources.extend(source);
    }
    all
}

fn windows(review: &mut Review<'_>, windows: &[raw::Window]) -> Vec<WindowSpec> {
    let names: Vec<_> = windows.iter().map(|window| window.name.as_deref()).collect();
    review.distinct("window", "name", &names);
    let windows = windows.iter().enumerate();
    windows.map(|(at, raw)| window(review, &KeyPath::top("window").index(at), raw)).collect()
}

fn window(review: &mut Review<'_>, path: &KeyPath, raw: &raw::Window) -> WindowSpec {
    let name = raw.name.as_deref().unwrap_or_default();
    plain_name(review, &path.key("name"), name);
    let size = raw.size.map(|size| size.0);
    match size {
        None => review.refuse(&path.key("size"), "missing; say how long it is: size = \"1h\""),
        Some(size) if size < Span::from_secs(1) => {
            review.refuse(&path.key("size"), "too short; a window is at least \"1s\"");
        }
        Some(_) => {}
    }
    let size = size.unwrap_or(Span::from_hours(1));
    let offset = raw.offset.map_or(Span::ZERO, |offset| offset.0);
    if offset >= size {
        let message = "not below the size; the same windows begin at the offset modulo the size";
        review.refuse(&path.key("offset"), message);
    }
    WindowSpec { name: name.into(), size, offset }
}

/// The hour, and the day where a source names it.
fn usual_windows(sources: &[raw::Source]) -> Vec<WindowSpec> {
    let tumbling = |name: &str, hours| WindowSpec {
        name: name.into(),
        size: Span::from_hours(hours),
        offset: Span::ZERO,
    };
    let names_day = |source: &raw::Source| {
        let rollups = source.rollups.iter().flatten();
        source.window.iter().chain(rollups).any(|name| name == "day")
    };
    let day = sources.iter().any(names_day).then(|| tumbling("day", 24));
    std::iter::once(tumbling(BASE, 1)).chain(day).collect()
}

/// Windows and metrics become levels of topics and fields of results.
fn plain_name(review: &mut Review<'_>, path: &KeyPath, name: &str) {
    let plain = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    if !name.chars().all(plain) {
        review.refuse(path, "expected letters, digits, `_`, `-` and `.` only");
    }
}

fn source(
    review: &mut Review<'_>,
    path: &KeyPath,
    raw: &raw::Source,
    all: &mut Sources,
    flink: bool,
) -> Option<Source> {
    let before = review.count();
    let base = window_named(review, &path.key("window"), raw.window.as_deref(), &all.windows);
    let multiples = base.map(|base| multiples(review, path, raw, base, &all.windows));
    let metrics = metrics(review, path, raw, all);
    let statuses = super::statuses::statuses(review, path, raw);
    let spec = spec(review, path, raw, flink)?;
    if review.count() == before
        && let Err(error) = Profile::new(spec.clone())
    {
        refuse_profile(review, path, raw, &error);
    }
    let live = raw.live.unwrap_or(false);
    if live && raw.time.is_none() {
        let message = "live readings tell how far a device's clock is off, and this source has no \
                       `time`; leave it out";
        review.refuse(&path.key("live"), message);
    }
    let (base, multiples, expects) = (base?, multiples?, Vec::new());
    Some(Source { spec, base, multiples, statuses, expects, metrics, live })
}

/// Leads what is wrong with a profile back to the key that says it.
fn refuse_profile(
    review: &mut Review<'_>,
    path: &KeyPath,
    raw: &raw::Source,
    error: &ProfileError,
) {
    let message = error.to_string();
    let (field, rest) = message.split_once(": ").unwrap_or(("", &message));
    let path = match (field, field.strip_prefix("metric ").and_then(|n| n.parse::<usize>().ok())) {
        (_, Some(number)) => path.key("metric").index(number.saturating_sub(1)).key("from"),
        ("subscribe", _) => {
            let mut filters = raw.subscribe.iter().flatten();
            let at = filters.position(|filter| rest.starts_with(&format!("`{filter}`")));
            path.key("subscribe").index(at.unwrap_or(0))
        }
        ("time" | "heartbeat" | "idle" | "ignore", _) => path.key(field).key("from"),
        ("device", _) if raw.key.is_some() => path.key("key"),
        ("", _) => path.clone(),
        (field, _) => path.key(field),
    };
    review.refuse(&path, rest);
}

fn window_named(
    review: &mut Review<'_>,
    path: &KeyPath,
    name: Option<&str>,
    windows: &[WindowSpec],
) -> Option<usize> {
    let name = name.unwrap_or(BASE);
    let found = windows.iter().position(|window| window.name.as_str() == name);
    if found.is_none() {
        let known: Vec<_> = windows.iter().map(|window| window.name.as_str()).collect();
        let message = format!("no [[window]] is called `{name}`; {}", suggest(name, &known));
        review.refuse(path, message);
    }
    found
}

fn multiples(
    review: &mut Review<'_>,
    path: &KeyPath,
    raw: &raw::Source,
    base: usize,
    windows: &[WindowSpec],
) -> Vec<usize> {
    let mut multiples = Vec::new();
    for (at, name) in raw.rollups.iter().flatten().enumerate() {
        let path = path.key("rollups").index(at);
        let Some(window) = window_named(review, &path, Some(name), windows) else { continue };
        if multiples.contains(&window) {
            review.refuse(&path, "named twice; leave one out");
        } else if !is_multiple(&windows[window], &windows[base]) {
            review.refuse(&path, not_a_multiple(&windows[window], &windows[base]));
        } else {
            multiples.push(window);
        }
    }
    multiples
}

/// A larger window, whole base windows of which make it up.
fn is_multiple(window: &WindowSpec, base: &WindowSpec) -> bool {
    let (size, shift) = (window.size.0, window.offset.0 - base.offset.0);
    size > base.size.0 && size % base.size.0 == 0 && shift % base.size.0 == 0
}

fn not_a_multiple(window: &WindowSpec, base: &WindowSpec) -> String {
    format!(
        "`{}` is not made up of whole `{}` windows; its size must be 2, 3, … times {}, and the \
         offsets must differ by a multiple of that",
        window.name,
        base.name,
        super::values::spoken(base.size)
    )
}

fn metrics(
    review: &mut Review<'_>,
    path: &KeyPath,
    raw: &raw::Source,
    all: &mut Sources,
) -> Vec<SourceMetric> {
    let mut metrics: Vec<SourceMetric> = Vec::new();
    for (at, raw) in raw.metric.iter().flatten().enumerate() {
        let path = path.key("metric").index(at);
        let metric = metric_named(review, &path, raw, &mut all.metrics);
        if metrics.iter().any(|earlier| earlier.metric == metric) {
            review.refuse(&path.key("name"), "used twice in this source; name each metric once");
        }
        metrics.push(SourceMetric::new(metric, aggregates(raw.aggregates.as_deref())));
    }
    metrics
}

/// The index of a metric, shared by all sources that name it.
fn metric_named(
    review: &mut Review<'_>,
    path: &KeyPath,
    raw: &raw::Metric,
    metrics: &mut Vec<MetricSpec>,
) -> usize {
    let name = raw.name.as_deref().unwrap_or_default();
    if name.is_empty() {
        review.refuse(&path.key("name"), "missing; each metric needs a name");
    }
    plain_name(review, &path.key("name"), name);
    let unit = raw.unit.as_deref().unwrap_or_default();
    if let Some(at) = metrics.iter().position(|metric| metric.name.as_str() == name) {
        if *metrics[at].unit != *unit {
            let message = format!(
                "`{name}` has the unit \"{}\" in another source; use the same unit (with `scale`) \
                 or another name",
                metrics[at].unit
            );
            review.refuse(&path.key("unit"), message);
        }
        return at;
    }
    metrics.push(MetricSpec { name: name.into(), unit: unit.into() });
    metrics.len() - 1
}

fn aggregates(names: Option<&[raw::Aggregate]>) -> Aggregates {
    use raw::Aggregate::{Count, Deviation, First, Last, Max, Mean, Min, Sum};
    let names = names.unwrap_or(&[Mean, Min, Max]);
    let mut aggregates = Aggregates::default();
    for name in names {
        match name {
            Count => {}
            Sum => aggregates.sum = true,
            Mean => aggregates.mean = true,
            Min => aggregates.min = true,
            Max => aggregates.max = true,
            First => aggregates.first = true,
            Last => aggregates.last = true,
            Deviation => aggregates.deviation = true,
        }
    }
    aggregates
}

fn spec(
    review: &mut Review<'_>,
    path: &KeyPath,
    raw: &raw::Source,
    flink: bool,
) -> Option<ProfileSpec> {
    let topic = topic(review, path, raw);
    let device = device(review, path, raw);
    let heartbeat = condition(review, &path.key("heartbeat"), raw.heartbeat.as_ref());
    let ignore = condition(review, &path.key("ignore"), raw.ignore.as_ref());
    let idle = condition(review, &path.key("idle"), raw.idle.as_ref());
    if raw.idle.is_some() && !flink {
        let message = "markers of idleness are for replays with compat = \"flink\"; live, \
                       `idle-timeout` decides";
        review.refuse(&path.key("idle"), message);
    }
    let time = raw.time.as_ref().and_then(|raw| time(review, &path.key("time"), raw));
    let metrics = fields(review, path, raw);
    Some(ProfileSpec {
        source: SourceId::from(raw.name.as_deref().unwrap_or_default()),
        subscribe: raw.subscribe.clone().unwrap_or_default(),
        device: device?,
        region: region(raw, topic?),
        topic: topic?.to_owned(),
        time,
        heartbeat,
        idle,
        ignore,
        items: raw.items.as_ref().map(|pointer| pointer.0.clone()),
        metrics,
    })
}

fn topic<'a>(review: &mut Review<'_>, path: &KeyPath, raw: &'a raw::Source) -> Option<&'a str> {
    let topic = raw.topic.as_deref().filter(|topic| !topic.is_empty());
    if topic.is_none() {
        let message =
            "missing; write the topic with its named levels: \"meters/{region}/{device}\"";
        review.refuse(&path.key("topic"), message);
    }
    topic
}

fn device(review: &mut Review<'_>, path: &KeyPath, raw: &raw::Source) -> Option<Reference> {
    if raw.device.is_some() && raw.key.is_some() {
        let message = "another word for `device`, which is here too; write one of them";
        review.refuse(&path.key("key"), message);
    }
    if let Some(place) = raw.device.as_ref().or(raw.key.as_ref()) {
        return Some(place.0.clone());
    }
    let named = raw.topic.as_deref().is_some_and(|topic| names(topic, "device"));
    if !named {
        let message = "missing; name a level of the topic {device}, or say where it is: \
                       device = \"/id\"";
        review.refuse(&path.key("device"), message);
    }
    named.then(|| Reference::Topic("device".to_owned()))
}

/// Whether a level of the topic has this name. A topic that is no template is refused later.
pub(super) fn names(topic: &str, segment: &str) -> bool {
    topic.parse::<Template>().map_or(true, |template| template.segment(segment).is_some())
}

/// A level named `{region}` where the topic has one, else one region for all.
fn region(raw: &raw::Source, topic: &str) -> Reference {
    match &raw.region {
        Some(place) => place.0.clone(),
        None if names(topic, "region") => Reference::Topic("region".to_owned()),
        None => Reference::Const("all".to_owned()),
    }
}

fn time(
    review: &mut Review<'_>,
    path: &KeyPath,
    raw: &raw::Time,
) -> Option<(Reference, TimeFormat)> {
    if raw.from.is_none() {
        review.refuse(&path.key("from"), "missing; say where the time is: from = \"/ts\"");
    }
    if raw.format.is_none() {
        review.refuse(&path.key("as"), "missing; say how it is written: as = \"epoch_ms\"");
    }
    let zone = raw.zone.as_ref().map(|zone| zone.0.clone());
    let format = raw.format?.0.with(zone);
    let refuse = |error: &ZoneError| review.refuse(&path.key("zone"), error.to_string());
    let format = format.inspect_err(refuse).ok()?;
    Some((raw.from.as_ref()?.0.clone(), format))
}

fn condition(
    review: &mut Review<'_>,
    path: &KeyPath,
    raw: Option<&raw::Condition>,
) -> Option<Condition> {
    let raw = raw?;
    if raw.from.is_none() {
        review.refuse(&path.key("from"), "missing; say what is compared: from = \"topic:kind\"");
    }
    let equals = raw.equals.as_ref().filter(|equals| !equals.0.is_empty());
    if equals.is_none() {
        review.refuse(&path.key("equals"), "missing; say with what: equals = \"heartbeat\"");
    }
    Some(Condition { from: raw.from.as_ref()?.0.clone(), equals: equals?.0.clone() })
}

fn fields(review: &mut Review<'_>, path: &KeyPath, raw: &raw::Source) -> Vec<MetricField> {
    let metrics = raw.metric.iter().flatten().enumerate();
    metrics.filter_map(|(at, raw)| field(review, &path.key("metric").index(at), raw)).collect()
}

fn field(review: &mut Review<'_>, path: &KeyPath, raw: &raw::Metric) -> Option<MetricField> {
    let scale = raw.scale.unwrap_or(1.0);
    if !scale.is_finite() || scale == 0.0 {
        review.refuse(&path.key("scale"), "expected a factor other than zero: 0.001");
    }
    if raw.from.is_none() {
        review.refuse(&path.key("from"), "missing; say where the value is: from = \"/power\"");
    }
    Some(MetricField { from: raw.from.as_ref()?.0.clone(), scale })
}
