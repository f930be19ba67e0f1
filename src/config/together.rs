//! Parameters that are right in each layer and wrong together: a device gets the most specific of each.

use super::check::Review;
use super::finding::KeyPath;
use super::values::spoken;
use super::{Engine, sources::Source};
use crate::engine::settings::{Policies, Policy, PolicyPatch};
use crate::ids::RegionId;
use crate::time::Span;
use crate::wire::reference::Reference;

/// More of them than anybody reads at once.
const MOST: usize = 20;

/// A region, source or device pattern, and what it sets.
#[derive(Clone)]
struct Layer<'a> {
    path: KeyPath,
    patch: PolicyPatch,
    region: Option<&'a RegionId>,
    source: Option<&'a Source>,
}

/// A hold shorter than what is on time would leave out healthy devices. Each layer by itself was looked at before.
pub(super) fn holds(review: &mut Review<'_>, engine: &Engine) {
    let policies = &engine.policies;
    let default = policies.default;
    let mut told = 0;
    let [regions, sources, devices] = layers(engine);
    for region in &regions {
        for source in &sources {
            for device in &devices {
                let chosen: Vec<&Layer<'_>> =
                    [region, source, device].into_iter().flatten().collect();
                if chosen.len() < 2 || !can_meet(&chosen) || !is_short(together(default, &chosen)) {
                    continue;
                }
                if subsets(&chosen).any(|fewer| is_short(together(default, &fewer))) {
                    continue;
                }
                refuse(review, default, &chosen);
                told += 1;
                if told == MOST {
                    return;
                }
            }
        }
    }
}

/// Nothing, or one layer of regions, of sources and of devices; alike ones once.
fn layers(engine: &Engine) -> [Vec<Option<Layer<'_>>>; 3] {
    let Policies { regions, sources, devices, .. } = &engine.policies;
    let layer = |array: &str, at: usize, patch: &PolicyPatch| Layer {
        path: KeyPath::top(array).index(at),
        patch: *patch,
        region: None,
        source: None,
    };
    let regions = regions
        .iter()
        .enumerate()
        .map(|(at, (name, patch))| Layer { region: Some(name), ..layer("region", at, patch) });
    let sources = sources.iter().enumerate().map(|(at, (name, patch))| Layer {
        source: engine.sources.sources.iter().find(|source| source.spec.source == *name),
        ..layer("source", at, patch)
    });
    let devices = devices.iter().enumerate().map(|(at, (_, patch))| layer("devices", at, patch));
    [choices(regions), choices(sources), choices(devices)]
}

fn choices<'a>(layers: impl Iterator<Item = Layer<'a>>) -> Vec<Option<Layer<'a>>> {
    let mut all = vec![None];
    for layer in layers.filter(|layer| said(&layer.patch).iter().any(Option::is_some)) {
        let alike = |other: &Layer<'_>| {
            said(&other.patch) == said(&layer.patch)
                && other.source.is_none()
                && other.region.is_none()
        };
        if !all.iter().flatten().any(alike) {
            all.push(Some(layer));
        }
    }
    all
}

/// What a hold is about, by key.
fn said(patch: &PolicyPatch) -> [Option<Span>; 3] {
    [patch.max_hold, patch.lateness, patch.future_tolerance]
}

/// A source whose devices are all in one region has nothing to do with the others.
fn can_meet(chosen: &[&Layer<'_>]) -> bool {
    let region = chosen.iter().find_map(|layer| layer.region);
    let source = chosen.iter().find_map(|layer| layer.source);
    match (region, source.map(|source| &source.spec.region)) {
        (Some(region), Some(Reference::Const(only))) => region.as_str() == only,
        _ => true,
    }
}

/// The hold, and the least that it may be.
fn together(default: Policy, chosen: &[&Layer<'_>]) -> (Span, Span) {
    let mut all = [default.max_hold, default.lateness, default.future_tolerance];
    for layer in chosen {
        for (value, said) in all.iter_mut().zip(said(&layer.patch)) {
            *value = said.unwrap_or(*value);
        }
    }
    let [hold, lateness, tolerance] = all;
    (hold, Span(lateness.0.saturating_add(tolerance.0)))
}

fn is_short((hold, least): (Span, Span)) -> bool {
    hold < least
}

/// All but one of them.
fn subsets<'a, 'b>(chosen: &'b [&'a Layer<'a>]) -> impl Iterator<Item = Vec<&'a Layer<'a>>> + 'b {
    (0..chosen.len()).map(|out| {
        let others = chosen.iter().enumerate().filter(|(at, _)| *at != out);
        others.map(|(_, layer)| *layer).collect()
    })
}

/// Told at the last layer that has a say in it.
fn refuse(review: &mut Review<'_>, default: Policy, chosen: &[&Layer<'_>]) {
    let (hold, least) = together(default, chosen);
    let keys = ["max-hold", "lateness", "future-tolerance"];
    let (last, others) = chosen.split_last().expect("two or more were chosen");
    let key = keys.iter().zip(said(&last.patch)).find(|(_, said)| said.is_some());
    let key = key.map_or("max-hold", |(key, _)| key);
    let others: Vec<_> = others.iter().map(|layer| layer.path.to_string()).collect();
    let message = format!(
        "together with {}, max-hold ({}) is less than lateness + future-tolerance ({least}), so a healthy device of \
         both would not hold its region; set max-hold to at least {least}",
        others.join(" and "),
        spoken(hold),
        least = spoken(least),
    );
    review.refuse(&last.path.key(key), message);
}
