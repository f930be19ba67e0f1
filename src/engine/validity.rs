//! Is a device time fit to be an event time? (SPEC 2.4)
//!
//! The guard that keeps one fast clock from making a fleet late: no record raises a watermark past gateway time +
//! `future-tolerance`.

use crate::engine::correction::{Corrected, DeviceClock};
use crate::engine::settings::Policy;
use crate::event::Reason;
use crate::time::{ArrivalTime, DeviceTime, EventTime, Span};
use crate::wire::decode::Stamp;

/// What a device time ends as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the event time.
    Accepted(EventTime),
    /// The device's clock is off by a known offset, which was added.
    Corrected(Corrected),
    /// It is unusable; the arrival time takes its place.
    Stamped(EventTime),
    /// The source has none by design; the arrival time is the event time.
    Arrival(EventTime),
    /// The record is refused; the offset that was added before.
    Quarantined(Reason, Option<Span>),
}

/// The last day of the calendar that the wire contract knows: 100 million days after the epoch.
const LATEST: DeviceTime = DeviceTime(8_640_000_000_000_000);

/// What a device time is held against (SPEC 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// There is no clock, and nothing to take the place of a time.
    NoClock,
    /// This is the time now: the gateway's clock is good, or something stands in for it.
    Clock(ArrivalTime),
    /// This is what the gateway's clock says, which is not good: nothing is refused or corrected by it.
    Unsure(ArrivalTime),
    /// It was some time between these two.
    Between(ArrivalTime, ArrivalTime),
    /// Only a time of its own saves a record.
    OwnTime,
}

impl Basis {
    /// Judges a device time, of a device whose clock is known so far.
    pub fn judge(self, stamp: Stamp, policy: &Policy, clock: &DeviceClock) -> Verdict {
        match stamp.time() {
            Some(time) if time > LATEST => return Verdict::Quarantined(Reason::Future, None),
            Some(time) if time.0 < -LATEST.0 => return self.judge(Stamp::Unusable, policy, clock),
            _ => {}
        }
        let own = stamp.time().filter(|time| *time >= policy.not_before);
        match (self, own) {
            (Self::NoClock, _) => {
                let accepted = stamp.time().map(|time| Verdict::Accepted(time.accepted()));
                accepted.unwrap_or(Verdict::Quarantined(Reason::NoTime, None))
            }
            (Self::Clock(now) | Self::Unsure(now), _) if stamp == Stamp::Undeclared => {
                Verdict::Arrival(now.stamped())
            }
            (Self::Clock(now) | Self::Unsure(now), None) => Verdict::Stamped(now.stamped()),
            (Self::Clock(now), Some(time)) => guard(time, now, policy, clock),
            (Self::Unsure(_) | Self::OwnTime, Some(time)) => Verdict::Accepted(time.accepted()),
            (Self::Between(from, to), Some(time)) if (from.0..=to.0).contains(&time.0) => {
                Verdict::Accepted(time.accepted())
            }
            (Self::Between(..) | Self::OwnTime, _) => Verdict::Quarantined(Reason::NoTime, None),
        }
    }

    /// Judges how long a device has been running that was started at `start`, where that is known.
    pub fn judge_uptime(self, uptime: Span, start: Option<EventTime>, policy: &Policy) -> Verdict {
        let dated = start.map(|start| Corrected { at: start + uptime, offset: Span(start.0) });
        match (self, dated) {
            (Self::Clock(now), Some(dated)) => within(dated.at, Some(dated), now, policy),
            (Self::Unsure(_) | Self::OwnTime, Some(dated)) => Verdict::Corrected(dated),
            (Self::Between(from, to), Some(dated)) if (from.0..=to.0).contains(&dated.at.0) => {
                Verdict::Corrected(dated)
            }
            (Self::Clock(now) | Self::Unsure(now), None) => Verdict::Stamped(now.stamped()),
            (Self::NoClock | Self::Between(..) | Self::OwnTime, _) => {
                Verdict::Quarantined(Reason::NoTime, None)
            }
        }
    }
}

/// Corrects a usable device time, and refuses one that is too far from now.
fn guard(time: DeviceTime, now: ArrivalTime, policy: &Policy, clock: &DeviceClock) -> Verdict {
    let corrected = clock.correct(time, now, policy);
    let at = corrected.map_or(time.accepted(), |corrected| corrected.at);
    within(at, corrected, now, policy)
}

