//! Names of things: what a device, a region, a gateway and an outbox entry are called.

use std::fmt;
use std::sync::Arc;

use smol_str::SmolStr;

use crate::time::ArrivalTime;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident($text:ty)) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $text);

        impl $name {
            /// The name as it was configured or received.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(name: &str) -> Self {
                Self(name.into())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", self.as_str())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }
    };
}

name! {
    /// What windows are keyed by: a meter, a sensor, a user. Any text; escaped where it becomes part of a topic.
    DeviceId(SmolStr)
}
name! {
    /// A region: the partition whose devices share a lateness and a roll-up. Any text.
    RegionId(Arc<str>)
}
name! {
    /// A source: a kind of device, as named in the configuration.
    SourceId(Arc<str>)
}
name! {
    /// A window: `hour`, `day`, as named in the configuration.
    WindowId(Arc<str>)
}
name! {
    /// A metric, as named in the configuration.
    MetricId(Arc<str>)
}

/// One life of a store (SPEC 4): drawn when the store is created, and for each replay. Part of every identity. Of two
/// generations of a gateway the greater is the newer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Generation(pub u64);

impl Generation {
    /// How many bits at its end are drawn; those before them are milliseconds since the epoch.
    const DRAWN: u32 = 16;

    /// A new one for a store that is created `at` this time of the gateway's clock; 0 before the epoch.
    pub fn new(at: ArrivalTime, drawn: u16) -> Self {
        Self(at.0.max(0).cast_unsigned() << Self::DRAWN | u64::from(drawn))
    }

    /// This one, unless it would pass for older than `before`, which it follows whatever the clock says.
    #[must_use]
    pub fn after(self, before: Self) -> Self {
        self.max(Self(before.0.saturating_add(1)))
    }

    /// One for a replay, from a hash of what it reads. Its first byte is zero, so that it is older than that of any
    /// store since 2004.
    pub fn of_replay(hash: u64) -> Self {
        Self(hash >> 8)
    }

    /// Reads what it is displayed as.
    pub fn parse(text: &str) -> Option<Self> {
        u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16).map(Self)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Position of an entry in the outbox; entries are sent in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct OutboxSeq(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_younger_store_has_a_greater_generation_as_text_too() {
        let at = |millis, drawn| Generation::new(ArrivalTime(millis), drawn);
        let ages = [
            Generation::of_replay(u64::MAX),
            at(1_795_953_600_000, u16::MAX),
            at(1_795_953_600_001, 0),
            at(4_102_444_800_000, 7),
        ];
        assert!(ages.is_sorted_by(|a, b| a < b && a.to_string() < b.to_string()), "{ages:?}");
        assert_eq!(ages[1].to_string(), "01a2272d2600ffff");
        assert_eq!(Generation::parse(&ages[1].to_string()), Some(ages[1]));
        assert_eq!(Generation::parse("7"), None);
    }

    #[test]
    fn a_clock_that_was_set_back_makes_no_older_generation() {
        let before = Generation::new(ArrivalTime(1_795_953_600_000), 9);
        let unset = Generation::new(ArrivalTime(-1), 3);
        assert_eq!(unset, Generation(3));
        assert_eq!(unset.after(before), Generation(before.0 + 1));
        assert_eq!(before.after(unset), before);
    }
}
