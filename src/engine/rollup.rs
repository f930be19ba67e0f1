//! Roll-ups over a region: when they fire, what they tell, when they are final.

use crate::engine::Engine;
use crate::engine::context::Trigger;
use crate::engine::deadline::{ClockDeadline, SpanDeadline};
use crate::engine::effect::Effects;
use crate::engine::region::{RegionPane, RegionSamples};
use crate::engine::window::{final_at, last_inside};
use crate::event::{Cause, Output};
use crate::time::EventTime;

impl Engine {
    /// A region's roll-ups follow its watermark.
    pub(super) fn settle_region(&mut self, region: usize, cause: Cause, out: &mut Effects) {
        let w = self.region_closing(region);
        let trigger = Trigger { cause, watermark: Some(w) };
        self.settle_region_at(region, w, trigger, out);
        self.publish_if_immediate(out);
    }

    fn region_closing(&self, region: usize) -> EventTime {
        if self.in_device_scope() {
            self.regions[region].watermark()
        } else {
            self.partitions.combined()
        }
    }

    /// Roll-ups fire up to `w`, due revisions are told, what all devices are past becomes final.
    pub(super) fn settle_region_at(
        &mut self,
        index: usize,
        w: EventTime,
        trigger: Trigger,
        out: &mut Effects,
    ) {
        let now = self.listening.duration();
        let complete = if self.in_device_scope() { self.regions[index].complete() } else { w };
        let complete = if trigger.watermark.is_none() { EventTime::MAX } else { complete };
        let lateness = self.regions[index].allowed_lateness();
        let mut panes = std::mem::take(&mut self.regions[index].panes);
        for (key, pane) in &mut panes {
            let fires = pane.emission.awaits_watermark() && last_inside(key.0) <= w;
            let is_final = final_at(key.0, lateness) <= complete;
            let revises = pane.emission.due().is_some_and(|due| due <= now || is_final);
            if fires {
                self.fire_region(index, *key, pane, trigger, out);
            } else if revises {
                let trigger = Trigger { cause: Cause::Element, ..trigger };
                self.fire_region(index, *key, pane, trigger, out);
            }
        }
        let region = &mut self.regions[index];
        region.panes = panes;
        region.finalise(complete);
        self.books.region_missed += std::mem::take(&mut region.missed);
        self.arm_region(index);
    }

    /// Tells a region's roll-up as it stands. Its cost is that of its devices; revisions are held back for it.
    fn fire_region(
        &mut self,
        index: usize,
        key: (EventTime, usize),
        pane: &mut RegionPane,
        trigger: Trigger,
        out: &mut Effects,
    ) {
        let samples = self.region_samples(index, key, pane);
        let revision = pane.emission.tell();
        pane.dirty = true;
        self.regions[index].dirty = true;
        let cx = self.context(index);
        let region = &self.regions[index];
        let who = (&region.id, region.devices());
        out.push(Output::Region(cx.region_result(who, key, pane, &samples, revision, trigger)));
    }

    /// All samples of a region's roll-up: those of final windows, and those of the devices' open ones.
    fn region_samples(
        &self,
        index: usize,
        key: (EventTime, usize),
        pane: &RegionPane,
    ) -> RegionSamples {
        let cx = self.context(index);
        let mut samples = pane.settled.clone();
        for &member in &self.regions[index].members {
            let device = &self.devices[member];
            if let Some(open) = device.pane(key).filter(|open| open.in_region) {
                samples.merge(&device.composed(&cx, open), &cx.source(device).metrics);
            }
        }
        samples
    }

    pub(super) fn arm_region(&mut self, index: usize) {
        if !self.has_clock() {
            return;
        }
        let stamp = self.stamp_of(index);
        let region = &mut self.regions[index];
        if let Some(due) = region.next_revision()
            && region.revises_at.is_none_or(|noted| due < noted)
        {
            region.revises_at = Some(due);
            self.deadlines.at_duration(due, SpanDeadline::Rollup(index));
        }
        if let Some(at) = region.next_on_clock(stamp)
            && region.armed.is_none_or(|armed| at < armed)
        {
            region.armed = Some(at);
            self.at_stamp(index, at, ClockDeadline::Region(index));
        }
    }
}
