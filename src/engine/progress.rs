//! How time moves: watermarks are raised, silence and the clock are applied, windows and roll-ups fire.

use crate::engine::Engine;
use crate::engine::context::Trigger;
use crate::engine::deadline::{ClockDeadline, Due, Silence};
use crate::engine::device::Activity;
use crate::engine::effect::Effects;
use crate::engine::region::HoldChange;
use crate::event::{Alert, AlertKind, Cause, Output, WatermarkReport};
use crate::time::{ArrivalTime, EventTime, Now, Span};

/// Watermarks of a longer gap are not told one by one.
const MAX_PUBLISH_GAP: Span = Span::from_hours(24);

impl Engine {
    /// Applies the clock up to `now`: idleness, closing by clock, due revisions, in the order of their moments.
    pub(super) fn apply_clock(&mut self, now: Now, out: &mut Effects) {
        let (stamp, duration) = self.listening.at(now);
        while let Some(due) = self.deadlines.pop(stamp, duration) {
            match due {
                Due::Silence(at, who) => {
                    self.listening.step_to(stamp - (duration - at));
                    self.on_silence(at, who, out);
                }
                Due::Clock(at, what) => {
                    self.listening.step_to(at);
                    self.on_clock(at, what, stamp, out);
                }
            }
        }
        self.listening.advance(now);
    }

    fn on_silence(&mut self, at: Span, who: Silence, out: &mut Effects) {
        match who {
            Silence::Device(device) => self.on_device_silence(at, device, out),
            Silence::Partition(region) => self.on_partition_silence(at, region, out),
            Silence::Presence(device) => self.on_presence_silence(at, device, out),
        }
    }

    fn on_device_silence(&mut self, at: Span, index: usize, out: &mut Effects) {
        let device = &mut self.devices[index];
        if device.activity != Activity::Active {
            return;
        }
        let silent_at = device.heard + device.policy.idle_timeout;
        if silent_at > at {
            self.deadlines.at_duration(silent_at, Silence::Device(index));
        } else {
            device.activity = Activity::Idle;
            self.mark(index);
            self.follow_clock(index, out);
        }
    }

    fn on_clock(
        &mut self,
        at: ArrivalTime,
        what: ClockDeadline,
        now: ArrivalTime,
        out: &mut Effects,
    ) {
        match what {
            ClockDeadline::Device(device) if self.devices[device].armed == Some(at) => {
                self.devices[device].armed = None;
                self.follow_clock(device, out);
            }
            ClockDeadline::Region(region) if self.regions[region].armed == Some(at) => {
                self.regions[region].armed = None;
                self.progress_region(region, out);
                self.settle_region(region, Cause::Idle, out);
            }
            ClockDeadline::Device(_) | ClockDeadline::Region(_) => {} // an earlier or later one took its place
            ClockDeadline::Publish => {
                self.publish_watermarks(out);
                self.publish_again(at, now);
            }
        }
    }

    /// What the clock does to a device, and through it to its region.
    fn follow_clock(&mut self, index: usize, out: &mut Effects) {
        let stamp = self.listening.stamp();
        let device = &self.devices[index];
        let home = device.region;
        if device.begins_to_follow(stamp) && self.regions[home].joined_clock_at != stamp {
            // Whoever joins in may hold the region from now on: it gets first where it is without them.
            self.progress_region_to(home, stamp - Span(1), out);
            self.regions[home].joined_clock_at = stamp;
        }
        self.bring_to_clock(index, out);
        if self.in_device_scope() {
            self.look_now_at(home);
        } else {
            self.register(index);
        }
    }

