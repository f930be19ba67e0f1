//! Listened time: silence and clock count only while we listen (SPEC 3.4).
//!
//! Two scales. The *listened stamp* `L` is a wall time: up to it, everything that arrived has been processed. Closing
//! by clock uses it. The *listened duration* is monotonic time spent caught up, summed over restarts; idleness counts
//! in it, so that no outage is added to anybody's silence. Both stand still while we are not caught up, and the stamp also
//! while the gateway's clock is not good: it is then the last good time (SPEC 2.2).

use crate::time::{ArrivalTime, MonoTime, Now, Span};

/// Whether we hear the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hearing {
    /// Not connected, or what the broker had queued is still coming.
    Deaf,
    /// Everything received so far is processed; accounted up to this moment.
    CaughtUp(Now),
}

/// Listened time of the gateway.
#[derive(Clone, Debug)]
pub struct Listening {
    hearing: Hearing,
    duration: Span,
    stamp: ArrivalTime,
    /// The wall clock is good.
    good: bool,
}

impl Default for Listening {
    fn default() -> Self {
        Self::restore(Span::ZERO, ArrivalTime::MIN)
    }
}

impl Listening {
    /// Continues from what a snapshot kept; deaf and without a good clock until told otherwise.
    pub fn restore(duration: Span, stamp: ArrivalTime) -> Self {
        Self { hearing: Hearing::Deaf, duration, stamp, good: false }
    }

    /// From now on the wall clock is good, or is not.
    pub fn trust(&mut self, good: bool) {
        self.good = good;
    }

    /// Whether the stamp follows the wall clock.
    pub fn is_trusted(&self) -> bool {
        self.good
    }

    /// The wall clock at `now`, as monotonic time has carried it on since it was last accounted for: not what somebody
    /// has set it to since.
    pub fn carried(&self, now: Now) -> Now {
        match self.hearing {
            Hearing::Deaf => now,
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

    /// Monotonic time spent caught up so far.
    pub fn duration(&self) -> Span {
        self.duration
    }

    /// Where both scales will stand at `now`, never behind where they stand.
    pub fn at(&self, now: Now) -> (ArrivalTime, Span) {
        match self.hearing {
            Hearing::Deaf => (self.stamp, self.duration),
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
            since.mono = since.mono + (duration - self.duration);
            self.duration = duration;
        }
    }

    /// The monotonic time up to which everything that arrived was processed; `None` while we are not caught up.
    pub fn live_at(&self) -> Option<MonoTime> {
        match self.hearing {
            Hearing::Deaf => None,
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

    /// Everything that was queued has been heard: the stamp is now.
    pub fn caught_up(&mut self, now: Now) {
        self.hearing = Hearing::CaughtUp(now);
    }

    /// From `now` on we hear nothing, or only what was queued.
    pub fn deaf(&mut self) {
        self.hearing = Hearing::Deaf;
    }

    /// The monotonic time at which the stamp reaches `stamp`; `None` while it stands still.
    pub fn when_stamp(&self, stamp: ArrivalTime) -> Option<MonoTime> {
        match self.hearing {
            Hearing::CaughtUp(since) if self.good => {
                Some(since.mono + Span((stamp - since.wall).0.max(0)))
            }
            Hearing::Deaf | Hearing::CaughtUp(_) => None,
        }
    }

    /// The monotonic time at which the duration reaches `duration`; `None` while it stands still.
    pub fn when_duration(&self, duration: Span) -> Option<MonoTime> {
        match self.hearing {
            Hearing::Deaf => None,
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
        listening.trust(true);
        listening
    }

    #[test]
    fn without_a_good_clock_the_stamp_stands_still_and_silence_goes_on() {
        let mut listening = trusted();
        listening.caught_up(now(1_000, 10));
        listening.advance(now(2_000, 1_010));
        listening.trust(false);
        listening.advance(now(90_000, 2_010));
        assert_eq!((listening.stamp(), listening.duration()), (ArrivalTime(2_000), Span(2_000)));
        assert_eq!(listening.when_stamp(ArrivalTime(2_001)), None);
        assert_eq!(listening.when_duration(Span(2_500)), Some(MonoTime(2_510)));
        listening.trust(true);
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
        listening.deaf();
        listening.advance(now(9_000, 8_010));
        assert_eq!((listening.stamp(), listening.duration()), (ArrivalTime(2_000), Span(1_000)));
        listening.caught_up(now(9_000, 8_010));
        listening.advance(now(9_000, 8_010));
        assert_eq!((listening.stamp(), listening.duration()), (ArrivalTime(9_000), Span(1_000)));
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
        listening.deaf();
        assert_eq!(listening.when_stamp(ArrivalTime(1_500)), None);
    }
}
