//! Names of things: what a device, a region, a gateway and an outbox entry are called.

use std::fmt;
use std::sync::Arc;

use smol_str::SmolStr;

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

/// One life of a store (SPEC 4): drawn when the store is created, and for each replay. Part of every identity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Generation(pub u64);

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Position of an entry in the outbox; entries are sent in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct OutboxSeq(pub u64);
