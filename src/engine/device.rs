//! One device: what is known of it, and its open windows.

use std::sync::Arc;

use crate::engine::context::{Context, Trigger};
use crate::engine::correction::DeviceClock;
use crate::engine::effect::Effects;
use crate::engine::emission::Change;
use crate::engine::habit::Habit;
use crate::engine::pane::Pane;
use crate::engine::presence::Presence;
use crate::engine::region::Region;
use crate::engine::settings::{Policy, Revisions, WindowSpec};
use crate::engine::uptime::UptimeClock;
use crate::engine::watermark::{Generator, bounded};
use crate::engine::window::{final_at, last_inside};
use crate::event::{Cause, Method};
use crate::ids::{DeviceId, RegionId};
use crate::time::{ArrivalTime, DeviceTime, EventTime, Span};

/// Whether a device is heard (device scope).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// It was heard within its idle timeout, or never had a usable time.
    Active,
    /// Silent for longer. Its own watermark is still ahead of the clock's.
    Idle,
    /// Silent, and its watermark follows the clock.
    Following,
}

/// One device.
#[derive(Debug)]
pub struct Device {
    /// Its name.
    pub id: DeviceId,
    /// Its region's name.
    pub region_id: RegionId,
    /// Index of its region.
    pub region: usize,
    /// Its number among the region's members.
    pub member: usize,
    /// Index of its source.
    pub source: usize,
    /// What holds for it, shared with those for which the same holds.
    pub policy: Arc<Policy>,
    /// Highest event time and watermark.
    pub generator: Generator,
    /// Listened duration when it was last heard.
    pub heard: Span,
    /// Whether it is heard.
    pub activity: Activity,
    /// Whether it is there, as the centre is told.
    pub presence: Presence,
    /// Its region counts it among the forgotten.
    pub is_forgotten: bool,
    /// Its open windows, by end and window.
    pub panes: Vec<Pane>,
    /// The next watermark at which one of them fires or becomes final.
    pub next: EventTime,
    /// Windows whose last instant is at or below it are final, whatever the configuration says since.
    pub final_to: EventTime,
    /// Next moment on the listened clock at which it wants to be looked at.
    pub armed: Option<ArrivalTime>,
    /// Next listened duration at which a revision of it is due, as far as that is noted.
    pub revises_at: Option<Span>,
    /// Region scope: the combined watermark at which it is registered to be looked at.
    pub registered: Option<EventTime>,
    /// What the message in hand raises the watermark to.
    pub raising: Option<(EventTime, Cause)>,
    /// How many refused records were told this hour.
    pub refusals: crate::engine::side_output::RateLimit,
    /// How it writes its times.
    pub habit: Habit,
    /// How far its clock is off.
    pub clock: DeviceClock,
    /// When it was started, of one that writes how long it has been running.
    pub uptime: Option<Box<UptimeClock>>,
    /// The newest time, or uptime, in the message in hand that may tell of its clock.
    pub newest: Option<DeviceTime>,
    /// Windows that the store still has and that are final, by window and start.
    pub closed: Vec<(usize, EventTime)>,
    /// It differs from what the store has.
    pub dirty: bool,
    /// The store knows its name.
    pub identity_is_stored: bool,
    /// The store knows the offset of its clock, and when it was started.
    pub clock_is_stored: bool,
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is in its window.
    Aggregated {
        /// A window was opened, or one past its end changed: deadlines may be nearer.
        stirs: bool,
    },
    /// Its window, from start to end, is final.
    Late(EventTime, EventTime),
    /// No further window may be opened.
    NoRoom,
}

/// A record to be added.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// A value or none per metric of the source.
    pub values: &'a [Option<f64>],
    /// Its event time.
    pub at: EventTime,
    /// How the event time was made, where it is not the device time as written.
    pub method: Option<Method>,
}

impl Device {
    /// Whether these are its region and its name.
    pub fn is_called(&self, region: &str, name: &str) -> bool {
        self.id.as_str() == name && self.region_id.as_str() == region
    }

    /// The watermark with the clock applied: an idle device follows it.
    pub fn watermark(&self, stamp: ArrivalTime) -> EventTime {
        let own = self.generator.watermark();
        match self.activity {
            Activity::Idle | Activity::Following if own != EventTime::MIN => {
                own.max(bounded(stamp.stamped(), self.policy.lateness))
            }
            _ => own, // where there is none yet, the clock has nothing to carry on
        }
    }

