//! The records of a snapshot, one writer and one reader for each.

use crate::engine::aggregate::Gauge;
use crate::engine::codec::{Reader, Writer};
use crate::engine::correction::DeviceClock;
use crate::engine::device::{Activity, Device};
use crate::engine::emission::Emission;
use crate::engine::habit::Habit;
use crate::engine::pane::{Pane, Samples};
use crate::engine::partition::Partition;
use crate::engine::region::{Region, RegionPane, RegionSamples};
use crate::engine::settings::{Aggregates, SourceMetric};
use crate::engine::side_output::RateLimit;
use crate::engine::uptime::UptimeClock;
use crate::engine::watermark::Generator;
use crate::time::{ArrivalTime, EventTime, Span};

pub(super) fn write_limit(w: &mut Writer, limit: &RateLimit) {
    w.signed(limit.hour).unsigned(u64::from(limit.told)).unsigned(limit.withheld);
}

pub(super) fn read_limit(r: &mut Reader<'_>) -> Option<RateLimit> {
    Some(RateLimit { hour: r.signed()?, told: r.small()?, withheld: r.unsigned()? })
}

pub(super) fn region_record(region: &Region, partition: &Partition) -> Vec<u8> {
    let mut w = Writer::default();
    w.text(region.id.as_str());
    w.signed(region.watermark().0).signed(region.complete().0).signed(region.published.0);
    w.signed(partition.generator.highest().0).signed(partition.generator.watermark().0);
    w.u8(u8::from(partition.idle)
        | u8::from(partition.behind) << 1
        | u8::from(region.watched) << 2);
    w.signed(region.heard.0).signed(region.final_to().0);
    if region.stamp != ArrivalTime::MIN {
        w.signed(region.stamp.0);
    }
    w.0
}

/// A region as its record tells it.
#[derive(Debug)]
pub(super) struct RegionRecord<'a> {
    pub(super) name: &'a str,
    pub(super) watermarks: [EventTime; 4],
    pub(super) partition: Partition,
    pub(super) watched: bool,
    pub(super) heard: Span,
    pub(super) stamp: ArrivalTime,
}

pub(super) fn read_region_record(value: &[u8]) -> Option<RegionRecord<'_>> {
    let mut r = Reader(value);
    let name = r.text()?;
    let [watermark, complete, published] =
        [EventTime(r.signed()?), EventTime(r.signed()?), EventTime(r.signed()?)];
    let generator = Generator::restore(EventTime(r.signed()?), EventTime(r.signed()?));
    let flags = r.u8()?;
    let partition = Partition { generator, idle: flags & 1 != 0, behind: flags & 2 != 0 };
    let (heard, final_to) = (Span(r.signed()?), EventTime(r.signed()?));
    let watermarks = [watermark, complete, published, final_to];
    let stamp = if r.0.is_empty() { ArrivalTime::MIN } else { ArrivalTime(r.signed()?) };
    Some(RegionRecord { name, watermarks, partition, watched: flags & 4 != 0, heard, stamp })
}

pub(super) fn identity_record(device: &Device) -> Vec<u8> {
    let mut w = Writer::default();
    w.unsigned(device.region as u64).unsigned(device.source as u64).text(device.id.as_str());
    w.text(device.region_id.as_str()); // should the region's own record be lost
    w.0
}

/// Who a device is.
#[derive(Debug)]
pub(super) struct Identity<'a> {
    /// Number of its region.
    pub(super) region: usize,
    /// Number of its source in the store's layout.
    pub(super) source: usize,
    pub(super) name: &'a str,
    pub(super) region_name: Option<&'a str>,
}

pub(super) fn read_identity(value: &[u8]) -> Option<Identity<'_>> {
    let mut r = Reader(value);
    let (region, source, name) = (r.small()?, r.small()?, r.text()?);
    Some(Identity { region, source, name, region_name: r.text() })
}

/// How far a device is, as one of its records tells it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    heard: Span,
    activity: Activity,
    highest: EventTime,
    watermark: EventTime,
    final_to: EventTime,
    presence: Option<(Span, ArrivalTime)>,
}