    /// An idle device's watermark follows the clock, revisions come due. The region is for the caller.
    fn bring_to_clock(&mut self, index: usize, out: &mut Effects) {
        let (mut changed, mut back) = (false, None);
        let (cx, device, region) = self.parts(index);
        if device.begins_to_follow(cx.stamp) {
            device.activity = Activity::Following;
            changed = true;
            back = region.follow(device.member, device.policy.follows_by(), cx.stamp);
        }
        let w = device.watermark(cx.stamp);
        if device.activity == Activity::Following && w >= device.next {
            let trigger = Trigger { cause: Cause::Idle, watermark: Some(w) };
            device.settle(&cx, w, trigger, region, out);
            changed = true;
        }
        let w = self.closing_watermark(index);
        let (cx, device, _) = self.parts(index);
        changed |= device.revise(&cx, w, out);
        let home = device.region;
        if changed {
            self.mark(index);
        }
        self.arm_device(index);
        self.tell_holds(home, back.as_slice(), out);
    }

    /// Before a message of a region moves anything, the clock has moved it.
    pub(super) fn refresh_region(&mut self, region: usize, out: &mut Effects) {
        if self.regions[region].follows_clock() && self.progress_region(region, out) {
            self.settle_region(region, Cause::Idle, out);
        }
    }

    /// A region is looked at once all its devices are that something is due of at this moment.
    fn look_now_at(&mut self, index: usize) {
        let stamp = self.listening.stamp();
        let region = &mut self.regions[index];
        if region.armed.is_none_or(|armed| stamp < armed) {
            region.armed = Some(stamp);
            self.deadlines.at_stamp(stamp, ClockDeadline::Region(index));
        }
    }

    /// A message of the device was heard: its idleness ends, and its watermark stays where the clock brought it.
    pub(super) fn hear(&mut self, index: usize) {
        if !self.has_clock() {
            return;
        }
        let duration = self.listening.duration();
        if !self.in_device_scope() {
            return self.hear_partition(self.devices[index].region, duration);
        }
        let (cx, device, region) = self.parts(index);
        device.heard = duration;
        if device.activity == Activity::Active {
            return;
        }
        let w = device.watermark(cx.stamp);
        let followed = device.activity == Activity::Following;
        device.activity = Activity::Active;
        if followed {
            device.generator.raise(w);
            region.unfollow(device.policy.follows_by());
            region.advance(device.member, device.policy.max_hold, w);
        }
        self.watch(index);
        self.mark(index);
    }

    /// Raises the watermarks that a message raised: of all its devices, then of their regions.
    pub(super) fn raise_touched(&mut self, out: &mut Effects) {
        let mut touched = std::mem::take(&mut self.touched);
        let mut regions = std::mem::take(&mut self.touched_regions);
        for index in touched.drain(..) {
            if let Some((to, cause)) = self.devices[index].raising.take() {
                let region = self.devices[index].region;
                if self.in_device_scope() {
                    self.raise_device(index, to, cause, out);
                    regions.retain(|(other, _)| *other != region);
                    regions.push((region, cause));
                } else {
                    self.raise_partition(region, to, cause, out);
                }
            }
        }
        self.touched = touched;
        for (region, cause) in regions.drain(..) {
            self.raise_region(region, cause, out);
        }
        self.touched_regions = regions;
    }

    fn raise_device(&mut self, index: usize, to: EventTime, cause: Cause, out: &mut Effects) {
        let (cx, device, region) = self.parts(index);
        let clock = device.watermark(cx.stamp);
        if !device.generator.raise(to) || to <= clock {
            return; // the clock has brought a silent device, of which something retained came, further already
        }
        if device.activity == Activity::Following {
            device.activity = Activity::Idle;
            region.unfollow(device.policy.follows_by());
        }
        if to >= device.next {
            device.settle(&cx, to, Trigger { cause, watermark: Some(to) }, region, out);
        }
        region.advance(device.member, device.policy.max_hold, to);
        if device.activity == Activity::Idle {
            // Where the region stands is said once all that the message moves have moved.
            self.bring_to_clock(index, out);
        }
    }

    fn raise_region(&mut self, region: usize, cause: Cause, out: &mut Effects) {
        if self.progress_region(region, out) {
            self.settle_region(region, cause, out);
        } else if self.regions[region].follows_clock() {
            self.arm_region(region);
        }
    }

