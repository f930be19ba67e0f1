//! Is a device time fit to be an event time? (SPEC 2.4)
//!
//! The guard that keeps one fast clock from making a fleet late: no record raises a watermark past gateway time +
//! `future-tolerance`.

use crate::engine::correction::{Corrected, DeviceClock};
use crate::engine::settings::Policy;
use crate::event::Reason;
use crate::time::{ArrivalTime, EventTime, Span};
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

/// Judges a device time. `arrival` is `None` where there is no clock: then nothing is held against one. Neither is it
/// where the clock is not good: `reference` is the arrival time by a clock that is, or by what stands in for it.
pub fn judge(
    stamp: Stamp,
    (arrival, reference): (Option<ArrivalTime>, Option<ArrivalTime>),
    policy: &Policy,
    clock: &DeviceClock,
) -> Verdict {
    let Some(arrival) = arrival else {
        let time = stamp.time().map(|time| Verdict::Accepted(time.accepted()));
        return time.unwrap_or(Verdict::Quarantined(Reason::NoTime, None));
    };
    if stamp == Stamp::Undeclared {
        return Verdict::Arrival(arrival.stamped());
    }
    let Some(time) = stamp.time().filter(|time| *time >= policy.not_before) else {
        return Verdict::Stamped(arrival.stamped());
    };
    let Some(now) = reference else { return Verdict::Accepted(time.accepted()) };
    let corrected = clock.correct(time, now, policy);
    let at = corrected.map_or(time.accepted(), |corrected| corrected.at);
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
    use crate::time::DeviceTime;
    use crate::time::Span;

    const NOON: i64 = 1_795_953_600_000;

    fn judged(stamp: Stamp, arrival: Option<ArrivalTime>) -> Verdict {
        judge(stamp, (arrival, arrival), &Policy::default(), &DeviceClock::default())
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
    fn without_a_clock_a_device_time_is_believed_and_nothing_takes_its_place() {
        let ahead = Stamp::At(DeviceTime(i64::MAX));
        assert_eq!(judged(ahead, None), Verdict::Accepted(EventTime::MAX));
        for stamp in [Stamp::Unusable, Stamp::Undeclared, Stamp::Uptime(Span(5))] {
            let verdict = judged(stamp, None);
            assert_eq!(verdict, Verdict::Quarantined(Reason::NoTime, None));
        }
    }
}