impl Progress {
    pub(super) fn of(device: &Device) -> Self {
        Self {
            heard: device.heard,
            activity: device.activity,
            highest: device.generator.highest(),
            watermark: device.generator.watermark(),
            final_to: device.final_to,
            presence: Some(device.presence.progress()),
        }
    }

    fn write(&self, w: &mut Writer, base: EventTime) {
        let some_final = self.final_to != EventTime::MIN;
        let flags = u8::from(some_final) | u8::from(self.presence.is_some()) << 1;
        w.u8(self.activity as u8 | flags << 4).signed(self.heard.0);
        w.signed(self.highest.0.wrapping_sub(base.0)).signed(self.watermark.0.wrapping_sub(base.0));
        if some_final {
            w.signed(self.final_to.0.wrapping_sub(self.watermark.0));
        }
        if let Some((silent_from, last_seen)) = self.presence {
            // Both differ little from the others: a byte or two each.
            w.signed(self.heard.0.wrapping_sub(silent_from.0));
            w.signed(self.highest.0.wrapping_sub(last_seen.0));
        }
    }

    fn read(r: &mut Reader<'_>, base: EventTime) -> Option<Self> {
        let flags = r.u8()?;
        let activities = [Activity::Active, Activity::Idle, Activity::Following];
        let activity = activities.into_iter().find(|a| *a as u8 == flags & 0xf)?;
        let heard = Span(r.signed()?);
        let highest = EventTime(r.signed()?.wrapping_add(base.0));
        let watermark = EventTime(r.signed()?.wrapping_add(base.0));
        let final_to = match flags & 0x10 {
            0 => EventTime::MIN,
            _ => EventTime(r.signed()?.wrapping_add(watermark.0)),
        };
        let presence = match flags & 0x20 {
            0 => None,
            _ => Some((
                Span(heard.0.wrapping_sub(r.signed()?)),
                ArrivalTime(highest.0.wrapping_sub(r.signed()?)),
            )),
        };
        Some(Self { heard, activity, highest, watermark, final_to, presence })
    }

    /// Brings a device as far as this, whatever the order of its records. A device falls idle after it was last heard,
    /// and is heard again only later.
    fn apply(self, device: &mut Device) {
        let generator = device.generator;
        device.generator = Generator::restore(
            generator.highest().max(self.highest),
            generator.watermark().max(self.watermark),
        );
        device.final_to = device.final_to.max(self.final_to);
        if (self.heard, self.activity as u8) > (device.heard, device.activity as u8) {
            (device.heard, device.activity) = (self.heard, self.activity);
        }
        // In a record from before presence whoever sent a time was there.
        let before = (Span(i64::MIN), ArrivalTime(self.highest.0));
        device.presence.advance(self.presence.unwrap_or(before));
    }
}

pub(super) fn device_record(device: &mut Device) -> Vec<u8> {
    let mut w = Writer::default();
    Progress::of(device).write(&mut w, EventTime(0));
    let habit = device.habit.to_byte();
    let clock = device.clock.is_kept() || device.uptime.is_some();
    if device.refusals != RateLimit::default() || habit != 0 || clock {
        write_limit(&mut w, &device.refusals);
    }
    if habit != 0 || clock {
        w.u8(habit);
    }
    if clock {
        device.clock.write(&mut w);
    }
    if let Some(uptime) = &mut device.uptime {
        uptime.write(&mut w);
    }
    w.0
}

pub(super) fn read_device_record(device: &mut Device, value: &[u8]) -> Option<()> {
    let mut r = Reader(value);
    Progress::read(&mut r, EventTime(0))?.apply(device);
    if !r.0.is_empty() {
        device.refusals = read_limit(&mut r)?;
    }
    if !r.0.is_empty() {
        device.habit = Habit::from_byte(r.u8()?)?;
    }
    if !r.0.is_empty() {
        device.clock = DeviceClock::read(&mut r)?;
    }
    if !r.0.is_empty() {
        device.uptime = Some(Box::new(UptimeClock::read(&mut r)?));
    }
    Some(())
}

