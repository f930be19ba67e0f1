//! Everything the engine knows, as records for the store, versioned.
//!
//! One small record per device, one per open window: only those that changed are written. Keys begin with a tag whose
//! order is the order in which a restored engine needs them:
//!
//! | tag | record |
//! |---|---|
//! | 1 | layout: names of windows, metrics and sources, which the others name by number |
//! | 2 | gateway: listened time, books, where the logs begin |
//! | 3 | region: its name and watermarks |
//! | 4 | identity of a device, written once |
//! | 5 | device: its progress (highest event time, watermark, last heard, whether idle), refusals told, how it writes its times, offset of its clock, when it was started |
//! | 6 | pane of a device: samples and what was told, and the device's progress |
//! | 7 | roll-up of a region |
//! | 8, 9 | segments of the duplicate memory |
//! | 10 | seed of the duplicate memory |
//! | 11 | message that is held until the time is known, by its number |
//! | 16 | presence of a device, without what moves with every message: written when it changes |
//!
//! A message changes its device's progress and one pane. To write one record and not two, the progress goes into that
//! pane; the device's own record is written only when no pane is, or when something is new that only it has. So a store holds progress of several ages. Nothing of
//! it ever moves back, hence the newest is the greatest of them.

use std::collections::BTreeSet;

use crate::engine::Engine;
use crate::engine::books::Books;
use crate::engine::checkpoint::Checkpoint;
use crate::engine::codec::{Reader, Writer};
use crate::engine::dedup::Memory;
use crate::engine::listen::Listening;
use crate::engine::records::{
    Progress, device_record, identity_record, pane_record, read_limit, region_record,
    rollup_record, write_limit,
};
use crate::engine::settings::Settings;
use crate::engine::side_output::RateLimit;
use crate::time::{ArrivalTime, ClockQuality, ClockStatus, EventTime, Span};

/// Version of the records. It is raised when an older program would misread them: such a store is refused by it.
///
/// | version | since then |
/// |---|---|
/// | 1 | |
/// | 2 | devices: presence in their progress, how they write times, offset of the clock, start; counts of what was corrected; held messages, presence; the interval of watermarks as a span |
pub const VERSION: u8 = 2;

/// The oldest version that is read. Its store is of [`VERSION`] from the first commit on.
pub const OLDEST: u8 = 1;

pub(super) const LAYOUT: u8 = 1;
pub(super) const GATEWAY: u8 = 2;
pub(super) const REGION: u8 = 3;
pub(super) const IDENTITY: u8 = 4;
pub(super) const DEVICE: u8 = 5;
pub(super) const PANE: u8 = 6;
pub(super) const ROLLUP: u8 = 7;
pub(super) const SEEN: u8 = 8;
pub(super) const UNSETTLED: u8 = 9;
pub(super) const SEED: u8 = 10;
pub(super) const HELD: u8 = 11;
pub(super) const PRESENCE: u8 = 16;

impl Engine {
    /// What changed since the last checkpoint; nothing when nothing did.
    pub fn checkpoint(&mut self) -> Checkpoint {
        let mut changes: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
        if self.layout_is_new {
            changes.push((key(LAYOUT, &[]), Some(layout(&self.settings))));
            let seed = self.recogniser.seed().to_be_bytes();
            changes.push((key(SEED, &[]), Some(seed.to_vec())));
        }
        self.keep_stamps();
        self.checkpoint_regions(&mut changes);
        self.checkpoint_devices(&mut changes);
        for (memory, tag) in [(Memory::Seen, SEEN), (Memory::Unsettled, UNSETTLED)] {
            let (write, cut) = self.dedup.log(memory).changes();
            let at = |start: u64| key(tag, &start.to_be_bytes());
            changes.extend(cut.into_iter().map(|start| (at(start), None)));
            changes.extend(write.into_iter().map(|(start, n)| (at(start), Some(segment(&n)))));
        }
        let (held, gone) = self.gate.changes();
        let at = |number: u64| key(HELD, &number.to_be_bytes());
        changes.extend(held.into_iter().map(|(number, record)| (at(number), Some(record))));
        changes.extend(gone.into_iter().map(|number| (at(number), None)));
        if !self.obsolete.is_empty() {
            let kept: BTreeSet<&Vec<u8>> = changes.iter().map(|(key, _)| key).collect();
            self.obsolete.retain(|key| !kept.contains(key) && *key != [GATEWAY]);
            changes.extend(self.obsolete.drain(..).map(|key| (key, None)));
        }
        // Also when only time passed: silence that was listened to counts after a restart too.
        let gateway = self.gateway_record();
        if gateway != self.stored_gateway {
            changes.push((key(GATEWAY, &[]), Some(gateway.clone())));
            self.stored_gateway = gateway;
        }
        self.layout_is_new = false;
        self.committed = self.dedup.unsettled_end();
        Checkpoint { changes, mark: self.committed }
    }

