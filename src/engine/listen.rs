//! Listened time: silence and clock count only while we listen (SPEC 3.4).
//!
//! Two scales. The *listened stamp* `L` is a wall time: up to it, everything that arrived has been processed. Closing
//! by clock uses it. The *listened duration* is monotonic time spent caught up, summed over restarts; idleness counts
//! in it, so that no outage is added to anybody's silence. Both stand still while we are not caught up, and the stamp also
//! while the gateway's clock is not good: it is then the last good time (SPEC 2.2).

use crate::engine::codec::{Reader, Writer};
use crate::event::GapCause;
use crate::time::{ArrivalTime, MonoTime, Now, Span};

/// Whether we hear the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hearing {
    /// Not connected, or what the broker had queued is still coming; and why.
    Deaf(GapCause),
    /// We hear, and first go through what was held.
    Busy,
    /// Everything received so far is processed; accounted up to this moment.
    CaughtUp(Now),
}

/// Listened time of the gateway.
#[derive(Clone, Debug)]
pub struct Listening {
    hearing: Hearing,
    duration: Span,
    stamp: ArrivalTime,
    gap: Option<Gap>,
    /// The wall clock is good.
    good: bool,
    /// A gap that ended while it was not, and when.
    untold: Option<(GapCause, MonoTime)>,
}

/// A time in which nothing was heard. What the broker kept of it was heard afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// When we last listened.
    pub start: ArrivalTime,
    /// When we had caught up again.
    pub end: ArrivalTime,
    /// Why it was.
    pub cause: GapCause,
}

impl Default for Listening {
    fn default() -> Self {
        Self::restore(Span::ZERO, ArrivalTime::MIN)
    }
}

impl Listening {
    /// Continues from what a snapshot kept; deaf and without a good clock until told otherwise.
    pub fn restore(duration: Span, stamp: ArrivalTime) -> Self {
        let hearing = Hearing::Deaf(GapCause::AgentStopped);
        Self { hearing, duration, stamp, gap: None, good: false, untold: None }
    }

    /// From now on the wall clock is good, or is not. Returns the gap that ended while it was not: only now it is known
    /// how long that was.
    pub fn trust(&mut self, good: bool, now: Now) -> Option<Gap> {
        self.good = good;
        let (cause, ended) = self.untold.take_if(|_| good)?;
        self.note_gap(now.wall - (now.mono - ended), cause)
    }

    /// Whether the stamp follows the wall clock.
    pub fn is_trusted(&self) -> bool {
        self.good
    }

    /// The wall clock at `now`, as monotonic time has carried it on since it was last accounted for: not what somebody
    /// has set it to since.
    pub fn carried(&self, now: Now) -> Now {
        match self.hearing {
            Hearing::Deaf(_) | Hearing::Busy => now,
            Hearing::CaughtUp(since) => {
                let elapsed = Span((now.mono - since.mono).0.max(0));
                Now { wall: now.wall.min(since.wall + elapsed), ..now }
            }
        }
    }

    /// The listened stamp `L`; [`ArrivalTime::MIN`] before the first time of being caught up.
    pub fn stamp(&self) -> ArrivalTime {
        self.stamp
    }

    /// Whether what comes now is news: what the broker had queued has been heard.
    pub fn is_caught_up(&self) -> bool {
        matches!(self.hearing, Hearing::CaughtUp(_))
    }

    /// Monotonic time spent caught up so far.
    pub fn duration(&self) -> Span {
        self.duration
    }

    /// Where both scales will stand at `now`, never behind where they stand.
    pub fn at(&self, now: Now) -> (ArrivalTime, Span) {
        match self.hearing {
            Hearing::Deaf(_) | Hearing::Busy => (self.stamp, self.duration),
            Hearing::CaughtUp(since) => {
                let elapsed = Span((now.mono - since.mono).0.max(0));
                let stamp = if self.good { self.stamp.max(now.wall) } else { self.stamp };
                (stamp, self.duration + elapsed)
            }
        }
    }

    /// Moves to a moment between two calls of [`Self::advance`]; neither scale moves back.
    pub fn step_to(&mut self, stamp: ArrivalTime, duration: Span) {
        if self.good {
            self.stamp = self.stamp.max(stamp);
        }
        if let Hearing::CaughtUp(since) = &mut self.hearing
            && duration > self.duration
        {
            let elapsed = duration - self.duration;
            *since = Now { wall: since.wall + elapsed, mono: since.mono + elapsed };
            self.duration = duration;
        }
    }

