//! Event-time progress of one device, or of one partition.
//!
//! A watermark `W` promises that no record with event time at or below `W` is still expected. Heartbeats carry the
//! promise where devices send them; otherwise it trails the newest record by the lateness. Arrival time never moves
//! it: a gateway that slept must not call the night's readings late.

use crate::time::{EventTime, Span};

/// A watermark and what it is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generator {
    /// Highest accepted event time.
    highest: EventTime,
    watermark: EventTime,
}

impl Default for Generator {
    fn default() -> Self {
        Self::restore(EventTime::MIN, EventTime::MIN)
    }
}

impl Generator {
    /// As a snapshot kept it.
    pub fn restore(highest: EventTime, watermark: EventTime) -> Self {
        Self { highest, watermark }
    }

    /// Highest event time seen; [`EventTime::MIN`] before the first.
    pub fn highest(&self) -> EventTime {
        self.highest
    }

    /// The watermark; [`EventTime::MIN`] before the first record.
    pub fn watermark(&self) -> EventTime {
        self.watermark
    }

    /// Sees a record taken at `at`.
    pub fn see(&mut self, at: EventTime) {
        self.highest = self.highest.max(at);
    }

    /// What a heartbeat raises the watermark to: the highest event time seen, its own included (punctuated).
    pub fn punctuated(&self) -> EventTime {
        self.highest
    }

    /// What any record raises it to: the highest event time less the lateness (bounded out-of-orderness).
    pub fn bounded(&self, lateness: Span) -> EventTime {
        bounded(self.highest, lateness)
    }

    /// Raises the watermark; tells whether it moved.
    ///
    /// # Invariants
    /// It never moves back: a `to` at or below the current value changes nothing.
    pub fn raise(&mut self, to: EventTime) -> bool {
        let moved = to > self.watermark;
        if moved {
            self.watermark = to;
        }
        moved
    }
}

/// The watermark that trails `time` by the lateness. Inclusive, hence one millisecond more.
pub fn bounded(time: EventTime, lateness: Span) -> EventTime {
    time - lateness - Span(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_older_than_the_highest_raises_to_the_highest() {
        let mut generator = Generator::default();
        generator.see(EventTime(500));
        generator.see(EventTime(300));
        assert_eq!(generator.punctuated(), EventTime(500));
        assert_eq!(generator.bounded(Span(120)), EventTime(379));
    }

    #[test]
    fn a_watermark_never_moves_back() {
        let mut generator = Generator::default();
        assert!(generator.raise(EventTime(10)));
        assert!(!generator.raise(EventTime(10)));
        assert!(!generator.raise(EventTime(9)));
        assert_eq!(generator.watermark(), EventTime(10));
    }

    #[test]
    fn before_the_first_record_nothing_is_promised() {
        assert_eq!(Generator::default().bounded(Span::MAX), EventTime::MIN);
    }
}
