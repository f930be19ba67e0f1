//! What of a source tells who is there: status topics, and devices that are expected.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::check::Review;
use super::finding::KeyPath;
use super::{Engine, raw};
use crate::ids::{DeviceId, RegionId};
use crate::wire::reference::Reference;
use crate::wire::status::{Scope, StatusSpec, StatusTopic};

/// The status topics of a source, checked.
pub(super) fn statuses(
    review: &mut Review<'_>,
    path: &KeyPath,
    raw: &raw::Source,
) -> Vec<StatusSpec> {
    let all = raw.status.iter().flatten().enumerate();
    all.filter_map(|(at, raw)| status(review, &path.key("status").index(at), raw)).collect()
}

fn status(review: &mut Review<'_>, path: &KeyPath, raw: &raw::SourceStatus) -> Option<StatusSpec> {
    let Some(topic) = raw.topic.clone().filter(|topic| !topic.is_empty()) else {
        let message =
            "missing; write the topic with its named levels: \"meters/{region}/{device}/status\"";
        review.refuse(&path.key("topic"), message);
        return None;
    };
    let words = |given: Option<&super::values::Scalars>, usual: &str| {
        given.map_or_else(|| vec![usual.to_owned()], |words| words.0.clone())
    };
    let scope = match raw.scope {
        Some(raw::StatusScope::Region) => Scope::Region,
        Some(raw::StatusScope::Source) => Scope::Source,
        Some(raw::StatusScope::Device) | None => Scope::Device,
    };
    let named = |place: &Option<super::values::Place>, usual: &str| {
        let named =
            || super::sources::names(&topic, usual).then(|| Reference::Topic(usual.to_owned()));
        place.as_ref().map(|place| place.0.clone()).or_else(named)
    };
    let device = named(&raw.device, "device").unwrap_or(Reference::Topic("device".to_owned()));
    let region = named(&raw.region, "region").unwrap_or(Reference::Const("all".to_owned()));
    let spec = StatusSpec {
        from: raw.from.as_ref().map(|place| place.0.clone()),
        online: words(raw.online.as_ref(), "online"),
        offline: words(raw.offline.as_ref(), "offline"),
        topic,
        scope,
        device,
        region,
    };
    if let Err(error) = StatusTopic::new(&spec) {
        let message = error.to_string();
        let (field, rest) = message.split_once(": ").unwrap_or(("topic", &message));
        review.refuse(&path.key(field), rest);
        return None;
    }
    Some(spec)
}

/// The devices that are expected, of the list in the configuration and of the file that it names.
pub(super) fn expects(
    review: &mut Review<'_>,
    path: &KeyPath,
    raw: &raw::Source,
) -> Vec<(RegionId, DeviceId)> {
    let mut all = Expected::default();
    for (at, name) in raw.expects.iter().flatten().enumerate() {
        if let Err(mistake) = all.add(name) {
            review.refuse(&path.key("expects").index(at), mistake);
        }
    }
    if let Some(file) = &raw.expects_file {
        let path = path.key("expects-file");
        match fs::read_to_string(file) {
            Ok(text) => all.add_lines(&text, |mistake| review.refuse(&path, mistake)),
            Err(error) => review.refuse(&path, format!("cannot be read: {error}")),
        }
    }
    all.in_order
}

/// A device belongs to the source that hears it first, and the other's records of it would be refused.
pub(super) fn expected_by_one(review: &mut Review<'_>, engine: &Engine) {
    let mut sources: BTreeMap<&(RegionId, DeviceId), usize> = BTreeMap::new();
    for (at, source) in engine.sources.sources.iter().enumerate() {
        for device in &source.expects {
            let first = *sources.entry(device).or_insert(at);
            if first != at {
                let (region, name) = device;
                let message = format!(
                    "{region}/{name} is expected in source[{first}] too; a device belongs to one source, leave it out here"
                );
                review.refuse(&KeyPath::top("source").index(at).key("expects"), message);
                break;
            }
        }
    }
}

/// Who is expected where nobody can be heard would be missed for ever.
pub(super) fn expected_where_they_can_be(review: &mut Review<'_>, engine: &Engine) {
    for (at, source) in engine.sources.sources.iter().enumerate() {
        let regions = std::iter::once(&source.spec.region)
            .chain(source.statuses.iter().map(|status| &status.region));
        let Some(regions) = constants(regions) else { continue };
        let stray = source.expects.iter().find(|(region, _)| !regions.contains(&region.as_str()));
        let Some((region, name)) = stray else { continue };
        let only = regions.iter().map(|region| format!("\"{region}\"")).collect::<Vec<_>>();
        let message = format!(
            "{region}/{name} can never be heard: every device of this source is in region {}; write \"{}/{name}\", or \
             say where the region is (region = \"topic:…\", or a level {{region}} of the topic)",
            only.join(" or "),
            regions.first().unwrap_or(&"all"),
        );
        review.refuse(&KeyPath::top("source").index(at).key("expects"), message);
    }
}

/// What these say, where none of them depends on a message.
fn constants<'a>(all: impl Iterator<Item = &'a Reference>) -> Option<BTreeSet<&'a str>> {
    all.map(|reference| match reference {
        Reference::Const(text) => Some(text.as_str()),
        Reference::Topic(_) | Reference::Item(_) | Reference::Root(_) => None,
    })
    .collect()
}

/// More mistakes in one file than anybody reads at once.
const MOST_MISTAKES: usize = 20;

/// Devices that are expected, each once.
#[derive(Default)]
struct Expected {
    in_order: Vec<(RegionId, DeviceId)>,
    known: BTreeSet<String>,
}

impl Expected {
    /// Adds `region/device`; the first slash divides them.
    fn add(&mut self, name: &str) -> Result<(), &'static str> {
        match name.split_once('/') {
            Some((region, device)) if !region.is_empty() && !device.is_empty() => {
                if !self.known.insert(name.to_owned()) {
                    return Err("named twice; leave one out");
                }
                self.in_order.push((RegionId::from(region), DeviceId::from(device)));
                Ok(())
            }
            _ => Err("expected a region and a device: \"north/m-17\""),
        }
    }

    /// One a line; blanks around it, empty lines and those that begin with `#` say nothing.
    fn add_lines(&mut self, text: &str, mut refuse: impl FnMut(String)) {
        // What some editors begin a file with.
        let text = text.trim_start_matches('\u{feff}');
        let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
        let names = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let mistakes = names.filter_map(|(number, name)| {
            self.add(name).err().map(|mistake| format!("line {number}, {name:?}: {mistake}"))
        });
        mistakes.take(MOST_MISTAKES).for_each(&mut refuse);
    }
}
