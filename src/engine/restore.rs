//! A restored engine: the records of a store, read under the configuration of today.
//!
//! Metrics are matched by name: one that is new starts empty, one that is gone is dropped. Devices of a source that is
//! gone are forgotten. But windows that are still open are never thrown away: a configuration that cannot carry them on
//! is refused.

use crate::engine::Engine;
use crate::engine::codec::Reader;
use crate::engine::deadline::{ClockDeadline, Silence};
use crate::engine::dedup::Memory;
use crate::engine::device::Activity;
use crate::engine::pane::Pane;
use crate::engine::records::{
    read_device_record, read_identity, read_pane_progress, read_pane_record, read_region_record,
    read_rollup_record,
};
use crate::engine::settings::Settings;
use crate::engine::snapshot::{
    DEVICE, GATEWAY, IDENTITY, LAYOUT, PANE, REGION, ROLLUP, SEEN, UNSETTLED, VERSION, layout,
    read_pane_key,
};
use crate::ids::Generation;
use crate::time::{ArrivalTime, EventTime, Span};

/// Why a store cannot be carried on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// It was written by another version.
    #[error(
        "the store has records of version {0}, this is version {VERSION}: install the version that wrote it, or move the store aside"
    )]
    Version(u8),
    /// A record cannot be read.
    #[error("the record with key {0:02x?} of the store cannot be read")]
    Damaged(Vec<u8>),
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
    /// The devices of the store as they are numbered now; `None`: their source is gone.
    devices: Vec<Option<usize>>,
    beginnings: [u64; 2],
    is_empty: bool,
}

/// Where the windows, metrics and sources of the store stand in the configuration of today.
#[derive(Debug, Default)]
struct Layout {
    windows: Vec<(String, Option<usize>)>,
    metrics: Vec<Option<usize>>,
    sources: Vec<SourceLayout>,
    changed: bool,
}

#[derive(Debug)]
struct SourceLayout {
    now: Option<usize>,
    /// Metrics by the numbers of the store's layout.
    metrics: Vec<usize>,
}

impl Layout {
    fn read(value: &[u8], settings: &Settings) -> Option<Self> {
        let mut r = Reader(value);
        r.u8()?;
        let mut read = Self { changed: value != layout(settings), ..Self::default() };
        for _ in 0..r.small::<usize>()? {
            let (name, size, offset) = (r.text()?, Span(r.signed()?), Span(r.signed()?));
            let now = settings.windows.iter().position(|window| {
                window.name.as_str() == name && window.size == size && window.offset == offset
            });
            read.windows.push((name.to_owned(), now));
        }
        for _ in 0..r.small::<usize>()? {
            let name = r.text()?;
            read.metrics.push(settings.metrics.iter().position(|m| m.name.as_str() == name));
        }
        for _ in 0..r.small::<usize>()? {
            let (name, base) = (r.text()?, r.small::<usize>()?);
            let metrics = (0..r.small::<usize>()?).map(|_| r.small()).collect::<Option<_>>()?;
            for _ in 0..r.small::<usize>()? {
                r.small::<usize>()?; // multiples are matched pane by pane
            }
            let base = read.windows.get(base)?.1;
            let now = settings.sources.iter().position(|source| {
                source.profile.source().as_str() == name && Some(source.base) == base
            });
            read.sources.push(SourceLayout { now, metrics });
        }
        Some(read)
    }
}

impl Restorer {
    /// Starts with an empty engine.
    pub fn new(settings: Settings, generation: Generation, created: ArrivalTime) -> Self {
        let engine = Engine::without_regions(settings, generation, created);
        let then = Layout::default();
        Self { engine, then, devices: Vec::new(), beginnings: [0; 2], is_empty: true }
    }

