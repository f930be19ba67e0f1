//! `wall = CLOCK_BOOTTIME + difference`, where the difference slews.

use crate::time::{ArrivalTime, Span};

/// A correction of so much takes so many times as long: 0.5 %.
const SLEWING: i64 = 200;

const MILLI: i64 = 1_000_000;

/// Wall time by `CLOCK_BOOTTIME`. All in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Anchor {
    at: i64,
    /// Wall time less `CLOCK_BOOTTIME` at `at`.
    difference: i64,
    /// What is still to be corrected then.
    correction: i64,
}

impl Anchor {
    /// From now on wall time is this much ahead of `CLOCK_BOOTTIME`. Whole milliseconds: so that wall and monotonic
    /// time, which are told in those, advance together.
    pub(super) fn new(difference: i64, at: i64) -> Self {
        Self { at, difference: whole(difference), correction: 0 }
    }

    /// Goes over to this difference little by little. Wall time goes on without a step and never back.
    #[must_use]
    pub(super) fn slewed_to(&self, difference: i64, at: i64) -> Self {
        let from = self.difference(at);
        Self { at, difference: from, correction: whole(difference) - from }
    }

    /// Wall time less `CLOCK_BOOTTIME` at this moment.
    pub(super) fn difference(&self, at: i64) -> i64 {
        self.difference + self.corrected(at)
    }

    /// Where the difference will be when everything is corrected.
    pub(super) fn target(&self) -> i64 {
        self.difference + self.correction
    }

    /// What is still to be corrected at this moment.
    pub(super) fn remaining(&self, at: i64) -> i64 {
        self.correction - self.corrected(at)
    }

    /// Wall time.
    pub(super) fn wall(&self, at: i64) -> ArrivalTime {
        ArrivalTime(at.saturating_add(self.difference(at)).div_euclid(MILLI))
    }

    fn corrected(&self, at: i64) -> i64 {
        let most = (at - self.at).max(0) / SLEWING;
        self.correction.clamp(-most, most)
    }
}

fn whole(nanos: i64) -> i64 {
    nanos.saturating_add(MILLI / 2).div_euclid(MILLI) * MILLI
}

/// A span of nanoseconds, rounded towards zero.
pub(super) fn span(nanos: i64) -> Span {
    Span(nanos / MILLI)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn a_correction_of_a_second_takes_two_hundred_either_way() {
        for second in [SECOND, -SECOND] {
            let anchor = Anchor::new(7 * SECOND, 0).slewed_to(7 * SECOND + second, 10 * SECOND);
            assert_eq!(anchor.difference(10 * SECOND), 7 * SECOND);
            assert_eq!(anchor.difference(110 * SECOND), 7 * SECOND + second / 2);
            assert_eq!(anchor.remaining(110 * SECOND), second / 2);
            assert_eq!(anchor.difference(210 * SECOND), 7 * SECOND + second);
            assert_eq!(anchor.difference(999 * SECOND), anchor.target());
        }
    }

    #[test]
    fn a_clock_that_does_not_slew_advances_as_monotonic_time_does() {
        let anchor = Anchor::new(1_234_567_890, 0);
        for at in [0, 1, 999_999, 1_000_000, 987_654_321] {
            assert_eq!(anchor.wall(at).0 - at.div_euclid(MILLI), 1_235);
        }
    }

    proptest! {
        #[test]
        fn wall_time_never_runs_back_while_it_slews(
            targets in prop::collection::vec((-2 * SECOND..2 * SECOND, 1..400 * SECOND), 1..8),
            steps in prop::collection::vec(0..50_000_000_i64, 1..40),
        ) {
            let mut anchor = Anchor::new(0, 0);
            let (mut at, mut last) = (0, anchor.wall(0));
            for (target, after) in targets {
                for step in steps.iter().chain([&after]) {
                    at += step;
                    let wall = anchor.wall(at);
                    prop_assert!(wall >= last, "{wall:?} after {last:?}");
                    last = wall;
                }
                anchor = anchor.slewed_to(target, at);
            }
        }
    }
}
