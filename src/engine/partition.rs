//! Region scope: one watermark for everything, combined from one generator per region, as Flink combines the splits of
//! a source or a union of sources.
//!
//! The two ways differ only in what happens after a partition was idle; `tests/golden` holds Flink's own answers.

use crate::engine::minimum::Minimum;
use crate::engine::settings::Combine;
use crate::engine::watermark::Generator;
use crate::time::EventTime;

/// One partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    /// Its own watermark.
    pub generator: Generator,
    /// It is left out of the minimum.
    pub idle: bool,
    /// It came back from idleness behind the combined watermark and is left out until it has caught up (union only).
    pub behind: bool,
}

/// All partitions and what they combine to.
#[derive(Clone, Debug)]
pub struct Partitions {
    combine: Combine,
    each: Vec<Partition>,
    /// Watermarks of those that count.
    counted: Minimum,
    idle: usize,
    combined: EventTime,
}

impl Partitions {
    /// None yet.
    pub fn new(combine: Combine) -> Self {
        Self {
            combine,
            each: Vec::new(),
            counted: Minimum::default(),
            idle: 0,
            combined: EventTime::MIN,
        }
    }

    /// One more. Until it speaks it holds the combined watermark.
    pub fn add(&mut self, partition: Partition) {
        self.each.push(partition);
        self.idle += usize::from(partition.idle);
        self.count(self.each.len() - 1);
    }

    /// A partition, by index in the order of [`Self::add`].
    pub fn get(&self, index: usize) -> &Partition {
        &self.each[index]
    }

    /// The combined watermark; [`EventTime::MIN`] before the first.
    pub fn combined(&self) -> EventTime {
        self.combined
    }

    /// Takes back one partition of a snapshot.
    pub fn restore(&mut self, index: usize, partition: Partition) {
        self.idle += usize::from(partition.idle);
        self.idle -= usize::from(self.each[index].idle);
        self.each[index] = partition;
        self.count(index);
    }

    /// Takes back the combined watermark of a snapshot, after its partitions.
    pub fn restore_combined(&mut self, combined: EventTime) {
        self.combined = combined;
    }

    /// A partition saw a record; used before [`Self::raise`].
    pub fn see(&mut self, index: usize, at: EventTime) -> &Generator {
        self.each[index].generator.see(at);
        &self.each[index].generator
    }

    /// A partition spoke and its watermark is raised to `to`, which may be below where it stands. Tells whether the
    /// combined watermark moved.
    pub fn raise(&mut self, index: usize, to: EventTime) -> bool {
        let combined = self.combined;
        let partition = &mut self.each[index];
        let moved = partition.generator.raise(to);
        let wakes = match self.combine {
            Combine::Split => true,
            Combine::Union => moved,
        };
        if wakes && partition.idle {
            partition.idle = false;
            self.idle -= 1;
            partition.behind = self.combine == Combine::Union;
        }
        partition.behind &= partition.generator.watermark() < combined;
        self.count(index);
        self.advance()
    }

    /// A partition went idle. Tells whether the combined watermark moved.
    pub fn rest(&mut self, index: usize) -> bool {
        let partition = &mut self.each[index];
        if partition.idle {
            return false;
        }
        partition.idle = true;
        self.idle += 1;
        let held = partition.generator.watermark() == self.combined;
        self.count(index);
        if self.idle < self.each.len() {
            return self.advance();
        }
        match self.combine {
            Combine::Union if !held => false,
            _ => self.advance_to(self.highest()),
        }
    }

    fn count(&mut self, index: usize) {
        let partition = &self.each[index];
        let out = partition.idle || partition.behind;
        let value = if out { EventTime::MAX } else { partition.generator.watermark() };
        self.counted.set(index, value);
    }

    fn highest(&self) -> EventTime {
        self.each.iter().map(|p| p.generator.watermark()).max().unwrap_or(EventTime::MIN)
    }

    fn advance(&mut self) -> bool {
        let least = self.counted.least();
        least != EventTime::MAX && self.advance_to(least)
    }

    fn advance_to(&mut self, to: EventTime) -> bool {
        let moved = to > self.combined;
        self.combined = self.combined.max(to);
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two(combine: Combine) -> Partitions {
        let mut partitions = Partitions::new(combine);
        partitions.add(Partition::default());
        partitions.add(Partition::default());
        partitions
    }

    #[test]
    fn a_partition_that_never_spoke_holds_the_combined_watermark() {
        let mut partitions = two(Combine::Split);
        assert!(!partitions.raise(0, EventTime(100)));
        assert_eq!(partitions.combined(), EventTime::MIN);
        assert!(partitions.raise(1, EventTime(40)));
        assert_eq!(partitions.combined(), EventTime(40));
    }

    #[test]
    fn an_idle_one_is_left_out_and_when_all_are_the_maximum_counts() {
        let mut partitions = two(Combine::Split);
        partitions.raise(0, EventTime(100));
        partitions.raise(1, EventTime(40));
        assert!(partitions.rest(1));
        assert_eq!(partitions.combined(), EventTime(100));
        partitions.raise(0, EventTime(120));
        assert!(!partitions.rest(0), "the maximum is where it stands");
    }

    #[test]
    fn a_split_that_returns_behind_stalls_and_a_union_goes_on() {
        for (combine, expected) in [(Combine::Split, 100), (Combine::Union, 150)] {
            let mut partitions = two(combine);
            partitions.raise(0, EventTime(100));
            partitions.raise(1, EventTime(40));
            partitions.rest(1);
            partitions.raise(1, EventTime(50));
            partitions.raise(0, EventTime(150));
            assert_eq!(partitions.combined(), EventTime(expected), "{combine:?}");
        }
    }
}