    /// Brings a region's watermarks up to date; tells whether any moved.
    fn progress_region(&mut self, index: usize, out: &mut Effects) -> bool {
        self.progress_region_to(index, self.listening.stamp(), out)
    }

    fn progress_region_to(&mut self, index: usize, stamp: ArrivalTime, out: &mut Effects) -> bool {
        let changes = self.regions[index].hold_out(stamp);
        self.tell_holds(index, &changes, out);
        self.regions[index].progress(stamp)
    }

    fn tell_holds(&mut self, region: usize, changes: &[HoldChange], out: &mut Effects) {
        for change in changes {
            let device = &self.devices[self.regions[region].members[change.member]];
            out.push(Output::Alert(Alert {
                kind: if change.out { AlertKind::HeldOut } else { AlertKind::BackIn },
                region: device.region_id.clone(),
                device: device.id.clone(),
                watermark: change.watermark,
            }));
        }
    }

    /// Region scope: a partition spoke.
    fn raise_partition(&mut self, region: usize, to: EventTime, cause: Cause, out: &mut Effects) {
        if self.partitions.raise(region, to) {
            self.advance_all(cause, out);
        }
        self.regions[region].dirty = true;
        let own = self.partitions.get(region).generator.watermark();
        self.regions[region].move_to(own, EventTime::MIN);
        self.publish_if_immediate(out);
    }

    /// Region scope: a marker in a replayed file says that a partition is idle.
    pub(super) fn on_idle_marker(&mut self, region: &str, out: &mut Effects) {
        let region = self.region(region);
        self.rest_partition(region, out);
    }

    fn rest_partition(&mut self, region: usize, out: &mut Effects) {
        self.regions[region].dirty = true;
        if self.partitions.rest(region) {
            self.advance_all(Cause::Idle, out);
        }
        self.publish_if_immediate(out);
    }

    pub(super) fn hear_partition(&mut self, region: usize, duration: Span) {
        let partition = &mut self.regions[region];
        partition.heard = duration;
        if !std::mem::replace(&mut partition.watched, true) {
            self.deadlines.at_duration(partition.silent_at(), Silence::Partition(region));
        }
    }

    fn on_partition_silence(&mut self, at: Span, index: usize, out: &mut Effects) {
        let region = &mut self.regions[index];
        let silent_at = region.silent_at();
        if silent_at > at {
            self.deadlines.at_duration(silent_at, Silence::Partition(index));
        } else {
            region.watched = false;
            self.rest_partition(index, out);
        }
    }

    /// Region scope: the combined watermark moved, and closes what it passed.
    fn advance_all(&mut self, cause: Cause, out: &mut Effects) {
        let w = self.partitions.combined();
        let mut due = Vec::new();
        while let Some(&(at, device)) = self.timeline.first()
            && at <= w
        {
            self.timeline.pop_first();
            self.devices[device].registered = None;
            due.push(device);
        }
        self.settle_many(&due, w, Trigger { cause, watermark: Some(w) }, out);
        for region in 0..self.regions.len() {
            if self.regions[region].is_due_at(w) {
                self.settle_region_at(region, w, Trigger { cause, watermark: Some(w) }, out);
            }
        }
    }

    /// Windows of many devices fire by end, then key; then what is past its lateness becomes final.
    fn settle_many(&mut self, due: &[usize], w: EventTime, trigger: Trigger, out: &mut Effects) {
        let mut firing = Vec::new();
        for &index in due {
            let device = &self.devices[index];
            let fires = (0..device.panes.len()).filter(|pane| device.fires_at(*pane, w));
            firing
                .extend(fires.map(|pane| (device.panes[pane].end, device.id.clone(), index, pane)));
        }
        firing.sort();
        for (_, _, index, pane) in firing {
            let (cx, device, _) = self.parts(index);
            device.fire(&cx, pane, trigger, out);
        }
        for &index in due {
            let (cx, device, region) = self.parts(index);
            device.finalise(&cx, w, trigger.watermark, region, out);
            self.mark(index);
            self.register(index);
        }
    }

