//! Is a device time fit to be an event time? (SPEC 2.4)
//!
//! The guard that keeps one fast clock from making a fleet late: no record raises a watermark past gateway time +
//! `future-tolerance`.

use crate::engine::settings::Policy;
use crate::event::Reason;
use crate::time::{ArrivalTime, DeviceTime, EventTime};
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

/// Judges a device time. `arrival` is `None` where there is no clock: then nothing is held against one.
pub fn judge(stamp: Stamp, arrival: Option<ArrivalTime>, policy: &Policy) -> Verdict {
    match (stamp, arrival) {
        (
            Stamp::At(time)
            | Stamp::Skipped { at: time, .. }
            | Stamp::Repeated { earlier: time, .. }, // one was taken before
            arrival,
        ) => judge_time(time, arrival, policy),
        (_, None) => Verdict::Quarantined(Reason::NoTime),
        (Stamp::Undeclared, Some(arrival)) => Verdict::Arrival(arrival.stamped()),
        (Stamp::Unusable, Some(arrival)) => Verdict::Stamped(arrival.stamped()),
        // Becomes a time with the moment at which the device was started, once that is estimated.
        (Stamp::Uptime(_), Some(arrival)) => Verdict::Stamped(arrival.stamped()),
    }
}

fn judge_time(time: DeviceTime, arrival: Option<ArrivalTime>, policy: &Policy) -> Verdict {
    let Some(arrival) = arrival else { return Verdict::Accepted(time.accepted()) };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Span;

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
        for stamp in [Stamp::Unusable, Stamp::Uptime(Span(5))] {
            let verdict = judge(stamp, Some(ArrivalTime(NOON)), &Policy::default());
            assert_eq!(verdict, Verdict::Stamped(EventTime(NOON)));
        }
    }

    #[test]
    fn without_a_clock_a_device_time_is_believed_and_nothing_takes_its_place() {
        let ahead = Stamp::At(DeviceTime(i64::MAX));
        assert_eq!(judge(ahead, None, &Policy::default()), Verdict::Accepted(EventTime::MAX));
        for stamp in [Stamp::Unusable, Stamp::Undeclared, Stamp::Uptime(Span(5))] {
            let verdict = judge(stamp, None, &Policy::default());
            assert_eq!(verdict, Verdict::Quarantined(Reason::NoTime));
        }
    }
}
