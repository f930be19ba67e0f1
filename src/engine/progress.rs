//! How time moves: watermarks are raised, silence and the clock are applied, windows and roll-ups fire.

use crate::engine::Engine;
use crate::engine::context::Trigger;
use crate::engine::deadline::{ClockDeadline, Due, SpanDeadline};
use crate::engine::device::Activity;
use crate::engine::effect::Effects;
use crate::engine::region::HoldChange;
use crate::event::{Alert, AlertKind, Cause, Output};
use crate::time::{ArrivalTime, EventTime, Now, Span};

impl Engine {
    /// Applies the clock up to `now`: idleness, closing by clock, due revisions, in the order of their moments.
    pub(super) fn apply_clock(&mut self, now: Now, out: &mut Effects) {
        let (stamp, duration) = self.listening.at(now);
        while let Some(due) = self.deadlines.pop(stamp, duration) {
            match due {
                Due::Span(at, what) => {
                    self.listening.step_to(stamp - (duration - at), at);
                    self.on_span(at, what, duration, out);
                }
                Due::Clock(at, region) => {
                    self.listening.step_to(at, duration - (stamp - at));
                    self.on_clock(region, out);
                }
            }
        }
        self.listening.advance(now);
    }

    fn on_span(&mut self, at: Span, what: SpanDeadline, now: Span, out: &mut Effects) {
        match what {
            SpanDeadline::Device(device) => self.on_device_silence(at, device, out),
            SpanDeadline::Partition(region) => self.on_partition_silence(at, region, out),
            SpanDeadline::Presence(device) => self.on_presence_silence(at, device, out),
            SpanDeadline::StandIn(region) => self.on_stand_in(region, out),
            SpanDeadline::Revision(device) if self.devices[device].revises_at == Some(at) => {
                self.devices[device].revises_at = None;
                self.follow_clock(device, out);
            }
            SpanDeadline::Rollup(region) if self.regions[region].revises_at == Some(at) => {
                self.regions[region].revises_at = None;
                self.look_at(region, out);
            }
            SpanDeadline::Look(region) => {
                self.regions[region].looked_for = false;
                self.look_at(region, out);
            }
            SpanDeadline::Revision(_) | SpanDeadline::Rollup(_) => {} // an earlier or later one took its place
            SpanDeadline::Publish => {
                self.publish_watermarks(out);
                self.publish_again(at, now);
            }
        }
    }

    fn on_device_silence(&mut self, at: Span, index: usize, out: &mut Effects) {
        let device = &mut self.devices[index];
        if device.activity != Activity::Active {
            return;
        }
        let silent_at = device.heard + device.policy.idle_timeout;
        if silent_at > at {
            self.deadlines.at_duration(silent_at, SpanDeadline::Device(index));
        } else {
            device.activity = Activity::Idle;
            self.mark(index);
            self.follow_clock(index, out);
        }
    }

    pub(super) fn on_clock_deadline(
        &mut self,
        at: ArrivalTime,
        what: ClockDeadline,
        out: &mut Effects,
    ) {
        match what {
            ClockDeadline::Device(device) if self.devices[device].armed == Some(at) => {
                self.devices[device].armed = None;
                self.follow_clock(device, out);
            }
            ClockDeadline::Region(region) if self.regions[region].armed == Some(at) => {
                self.regions[region].armed = None;
                self.look_at(region, out);
            }
            ClockDeadline::Device(_) | ClockDeadline::Region(_) => {} // an earlier or later one took its place
        }
    }

    fn look_at(&mut self, region: usize, out: &mut Effects) {
        self.progress_region(region, out);
        self.settle_region(region, Cause::Idle, out);
    }

    /// What the clock does to a device, and through it to its region.
    fn follow_clock(&mut self, index: usize, out: &mut Effects) {
        let home = self.devices[index].region;
        let stamp = self.stamp_of(home);
        let device = &self.devices[index];
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
        let stamp = self.stamp_of(index);
        let region = &mut self.regions[index];
        if !self.listening.is_trusted() {
            // That clock stands still, or goes by what the region's devices say: the moment has no stamp.
            if !std::mem::replace(&mut region.looked_for, true) {
                let now = self.listening.duration();
                self.deadlines.at_duration(now, SpanDeadline::Look(index));
            }
        } else if region.armed.is_none_or(|armed| stamp < armed) {
            region.armed = Some(stamp);
            self.at_stamp(index, stamp, ClockDeadline::Region(index));
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
    pub(super) fn progress_region(&mut self, index: usize, out: &mut Effects) -> bool {
        self.progress_region_to(index, self.stamp_of(index), out)
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
                clock: self.clock.quality,
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
            self.deadlines.at_duration(partition.silent_at(), SpanDeadline::Partition(region));
        }
    }

    fn on_partition_silence(&mut self, at: Span, index: usize, out: &mut Effects) {
        let region = &mut self.regions[index];
        let silent_at = region.silent_at();
        if silent_at > at {
            self.deadlines.at_duration(silent_at, SpanDeadline::Partition(index));
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
            let device = &self.devices[index];
            device.watermark(self.stamp_of(device.region))
        } else {
            self.partitions.combined()
        }
    }

    pub(super) fn arm_device(&mut self, index: usize) {
        if !self.has_clock() {
            return;
        }
        let device = &mut self.devices[index];
        let region = device.region;
        if let Some(due) = device.next_revision()
            && device.revises_at.is_none_or(|noted| due < noted)
        {
            device.revises_at = Some(due);
            self.deadlines.at_duration(due, SpanDeadline::Revision(index));
        }
        if let Some(at) = device.next_on_clock()
            && device.armed.is_none_or(|armed| at < armed)
        {
            device.armed = Some(at);
            self.at_stamp(region, at, ClockDeadline::Device(index));
        }
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