    /// Region scope: registers a device for the combined watermark that closes its next window.
    pub(super) fn register(&mut self, index: usize) {
        let device = &mut self.devices[index];
        let next = Some(device.next).filter(|next| *next != EventTime::MAX);
        if device.registered != next {
            if let Some(at) = device.registered {
                self.timeline.remove(&(at, index));
            }
            device.registered = next;
            self.timeline.extend(next.map(|at| (at, index)));
        }
    }

    /// The watermark that closes the windows of a device.
    pub(super) fn closing_watermark(&self, index: usize) -> EventTime {
        if self.in_device_scope() {
            self.devices[index].watermark(self.listening.stamp())
        } else {
            self.partitions.combined()
        }
    }

    pub(super) fn arm_device(&mut self, index: usize) {
        let has_clock = self.has_clock();
        let device = &mut self.devices[index];
        if has_clock
            && let Some(at) = device.next_on_clock()
            && device.armed.is_none_or(|armed| at < armed)
        {
            device.armed = Some(at);
            self.deadlines.at_stamp(at, ClockDeadline::Device(index));
        }
    }

    /// Watermarks are published from now on, in steps of the interval.
    pub(super) fn start_publishing(&mut self, now: Now) {
        if self.publish_at.is_none() && self.settings.watermark_interval > Span::ZERO {
            self.publish_again(now.wall, now.wall);
        }
    }

    /// Sets the next moment after `last`. Of a gap of days, as when a clock gets its time, only the end is told.
    fn publish_again(&mut self, last: ArrivalTime, now: ArrivalTime) {
        let interval = self.settings.watermark_interval;
        let missed = (now - last).0 / interval.0;
        let skipped =
            if now - last > MAX_PUBLISH_GAP { missed.saturating_mul(interval.0) } else { 0 };
        let at = (last + Span(skipped)).max(last + interval);
        self.publish_at = Some(at);
        if at > last {
            self.deadlines.at_stamp(at, ClockDeadline::Publish);
        }
    }

    pub(super) fn publish_if_immediate(&mut self, out: &mut Effects) {
        if self.settings.watermark_interval == Span::ZERO {
            self.publish_watermarks(out);
        }
    }

    /// Tells the watermarks that moved since they were last told, of the regions and then of the gateway.
    fn publish_watermarks(&mut self, out: &mut Effects) {
        for index in 0..self.regions.len() {
            if self.in_device_scope() {
                self.progress_region(index, out);
            }
            let region = &mut self.regions[index];
            let w = region.watermark();
            if w > region.published {
                region.published = w;
                region.dirty = true;
                let region = Some(region.id.clone());
                out.push(self.watermark_report(region, Some(w)));
            }
        }
        let w = self.gateway_watermark();
        if w > self.gateway_published {
            self.gateway_published = w;
            out.push(self.watermark_report(None, Some(w)));
        }
    }

    fn watermark_report(
        &self,
        region: Option<crate::ids::RegionId>,
        watermark: Option<EventTime>,
    ) -> Output {
        Output::Watermark(WatermarkReport { region, watermark, clock: self.clock.quality })
    }

    /// The minimum over the regions that have spoken; region scope: the combined watermark.
    fn gateway_watermark(&self) -> EventTime {
        if !self.in_device_scope() {
            return self.partitions.combined();
        }
        let spoken = self.regions.iter().map(super::Region::watermark);
        spoken.filter(|w| *w != EventTime::MIN).min().unwrap_or(EventTime::MIN)
    }

    /// The end of a replayed file: every watermark goes to infinity, everything still open fires, and the published
    /// watermarks keep their values.
    pub(super) fn on_end(&mut self, out: &mut Effects) {
        let all: Vec<usize> = (0..self.devices.len()).collect();
        let trigger = Trigger { cause: Cause::End, watermark: None };
        self.settle_many(&all, EventTime::MAX, trigger, out);
        for region in 0..self.regions.len() {
            self.settle_region_at(region, EventTime::MAX, trigger, out);
        }
        out.push(self.watermark_report(None, None));
    }
}
