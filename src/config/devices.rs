//! Which devices a table is for, and which of them have to be there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::check::Review;
use super::explain::suggest;
use super::finding::KeyPath;
use super::policy::Tables;
use super::raw;
use super::sources::Source;
use crate::engine::settings::DeviceClass;
use crate::ids::{DeviceId, RegionId};
use crate::wire::reference::Reference;

/// One `[[devices]]`.
pub(super) struct Declared {
    pub(super) class: DeviceClass,
    /// The name of the source that hears them, where they are named one by one.
    source: Option<String>,
}

/// Every `[[devices]]`, checked.
pub(super) fn devices(review: &mut Review<'_>, tables: &Tables) -> Vec<Declared> {
    let mut patterns = BTreeSet::new();
    let all = tables.devices.iter().enumerate();
    all.map(|(at, raw)| {
        let path = KeyPath::top("devices").index(at);
        let is_by_name = raw.names.is_some() || raw.names_file.is_some();
        match &raw.pattern {
            Some(_) if is_by_name => {
                let message = "these devices have names already; make two tables of it";
                review.refuse(&path.key("pattern"), message);
            }
            Some(pattern) if pattern.is_empty() => {
                review.refuse(&path.key("pattern"), "empty; \"*\" is every device");
            }
            Some(pattern) if !patterns.insert(pattern) => {
                let message = "used twice; put what holds for these devices into one table";
                review.refuse(&path.key("pattern"), message);
            }
            None if !is_by_name => {
                let message = "missing; say which devices: pattern = \"sleepy-*\", or names = [\"north/m-17\"]";
                review.refuse(&path.key("pattern"), message);
            }
            _ => {}
        }
        let class = if is_by_name {
            DeviceClass::Named(Arc::new(named(review, &path, raw)))
        } else {
            DeviceClass::Pattern(raw.pattern.clone().unwrap_or_default())
        };
        let source = source(review, &path, raw, &tables.sources, is_by_name);
        Declared { class, source }
    })
    .collect()
}

/// Who hears them: the only source there is, if none is written.
fn source(
    review: &mut Review<'_>,
    path: &KeyPath,
    raw: &raw::Devices,
    sources: &[raw::Source],
    is_by_name: bool,
) -> Option<String> {
    let known: Vec<&str> = sources.iter().filter_map(|source| source.name.as_deref()).collect();
    let path = path.key("source");
    match (&raw.source, &known[..]) {
        (Some(_), _) if !is_by_name => {
            let message = "a pattern is for devices of any source; leave it out";
            review.refuse(&path, message);
        }
        (Some(name), _) if !known.contains(&name.as_str()) => {
            let message = format!("no [[source]] is called `{name}`; {}", suggest(name, &known));
            review.refuse(&path, message);
        }
        (Some(name), _) => return Some(name.clone()),
        (None, _) if !is_by_name => {}
        (None, [only]) => return Some((*only).to_owned()),
        (None, []) => review.refuse(&path, "no [[source]] hears them; declare one"),
        (None, [..]) => {
            let message = "missing; there are several sources: say which one hears these devices";
            review.refuse(&path, message);
        }
    }
    None
}

/// Tells every source which devices it has to hear. A device belongs to the source that hears it first, and the other's
/// records of it would be refused.
pub(super) fn expect(review: &mut Review<'_>, declared: &[Declared], sources: &mut [Source]) {
    let mut heard_by: BTreeMap<&(RegionId, DeviceId), &str> = BTreeMap::new();
    for (at, Declared { class, source }) in declared.iter().enumerate() {
        let (DeviceClass::Named(all), Some(name)) = (class, source) else { continue };
        let path = KeyPath::top("devices").index(at);
        let its = |source: &&mut Source| source.spec.source.as_str() == name;
        // One that has mistakes of its own is not there.
        let Some(source) = sources.iter_mut().find(its) else { continue };
        let regions = constants(source);
        for device @ (region, id) in all.iter() {
            let first = *heard_by.entry(device).or_insert(name);
            if first != name {
                let message = format!(
                    "{region}/{id} is a device of source `{first}` already; a device belongs to one source, leave it out here"
                );
                review.refuse(&path, message);
                break;
            }
            if let Some(only) = &regions
                && !only.contains(region.as_str())
            {
                let only: Vec<&str> = only.iter().copied().collect();
                let message = format!(
                    "{region}/{id} can never be heard: all devices of source `{name}` are of region {}; write {}/{id}, or say where the region is (region = \"topic:…\", or a level {{region}} of the topic)",
                    only.join(" or "),
                    only.first().unwrap_or(&"all"),
                );
                review.refuse(&path, message);
                break;
            }
        }
        source.expects.extend(all.iter().cloned());
    }
    for source in sources {
        source.expects.sort_unstable();
        source.expects.dedup();
    }
}

