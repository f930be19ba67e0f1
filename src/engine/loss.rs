//! What of a damaged store could not be carried on (SPEC 7: what can be read is kept).

use std::fmt;

use crate::time::EventTime;

/// One thing that the records of a store lack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The names that all other records mean by their numbers. All devices and open windows go with it.
    Layout,
    /// Listened time and the books.
    Gateway,
    /// Watermarks of a region, by number. They are worked out from its devices again.
    Region(usize),
    /// Name of a source that the configuration no longer has: its devices are forgotten, and with them which of their
    /// windows were told.
    Source(String),
    /// Name of a metric that the configuration no longer has, of which open windows hold values.
    Metric(String),
    /// Number or name of a device that is forgotten, with its open windows.
    Device(String),
    /// Name of a device of which nothing says how far it was.
    Progress(String),
    /// Name of a device of which nothing says whether it was there: it is told anew.
    Presence(String),
    /// Samples of an open window.
    Window {
        /// Name or number of the device.
        device: String,
        /// Its first instant.
        start: EventTime,
    },
    /// What devices whose windows are final had in an open roll-up of a region.
    Rollup {
        /// Name or number of the region.
        region: String,
        /// First instant after it.
        end: EventTime,
    },
    /// Some of the duplicate memory.
    Memory,
    /// So many messages that were held until the time is known.
    Held(u64),
    /// A record with this key, which this version does not know.
    Unknown(Vec<u8>),
}

/// Shown in logs, as what is missing.
impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layout => f.write_str("the names of windows, metrics and sources"),
            Self::Gateway => f.write_str("listened time and books"),
            Self::Region(number) => write!(f, "watermarks of region number {number}"),
            Self::Source(name) => {
                write!(f, "the devices of source {name}, which the configuration no longer has")
            }
            Self::Metric(name) => {
                write!(
                    f,
                    "what open windows have of metric {name}, which the configuration no longer has"
                )
            }
            Self::Device(device) => write!(f, "device {device}"),
            Self::Progress(device) => write!(f, "progress of device {device}"),
            Self::Presence(device) => write!(f, "presence of device {device}"),
            Self::Window { device, start } => write!(f, "window of {device} from {} ms", start.0),
            Self::Rollup { region, end } => {
                write!(f, "part of the roll-up of {region} to {} ms", end.0)
            }
            Self::Memory => f.write_str("part of the duplicate memory"),
            Self::Held(messages) => write!(f, "{messages} held messages"),
            Self::Unknown(key) => write!(f, "record with key {key:02x?}"),
        }
    }
}