/// Refuses an event time that is too far from now.
fn within(
    at: EventTime,
    corrected: Option<Corrected>,
    now: ArrivalTime,
    policy: &Policy,
) -> Verdict {
    let refuse = |reason| Verdict::Quarantined(reason, corrected.map(|corrected| corrected.offset));
    if at.0 > (now + policy.future_tolerance).0 {
        refuse(Reason::Future)
    } else if at.0 < (now - policy.past_limit).0 {
        refuse(Reason::Past)
    } else {
        corrected.map_or(Verdict::Accepted(at), Verdict::Corrected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: i64 = 1_795_953_600_000;

    fn judged(stamp: Stamp, arrival: Option<ArrivalTime>) -> Verdict {
        by(arrival.map_or(Basis::NoClock, Basis::Clock), stamp)
    }

    fn by(basis: Basis, stamp: Stamp) -> Verdict {
        basis.judge(stamp, &Policy::default(), &DeviceClock::default())
    }

    fn at(time: i64) -> Verdict {
        judged(Stamp::At(DeviceTime(time)), Some(ArrivalTime(NOON)))
    }

    #[test]
    fn a_clock_exactly_at_the_tolerance_is_believed_and_one_millisecond_more_is_not() {
        assert_eq!(at(NOON + 30_000), Verdict::Accepted(EventTime(NOON + 30_000)));
        assert_eq!(at(NOON + 30_001), Verdict::Quarantined(Reason::Future, None));
    }

    #[test]
    fn a_time_exactly_at_the_past_limit_is_believed_and_one_millisecond_less_is_not() {
        let limit = NOON - Span::from_hours(30 * 24).0;
        assert_eq!(at(limit), Verdict::Accepted(EventTime(limit)));
        assert_eq!(at(limit - 1), Verdict::Quarantined(Reason::Past, None));
    }

    #[test]
    fn an_unset_clock_is_replaced_by_the_arrival_time() {
        for unset in [0, 5_000, i64::MIN, 946_684_800_000, Policy::default().not_before.0 - 1] {
            assert_eq!(at(unset), Verdict::Stamped(EventTime(NOON)), "{unset}");
        }
        for stamp in [Stamp::Unusable, Stamp::Uptime(Span(5))] {
            assert_eq!(judged(stamp, Some(ArrivalTime(NOON))), Verdict::Stamped(EventTime(NOON)));
        }
    }

    #[test]
    fn a_clock_that_is_not_good_refuses_nothing_and_stamps_what_has_no_time() {
        let unsure = |stamp| by(Basis::Unsure(ArrivalTime(NOON)), stamp);
        let far = NOON + Span::from_hours(24 * 365).0;
        assert_eq!(unsure(Stamp::At(DeviceTime(far))), Verdict::Accepted(EventTime(far)));
        let early = Policy::default().not_before.0;
        assert_eq!(unsure(Stamp::At(DeviceTime(early))), Verdict::Accepted(EventTime(early)));
        for stamp in [Stamp::At(DeviceTime(early - 1)), Stamp::Unusable] {
            assert_eq!(unsure(stamp), Verdict::Stamped(EventTime(NOON)));
        }
        assert_eq!(unsure(Stamp::Undeclared), Verdict::Arrival(EventTime(NOON)));
    }

    #[test]
    fn a_time_outside_the_calendar_is_refused_whether_or_not_there_is_a_clock() {
        let now = ArrivalTime(NOON);
        for basis in [Basis::NoClock, Basis::Unsure(now), Basis::OwnTime, Basis::Between(now, now)]
        {
            let after = by(basis, Stamp::At(DeviceTime(LATEST.0 + 1)));
            assert_eq!(after, Verdict::Quarantined(Reason::Future, None), "{basis:?}");
            let before = by(basis, Stamp::At(DeviceTime(-LATEST.0 - 1)));
            assert_eq!(before, by(basis, Stamp::Unusable), "{basis:?}");
        }
    }

    #[test]
    fn a_time_of_another_boot_is_kept_between_the_last_good_time_and_the_first_one_after() {
        let between = |stamp| by(Basis::Between(ArrivalTime(NOON - 50), ArrivalTime(NOON)), stamp);
        for time in [NOON - 50, NOON] {
            let kept = Verdict::Accepted(EventTime(time));
            assert_eq!(between(Stamp::At(DeviceTime(time))), kept);
        }
        let refused = Verdict::Quarantined(Reason::NoTime, None);
        for time in [NOON - 51, NOON + 1] {
            assert_eq!(between(Stamp::At(DeviceTime(time))), refused);
        }
        for stamp in [Stamp::Undeclared, Stamp::Unusable] {
            assert_eq!(between(stamp), refused);
            assert_eq!(by(Basis::OwnTime, stamp), refused);
        }
        let never = Basis::Between(ArrivalTime::MIN, ArrivalTime(NOON));
        let unset = Stamp::At(DeviceTime(5_000));
        assert_eq!(by(never, unset), refused);
    }

    #[test]
    fn without_a_clock_a_device_time_is_believed_and_nothing_takes_its_place() {
        let ahead = Stamp::At(LATEST);
        assert_eq!(judged(ahead, None), Verdict::Accepted(LATEST.accepted()));
        for stamp in [Stamp::Unusable, Stamp::Undeclared, Stamp::Uptime(Span(5))] {
            let verdict = judged(stamp, None);
            assert_eq!(verdict, Verdict::Quarantined(Reason::NoTime, None));
        }
    }
}