    /// Writes everything with the next checkpoint: a snapshot that stands alone.
    pub fn mark_all(&mut self) {
        self.layout_is_new = true;
        self.stored_gateway.clear();
        for index in 0..self.devices.len() {
            self.devices[index].identity_is_stored = false;
            self.devices[index].habit.stored = 0;
            let device = &mut self.devices[index];
            device.clock_is_stored = !device.clock.is_kept() && device.uptime.is_none();
            self.mark(index);
            self.devices[index].panes.iter_mut().for_each(|pane| pane.dirty = true);
            self.devices[index].presence.dirty = true;
        }
        for region in &mut self.regions {
            region.dirty = true;
            region.panes.values_mut().for_each(|pane| pane.dirty = true);
        }
        for memory in [Memory::Seen, Memory::Unsettled] {
            self.dedup.log(memory).store_again();
        }
    }

    fn checkpoint_regions(&mut self, changes: &mut Vec<(Vec<u8>, Option<Vec<u8>>)>) {
        for (index, region) in (0..).zip(&mut self.regions) {
            self.books.region_missed += std::mem::take(&mut region.missed);
            if !std::mem::take(&mut region.dirty) {
                continue;
            }
            let partition = self.partitions.get(index as usize);
            changes.push((key(REGION, &number(index)), Some(region_record(region, partition))));
            for (end, window) in region.closed.drain(..) {
                changes.push((rollup_key(index, window, end), None));
            }
            for ((end, window), pane) in &mut region.panes {
                if std::mem::take(&mut pane.dirty) {
                    let record = rollup_record(pane, &self.region_aggregates);
                    changes.push((rollup_key(index, *window, *end), Some(record)));
                }
            }
        }
    }

    fn checkpoint_devices(&mut self, changes: &mut Vec<(Vec<u8>, Option<Vec<u8>>)>) {
        for at in self.dirty.drain(..) {
            let index = u32::try_from(at).expect("max-devices fits");
            let device = &mut self.devices[at];
            device.dirty = false;
            if !std::mem::replace(&mut device.identity_is_stored, true) {
                changes.push((key(IDENTITY, &number(index)), Some(identity_record(device))));
            }
            if std::mem::take(&mut device.presence.dirty) {
                let record = device.presence.record(&device.policy.presence, device.heard);
                changes.push((key(PRESENCE, &number(index)), Some(record)));
            }
            for (window, start) in device.closed.drain(..) {
                changes.push((pane_key(index, window, start), None));
            }
            let metrics = &self.settings.sources[device.source].metrics;
            let mut progress = Some(Progress::of(device));
            for pane in device.panes.iter_mut().filter(|pane| pane.dirty) {
                pane.dirty = false;
                let key = pane_key(index, pane.window, pane.start);
                changes.push((key, Some(pane_record(pane, metrics, progress.take()))));
            }
            let habit = device.habit.to_byte();
            let new_habit = std::mem::replace(&mut device.habit.stored, habit) != habit;
            let new_clock = !std::mem::replace(&mut device.clock_is_stored, true);
            let told = device.refusals != RateLimit::default();
            if progress.is_some() || told || new_habit || new_clock {
                changes.push((key(DEVICE, &number(index)), Some(device_record(device))));
            }
        }
    }

    fn gateway_record(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.signed(self.listening.stamp().0).signed(self.listening.duration().0);
        w.signed(self.gateway_published.0).signed(self.partitions.combined().0);
        w.signed(self.publish_at.map_or(i64::MIN, |at| at.0));
        w.u8(self.clock.quality as u8 | self.listening.flags() << 4);
        self.listening.write_gap(&mut w);
        self.dedup.beginnings().iter().for_each(|first| {
            w.unsigned(*first);
        });
        w.unsigned(self.malformed.len() as u64);
        self.malformed.iter().for_each(|limit| write_limit(&mut w, limit));
        self.books.columns().for_each(|(_, count)| {
            w.unsigned(count);
        });
        w.0
    }