    /// The wall time up to which everything that arrived was processed, good or not.
    pub fn wall(&self) -> ArrivalTime {
        match self.hearing {
            Hearing::CaughtUp(since) if !self.good => since.wall,
            Hearing::CaughtUp(_) | Hearing::Deaf(_) | Hearing::Busy => self.stamp,
        }
    }

    /// The monotonic time up to which everything that arrived was processed; `None` while we are not caught up.
    pub fn live_at(&self) -> Option<MonoTime> {
        match self.hearing {
            Hearing::Deaf(_) | Hearing::Busy => None,
            Hearing::CaughtUp(since) => Some(since.mono),
        }
    }

    /// Accounts the time up to `now`.
    pub fn advance(&mut self, now: Now) {
        (self.stamp, self.duration) = self.at(now);
        if let Hearing::CaughtUp(since) = &mut self.hearing {
            *since = Now { wall: now.wall, mono: now.mono.max(since.mono) };
        }
    }

    /// Everything that was queued has been heard: the stamp is now. Returns the gap that ends with it, unless it is the
    /// first time that we listen at all.
    pub fn caught_up(&mut self, now: Now) -> Option<Gap> {
        let was = std::mem::replace(&mut self.hearing, Hearing::CaughtUp(now));
        let Hearing::Deaf(cause) = was else { return None };
        if self.good {
            return self.note_gap(now.wall, cause);
        }
        let cause = self.untold.map_or(cause, |(cause, _)| cause);
        self.untold = Some((cause, now.mono));
        None
    }

    fn note_gap(&mut self, end: ArrivalTime, cause: GapCause) -> Option<Gap> {
        let gap = Gap { start: self.stamp, end, cause };
        let is_one = gap.start != ArrivalTime::MIN && gap.end > gap.start;
        self.gap = Some(gap).filter(|_| is_one).or(self.gap);
        is_one.then_some(gap)
    }

    /// From now on we hear nothing, or only what was queued.
    pub fn deaf(&mut self, cause: GapCause) {
        if !matches!(self.hearing, Hearing::Deaf(_)) {
            self.hearing = Hearing::Deaf(cause);
        }
    }

    /// What was held comes first. That is no gap: nothing is lost of what the devices say meanwhile, and none is told.
    pub fn busy(&mut self) {
        if matches!(self.hearing, Hearing::CaughtUp(_)) {
            self.hearing = Hearing::Busy;
        }
    }

    /// Whether we hear nothing, or only what was queued or held.
    pub fn is_deaf(&self) -> bool {
        !self.is_caught_up()
    }

    /// How much of the time from `then` to `now` we listened, by the clock. Of the gaps in it only the last is known:
    /// it may be less.
    pub fn heard_between(&self, then: ArrivalTime, now: ArrivalTime) -> Span {
        let none = Span::ZERO;
        let all = (self.stamp.min(now) - then).max(none);
        let deaf = self.gap.map_or(none, |gap| (gap.end.min(now) - gap.start.max(then)).max(none));
        Span((all.0 - deaf.0).max(0))
    }

    /// What a restart needs besides stamp and duration: whether the broker was away, and the last gap.
    pub(super) fn write_gap(&self, w: &mut Writer) {
        if let Some(gap) = self.gap {
            w.signed(gap.start.0).signed((gap.end - gap.start).0);
        }
    }

    /// Bits that say so.
    pub(super) fn flags(&self) -> u8 {
        let away = self.hearing == Hearing::Deaf(GapCause::BrokerAway);
        u8::from(away) | u8::from(self.gap.is_some()) << 1
    }

    /// The inverse of both.
    pub(super) fn read_gap(&mut self, flags: u8, r: &mut Reader<'_>) -> Option<()> {
        if flags & 1 != 0 {
            self.hearing = Hearing::Deaf(GapCause::BrokerAway);
        }
        if flags & 2 != 0 {
            let start = ArrivalTime(r.signed()?);
            let end = start + Span(r.signed()?);
            self.gap = Some(Gap { start, end, cause: GapCause::AgentStopped });
        }
        Some(())
    }

    /// The monotonic time at which the stamp reaches `stamp`; `None` while it stands still.
    pub fn when_stamp(&self, stamp: ArrivalTime) -> Option<MonoTime> {
        match self.hearing {
            Hearing::CaughtUp(since) if self.good => {
                Some(since.mono + Span((stamp - since.wall).0.max(0)))
            }
            Hearing::Deaf(_) | Hearing::Busy | Hearing::CaughtUp(_) => None,
        }
    }

