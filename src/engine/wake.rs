//! What a snapshot leaves out because it follows from the rest: set again in a restored engine.

use crate::engine::Engine;
use crate::engine::deadline::SpanDeadline;
use crate::engine::device::{Activity, Device};
use crate::engine::listen::Listening;
use crate::engine::watermark::{Generator, bounded};
use crate::time::{ArrivalTime, EventTime, Span};

impl Engine {
    /// Sets all that a snapshot leaves out because it follows from the rest.
    pub(super) fn wake(&mut self) {
        for region in self.settings.regions.clone() {
            self.region(region.as_str());
        }
        self.dirty.clear();
        if !self.in_device_scope() {
            let passed = self.devices.iter().map(Device::passed).max().unwrap_or(EventTime::MIN);
            self.partitions.restore_combined(self.partitions.combined().max(passed));
        }
        for index in 0..self.devices.len() {
            self.wake_device(index);
        }
        for index in 0..self.regions.len() {
            self.wake_region(index);
        }
        if let Some(at) = self.publish_at {
            self.deadlines.at_duration(at, SpanDeadline::Publish);
        }
    }

    fn wake_device(&mut self, index: usize) {
        let in_device_scope = self.in_device_scope();
        let (cx, device, region) = self.parts(index);
        (device.dirty, device.identity_is_stored) = (false, true);
        device.panes.sort_by_key(|pane| (pane.end, pane.window));
        // These change something only where records were lost.
        device.reopen(&cx, region);
        if in_device_scope {
            device.generator.raise(device.passed());
        }
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
        let duration = self.listening.duration();
        self.devices[index].presence.wake(duration);
        self.count_forgotten(index);
        self.arm_presence(index);
        self.look_again_at(index);
    }

    fn wake_region(&mut self, index: usize) {
        let (stamp, in_device_scope) = (self.stamp_of(index), self.in_device_scope());
        let region = &mut self.regions[index];
        if in_device_scope {
            region.move_to(region.passed(), EventTime::MIN); // as for devices
        }
        region.find_next();
        region.hold_out(stamp); // told already
        if region.watched {
            self.deadlines.at_duration(region.silent_at(), SpanDeadline::Partition(index));
        }
        self.arm_region(index);
    }

    /// A device of which no record tells how far it was: at least as far as its samples, and heard until now.
    pub(super) fn rebuild_progress(&mut self, index: usize) {
        let duration = self.listening.duration();
        let device = &mut self.devices[index];
        let last = device.panes.iter().map(|pane| pane.samples.last).max();
        if let Some(last) = last.filter(|last| *last != EventTime::MIN) {
            device.generator = Generator::restore(last, bounded(last, device.policy.lateness));
        }
        device.heard = duration;
        let last_seen = last.map_or(ArrivalTime::MIN, |last| ArrivalTime(last.0));
        device.presence.advance((duration, last_seen));
    }

    /// A region whose record is lost. What was published was the least of its devices at most.
    pub(super) fn wake_without_record(&mut self, index: usize) {
        let stamp = self.stamp_of(index);
        self.regions[index].published = self.regions[index].highest(stamp);
        if !self.in_device_scope() && self.has_clock() {
            self.hear_partition(index, self.listening.duration()); // it holds the others until it is idle
        }
    }

    /// Listened time without the gateway's record: nobody was heard later than now.
    pub(super) fn time_listened_at_least(&self) -> Listening {
        let devices = self.devices.iter().map(|device| device.heard);
        let heard = devices.chain(self.regions.iter().map(|region| region.heard)).max();
        Listening::restore(heard.unwrap_or(Span::ZERO), ArrivalTime::MIN)
    }
}
