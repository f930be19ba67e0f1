//! Lateness and the like: by default, region, source, and for some devices.

use super::check::Review;
use super::devices::Declared;
use super::finding::KeyPath;
use super::raw::{self, Parameters};
use super::values::spoken;
use crate::engine::settings::{Correct, Policies, Policy, PolicyPatch, Revisions};
use crate::time::Span;

/// The tables that carry parameters.
pub(super) struct Tables {
    pub(super) defaults: raw::Defaults,
    pub(super) regions: Vec<raw::Region>,
    pub(super) sources: Vec<raw::Source>,
    pub(super) devices: Vec<raw::Devices>,
}

/// The layers of parameters, checked.
pub(super) fn policies(
    review: &mut Review<'_>,
    tables: &Tables,
    declared: &[Declared],
    flink: bool,
) -> Policies {
    let names = |name: &Option<String>| name.clone().unwrap_or_default();
    let (regions, sources) = (&tables.regions, &tables.sources);
    review.distinct("region", "name", &each(regions, |region| region.name.as_deref()));
    review.distinct("source", "name", &each(sources, |source| source.name.as_deref()));

    let path = KeyPath::top("defaults");
    let parameters = tables.defaults.parameters();
    let patch = patch(review, &path, &parameters, Policy::default(), flink);
    let default = patched(Policy::default(), patch);
    check_hold(review, &path, &parameters, default);

    let mut layer = |array: &str, at: usize, parameters: &Parameters| {
        let path = KeyPath::top(array).index(at);
        let patch = self::patch(review, &path, parameters, default, flink);
        check_hold(review, &path, parameters, patched(default, patch));
        patch
    };
    let regions = regions.iter().enumerate();
    let sources = sources.iter().enumerate();
    let devices = tables.devices.iter().zip(declared).enumerate();
    Policies {
        default,
        regions: regions
            .map(|(at, region)| {
                (names(&region.name).as_str().into(), layer("region", at, &region.parameters()))
            })
            .collect(),
        sources: sources
            .map(|(at, source)| {
                (names(&source.name).as_str().into(), layer("source", at, &source.parameters()))
            })
            .collect(),
        devices: devices
            .map(|(at, (raw, declared))| {
                (declared.class.clone(), layer("devices", at, &raw.parameters()))
            })
            .collect(),
    }
}

fn each<T>(tables: &[T], name: impl Fn(&T) -> Option<&str>) -> Vec<Option<&str>> {
    tables.iter().map(name).collect()
}

fn patch(
    review: &mut Review<'_>,
    path: &KeyPath,
    raw: &Parameters,
    inherited: Policy,
    flink: bool,
) -> PolicyPatch {
    let spans = [
        ("idle-timeout", raw.idle_timeout),
        ("interval", raw.interval),
        ("offline-after", raw.offline_after),
        ("flap-window", raw.flap_window),
        ("forget-after", raw.forget_after),
    ];
    for (key, given) in spans {
        if given.is_some_and(|duration| duration.0 == Span::ZERO) {
            review.refuse(&path.key(key), "no time at all; write a duration above zero: \"5m\"");
        }
    }
    PolicyPatch {
        lateness: raw.lateness.map(|duration| duration.0),
        idle_timeout: raw.idle_timeout.map(|duration| duration.0),
        allowed_lateness: raw.allowed_lateness.map(|duration| duration.0),
        max_hold: raw.max_hold.map(|duration| duration.0),
        future_tolerance: raw.future_tolerance.map(|duration| duration.0),
        past_limit: raw.past_limit.map(|duration| duration.0),
        not_before: raw.not_before.map(|date| date.0),
        correct: raw.correct.map(|word| match word {
            raw::Correct::On => Correct::On,
            raw::Correct::Flag => Correct::Flag,
            raw::Correct::Off => Correct::Off,
        }),
        slow_tolerance: raw.slow_tolerance.map(|duration| duration.0),
        revisions: revisions(review, path, raw, inherited.revisions, flink),
        interval: raw.interval.map(|duration| duration.0),
        offline_after: raw.offline_after.map(|duration| duration.0),
        will_debounce: raw.will_debounce.map(|duration| duration.0),
        flap_count: raw.flap_count.map(|count| u8::try_from(count.0).unwrap_or(u8::MAX)),
        flap_window: raw.flap_window.map(|duration| duration.0),
        forget_after: raw.forget_after.map(|duration| duration.0),
    }
}

fn revisions(
    review: &mut Review<'_>,
    path: &KeyPath,
    raw: &Parameters,
    inherited: Revisions,
    flink: bool,
) -> Option<Revisions> {
    let delay = raw.revision_delay.map(|duration| duration.0);
    let immediate = match raw.revisions {
        Some(word) => word == raw::Revisions::Immediate,
        None => delay.is_some() && inherited == Revisions::Immediate && !flink,
    };
    if immediate && delay.is_some() {
        let message = "immediate revisions wait for nothing; leave it out, or set \
                       revisions = \"coalesced\"";
        review.refuse(&path.key("revision-delay"), message);
    }
    if flink || immediate {
        return Some(Revisions::Immediate);
    }
    let inherited = match inherited {
        Revisions::Coalesced(delay) => delay,
        Revisions::Immediate => Span::from_secs(30),
    };
    (raw.revisions.is_some() || delay.is_some())
        .then(|| Revisions::Coalesced(delay.unwrap_or(inherited)))
}

/// What a device of this layer gets, as far as the layer alone can tell.
pub(super) fn patched(default: Policy, patch: PolicyPatch) -> Policy {
    Policies { default, regions: vec![("".into(), patch)], ..Policies::default() }
        .resolve_region("")
}

/// A hold shorter than what is on time would leave out healthy devices.
fn check_hold(review: &mut Review<'_>, path: &KeyPath, raw: &Parameters, policy: Policy) {
    let least = Span(policy.lateness.0.saturating_add(policy.future_tolerance.0));
    let given = [
        ("max-hold", raw.max_hold),
        ("lateness", raw.lateness),
        ("future-tolerance", raw.future_tolerance),
    ];
    let key = given.iter().find(|(_, given)| given.is_some());
    if let Some((key, _)) = key.filter(|_| policy.max_hold < least) {
        let message = format!(
            "max-hold ({}) is less than lateness + future-tolerance ({least}), so a healthy \
             device would not hold its region; set max-hold to at least {least}",
            spoken(policy.max_hold),
            least = spoken(least),
        );
        review.refuse(&path.key(key), message);
    }
}
