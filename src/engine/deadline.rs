//! When to wake up, and why. No deadline depends on the size of the fleet.
//!
//! Entries are hints: each is looked at when it comes up, does what is due, and is set again. A hint that came too
//! early (its device spoke meanwhile) costs one look per timeout and device, not one per message.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::{ArrivalTime, MonoTime, Span};

/// Why the engine wants to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeadlineReason {
    /// A device or partition may have gone idle.
    Idle,
    /// A device may have gone offline.
    Presence,
    /// A window of a silent device closes by clock, or a revision is due.
    Device,
    /// A roll-up of a region closes by clock, or a revision of it is due.
    Region,
    /// Watermarks are to be published.
    Publish,
}

/// Something on the listened clock. Ties are met in this order: devices before the regions they are part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClockDeadline {
    /// Of a device, by index.
    Device(usize),
    /// Of a region, by index.
    Region(usize),
    /// Of the gateway: publish the watermarks.
    Publish,
}

/// Something that may have gone silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Silence {
    /// A device, by index (device scope).
    Device(usize),
    /// A partition, by index of its region (region scope).
    Partition(usize),
    /// A device that is offline if nothing is heard of it, by index.
    Presence(usize),
}

/// The next thing that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Listened silence reached this.
    Silence(Span, Silence),
    /// The listened stamp reached this.
    Clock(ArrivalTime, ClockDeadline),
}

/// All deadlines.
#[derive(Debug, Default)]
pub struct Deadlines {
    silence: BinaryHeap<Reverse<(Span, Silence)>>,
    clock: BinaryHeap<Reverse<(ArrivalTime, ClockDeadline)>>,
}

impl Deadlines {
    /// Look at `who` when the listened duration reaches `at`.
    pub fn at_duration(&mut self, at: Span, who: Silence) {
        self.silence.push(Reverse((at, who)));
    }

    /// Look at `what` when the listened stamp reaches `at`.
    pub fn at_stamp(&mut self, at: ArrivalTime, what: ClockDeadline) {
        self.clock.push(Reverse((at, what)));
    }

    /// Whether anything is due at or before these.
    pub fn is_due(&self, stamp: ArrivalTime, duration: Span) -> bool {
        self.silence.peek().is_some_and(|Reverse((at, _))| *at <= duration)
            || self.clock.peek().is_some_and(|Reverse((at, _))| *at <= stamp)
    }

    /// Takes the earliest thing due at or before `stamp` and `duration`. The two scales are laid over each other so
    /// that they meet now; silence comes before the clock at the same moment.
    pub fn pop(&mut self, stamp: ArrivalTime, duration: Span) -> Option<Due> {
        let silence = self.silence.peek().map(|Reverse(entry)| *entry).filter(|e| e.0 <= duration);
        let clock = self.clock.peek().map(|Reverse(entry)| *entry).filter(|e| e.0 <= stamp);
        let silence_first = match (silence, clock) {
            (None, None) => return None,
            (Some((at, _)), Some((then, _))) => duration - at >= stamp - then,
            (silence, _) => silence.is_some(),
        };
        if silence_first {
            self.silence.pop();
            silence.map(|(at, who)| Due::Silence(at, who))
        } else {
            self.clock.pop();
            clock.map(|(at, what)| Due::Clock(at, what))
        }
    }

    /// The next moment at which something may be due, by the given conversions to monotonic time.
    pub fn next(
        &self,
        when_duration: impl Fn(Span) -> Option<MonoTime>,
        when_stamp: impl Fn(ArrivalTime) -> Option<MonoTime>,
    ) -> Option<(MonoTime, DeadlineReason)> {
        let silence = self.silence.peek().and_then(|Reverse((at, who))| {
            let reason = match who {
                Silence::Device(_) | Silence::Partition(_) => DeadlineReason::Idle,
                Silence::Presence(_) => DeadlineReason::Presence,
            };
            Some((when_duration(*at)?, reason))
        });
        let clock = self.clock.peek().and_then(|Reverse((at, what))| {
            let reason = match what {
                ClockDeadline::Device(_) => DeadlineReason::Device,
                ClockDeadline::Region(_) => DeadlineReason::Region,
                ClockDeadline::Publish => DeadlineReason::Publish,
            };
            Some((when_stamp(*at)?, reason))
        });
        silence.into_iter().chain(clock).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earlier_of_the_two_scales_comes_first_and_silence_wins_a_tie() {
        let mut deadlines = Deadlines::default();
        deadlines.at_stamp(ArrivalTime(100), ClockDeadline::Device(1));
        deadlines.at_stamp(ArrivalTime(90), ClockDeadline::Device(2));
        deadlines.at_duration(Span(40), Silence::Device(3)); // ten before the end: stamp 90
        let mut order = Vec::new();
        while let Some(due) = deadlines.pop(ArrivalTime(100), Span(50)) {
            order.push(due);
        }
        assert_eq!(
            order,
            [
                Due::Silence(Span(40), Silence::Device(3)),
                Due::Clock(ArrivalTime(90), ClockDeadline::Device(2)),
                Due::Clock(ArrivalTime(100), ClockDeadline::Device(1)),
            ]
        );
    }

    #[test]
    fn nothing_is_due_before_its_time_and_nothing_is_lost_by_asking() {
        let mut deadlines = Deadlines::default();
        deadlines.at_duration(Span(40), Silence::Partition(0));
        deadlines.at_stamp(ArrivalTime(90), ClockDeadline::Publish);
        assert_eq!(deadlines.pop(ArrivalTime(89), Span(39)), None);
        assert!(!deadlines.is_due(ArrivalTime(89), Span(39)));
        let clock = Due::Clock(ArrivalTime(90), ClockDeadline::Publish);
        assert_eq!(deadlines.pop(ArrivalTime(90), Span(39)), Some(clock));
        let silence = Due::Silence(Span(40), Silence::Partition(0));
        assert_eq!(deadlines.pop(ArrivalTime(90), Span(40)), Some(silence));
    }
}