    /// Whether it is idle and the clock has come as far as its own watermark.
    pub fn begins_to_follow(&self, stamp: ArrivalTime) -> bool {
        self.activity == Activity::Idle && self.silent_activity(stamp) == Activity::Following
    }

    /// What a silent device is: it follows the clock once that is as far as its own watermark.
    pub fn silent_activity(&self, stamp: ArrivalTime) -> Activity {
        let own = self.generator.watermark();
        let follows =
            own != EventTime::MIN && bounded(stamp.stamped(), self.policy.lateness) >= own;
        if follows { Activity::Following } else { Activity::Idle }
    }

    /// Adds a record to its window, judged by watermark `w`, and says again what had been said of that window.
    pub fn add(
        &mut self,
        cx: &Context<'_>,
        w: EventTime,
        record: Record<'_>,
        region: &mut Region,
        out: &mut Effects,
    ) -> Added {
        let source = &cx.settings.sources[self.source];
        let spec = &cx.settings.windows[source.base];
        let start = spec.start_of(record.at);
        let end = spec.end_of(start);
        if final_at(end, self.policy.allowed_lateness) <= w || last_inside(end) <= self.final_to {
            return Added::Late(start, end);
        }
        let windows = self.panes.len();
        let Some(index) = self.open(cx, source.base, start, region) else { return Added::NoRoom };
        let opened = self.panes.len() > windows;
        let slot = cx.slots(self, source.base).bit(record.at - start);
        let pane = &mut self.panes[index];
        pane.samples.add(record.values, record.at, slot, &source.metrics);
        pane.samples.stamped += u32::from(record.method == Some(Method::Arrival));
        pane.samples.corrected += u32::from(record.method.is_some_and(Method::is_correction));
        pane.dirty = true;
        let past = self.changed(cx, w, index, region, out);
        Added::Aggregated { stirs: opened || past }
    }

    /// Finds or opens a base window, and with it its multiples.
    fn open(
        &mut self,
        cx: &Context<'_>,
        window: usize,
        start: EventTime,
        region: &mut Region,
    ) -> Option<usize> {
        let spec = &cx.settings.windows[window];
        let key = (spec.end_of(start), window);
        match self.find(key) {
            Ok(index) => Some(index),
            Err(_) if self.open_base_windows(window) >= cx.settings.limits.max_open_windows => None,
            Err(_) => {
                self.insert(cx, window, start, region);
                self.open_multiples(cx, start, region);
                self.find(key).ok()
            }
        }
    }

    /// Opens the multiples of a base window that starts at `start`, where they are not open.
    fn open_multiples(&mut self, cx: &Context<'_>, start: EventTime, region: &mut Region) {
        for &multiple in &cx.source(self).multiples {
            let spec: &WindowSpec = &cx.settings.windows[multiple];
            let start = spec.start_of(start);
            if self.find((spec.end_of(start), multiple)).is_err() {
                self.insert(cx, multiple, start, region);
            }
        }
    }

    fn open_base_windows(&self, window: usize) -> usize {
        self.panes.iter().filter(|pane| pane.window == window).count()
    }

    /// An open window, by end and window.
    pub fn pane(&self, key: (EventTime, usize)) -> Option<&Pane> {
        self.find(key).ok().map(|index| &self.panes[index])
    }

    /// Its place, or where it would go. Nearly every record belongs to a window opened last, so the search starts there.
    fn find(&self, key: (EventTime, usize)) -> Result<usize, usize> {
        let place = |pane: &Pane| (pane.end, pane.window);
        let after = self.panes.iter().rev().take_while(|pane| place(pane) > key).count();
        let next = self.panes.len() - after;
        match self.panes[..next].last() {
            Some(pane) if place(pane) == key => Ok(next - 1),
            _ => Err(next),
        }
    }

