//! A restored engine: the records of a store, read under the configuration of today.
//!
//! Metrics are matched by name: one that is new starts empty, one that is gone is dropped. Devices of a source that is
//! gone are forgotten. Both are losses where something of them was told or may be told again. But windows that are still open are never thrown away: a configuration that cannot carry them on
//! is refused.
//!
//! Records that are missing or cannot be read are done without ([`Loss`]). Each record names what it belongs to by
//! number, so a gap in the numbers is one lost device or region and mixes nothing up; what is left is then written anew
//! under numbers without gaps.

mod layout;
mod numbers;

use std::collections::BTreeSet;

use crate::engine::Engine;
use crate::engine::dedup::{Memory, Recogniser};
use crate::engine::loss::Loss;
use crate::engine::pane::Pane;
use crate::engine::records::{
    Identity, read_device_record, read_identity, read_pane_progress, read_pane_record,
    read_region_record, read_rollup_record,
};
use crate::engine::restore::layout::Layout;
use crate::engine::restore::numbers::Numbers;
use crate::engine::settings::Settings;
use crate::engine::snapshot::{
    DEVICE, GATEWAY, HELD, IDENTITY, LAYOUT, OLDEST, PANE, PRESENCE, REGION, ROLLUP, SEED, SEEN,
    UNSETTLED, VERSION, read_pane_key,
};
use crate::ids::Generation;
use crate::time::{ArrivalTime, EventTime, Span};

/// Why a store cannot be carried on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// It was written by a newer version.
    #[error(
        "the store has records of version {0}, and this program reads those up to {VERSION}: install the version that wrote it, or move the store aside"
    )]
    Version(u8),
    /// The configuration lacks what open windows need.
    #[error(
        "the store holds open windows of {0}, which the configuration no longer has as it was: bring it back until they are closed, or move the store aside"
    )]
    Changed(String),
}

/// Reads records in the order of their keys, then [`Self::finish`].
#[derive(Debug)]
pub struct Restorer {
    engine: Engine,
    then: Layout,
    /// All keys so far, each after its length.
    keys: Vec<u8>,
    /// The regions of the store as they are numbered now.
    regions: Numbers<usize>,
    /// The devices of the store as they are numbered now; `None`: their source is gone.
    devices: Numbers<Option<usize>>,
    /// Regions of which only the names are known, from their devices.
    without_region_record: Vec<usize>,
    /// Devices of which no record has told yet how far they are.
    without_progress: BTreeSet<usize>,
    beginnings: [u64; 2],
    /// Whether there was a layout, and a record of the gateway.
    has: [bool; 2],
    losses: Vec<Loss>,
}

impl Restorer {
    /// Starts with an empty engine.
    pub fn new(settings: Settings, generation: Generation, created: ArrivalTime) -> Self {
        Self {
            engine: Engine::without_regions(settings, generation, created),
            then: Layout::default(),
            keys: Vec::new(),
            regions: Numbers::default(),
            devices: Numbers::default(),
            without_region_record: Vec::new(),
            without_progress: BTreeSet::new(),
            beginnings: [0; 2],
            has: [false; 2],
            losses: Vec::new(),
        }
    }