    /// Takes one record. Records come in the order of their keys.
    pub fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), RestoreError> {
        self.is_empty = false;
        let damaged = || RestoreError::Damaged(key.to_owned());
        let (tag, rest) = key.split_first().ok_or_else(damaged)?;
        match *tag {
            LAYOUT => self.take_layout(value)?,
            GATEWAY => self.take_gateway(value),
            REGION => self.take_region(rest, value),
            IDENTITY => self.take_identity(rest, value),
            DEVICE => self.take_device(rest, value),
            PANE => self.take_pane(rest, value)?,
            ROLLUP => self.take_rollup(rest, value),
            SEEN => self.take_segment(Memory::Seen, rest, value),
            UNSETTLED => self.take_segment(Memory::Unsettled, rest, value),
            _ => None,
        }
        .ok_or_else(damaged)?;
        if self.then.changed {
            self.engine.obsolete.push(key.to_owned());
        }
        Ok(())
    }

    fn take_layout(&mut self, value: &[u8]) -> Result<Option<()>, RestoreError> {
        match value.first() {
            Some(&VERSION) => {}
            version => return Err(RestoreError::Version(version.copied().unwrap_or(0))),
        }
        let then = Layout::read(value, &self.engine.settings);
        Ok(then.map(|then| self.then = then))
    }

    fn take_gateway(&mut self, value: &[u8]) -> Option<()> {
        self.beginnings = self.engine.read_gateway_record(value)?;
        Some(())
    }

    fn take_region(&mut self, rest: &[u8], value: &[u8]) -> Option<()> {
        let record = read_region_record(value)?;
        let index = self.engine.region(record.name);
        (read_number(rest)? == index).then_some(())?; // else one is missing, and all after it would be mixed up
        let region = &mut self.engine.regions[index];
        region.restore(record.watermarks);
        (region.watched, region.heard) = (record.watched, record.heard);
        self.engine.partitions.restore(index, record.partition);
        Some(())
    }

    fn take_identity(&mut self, rest: &[u8], value: &[u8]) -> Option<()> {
        (read_number(rest)? == self.devices.len()).then_some(())?; // as above
        let (region, source, name) = read_identity(value)?;
        self.engine.regions.get(region)?;
        let now = self.then.sources.get(source)?.now;
        let index = now.map(|now| self.engine.insert_device(now, region, name));
        if let Some(index) = index {
            self.engine.devices[index].heard = Span::ZERO; // until its progress is read
        }
        self.devices.push(index);
        Some(())
    }

    fn take_device(&mut self, rest: &[u8], value: &[u8]) -> Option<()> {
        match *self.devices.get(read_number(rest)?)? {
            Some(device) => read_device_record(&mut self.engine.devices[device], value),
            None => Some(()),
        }
    }

    fn take_pane(&mut self, rest: &[u8], value: &[u8]) -> Result<Option<()>, RestoreError> {
        let Some((number, window, start)) = read_pane_key(rest) else { return Ok(None) };
        let Some((name, now)) = self.then.windows.get(window) else { return Ok(None) };
        let device = match self.devices.get(number) {
            Some(Some(device)) => *device,
            Some(None) => {
                let gone = format!("a renamed or removed source ({name})");
                return Err(RestoreError::Changed(gone));
            }
            None => return Ok(None),
        };
        Ok(self.read_pane(device, *now, start, value))
    }

    fn read_pane(
        &mut self,
        device: usize,
        window: Option<usize>,
        start: EventTime,
        value: &[u8],
    ) -> Option<()> {
        let Engine { devices, settings, .. } = &mut self.engine;
        let device = &mut devices[device];
        let rest = read_pane_progress(device, start, value)?;
        let source = &settings.sources[device.source];
        // A multiple that is no longer asked for is made of base windows, which are told for themselves.
        let asked = |window: &usize| *window == source.base || source.multiples.contains(window);
        let Some(window) = window.filter(asked) else { return Some(()) };
        let then = self.then.sources.iter().find(|then| then.now == Some(device.source))?;
        let size = settings.windows[window].size;
        let mut pane = Pane::new(window, start, size, source.metrics.len());
        read_pane_record(&mut pane, rest, |number| {
            let metric = self.then.metrics.get(*then.metrics.get(number)?).copied().flatten()?;
            source.metrics.iter().position(|mine| mine.metric == metric)
        })?;
        device.panes.push(pane);
        Some(())
    }

    fn take_rollup(&mut self, rest: &[u8], value: &[u8]) -> Option<()> {
        let (region, window, end) = read_pane_key(rest)?;
        let metrics = self.engine.settings.metrics.len();
        let place = |metric: usize| self.then.metrics.get(metric).copied().flatten();
        let pane = read_rollup_record(value, metrics, place)?;
        if let Some(now) = self.then.windows.get(window)?.1 {
            self.engine.regions.get_mut(region)?.panes.insert((end, now), pane);
        }
        Some(())
    }

    fn take_segment(&mut self, memory: Memory, rest: &[u8], value: &[u8]) -> Option<()> {
        let start = u64::from_be_bytes(rest.try_into().ok()?);
        let numbers =
            value.chunks_exact(8).map(|n| u64::from_le_bytes(n.try_into().expect("8 bytes")));
        let first = self.beginnings[usize::from(memory == Memory::Unsettled)];
        self.engine.dedup.restore(memory, first, start, &numbers.collect::<Vec<_>>());
        Some(())
    }

    /// The engine, ready to go on.
    pub fn finish(mut self) -> Engine {
        self.engine.wake();
        if self.is_empty || self.then.changed {
            self.engine.mark_all();
        }
        self.engine
    }
}

fn read_number(rest: &[u8]) -> Option<usize> {
    Some(u32::from_be_bytes(rest.try_into().ok()?) as usize)
}

impl Engine {
    /// Sets all that a snapshot leaves out because it follows from the rest.
    fn wake(&mut self) {
        for region in self.settings.regions.clone() {
            self.region(region.as_str());
        }
        self.dirty.clear();
        for index in 0..self.devices.len() {
            self.wake_device(index);
        }
        for index in 0..self.regions.len() {
            self.wake_region(index);
        }
        if let Some(at) = self.publish_at {
            self.deadlines.at_stamp(at, ClockDeadline::Publish);
        }
    }

    fn wake_device(&mut self, index: usize) {
        let (cx, device, region) = self.parts(index);
        (device.dirty, device.identity_is_stored) = (false, true);
        device.panes.sort_by_key(|pane| (pane.end, pane.window));
        device.find_next();
        let own = device.generator.watermark();
        if own != EventTime::MIN {
            region.advance(device.member, device.policy.max_hold, own);
        }
        if device.activity != Activity::Active {
            // A retained reading may have put the device ahead of the clock again, in a record of the same age.
            device.activity = device.silent_activity(cx.stamp);
        }
        if device.activity == Activity::Following {
            region.follow(device.member, device.policy.follows_by(), cx.stamp);
        }
        self.watch(index);
        self.look_again_at(index);
    }

    fn wake_region(&mut self, index: usize) {
        let stamp = self.listening.stamp();
        let region = &mut self.regions[index];
        region.find_next();
        region.hold_out(stamp); // told already
        if region.watched {
            self.deadlines.at_duration(region.silent_at(), Silence::Partition(index));
        }
        self.arm_region(index);
    }
}
