//! What time it is for a region: the gateway's clock while that is good, else the median of its devices' (SPEC 2.2).
//!
//! Two questions. *When is now?* is for the guards of SPEC 2.4: [`Engine::reference`]. *How far has been listened?* is
//! for closing by clock (SPEC 3.1): [`Engine::stamp_of`], which never moves back, whichever clock it goes by. Both have
//! no answer, or stand still, where no clock is good and fewer than three devices report.

use crate::engine::Engine;
use crate::engine::deadline::ClockDeadline;
use crate::engine::effect::Effects;
use crate::event::GapCause;
use crate::time::{ArrivalTime, ClockStatus, EventTime, MonoTime, Now, Span};

impl Engine {
    /// Until when the clock was good, and everything that had arrived was processed: it is later than that. `None`
    /// before the first time.
    pub fn last_good(&self) -> Option<ArrivalTime> {
        Some(self.listening.stamp()).filter(|stamp| *stamp != ArrivalTime::MIN)
    }

    /// The clock by which a device time of a region is held against now, for a message that came at `arrival`.
    pub(super) fn reference(
        &self,
        region: usize,
        arrival: Option<ArrivalTime>,
        mono: MonoTime,
    ) -> Option<ArrivalTime> {
        match self.listening.is_trusted() {
            true => arrival,
            false => self.regions[region].clocks.read(mono),
        }
    }

    /// The listened stamp of a region.
    pub(super) fn stamp_of(&self, region: usize) -> ArrivalTime {
        self.stamp_at(region, self.listening.stamp(), self.listening.live_at())
    }

    /// The same, where the gateway's stamp is at `stamp`, and everything that arrived until `mono` was processed.
    pub(super) fn stamp_at(
        &self,
        region: usize,
        stamp: ArrivalTime,
        mono: Option<MonoTime>,
    ) -> ArrivalTime {
        let region = &self.regions[region];
        let known = stamp.max(region.stamp);
        let stands_in = mono.filter(|_| !self.listening.is_trusted());
        stands_in.and_then(|mono| region.clocks.read(mono)).map_or(known, |read| read.max(known))
    }

    /// What stood in for the clock so far stays, whatever it says next.
    pub(super) fn keep_stamp(&mut self, region: usize) {
        if !self.listening.is_trusted() {
            let (stamp, known) = (self.stamp_of(region), self.listening.stamp());
            let region = &mut self.regions[region];
            if stamp > known.max(region.stamp) {
                (region.stamp, region.dirty) = (stamp, true);
            }
        }
    }

    pub(super) fn keep_stamps(&mut self) {
        (0..self.regions.len()).for_each(|region| self.keep_stamp(region));
    }

    /// A device wrote `at` into a message that was heard as it was sent.
    pub(super) fn note_clock(&mut self, device: usize, at: EventTime, mono: MonoTime) {
        let (region, member) = (self.devices[device].region, self.devices[device].member);
        self.keep_stamp(region);
        self.regions[region].clocks.note(member, at, mono);
        if !self.listening.is_trusted() {
            self.hint(region);
        }
    }

    /// Whether the clock of that status may close windows and refuse times, of whatever region.
    pub(super) fn is_good(&self, status: ClockStatus) -> bool {
        status.is_good(self.least_lateness)
    }

    /// The clock is worth something else from now on. What was listened to until now counts by what it was worth.
    pub(super) fn on_clock_status(&mut self, status: ClockStatus, now: Now, out: &mut Effects) {
        self.clock = status;
        if !self.has_clock() {
            return;
        }
        let good = self.is_good(status);
        if good && !self.gate.is_open() {
            self.gate.open(now.wall);
            if self.gate.waits() {
                // What is held comes first.
                self.keep_stamps();
                self.listening.busy();
            }
        }
        if good != self.listening.is_trusted() {
            self.keep_stamps();
            let gap = self.listening.trust(good, now);
            self.tell_gap(gap, out);
            (0..self.regions.len()).for_each(|region| self.hint(region));
        }
        self.listen_again(now, out);
    }

    /// From now on nothing is heard, or only what was queued.
    pub(super) fn fall_deaf(&mut self, cause: GapCause) {
        self.caught_up = false;
        self.keep_stamps();
        self.listening.deaf(cause);
    }

    /// Looks at `what` when the clock of its region reaches `at`.
    pub(super) fn at_stamp(&mut self, region: usize, at: ArrivalTime, what: ClockDeadline) {
        self.deadlines.at_stamp(region, at, what);
        self.hint(region);
    }

    /// Notes when the next thing in a region is due: on the gateway's clock while that is good; else as a span, where
    /// something stands in for it.
    pub(super) fn hint(&mut self, region: usize) {
        let Some(next) = self.deadlines.next_of(region) else { return };
        let here = self.stamp_of(region);
        if self.listening.is_trusted() {
            // What the region's own stamp is past already is due now.
            let at = if next <= here { self.listening.stamp() } else { next };
            self.deadlines.hint(region, at);
        } else if next <= here || self.stands_in(region) {
            let at = self.listening.duration() + Span((next - here).0.max(0));
            self.deadlines.hint_span(region, at);
        }
    }

    fn stands_in(&self, region: usize) -> bool {
        let mono = self.listening.live_at();
        mono.is_some_and(|mono| self.regions[region].clocks.read(mono).is_some())
    }

    /// The gateway's clock brings something in a region.
    pub(super) fn on_clock(&mut self, region: usize, out: &mut Effects) {
        if let Some((at, what)) = self.deadlines.pop_of(region, self.stamp_of(region)) {
            self.on_clock_deadline(at, what, out);
        }
        self.hint(region);
    }

    /// What stands in for it brings something in a region.
    pub(super) fn on_stand_in(&mut self, region: usize, out: &mut Effects) {
        while let Some((at, what)) = self.deadlines.pop_of(region, self.stamp_of(region)) {
            self.on_clock_deadline(at, what, out);
        }
        self.hint(region);
    }
}
