//! One device: what is known of it, and its open windows.

use std::sync::Arc;

use crate::engine::context::{Context, Trigger};
use crate::engine::effect::Effects;
use crate::engine::emission::Change;
use crate::engine::pane::{Pane, Samples};
use crate::engine::region::Region;
use crate::engine::settings::{Policy, Revisions, WindowSpec};
use crate::engine::watermark::{Generator, bounded};
use crate::engine::window::{final_at, last_inside};
use crate::event::{Cause, Output};
use crate::ids::{DeviceId, RegionId};
use crate::time::{ArrivalTime, EventTime, Span};

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
    /// Windows that the store still has and that are final, by window and start.
    pub closed: Vec<(usize, EventTime)>,
    /// It differs from what the store has.
    pub dirty: bool,
    /// The store knows its name.
    pub identity_is_stored: bool,
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
    /// The event time is the arrival time, in the place of an unusable stamp.
    pub stamped: bool,
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
        pane.samples.stamped += u32::from(record.stamped);
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

    /// Everything that watermark `w` completes: windows fire by end, then what is past its lateness becomes final.
    pub fn settle(
        &mut self,
        cx: &Context<'_>,
        w: EventTime,
        trigger: Trigger,
        region: &mut Region,
        out: &mut Effects,
    ) {
        for index in 0..self.panes.len() {
            if self.fires_at(index, w) {
                self.fire(cx, index, trigger, out);
            }
        }
        self.finalise(cx, w, trigger.watermark, region, out);
    }

    /// Whether a window waits for a watermark that `w` has reached.
    pub fn fires_at(&self, index: usize, w: EventTime) -> bool {
        let pane = &self.panes[index];
        pane.emission.awaits_watermark() && last_inside(pane.end) <= w
    }

    /// Tells a window as it stands.
    pub fn fire(&mut self, cx: &Context<'_>, index: usize, trigger: Trigger, out: &mut Effects) {
        let revision = self.panes[index].emission.tell();
        self.panes[index].dirty = true;
        let pane = &self.panes[index];
        let result = if self.is_base(cx, pane) {
            cx.window_result(self, pane, &pane.samples, revision, trigger)
        } else {
            cx.window_result(self, pane, &self.composed(cx, pane), revision, trigger)
        };
        out.push(Output::Window(result));
    }

    fn is_base(&self, cx: &Context<'_>, pane: &Pane) -> bool {
        pane.window == cx.source(self).base
    }

    /// All samples of a window: of a multiple, those of its final parts merged with those of its open ones.
    pub fn composed(&self, cx: &Context<'_>, pane: &Pane) -> Samples {
        let mut samples = pane.samples.clone();
        if !self.is_base(cx, pane) {
            let open = self.panes.iter().filter(|part| self.is_base(cx, part) && pane.holds(part));
            open.for_each(|part| merge_part(cx, self, &mut samples, pane, part));
        }
        samples
    }

    /// Makes final what is past its lateness at `w`: a pending revision is told, the samples go into the roll-ups.
    pub fn finalise(
        &mut self,
        cx: &Context<'_>,
        w: EventTime,
        watermark: Option<EventTime>,
        region: &mut Region,
        out: &mut Effects,
    ) {
        let lateness = self.policy.allowed_lateness;
        let past = self.panes.iter().take_while(|pane| final_at(pane.end, lateness) <= w).count();
        let trigger = Trigger { cause: Cause::Element, watermark };
        for index in 0..past {
            if self.panes[index].emission.due().is_some() {
                self.fire(cx, index, trigger, out);
            }
        }
        for left in (1..=past).rev() {
            // Parts before the multiples that they are settled into, which may end with them.
            let part = self.panes[..left].iter().position(|pane| self.is_base(cx, pane));
            let pane = self.panes.remove(part.unwrap_or(0));
            self.settle_into_rollups(cx, &pane, region);
            self.closed.push((pane.window, pane.start));
            self.final_to = self.final_to.max(last_inside(pane.end));
        }
        self.find_next();
    }

    /// Finds the next watermark at which a window fires or becomes final.
    pub fn find_next(&mut self) {
        self.next = self.panes.iter().map(|pane| self.target(pane)).min().unwrap_or(EventTime::MAX);
    }

    fn settle_into_rollups(&mut self, cx: &Context<'_>, pane: &Pane, region: &mut Region) {
        if self.is_base(cx, pane) {
            for index in 0..self.panes.len() {
                if !self.is_base(cx, &self.panes[index]) && self.panes[index].holds(pane) {
                    let mut samples =
                        std::mem::replace(&mut self.panes[index].samples, Samples::none(0));
                    merge_part(cx, self, &mut samples, &self.panes[index], pane);
                    self.panes[index].samples = samples;
                    self.panes[index].dirty = true;
                }
            }
        }
        if pane.in_region
            && let Some(rollup) = region.panes.get_mut(&(pane.end, pane.window))
        {
            rollup.settled.merge(&pane.samples, &cx.source(self).metrics);
            rollup.dirty = true;
            region.dirty = true;
        } else if cx.settings.region_rollups {
            region.missed += 1;
        }
    }

    /// The next watermark at which something is to be done with a window.
    fn target(&self, pane: &Pane) -> EventTime {
        if pane.emission.awaits_watermark() {
            last_inside(pane.end)
        } else {
            final_at(pane.end, self.policy.allowed_lateness)
        }
    }

    /// Tells the revisions that are due; says whether there were any.
    pub fn revise(&mut self, cx: &Context<'_>, w: EventTime, out: &mut Effects) -> bool {
        let trigger = Trigger { cause: Cause::Element, watermark: Some(w) };
        let is_due = |pane: &Pane| pane.emission.due().is_some_and(|due| due <= cx.duration);
        let due: Vec<usize> = (0..self.panes.len()).filter(|i| is_due(&self.panes[*i])).collect();
        for index in &due {
            self.fire(cx, *index, trigger, out);
        }
        self.find_next();
        !due.is_empty()
    }

    /// When its next revision is due.
    pub fn next_revision(&self) -> Option<Span> {
        let due = self.panes.iter().filter_map(|pane| pane.emission.due());
        due.filter(|due| *due != Span::MAX).min()
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

fn merge_part(cx: &Context<'_>, device: &Device, samples: &mut Samples, whole: &Pane, part: &Pane) {
    let (to, from) = (cx.slots(device, whole.window), cx.slots(device, part.window));
    samples.merge(&part.samples, |bits| to.widen(bits, from, part.start - whole.start));
}
