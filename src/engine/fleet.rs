//! The clocks of a region's devices, in case the gateway's own is not good (SPEC 2.2).
//!
//! Of each device counts what it wrote last, carried on by monotonic time: one number, device time less monotonic time.
//! The median of these is wrong only if half of them are. Delay only adds, so it is behind the true time by the usual
//! delay and never ahead of it: what closes by it closes a little later.

use crate::time::{ArrivalTime, EventTime, MonoTime, Span};

/// Devices whose clocks are kept: those that reported last.
pub const MOST: usize = 15;
/// Fewer say nothing.
pub const FEWEST: usize = 3;

/// Clocks of devices, the one that reported last at the end. Not in the store: monotonic time means nothing after it.
#[derive(Debug, Default)]
pub struct Clocks(Vec<(usize, Span)>);

impl Clocks {
    /// A device, by its number, wrote `time` into a message that came at `mono`.
    pub fn note(&mut self, device: usize, time: EventTime, mono: MonoTime) {
        let offset = Span(time.0.saturating_sub(mono.0));
        match self.0.iter().position(|(known, _)| *known == device) {
            Some(at) => drop(self.0.remove(at)),
            None if self.0.len() == MOST => drop(self.0.remove(0)),
            None => self.0.reserve_exact(1),
        }
        self.0.push((device, offset));
    }

    /// What they say at `mono`: their median, of an even number the earlier of the two. `None` while they are too few.
    pub fn read(&self, mono: MonoTime) -> Option<ArrivalTime> {
        if self.0.len() < FEWEST {
            return None;
        }
        let mut offsets = [Span::ZERO; MOST];
        let offsets = &mut offsets[..self.0.len()];
        offsets.iter_mut().zip(&self.0).for_each(|(offset, (_, known))| *offset = *known);
        offsets.sort_unstable();
        let median = offsets[(offsets.len() - 1) / 2];
        Some(ArrivalTime(median.0.saturating_add(mono.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(clocks: &Clocks, mono: i64) -> Option<i64> {
        clocks.read(MonoTime(mono)).map(|at| at.0)
    }

    #[test]
    fn two_say_nothing_and_the_third_makes_a_median_that_runs_on() {
        let mut clocks = Clocks::default();
        clocks.note(1, EventTime(1_000), MonoTime(0));
        clocks.note(1, EventTime(1_010), MonoTime(10));
        clocks.note(2, EventTime(900), MonoTime(10));
        assert_eq!(read(&clocks, 10), None);
        clocks.note(3, EventTime(i64::MAX), MonoTime(20));
        assert_eq!(read(&clocks, 20), Some(1_020));
        assert_eq!(read(&clocks, 5_020), Some(6_020));
        clocks.note(4, EventTime(5_910), MonoTime(5_020));
        assert_eq!(read(&clocks, 5_020), Some(5_910), "of four the second");
    }

    #[test]
    fn those_that_reported_last_are_kept() {
        let mut clocks = Clocks::default();
        for device in 0..MOST {
            clocks.note(device, EventTime(0), MonoTime(0));
        }
        clocks.note(0, EventTime(0), MonoTime(0));
        for device in 100..107 {
            clocks.note(device, EventTime(500), MonoTime(0));
        }
        assert_eq!((clocks.0.len(), read(&clocks, 0)), (MOST, Some(0)));
        clocks.note(107, EventTime(500), MonoTime(0));
        assert_eq!(read(&clocks, 0), Some(500));
        assert!(clocks.0.iter().any(|(device, _)| *device == 0), "it reported again");
    }
}
