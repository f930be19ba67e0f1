//! What the fleet injects: written before it is published, and by nobody but the fleet.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use super::fleet::{Content, Device, Kind, Reading};
use crate::time::Span;

/// Readings, and the sum of their power in watts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) readings: u64,
    pub(super) watts: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.readings += other.readings;
        self.watts += other.watts;
    }
}

/// A meter, and the begin of an hour of its own clock; `None` for all hours together.
pub(super) type Cell = (String, Option<i64>);

/// What was injected.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Each reading once, however often it was sent. Readings of a clock that was never set have no hour before they
    /// arrive.
    pub(super) cells: BTreeMap<Cell, Tally>,
    pub(super) copies: BTreeMap<Kind, u64>,
    pub(super) messages: u64,
}

impl Ledger {
    /// Notes a message that is about to be published.
    pub(super) fn write(&mut self, device: &Device, content: Content) {
        self.messages += 1;
        match content {
            Content::Reading(Reading { stamp, power }) => {
                let hour = (device.kind != Kind::Unset).then(|| hour_of(stamp));
                let cell = self.cells.entry((device.name.clone(), hour)).or_default();
                *cell += Tally { readings: 1, watts: power };
            }
            Content::Copy(_) => *self.copies.entry(device.kind).or_default() += 1,
            Content::Heartbeat(_) => {}
        }
    }
}

/// The begin of the hour of a time.
pub(super) fn hour_of(time: i64) -> i64 {
    let hour = Span::from_hours(1).0;
    time.div_euclid(hour) * hour
}
