//! The minimum over many watermarks that each advance on their own.
//!
//! A complete binary tree of minima over a vector. An update walks up only while the minimum above changes, so it
//! costs a constant on average, whatever the size of the fleet.

use crate::time::EventTime;

/// Minimum over slots; an empty or unset slot counts as [`EventTime::MAX`].
#[derive(Clone, Debug)]
pub struct Minimum {
    /// `nodes[1]` is the root, the children of `i` are `2i` and `2i + 1`, leaves start at `leaves`.
    nodes: Vec<EventTime>,
    leaves: usize,
}

impl Default for Minimum {
    fn default() -> Self {
        Self { nodes: vec![EventTime::MAX; 2], leaves: 1 }
    }
}

impl Minimum {
    /// The value in `slot`.
    pub fn value(&self, slot: usize) -> EventTime {
        self.nodes.get(self.leaves + slot).copied().unwrap_or(EventTime::MAX)
    }

    /// Sets the value in `slot`.
    pub fn set(&mut self, slot: usize, value: EventTime) {
        if slot >= self.leaves {
            self.grow(slot + 1);
        }
        let mut node = self.leaves + slot;
        self.nodes[node] = value;
        while node > 1 {
            node /= 2;
            let least = self.nodes[2 * node].min(self.nodes[2 * node + 1]);
            if self.nodes[node] == least {
                return;
            }
            self.nodes[node] = least;
        }
    }

    /// The least value of all slots.
    pub fn least(&self) -> EventTime {
        self.nodes[1]
    }

    /// The first slot that holds the least value; `None` where all are unset.
    pub fn least_slot(&self) -> Option<usize> {
        let least = self.least();
        if least == EventTime::MAX {
            return None;
        }
        let mut node = 1;
        while node < self.leaves {
            node = if self.nodes[2 * node] == least { 2 * node } else { 2 * node + 1 };
        }
        Some(node - self.leaves)
    }

    fn grow(&mut self, slots: usize) {
        let leaves = slots.next_power_of_two();
        let mut nodes = vec![EventTime::MAX; 2 * leaves];
        nodes[leaves..leaves + self.leaves].copy_from_slice(&self.nodes[self.leaves..]);
        (1..leaves).rev().for_each(|i| nodes[i] = nodes[2 * i].min(nodes[2 * i + 1]));
        *self = Self { nodes, leaves };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_has_no_minimum() {
        assert_eq!(Minimum::default().least(), EventTime::MAX);
        assert_eq!(Minimum::default().least_slot(), None);
    }

    proptest! {
        #[test]
        fn the_tree_agrees_with_a_scan(updates in proptest::collection::vec((0..40_usize, -50..50_i64), 0..200)) {
            let mut tree = Minimum::default();
            let mut naive = vec![EventTime::MAX; 40];
            for (slot, value) in updates {
                tree.set(slot, EventTime(value));
                naive[slot] = EventTime(value);
                let least = *naive.iter().min().unwrap();
                prop_assert_eq!(tree.least(), least);
                prop_assert_eq!(tree.least_slot(), naive.iter().position(|&v| v == least));
            }
        }
    }
}