fn write_emission(w: &mut Writer, emission: &Emission) {
    w.unsigned(u64::from(emission.told()));
    match emission.due() {
        None => w.u8(0),
        Some(Span::MAX) => w.u8(1),
        Some(due) => w.u8(3).signed(due.0),
    };
}

fn read_emission(r: &mut Reader<'_>) -> Option<Emission> {
    let told = r.small()?;
    let due = match r.u8()? {
        0 => None,
        1 => Some(Span::MAX),
        2 => r.signed().map(|_| Span::ZERO), // a stamp, as it was once written: due at once
        3 => Some(Span(r.signed()?)),
        _ => return None,
    };
    Some(Emission::restore(told, due))
}

/// What of a gauge is kept, as bits of a byte: sum, least, greatest, squares, first, last.
fn kept(asked: Aggregates) -> u8 {
    let sum = asked.sum || asked.mean || asked.deviation;
    [sum, asked.min, asked.max, asked.deviation, asked.first, asked.last]
        .iter()
        .enumerate()
        .fold(0, |bits, (bit, kept)| bits | u8::from(*kept) << bit)
}

fn write_gauge(w: &mut Writer, gauge: &Gauge, start: EventTime, asked: Aggregates) {
    w.unsigned(u64::from(gauge.count));
    if gauge.count == 0 {
        return;
    }
    let bits = kept(asked);
    w.u8(bits);
    for (bit, value) in [gauge.sum, gauge.min, gauge.max, gauge.m2].into_iter().enumerate() {
        if bits >> bit & 1 == 1 {
            w.float(value);
        }
    }
    for (bit, (at, value)) in [(4, gauge.first), (5, gauge.last)] {
        if bits >> bit & 1 == 1 {
            w.signed(at.0.wrapping_sub(start.0)).float(value);
        }
    }
}

fn read_gauge(r: &mut Reader<'_>, start: EventTime) -> Option<Gauge> {
    let mut gauge = Gauge { count: r.small()?, ..Gauge::default() };
    if gauge.count == 0 {
        return Some(gauge);
    }
    let bits = r.u8()?;
    for (bit, value) in
        [&mut gauge.sum, &mut gauge.min, &mut gauge.max, &mut gauge.m2].into_iter().enumerate()
    {
        if bits >> bit & 1 == 1 {
            *value = r.float()?;
        }
    }
    for (bit, end) in [(4, &mut gauge.first), (5, &mut gauge.last)] {
        if bits >> bit & 1 == 1 {
            *end = (EventTime(r.signed()?.wrapping_add(start.0)), r.float()?);
        }
    }
    Some(gauge)
}

pub(super) fn pane_record(
    pane: &Pane,
    metrics: &[SourceMetric],
    progress: Option<Progress>,
) -> Vec<u8> {
    let mut w = Writer::default();
    w.u8(u8::from(progress.is_some()));
    if let Some(progress) = progress {
        progress.write(&mut w, pane.start);
    }
    write_emission(&mut w, &pane.emission);
    w.u8(u8::from(pane.in_region));
    let samples = &pane.samples;
    w.unsigned(u64::from(samples.count));
    if samples.count > 0 {
        w.unsigned(u64::from(samples.stamped)).unsigned(samples.slots);
        w.signed(samples.first.0.wrapping_sub(pane.start.0));
        w.signed(samples.last.0.wrapping_sub(pane.start.0));
        w.unsigned(samples.metrics.len() as u64);
        for (gauge, metric) in samples.metrics.iter().zip(metrics) {
            write_gauge(&mut w, gauge, pane.start, metric.kept);
        }
        if samples.corrected > 0 {
            w.unsigned(u64::from(samples.corrected));
        }
    }
    w.0
}

/// Takes the device's progress from the record of a pane that starts at `start`, and says whether it was there; the rest
/// is the pane's.
pub(super) fn read_pane_progress<'a>(
    device: &mut Device,
    start: EventTime,
    value: &'a [u8],
) -> Option<(bool, Reader<'a>)> {
    let mut r = Reader(value);
    let has_progress = r.u8()? != 0;
    if has_progress {
        Progress::read(&mut r, start)?.apply(device);
    }
    Some((has_progress, r))
}