/// The regions that devices of a source can be of, where none depends on a message.
fn constants(source: &Source) -> Option<BTreeSet<&str>> {
    let statuses = source.statuses.iter().map(|status| &status.region);
    std::iter::once(&source.spec.region).chain(statuses).map(constant).collect()
}

fn constant(region: &Reference) -> Option<&str> {
    match region {
        Reference::Const(text) => Some(text.as_str()),
        Reference::Topic(_) | Reference::Item(_) | Reference::Root(_) => None,
    }
}

/// Longest list of devices in a file, in bytes: 200,000 names of 80.
const LONGEST_FILE: u64 = 16 << 20;

/// Longest `region/device`, in bytes; a topic has at most 65,535.
const LONGEST_NAME: usize = 1_024;

/// More mistakes in one file than anybody reads at once.
const MOST_MISTAKES: usize = 20;

/// The devices of the list in the configuration and of the file that it names.
fn named(
    review: &mut Review<'_>,
    path: &KeyPath,
    raw: &raw::Devices,
) -> BTreeSet<(RegionId, DeviceId)> {
    let mut all = BTreeSet::new();
    for (at, name) in raw.names.iter().flatten().enumerate() {
        if let Err(mistake) = add(&mut all, name) {
            review.refuse(&path.key("names").index(at), mistake);
        }
    }
    if let Some(file) = &raw.names_file {
        let path = path.key("names-file");
        match read(file) {
            Ok(text) => add_lines(&mut all, &text, |mistake| review.refuse(&path, mistake)),
            Err(error) => review.refuse(&path, format!("cannot be read: {error}")),
        }
    }
    all
}

/// A file that is one, and of a size that a list of devices may have: whatever else is named must not hang the agent, nor
/// fill its memory.
fn read(file: &Path) -> io::Result<String> {
    let found = fs::metadata(file)?;
    if !found.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    if found.len() > LONGEST_FILE {
        return Err(io::Error::other("it is longer than 16 MiB"));
    }
    fs::read_to_string(file)
}

/// Adds `region/device`; the first slash divides them.
fn add(all: &mut BTreeSet<(RegionId, DeviceId)>, name: &str) -> Result<(), &'static str> {
    match name.split_once('/') {
        _ if name.len() > LONGEST_NAME => Err("too long to be part of a topic"),
        Some((region, device)) if !region.is_empty() && !device.is_empty() => {
            let is_new = all.insert((region.into(), device.into()));
            if is_new { Ok(()) } else { Err("named twice; leave one out") }
        }
        _ => Err("expected a region and a device: \"north/m-17\""),
    }
}

/// One a line; blanks around it, empty lines and those that begin with `#` say nothing.
fn add_lines(all: &mut BTreeSet<(RegionId, DeviceId)>, text: &str, mut refuse: impl FnMut(String)) {
    // What some editors begin a file with.
    let text = text.trim_start_matches('\u{feff}');
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    let names = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let mistakes = names.filter_map(|(number, name)| {
        add(all, name).err().map(|mistake| format!("line {number}, {name:?}: {mistake}"))
    });
    mistakes.take(MOST_MISTAKES).for_each(&mut refuse);
}
