//! Numbers by which records name what they belong to.

use std::collections::BTreeMap;
use std::ops::Range;

/// What the numbers in keys stand for. They are given without gaps: one that is missing is of something lost.
#[derive(Debug)]
pub(super) struct Numbers<T> {
    next: usize,
    places: BTreeMap<usize, T>,
}

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Self { next: 0, places: BTreeMap::new() }
    }
}

impl<T: Copy> Numbers<T> {
    /// Most that are said to be missing at once: a key that makes no sense does not fill the memory.
    const GAP: usize = 100_000;

    /// The record of `number` comes. Returns those that are missing before it.
    pub(super) fn arrive(&mut self, number: usize) -> Range<usize> {
        let missing = self.next..number.min(self.next + Self::GAP);
        self.next = self.next.max(number + 1);
        missing
    }

    /// A record speaks of `number`. Returns those that are missing, and were not said to be: it may be one of them.
    pub(super) fn refer(&mut self, number: usize) -> Range<usize> {
        let missing = self.next..(number + 1).min(self.next + Self::GAP);
        self.next = self.next.max(number + 1);
        missing
    }

    pub(super) fn place(&mut self, number: usize, at: T) {
        self.places.insert(number, at);
    }

    pub(super) fn get(&self, number: usize) -> Option<T> {
        self.places.get(&number).copied()
    }
}
