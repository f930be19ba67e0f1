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
    /// Windows or roll-ups of a region close by clock.
    Clock,
    /// A revision is due.
    Revision,
    /// Watermarks are to be published.
    Publish,
    /// Messages were held for as long as may be.
    Held,
}

/// Something on the listened clock of a region. Ties are met in this order: devices before the region they are part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClockDeadline {
    /// Of a device, by index.
    Device(usize),
    /// Of a region, by index.
    Region(usize),
}

/// Something after a span of listened time. Ties are met in this order, and what closes by clock at the same moment
/// comes between [`Self::StandIn`] and [`Self::Revision`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpanDeadline {
    /// A device may have gone idle, by index (device scope).
    Device(usize),
    /// A partition may have, by index of its region (region scope).
    Partition(usize),
    /// A device is offline if nothing is heard of it, by index.
    Presence(usize),
    /// The clock that stands in for the gateway's brings something in a region, by index.
    StandIn(usize),
    /// A revision of a device's window is due, by index of the device.
    Revision(usize),
    /// Devices of a region moved: it is looked at.
    Look(usize),
    /// A revision of a region's roll-up is due.
    Rollup(usize),
    /// Of the gateway: publish the watermarks.
    Publish,
}

impl SpanDeadline {
    fn precedes_clock(self) -> bool {
        matches!(self, Self::Device(_) | Self::Partition(_) | Self::Presence(_) | Self::StandIn(_))
    }

    fn reason(self) -> DeadlineReason {
        match self {
            Self::Device(_) | Self::Partition(_) => DeadlineReason::Idle,
            Self::Presence(_) => DeadlineReason::Presence,
            Self::StandIn(_) | Self::Look(_) => DeadlineReason::Clock,
            Self::Revision(_) | Self::Rollup(_) => DeadlineReason::Revision,
            Self::Publish => DeadlineReason::Publish,
        }
    }
}

/// The next thing that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The listened duration reached this.
    Span(Span, SpanDeadline),
    /// The listened stamp reached this, and with it something in a region, by index.
    Clock(ArrivalTime, usize),
}

/// What waits for the listened clock of one region.
#[derive(Debug)]
struct Queue {
    waiting: BinaryHeap<Reverse<(ArrivalTime, ClockDeadline)>>,
    /// The earliest stamp at which the region is to be looked at, of those not met yet.
    hinted: ArrivalTime,
    /// The same as a duration.
    hinted_span: Span,
}

impl Default for Queue {
    fn default() -> Self {
        Self { waiting: BinaryHeap::new(), hinted: ArrivalTime::MAX, hinted_span: Span::MAX }
    }
}

/// All deadlines. Each region has a queue of its own, since its clock may be another one than the gateway's; that it has
/// something to do is noted on the gateway's clock, or as a span while that stands still.
#[derive(Debug, Default)]
pub struct Deadlines {
    spans: BinaryHeap<Reverse<(Span, SpanDeadline)>>,
    clock: BinaryHeap<Reverse<(ArrivalTime, usize)>>,
    queues: Vec<Queue>,
}

impl Deadlines {
    /// There is one region more.
    pub fn add_region(&mut self) {
        self.queues.push(Queue::default());
    }

    /// Look at `who` when the listened duration reaches `at`.
    pub fn at_duration(&mut self, at: Span, who: SpanDeadline) {
        self.spans.push(Reverse((at, who)));
    }

    /// Look at `what` when the clock of its region reaches `at`. Nothing happens before the region is hinted at.
    pub fn at_stamp(&mut self, region: usize, at: ArrivalTime, what: ClockDeadline) {
        self.queues[region].waiting.push(Reverse((at, what)));
    }

