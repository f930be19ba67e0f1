//! Tumbling windows: `[start, end)`, aligned to an offset after the epoch.

use crate::engine::settings::WindowSpec;
use crate::time::{EventTime, Span};

impl WindowSpec {
    /// Start of the window that holds `time`. Total: at the ends of time it saturates.
    pub fn start_of(&self, time: EventTime) -> EventTime {
        let size = self.size.0.max(1);
        let phase = time.0.rem_euclid(size) - self.offset.0; // of two below the size: it cannot overflow
        time - Span(if phase < 0 { phase + size } else { phase })
    }

    /// End of the window that starts at `start`; exclusive.
    pub fn end_of(&self, start: EventTime) -> EventTime {
        start + self.size
    }
}

/// The last event time inside a window that ends at `end`. A watermark that reaches it completes the window.
pub fn last_inside(end: EventTime) -> EventTime {
    end - Span(1)
}

/// The watermark from which on a window that ends at `end` is final: what comes now is too late.
pub fn final_at(end: EventTime, allowed_lateness: Span) -> EventTime {
    last_inside(end) + allowed_lateness
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spec(size: i64, offset: i64) -> WindowSpec {
        WindowSpec { name: "w".into(), size: Span(size), offset: Span(offset) }
    }

    #[test]
    fn a_time_exactly_on_a_boundary_opens_the_next_window() {
        let hour = spec(3_600_000, 0);
        assert_eq!(hour.start_of(EventTime(3_599_999)), EventTime(0));
        assert_eq!(hour.start_of(EventTime(3_600_000)), EventTime(3_600_000));
    }

    #[test]
    fn times_before_the_epoch_round_towards_the_past() {
        assert_eq!(spec(3_600_000, 0).start_of(EventTime(-1)), EventTime(-3_600_000));
    }

    #[test]
    fn an_offset_of_half_an_hour_moves_the_boundary() {
        let half_past = spec(3_600_000, 1_800_000);
        assert_eq!(half_past.start_of(EventTime(1_800_000)), EventTime(1_800_000));
        assert_eq!(half_past.start_of(EventTime(1_799_999)), EventTime(-1_800_000));
    }

    proptest! {
        #[test]
        fn every_time_is_inside_its_window(
            time in any::<i64>(), size in 1..10_000_000_000_i64, offset in 0..1_000_000_i64,
        ) {
            let spec = spec(size, offset % size);
            let start = spec.start_of(EventTime(time));
            prop_assert!(start <= EventTime(time));
            prop_assert!(start == EventTime::MIN || time - start.0 < size);
            let end = spec.end_of(start);
            prop_assert!(EventTime(time) <= last_inside(end) || end == EventTime::MAX || start == EventTime::MIN);
        }
    }
}