/// Fills a pane; `place` says where a metric of the store's layout stands now.
pub(super) fn read_pane_record(
    pane: &mut Pane,
    mut r: Reader<'_>,
    mut place: impl FnMut(usize) -> Option<usize>,
) -> Option<()> {
    pane.emission = read_emission(&mut r)?;
    pane.in_region = r.u8()? != 0;
    let (samples, r): (&mut Samples, _) = (&mut pane.samples, &mut r);
    samples.count = r.small()?;
    if samples.count > 0 {
        samples.stamped = r.small()?;
        samples.slots = r.unsigned()?;
        samples.first = EventTime(r.signed()?.wrapping_add(pane.start.0));
        samples.last = EventTime(r.signed()?.wrapping_add(pane.start.0));
        for metric in 0..r.small::<usize>()? {
            let gauge = read_gauge(r, pane.start)?;
            let now = if gauge.count > 0 { place(metric) } else { None };
            if let Some(mine) = now.and_then(|at| samples.metrics.get_mut(at)) {
                *mine = gauge;
            }
        }
        samples.corrected = read_last(r)?;
    }
    pane.dirty = false;
    Some(())
}

/// A count at the end of a record, which older records do not have.
fn read_last(r: &mut Reader<'_>) -> Option<u32> {
    if r.0.is_empty() { Some(0) } else { r.small() }
}

pub(super) fn rollup_record(pane: &RegionPane, asked: &[Aggregates]) -> Vec<u8> {
    let mut w = Writer::default();
    w.signed(pane.start.0);
    write_emission(&mut w, &pane.emission);
    let settled = &pane.settled;
    w.unsigned(u64::from(settled.count)).unsigned(u64::from(settled.stamped));
    w.unsigned(u64::from(settled.reporting)).unsigned(settled.metrics.len() as u64);
    for ((gauge, sum_of_means), asked) in settled.metrics.iter().zip(asked) {
        write_gauge(&mut w, gauge, pane.start, *asked);
        w.float(*sum_of_means);
    }
    if settled.corrected > 0 {
        w.unsigned(u64::from(settled.corrected));
    }
    w.0
}

/// Reads a roll-up; `place` says where a metric of the store's layout stands now, of `metrics` in all.
pub(super) fn read_rollup_record(
    value: &[u8],
    metrics: usize,
    mut place: impl FnMut(usize) -> Option<usize>,
) -> Option<RegionPane> {
    let mut r = Reader(value);
    let start = EventTime(r.signed()?);
    let emission = read_emission(&mut r)?;
    let mut settled = RegionSamples::none(metrics);
    (settled.count, settled.stamped, settled.reporting) = (r.small()?, r.small()?, r.small()?);
    for metric in 0..r.small::<usize>()? {
        let merged = (read_gauge(&mut r, start)?, r.float()?);
        let now = if merged.0.count > 0 { place(metric) } else { None };
        if let Some(mine) = now.and_then(|at| settled.metrics.get_mut(at)) {
            *mine = merged;
        }
    }
    settled.corrected = read_last(&mut r)?;
    Some(RegionPane { start, settled, emission, dirty: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_costs_presence_two_or_three_bytes_and_is_read_without_it_too() {
        let heard = Span::from_hours(1_000);
        let highest = EventTime(1_795_953_600_000);
        let silent_from = heard - Span(1_500); // a message that was on its way for a second and a half
        let with = Progress {
            heard,
            activity: Activity::Idle,
            highest,
            watermark: highest - Span::from_mins(2),
            final_to: EventTime::MIN,
            presence: Some((silent_from, ArrivalTime(highest.0))),
        };
        let without = Progress { presence: None, ..with };
        let [with, without] = [with, without].map(|progress| {
            let mut w = Writer::default();
            progress.write(&mut w, highest - Span::from_mins(30));
            w.0
        });
        assert_eq!(with.len() - without.len(), 3);
        let read = |bytes: &[u8]| {
            Progress::read(&mut Reader(bytes), highest - Span::from_mins(30)).expect("as written")
        };
        assert_eq!(read(&with).presence, Some((silent_from, ArrivalTime(highest.0))));
        assert_eq!((read(&without).presence, read(&without).heard), (None, heard));
    }
}