    /// The stamp at which something is next due in a region.
    pub fn next_of(&self, region: usize) -> Option<ArrivalTime> {
        self.queues[region].waiting.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes the next thing of a region that is due at or before `stamp` of its clock.
    pub fn pop_of(
        &mut self,
        region: usize,
        stamp: ArrivalTime,
    ) -> Option<(ArrivalTime, ClockDeadline)> {
        let waiting = &mut self.queues[region].waiting;
        waiting
            .peek()
            .is_some_and(|Reverse((at, _))| *at <= stamp)
            .then(|| waiting.pop())?
            .map(|Reverse(entry)| entry)
    }

    /// Look at a region when the gateway's stamp reaches `at`.
    pub fn hint(&mut self, region: usize, at: ArrivalTime) {
        let queue = &mut self.queues[region];
        if at < queue.hinted {
            queue.hinted = at;
            self.clock.push(Reverse((at, region)));
        }
    }

    /// Look at a region when the listened duration reaches `at`.
    pub fn hint_span(&mut self, region: usize, at: Span) {
        let queue = &mut self.queues[region];
        if at < queue.hinted_span {
            queue.hinted_span = at;
            self.at_duration(at, SpanDeadline::StandIn(region));
        }
    }

    /// Takes the earliest thing due at or before `stamp` and `duration`. The two scales are laid over each other so
    /// that they meet now.
    pub fn pop(&mut self, stamp: ArrivalTime, duration: Span) -> Option<Due> {
        let span = self.spans.peek().map(|Reverse(entry)| *entry).filter(|e| e.0 <= duration);
        let clock = self.clock.peek().map(|Reverse(entry)| *entry).filter(|e| e.0 <= stamp);
        let span_first = match (span, clock) {
            (None, None) => return None,
            (Some((at, who)), Some((then, _))) => {
                (duration - at, who.precedes_clock()) > (stamp - then, false)
            }
            (span, _) => span.is_some(),
        };
        if span_first {
            self.spans.pop();
            let (at, who) = span?;
            if let SpanDeadline::StandIn(region) = who
                && self.queues[region].hinted_span == at
            {
                self.queues[region].hinted_span = Span::MAX;
            }
            Some(Due::Span(at, who))
        } else {
            self.clock.pop();
            let (at, region) = clock?;
            if self.queues[region].hinted == at {
                self.queues[region].hinted = ArrivalTime::MAX;
            }
            Some(Due::Clock(at, region))
        }
    }

    /// The next moment at which something may be due, by the given conversions to monotonic time.
    pub fn next(
        &self,
        when_duration: impl Fn(Span) -> Option<MonoTime>,
        when_stamp: impl Fn(ArrivalTime) -> Option<MonoTime>,
    ) -> Option<(MonoTime, DeadlineReason)> {
        let span = self.spans.peek();
        let span = span.and_then(|Reverse((at, who))| Some((when_duration(*at)?, who.reason())));
        let clock = self.clock.peek();
        let clock =
            clock.and_then(|Reverse((at, _))| Some((when_stamp(*at)?, DeadlineReason::Clock)));
        span.into_iter().chain(clock).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deadlines() -> Deadlines {
        let mut deadlines = Deadlines::default();
        (0..4).for_each(|_| deadlines.add_region());
        deadlines
    }

    #[test]
    fn the_earlier_of_the_two_scales_comes_first_and_at_one_moment_silence_clock_revisions() {
        let mut deadlines = deadlines();
        deadlines.hint(1, ArrivalTime(100));
        deadlines.hint(2, ArrivalTime(90));
        deadlines.at_duration(Span(40), SpanDeadline::Revision(3)); // ten before the end: stamp 90
        deadlines.at_duration(Span(40), SpanDeadline::Device(3));
        let mut order = Vec::new();
        while let Some(due) = deadlines.pop(ArrivalTime(100), Span(50)) {
            order.push(due);
        }
        assert_eq!(
            order,
            [
                Due::Span(Span(40), SpanDeadline::Device(3)),
                Due::Clock(ArrivalTime(90), 2),
                Due::Span(Span(40), SpanDeadline::Revision(3)),
                Due::Clock(ArrivalTime(100), 1),
            ]
        );
    }

    #[test]
    fn nothing_is_due_before_its_time_and_nothing_is_lost_by_asking() {
        let mut deadlines = deadlines();
        deadlines.at_duration(Span(40), SpanDeadline::Partition(0));
        deadlines.hint(0, ArrivalTime(90));
        assert_eq!(deadlines.pop(ArrivalTime(89), Span(39)), None);
        assert_eq!(deadlines.pop(ArrivalTime(90), Span(39)), Some(Due::Clock(ArrivalTime(90), 0)));
        let silence = Due::Span(Span(40), SpanDeadline::Partition(0));
        assert_eq!(deadlines.pop(ArrivalTime(90), Span(40)), Some(silence));
    }

    #[test]
    fn what_waits_in_a_region_is_met_in_order_and_hinted_at_once() {
        let mut deadlines = deadlines();
        for at in [30, 10, 20] {
            deadlines.at_stamp(1, ArrivalTime(at), ClockDeadline::Device(7));
            deadlines.hint(1, ArrivalTime(at));
        }
        assert_eq!(deadlines.clock.len(), 2, "20 is behind 10");
        assert_eq!(deadlines.next_of(1), Some(ArrivalTime(10)));
        assert_eq!(deadlines.pop_of(1, ArrivalTime(9)), None);
        let first = deadlines.pop_of(1, ArrivalTime(25));
        assert_eq!(first, Some((ArrivalTime(10), ClockDeadline::Device(7))));
        assert!(deadlines.pop_of(1, ArrivalTime(25)).is_some());
        assert_eq!(deadlines.pop_of(1, ArrivalTime(25)), None);
    }
}