    pub(super) fn read_gateway_record(&mut self, value: &[u8]) -> Option<[u64; 2]> {
        let mut r = Reader(value);
        let (stamp, duration) = (ArrivalTime(r.signed()?), Span(r.signed()?));
        let [published, combined] = [EventTime(r.signed()?), EventTime(r.signed()?)];
        let publish_at = Span(r.signed()?);
        let flags = r.u8()?;
        let quality = clock_quality(flags & 0xf)?;
        let mut listening = Listening::restore(duration, stamp);
        listening.read_gap(flags >> 4, &mut r)?;
        let beginnings = [r.unsigned()?, r.unsigned()?];
        let limits = (0..r.small::<usize>()?).map(|_| read_limit(&mut r));
        let limits = limits.collect::<Option<Vec<_>>>()?;
        let books = Books::from_columns(std::iter::from_fn(|| r.unsigned()));
        books.is_balanced().then_some(())?; // else it was cut short
        self.listening = listening;
        self.gateway_published = published;
        self.partitions.restore_combined(combined);
        // A stamp, as it was once written, is far ahead.
        let latest = duration + self.settings.watermark_interval;
        let publish_at = Some(publish_at.min(latest)).filter(|at| *at != Span(i64::MIN));
        self.publish_at = publish_at.filter(|_| self.settings.watermark_interval > Span::ZERO);
        self.clock = ClockStatus { quality, bound: Span::MAX };
        self.malformed.iter_mut().zip(limits).for_each(|(mine, limit)| *mine = limit);
        self.books = books;
        self.stored_gateway = value.to_owned();
        Some(beginnings)
    }
}

fn clock_quality(code: u8) -> Option<ClockQuality> {
    use ClockQuality::{Holdover, Suspect, Synchronised, Unsynchronised};
    [Synchronised, Holdover, Suspect, Unsynchronised].into_iter().find(|q| *q as u8 == code)
}

/// A key: its tag, then whatever tells the record from its like.
pub(super) fn key(tag: u8, rest: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + rest.len());
    key.push(tag);
    key.extend(rest);
    key
}

fn number(index: u32) -> [u8; 4] {
    index.to_be_bytes()
}

/// Keys sort as times do.
fn sorted(time: EventTime) -> [u8; 8] {
    (time.0 ^ i64::MIN).to_be_bytes()
}

fn pane_key(device: u32, window: usize, start: EventTime) -> Vec<u8> {
    let window = [u8::try_from(window).expect("at most 255 windows")];
    key(PANE, &[&number(device)[..], &window, &sorted(start)].concat())
}

fn rollup_key(region: u32, window: usize, end: EventTime) -> Vec<u8> {
    let window = [u8::try_from(window).expect("at most 255 windows")];
    key(ROLLUP, &[&number(region)[..], &window, &sorted(end)].concat())
}

/// The parts of a pane's or a roll-up's key: owner, window, start or end.
pub(super) fn read_pane_key(rest: &[u8]) -> Option<(usize, usize, EventTime)> {
    let (owner, rest) = rest.split_first_chunk::<4>()?;
    let (window, time) = rest.split_first()?;
    let time = i64::from_be_bytes(time.try_into().ok()?) ^ i64::MIN;
    Some((u32::from_be_bytes(*owner) as usize, usize::from(*window), EventTime(time)))
}

fn segment(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Names of windows, metrics and sources in the order in which records number them.
pub(super) fn layout(settings: &Settings) -> Vec<u8> {
    let mut w = Writer::default();
    w.u8(VERSION).unsigned(settings.windows.len() as u64);
    for window in &settings.windows {
        w.text(window.name.as_str()).signed(window.size.0).signed(window.offset.0);
    }
    w.unsigned(settings.metrics.len() as u64);
    settings.metrics.iter().for_each(|metric| {
        w.text(metric.name.as_str());
    });
    w.unsigned(settings.sources.len() as u64);
    for source in &settings.sources {
        w.text(source.profile.source().as_str()).unsigned(source.base as u64);
        w.unsigned(source.metrics.len() as u64);
        source.metrics.iter().for_each(|metric| {
            w.unsigned(metric.metric as u64);
        });
        w.unsigned(source.multiples.len() as u64);
        source.multiples.iter().for_each(|window| {
            w.unsigned(*window as u64);
        });
    }
    w.0
}