    fn insert(&mut self, cx: &Context<'_>, window: usize, start: EventTime, region: &mut Region) {
        let spec = &cx.settings.windows[window];
        let mut pane = Pane::new(window, start, spec.size, cx.source(self).metrics.len());
        if cx.settings.region_rollups {
            let metrics = cx.settings.metrics.len();
            pane.in_region = region.pane(window, start, pane.end, metrics).is_some();
            region.dirty = true;
        }
        self.next = self.next.min(last_inside(pane.end));
        let at = self.find((pane.end, window)).unwrap_or_else(|at| at);
        self.panes.reserve_exact(1); // they are few, and there are many devices
        self.panes.insert(at, pane);
    }

    /// Opens what its open windows need and a store may have lost: their multiples, and roll-ups of the region.
    pub fn reopen(&mut self, cx: &Context<'_>, region: &mut Region) {
        let base = cx.source(self).base;
        let starts: Vec<_> =
            self.panes.iter().filter(|pane| pane.window == base).map(|pane| pane.start).collect();
        for start in starts {
            self.open_multiples(cx, start, region);
        }
        let metrics = cx.settings.metrics.len();
        let rolled_up = |pane: &&mut Pane| pane.in_region && cx.settings.region_rollups;
        for pane in self.panes.iter_mut().filter(rolled_up) {
            if !region.panes.contains_key(&(pane.end, pane.window)) {
                pane.in_region = region.pane(pane.window, pane.start, pane.end, metrics).is_some();
            }
        }
    }

    /// The watermark that has been reached for sure: what was told of a window says so.
    pub fn passed(&self) -> EventTime {
        let told = self.panes.iter().filter(|pane| !pane.emission.awaits_watermark());
        told.map(|pane| last_inside(pane.end)).max().unwrap_or(EventTime::MIN)
    }

    /// A base window changed: whatever it is part of and is past its end is told again. Says whether it is past its own.
    fn changed(
        &mut self,
        cx: &Context<'_>,
        w: EventTime,
        base: usize,
        region: &mut Region,
        out: &mut Effects,
    ) -> bool {
        let trigger = Trigger { cause: Cause::Element, watermark: Some(w) };
        let last = last_inside(self.panes[base].end);
        if last > w && last > region.watermark() {
            return false;
        }
        let end = self.panes[base].end;
        for index in self.panes.partition_point(|pane| pane.end < end)..self.panes.len() {
            let pane = &self.panes[index];
            if index != base && (self.is_base(cx, pane) || !pane.holds(&self.panes[base])) {
                continue;
            }
            self.defer_region(cx, index, region);
            let pane = &mut self.panes[index];
            if last_inside(pane.end) > w {
                continue;
            }
            pane.dirty = true;
            if pane.emission.changed(self.policy.revisions, cx.clock_duration()) == Change::TellNow
            {
                self.fire(cx, index, trigger, out);
            }
        }
        true
    }

    /// The region's roll-up of a window is told again if it was told before.
    fn defer_region(&self, cx: &Context<'_>, index: usize, region: &mut Region) {
        let pane = &self.panes[index];
        if !pane.in_region || last_inside(pane.end) > region.watermark() {
            return;
        }
        let delay = match self.policy.revisions {
            Revisions::Coalesced(delay) => delay,
            Revisions::Immediate => REGION_DELAY,
        };
        if let Some(rollup) = region.panes.get_mut(&(pane.end, pane.window)) {
            rollup.emission.defer(delay, cx.clock_duration());
            rollup.dirty = true;
            region.dirty = true;
        }
    }

    /// Whether a window is the base window of its source.
    pub(super) fn is_base(&self, cx: &Context<'_>, pane: &Pane) -> bool {
        pane.window == cx.source(self).base
    }

    /// When the clock alone brings the next thing to do.
    pub fn next_on_clock(&self) -> Option<ArrivalTime> {
        let reaches = |w: EventTime| ArrivalTime((w + self.policy.lateness + Span(1)).0);
        let is_a_time = |w: &EventTime| *w != EventTime::MIN && *w != EventTime::MAX;
        let follows = match self.activity {
            Activity::Active => None,
            Activity::Idle => Some(self.generator.watermark()),
            Activity::Following => Some(self.next),
        };
        follows.filter(is_a_time).map(reaches)
    }
}

/// How long a region's revision is held back where the devices' are immediate: a region looks at all its devices.
const REGION_DELAY: Span = Span::from_secs(30);