    /// The monotonic time at which the duration reaches `duration`; `None` while it stands still.
    pub fn when_duration(&self, duration: Span) -> Option<MonoTime> {
        match self.hearing {
            Hearing::Deaf(_) | Hearing::Busy => None,
            Hearing::CaughtUp(since) => {
                Some(since.mono + Span((duration - self.duration).0.max(0)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(wall: i64, mono: i64) -> Now {
        Now { wall: ArrivalTime(wall), mono: MonoTime(mono) }
    }

    fn trusted() -> Listening {
        let mut listening = Listening::default();
        listening.trust(true, now(0, 0));
        listening
    }

    #[test]
    fn without_a_good_clock_the_stamp_stands_still_and_silence_goes_on() {
        let mut listening = trusted();
        listening.caught_up(now(1_000, 10));
        listening.advance(now(2_000, 1_010));
        listening.trust(false, now(2_000, 1_010));
        listening.advance(now(90_000, 2_010));
        assert_eq!((listening.stamp(), listening.duration()), (ArrivalTime(2_000), Span(2_000)));
        assert_eq!(listening.when_stamp(ArrivalTime(2_001)), None);
        assert_eq!(listening.when_duration(Span(2_500)), Some(MonoTime(2_510)));
        listening.trust(true, now(4_000, 2_010));
        listening.advance(now(4_000, 3_010));
        assert_eq!((listening.stamp(), listening.duration()), (ArrivalTime(4_000), Span(3_000)));
    }

    #[test]
    fn the_wall_clock_is_carried_on_by_monotonic_time_and_not_by_who_sets_it() {
        let mut listening = trusted();
        listening.caught_up(now(1_000, 10));
        listening.advance(now(1_000, 10));
        assert_eq!(listening.carried(now(9_000, 60)).wall, ArrivalTime(1_050));
        assert_eq!(listening.carried(now(500, 60)).wall, ArrivalTime(500));
    }

    #[test]
    fn an_outage_adds_to_nobodys_silence() {
        let mut listening = trusted();
        listening.caught_up(now(1_000, 10));
        listening.advance(now(2_000, 1_010));
        listening.deaf(GapCause::BrokerAway);
        listening.advance(now(9_000, 8_010));
        assert_eq!((listening.stamp(), listening.duration()), (ArrivalTime(2_000), Span(1_000)));
        listening.caught_up(now(9_000, 8_010));
        listening.advance(now(9_000, 8_010));
        assert_eq!((listening.stamp(), listening.duration()), (ArrivalTime(9_000), Span(1_000)));
    }

    #[test]
    fn a_gap_that_ended_before_the_time_was_known_is_told_once_it_is() {
        let mut listening = Listening::restore(Span::ZERO, ArrivalTime(5_000));
        assert_eq!(listening.caught_up(now(70, 100)), None); // at boot, in 1970
        listening.deaf(GapCause::BrokerAway);
        assert_eq!(listening.caught_up(now(90, 120)), None);
        assert_eq!(listening.trust(false, now(100, 130)), None);
        let gap = Gap {
            start: ArrivalTime(5_000),
            end: ArrivalTime(9_000),
            cause: GapCause::AgentStopped,
        };
        assert_eq!(listening.trust(true, now(9_080, 200)), Some(gap));
        assert_eq!(listening.trust(true, now(9_090, 210)), None);
    }

    #[test]
    fn a_wall_clock_that_steps_back_moves_nothing_back() {
        let mut listening = trusted();
        listening.caught_up(now(5_000, 0));
        listening.advance(now(6_000, 1_000));
        listening.advance(now(3_000, 2_000));
        assert_eq!((listening.stamp(), listening.duration()), (ArrivalTime(6_000), Span(2_000)));
    }

    #[test]
    fn deadlines_are_met_exactly() {
        let mut listening = trusted();
        listening.caught_up(now(1_000, 10));
        listening.advance(now(1_000, 10));
        assert_eq!(listening.when_stamp(ArrivalTime(1_500)), Some(MonoTime(510)));
        assert_eq!(listening.when_duration(Span(300)), Some(MonoTime(310)));
        listening.deaf(GapCause::BrokerAway);
        assert_eq!(listening.when_stamp(ArrivalTime(1_500)), None);
    }
}