    /// Takes one record. Records come in the order of their keys.
    ///
    /// # Errors
    /// The store must not be carried on. What cannot be read is no error: see [`Self::losses`].
    pub fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), RestoreError> {
        if key.first() == Some(&HELD) {
            self.take_held(key, value); // many, and none of them depends on the layout
            return Ok(());
        }
        self.note_key(key);
        let (tag, rest) = key.split_first().unwrap_or((&0, &[]));
        let taken = match *tag {
            LAYOUT => self.take_layout(value)?,
            GATEWAY => self.take_gateway(value),
            REGION => self.take_region(rest, value),
            IDENTITY => self.take_identity(rest, value),
            DEVICE => self.take_device(rest, value),
            PANE => self.take_pane(rest, value)?,
            ROLLUP => self.take_rollup(rest, value),
            SEEN => self.take_segment(Memory::Seen, rest, value),
            UNSETTLED => self.take_segment(Memory::Unsettled, rest, value),
            SEED => self.take_seed(value),
            PRESENCE => self.take_presence(rest, value),
            _ => None,
        };
        if taken.is_none() {
            self.losses.push(Loss::Unknown(key.to_owned()));
        }
        Ok(())
    }

    /// What the records so far lack. Each is carried on without; whatever is told from now on could contradict what was
    /// told before, and needs another generation: see [`Self::begin_again`].
    pub fn losses(&self) -> Vec<Loss> {
        let missing = [Loss::Layout, Loss::Gateway].into_iter().zip(self.has);
        let missing = missing.filter(|(_, has)| !has && !self.keys.is_empty());
        let progress =
            self.without_progress.iter().map(|device| Loss::Progress(self.name(*device)));
        let held = Some(self.engine.held_missing()).filter(|n| *n > 0).map(Loss::Held);
        let told = self.losses.iter().cloned();
        missing.map(|(loss, _)| loss).chain(told).chain(progress).chain(held).collect()
    }

    /// Gives what is carried on a new identity: of a store that has losses.
    pub fn begin_again(&mut self, generation: Generation, created: ArrivalTime) {
        (self.engine.generation, self.engine.created) = (generation, created);
    }

    fn take_layout(&mut self, value: &[u8]) -> Result<Option<()>, RestoreError> {
        match value.first() {
            Some(OLDEST..=VERSION) => {}
            None | Some(0) => return Ok(Some(())), // no version ever wrote that: it counts as missing
            Some(version) => return Err(RestoreError::Version(*version)),
        }
        if let Some(then) = Layout::read(value, &self.engine.settings) {
            (self.then, self.has[0]) = (then, true);
        }
        Ok(Some(()))
    }

    fn take_gateway(&mut self, value: &[u8]) -> Option<()> {
        if let Some(beginnings) = self.engine.read_gateway_record(value) {
            (self.beginnings, self.has[1]) = (beginnings, true);
        }
        Some(())
    }

    fn take_region(&mut self, rest: &[u8], value: &[u8]) -> Option<()> {
        let number = read_number(rest)?;
        self.losses.extend(self.regions.arrive(number).map(Loss::Region));
        let Some(record) = read_region_record(value) else {
            self.losses.push(Loss::Region(number));
            return Some(());
        };
        let index = self.engine.region(record.name);
        let region = &mut self.engine.regions[index];
        region.restore(record.watermarks);
        (region.watched, region.heard, region.stamp) = (record.watched, record.heard, record.stamp);
        self.engine.partitions.restore(index, record.partition);
        self.regions.place(number, index);
        Some(())
    }

    fn take_identity(&mut self, rest: &[u8], value: &[u8]) -> Option<()> {
        let number = read_number(rest)?;
        self.losses.extend(self.devices.arrive(number).map(numbered).map(Loss::Device));
        let Some(identity) = read_identity(value) else {
            self.losses.push(Loss::Device(numbered(number)));
            return Some(());
        };
        let region = self.region_of(&identity);
        match (region, self.then.sources.get(identity.source)) {
            (Some(region), Some(source)) => {
                let now = source.now;
                let gone = now.is_none().then(|| Loss::Source(source.name.clone()));
                let index = now.map(|now| self.engine.insert_device(now, region, identity.name));
                if let Some(index) = index {
                    self.engine.devices[index].heard = Span::ZERO; // until its progress is read
                    self.without_progress.insert(index);
                }
                self.devices.place(number, index);
                gone.into_iter().for_each(|loss| self.lose_once(loss));
            }
            _ => self.losses.push(Loss::Device(match identity.region_name {
                Some(region) => format!("{region}/{}", identity.name),
                None => identity.name.to_owned(),
            })),
        }
        Some(())
    }

    /// The region of a device: found by number, or made again by the name that the device knows.
    fn region_of(&mut self, identity: &Identity<'_>) -> Option<usize> {
        if let Some(region) = self.regions.get(identity.region) {
            return Some(region);
        }
        self.losses.extend(self.regions.refer(identity.region).map(Loss::Region));
        let region = self.engine.region(identity.region_name?);
        self.without_region_record.push(region);
        self.regions.place(identity.region, region);
        Some(region)
    }

    /// The device of a record, or why there is none: it is lost, or its source is gone.
    fn device_of(&mut self, number: usize) -> Option<Option<usize>> {
        self.losses.extend(self.devices.refer(number).map(numbered).map(Loss::Device));
        self.devices.get(number)
    }

    fn take_device(&mut self, rest: &[u8], value: &[u8]) -> Option<()> {
        let Some(Some(index)) = self.device_of(read_number(rest)?) else { return Some(()) };
        let read = read_device_record(&mut self.engine.devices[index], value);
        match read {
            Some(()) => drop(self.without_progress.remove(&index)),
            None => self.losses.push(Loss::Progress(self.name(index))),
        }
        Some(())
    }

    fn take_presence(&mut self, rest: &[u8], value: &[u8]) -> Option<()> {
        let Some(Some(index)) = self.device_of(read_number(rest)?) else { return Some(()) };
        if self.engine.devices[index].presence.read_record(value).is_none() {
            self.losses.push(Loss::Presence(self.name(index)));
        }
        Some(())
    }

    fn take_pane(&mut self, rest: &[u8], value: &[u8]) -> Result<Option<()>, RestoreError> {
        let Some((number, window, start)) = read_pane_key(rest) else { return Ok(None) };
        match (self.device_of(number), self.then.windows.get(window)) {
            (None, _) | (Some(None), None) => {} // lost with its device
            (Some(None), Some((name, _))) => {
                let gone = format!("a renamed or removed source ({name})");
                return Err(RestoreError::Changed(gone));
            }
            (Some(Some(device)), window) => {
                let now = window.map(|(_, now)| *now);
                if now.and_then(|now| self.read_pane(device, now, start, value)).is_none() {
                    self.losses.push(Loss::Window { device: self.name(device), start });
                }
            }
        }
        Ok(Some(()))
    }

    fn read_pane(
        &mut self,
        index: usize,
        window: Option<usize>,
        start: EventTime,
        value: &[u8],
    ) -> Option<()> {
        let Engine { devices, settings, .. } = &mut self.engine;
        let device = &mut devices[index];
        let (has_progress, rest) = read_pane_progress(device, start, value)?;
        if has_progress {
            self.without_progress.remove(&index);
        }
        let source = &settings.sources[device.source];
        // A multiple that is no longer asked for is made of base windows, which are told for themselves.
        let asked = |window: &usize| *window == source.base || source.multiples.contains(window);
        let Some(window) = window.filter(asked) else { return Some(()) };
        let then = self.then.sources.iter().find(|then| then.now == Some(device.source))?;
        let size = settings.windows[window].size;
        let mut pane = Pane::new(window, start, size, source.metrics.len());
        let mut gone = Vec::new();
        read_pane_record(&mut pane, rest, |number| {
            let number = *then.metrics.get(number)?;
            let metric = self.then.metric(number, &mut gone)?;
            let now = source.metrics.iter().position(|mine| mine.metric == metric);
            // It is there, and this source has none of it any more.
            gone.extend(now.is_none().then_some(number));
            now
        })?;
        device.panes.push(pane);
        self.note_gone(&gone);
        Some(())
    }

    /// Metrics of the store that had values in something open, and have no place for them.
    fn note_gone(&mut self, gone: &[usize]) {
        let metrics = gone.iter().filter_map(|number| self.then.metrics.get(*number));
        let losses: Vec<_> = metrics.map(|(name, _)| Loss::Metric(name.clone())).collect();
        losses.into_iter().for_each(|loss| self.lose_once(loss));
    }

    /// Notes what many records may lack alike.
    fn lose_once(&mut self, loss: Loss) {
        if !self.losses.contains(&loss) {
            self.losses.push(loss);
        }
    }

    fn take_rollup(&mut self, rest: &[u8], value: &[u8]) -> Option<()> {
        let (number, window, end) = read_pane_key(rest)?;
        self.losses.extend(self.regions.refer(number).map(Loss::Region));
        let region = self.regions.get(number);
        let metrics = self.engine.settings.metrics.len();
        let mut gone = Vec::new();
        let place = |number: usize| self.then.metric(number, &mut gone);
        let read = self.then.windows.get(window).zip(read_rollup_record(value, metrics, place));
        match (region, read) {
            (Some(region), Some(((_, Some(now)), pane))) => {
                self.engine.regions[region].panes.insert((end, *now), pane);
                self.note_gone(&gone);
            }
            (Some(_), Some(((_, None), _))) => {} // nobody asks for it any more
            _ => {
                let name = |index: usize| self.engine.regions[index].id.as_str().to_owned();
                let region = region.map_or_else(|| numbered(number), name);
                self.losses.push(Loss::Rollup { region, end });
            }
        }
        Some(())
    }

    fn take_segment(&mut self, memory: Memory, rest: &[u8], value: &[u8]) -> Option<()> {
        let start = u64::from_be_bytes(rest.try_into().ok()?);
        let (numbers, left_over) = value.as_chunks::<8>();
        let numbers: Vec<u64> = numbers.iter().map(|number| u64::from_le_bytes(*number)).collect();
        let first = self.beginnings[usize::from(memory == Memory::Unsettled)];
        let follows = self.engine.dedup.restore(memory, first, start, &numbers);
        // Without the gateway's record nobody knows where the first one begins.
        if numbers.is_empty() || !left_over.is_empty() || (!follows && self.has[1]) {
            self.losses.push(Loss::Memory);
        }
        Some(())
    }

    fn take_seed(&mut self, value: &[u8]) -> Option<()> {
        match value.try_into() {
            Ok(seed) => self.engine.recogniser = Recogniser::seeded(u64::from_be_bytes(seed)),
            Err(_) => self.losses.push(Loss::Memory),
        }
        Some(())
    }

    fn take_held(&mut self, key: &[u8], value: &[u8]) {
        let number = key[1..].try_into().ok().map(u64::from_be_bytes);
        if number.and_then(|number| self.engine.restore_held(number, value)).is_none() {
            self.losses.push(Loss::Unknown(key.to_owned()));
            self.note_key(key);
        }
    }

    fn name(&self, device: usize) -> String {
        let device = &self.engine.devices[device];
        format!("{}/{}", device.region_id, device.id)
    }

    /// Notes a key, after its length.
    fn note_key(&mut self, key: &[u8]) {
        self.keys.extend(u16::try_from(key.len()).unwrap_or(u16::MAX).to_be_bytes());
        self.keys.extend(key);
    }

    /// The engine, ready to go on.
    pub fn finish(mut self) -> Engine {
        let losses = self.losses();
        let is_empty = self.keys.is_empty();
        let has_gateway = is_empty || self.has[1];
        if !has_gateway {
            self.engine.listening = self.engine.time_listened_at_least();
        }
        for device in self.without_progress {
            self.engine.rebuild_progress(device);
        }
        self.engine.wake();
        for region in self.without_region_record {
            self.engine.wake_without_record(region);
        }
        if !has_gateway {
            // The gateway's was the least of these at most; a watermark does not move back.
            let published = self.engine.regions.iter().map(|region| region.published).max();
            self.engine.gateway_published = published.unwrap_or(EventTime::MIN);
        }
        self.engine.expect_devices();
        self.engine.books.lost += losses.len() as u64;
        self.engine.reconcile_held();
        if is_empty || self.then.changed || !losses.is_empty() {
            self.engine.mark_all();
            // Numbers may have changed: what is not written again must go.
            self.engine.obsolete = split_keys(&self.keys);
        }
        self.engine
    }
}

/// Keys of which each stands after its length.
fn split_keys(mut noted: &[u8]) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    while let Some((length, rest)) = noted.split_first_chunk() {
        let (key, rest) = rest.split_at(usize::from(u16::from_be_bytes(*length)).min(rest.len()));
        keys.push(key.to_owned());
        noted = rest;
    }
    keys
}

fn numbered(number: usize) -> String {
    format!("number {number}")
}

fn read_number(rest: &[u8]) -> Option<usize> {
    Some(u32::from_be_bytes(rest.try_into().ok()?) as usize)
}

#[cfg(test)]
mod tests;
