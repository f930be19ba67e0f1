//! Is a device time fit to be an event time? (SPEC 2.4)
//!
//! The guard that keeps one fast clock from making a fleet late: no record raises a watermark past gateway time +
//! `future-tolerance`.

use crate::engine::settings::Policy;
use crate::event::Reason;
use crate::time::{ArrivalTime, EventTime};
use crate::wire::decode::Stamp;

/// What a device time ends as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the event time.
    Accepted(EventTime),
    /// It is unusable; the arrival time takes its place.
    Stamped(EventTime),
    /// The source has none by design; the arrival time is the event time.
    Arrival(EventTime),
    /// The record is refused.
    Quarantined(Reason),
}

/// What a device time is held against (SPEC 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// There is no clock, and nothing to take the place of a time.
    NoClock,
    /// This is the time now: the gateway's clock is good, or something stands in for it.
    Clock(ArrivalTime),
    /// This is what the gateway's clock says, which is not good: nothing is refused by it.
    Unsure(ArrivalTime),
    /// It was some time between these two.
    Between(ArrivalTime, ArrivalTime),
    /// Only a time of its own saves a record.
    OwnTime,
}

impl Basis {
    /// Judges a device time.
    pub fn judge(self, stamp: Stamp, policy: &Policy) -> Verdict {
        match (self, stamp) {
            (Self::NoClock, _) => judge(stamp, None, policy),
            (Self::Clock(now), _) => judge(stamp, Some(now), policy),
            (Self::Unsure(_) | Self::OwnTime, Stamp::At(time)) if time >= policy.not_before => {
                Verdict::Accepted(time.accepted())
            }
            (Self::Unsure(arrival), Stamp::Undeclared) => Verdict::Arrival(arrival.stamped()),
            (Self::Unsure(arrival), _) => Verdict::Stamped(arrival.stamped()),
            (Self::Between(from, to), Stamp::At(time))
                if time >= policy.not_before && (from.0..=to.0).contains(&time.0) =>
            {
                Verdict::Accepted(time.accepted())
            }
            (Self::Between(..) | Self::OwnTime, _) => Verdict::Quarantined(Reason::NoTime),
        }
    }
}

/// Judges a device time. `arrival` is `None` where there is no clock: then nothing is held against one.
fn judge(stamp: Stamp, arrival: Option<ArrivalTime>, policy: &Policy) -> Verdict {
    match (stamp, arrival) {
        (Stamp::At(time), None) => Verdict::Accepted(time.accepted()),
        (_, None) => Verdict::Quarantined(Reason::NoTime),
        (Stamp::Undeclared, Some(arrival)) => Verdict::Arrival(arrival.stamped()),
        (Stamp::Unusable, Some(arrival)) => Verdict::Stamped(arrival.stamped()),
        (Stamp::At(time), Some(arrival)) => {
            if time < policy.not_before {
                Verdict::Stamped(arrival.stamped())
            } else if time.0 > (arrival + policy.future_tolerance).0 {
                Verdict::Quarantined(Reason::Future)
            } else if time.0 < (arrival - policy.past_limit).0 {
                Verdict::Quarantined(Reason::Past)
            } else {
                Verdict::Accepted(time.accepted())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{DeviceTime, Span};

    const NOON: i64 = 1_795_953_600_000;

    fn at(time: i64) -> Verdict {
        judge(Stamp::At(DeviceTime(time)), Some(ArrivalTime(NOON)), &Policy::default())
    }

    #[test]
    fn a_clock_exactly_at_the_tolerance_is_believed_and_one_millisecond_more_is_not() {
        assert_eq!(at(NOON + 30_000), Verdict::Accepted(EventTime(NOON + 30_000)));
        assert_eq!(at(NOON + 30_001), Verdict::Quarantined(Reason::Future));
    }

    #[test]
    fn a_time_exactly_at_the_past_limit_is_believed_and_one_millisecond_less_is_not() {
        let limit = NOON - Span::from_hours(30 * 24).0;
        assert_eq!(at(limit), Verdict::Accepted(EventTime(limit)));
        assert_eq!(at(limit - 1), Verdict::Quarantined(Reason::Past));
    }

    #[test]
    fn an_unset_clock_is_replaced_by_the_arrival_time() {
        for unset in [0, 5_000, i64::MIN, 946_684_800_000, Policy::default().not_before.0 - 1] {
            assert_eq!(at(unset), Verdict::Stamped(EventTime(NOON)), "{unset}");
        }
        assert_eq!(
            judge(Stamp::Unusable, Some(ArrivalTime(NOON)), &Policy::default()),
            Verdict::Stamped(EventTime(NOON))
        );
    }

    #[test]
    fn a_clock_that_is_not_good_refuses_nothing_and_stamps_what_has_no_time() {
        let unsure = |stamp| Basis::Unsure(ArrivalTime(NOON)).judge(stamp, &Policy::default());
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
    fn a_time_of_another_boot_is_kept_between_the_last_good_time_and_the_first_one_after() {
        let between = |stamp| {
            Basis::Between(ArrivalTime(NOON - 50), ArrivalTime(NOON))
                .judge(stamp, &Policy::default())
        };
        for time in [NOON - 50, NOON] {
            let kept = Verdict::Accepted(EventTime(time));
            assert_eq!(between(Stamp::At(DeviceTime(time))), kept);
        }
        let refused = Verdict::Quarantined(Reason::NoTime);
        for time in [NOON - 51, NOON + 1] {
            assert_eq!(between(Stamp::At(DeviceTime(time))), refused);
        }
        for stamp in [Stamp::Undeclared, Stamp::Unusable] {
            assert_eq!(between(stamp), refused);
            assert_eq!(Basis::OwnTime.judge(stamp, &Policy::default()), refused);
        }
        let never = Basis::Between(ArrivalTime::MIN, ArrivalTime(NOON));
        let unset = Stamp::At(DeviceTime(5_000));
        assert_eq!(never.judge(unset, &Policy::default()), refused);
    }

    #[test]
    fn without_a_clock_a_device_time_is_believed_and_nothing_takes_its_place() {
        let ahead = Stamp::At(DeviceTime(i64::MAX));
        assert_eq!(judge(ahead, None, &Policy::default()), Verdict::Accepted(EventTime::MAX));
        for stamp in [Stamp::Unusable, Stamp::Undeclared] {
            let verdict = judge(stamp, None, &Policy::default());
            assert_eq!(verdict, Verdict::Quarantined(Reason::NoTime));
        }
    }
}
