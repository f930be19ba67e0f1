//! What can be asked over the socket besides how the agent is: its devices.
//!
//! One line of JSON each way, of which `docs/wire.md` has the form. Devices come in pages, so that neither side holds
//! more than one of a large fleet, and the agent goes about its work between two of them.

use serde::{Deserialize, Serialize};

use crate::engine::overview::DeviceView;
use crate::event::PresenceState;

/// Most devices in one page.
pub const PAGE: usize = 1_000;

/// What somebody wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Ask {
    /// How the agent is.
    Status {},
    /// All devices.
    Devices {
        /// The store of the agent that is meant: nobody asks another one by mistake.
        store: String,
        /// How many to leave out.
        #[serde(default)]
        from: usize,
    },
    /// One device.
    Device {
        /// As above.
        store: String,
        /// Its region.
        region: String,
        /// Its name.
        device: String,
    },
    /// That a device is no longer missed.
    Forget {
        /// As above.
        store: String,
        /// Its region.
        region: String,
        /// Its name.
        device: String,
    },
}

impl Ask {
    /// The store of the agent that is meant, where it matters.
    pub fn store(&self) -> Option<&str> {
        match self {
            Self::Status {} => None,
            Self::Devices { store, .. }
            | Self::Device { store, .. }
            | Self::Forget { store, .. } => Some(store),
        }
    }

    /// The same from another device on, where it goes on.
    pub(super) fn page(&self, from: usize) -> Self {
        match self {
            Self::Devices { store, .. } => Self::Devices { store: store.clone(), from },
            other => other.clone(),
        }
    }
}

/// What the agent says to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Devices, in the order in which they were met.
    Devices(Page),
    /// It is forgotten, and that is on the disk; `false`: there is nobody of that name to be missed.
    Forgotten(bool),
    /// This is the agent of another store.
    OtherStore(String),
    /// It cannot be done now, or is no question; and why.
    Refused(String),
}

/// Some devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// At most [`PAGE`].
    pub devices: Vec<Device>,
    /// Where the next page begins; `None`: this was the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<usize>,
}

/// A device, as it stands. Times are milliseconds since the epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its region.
    pub region: String,
    /// Its name.
    pub device: String,
    /// What was told of it; `None`: nothing.
    pub state: Option<PresenceState>,
    /// Since when it is that.
    pub since: Option<i64>,
    /// When it was last known to live; `None`: never.
    pub last_seen: Option<i64>,
    /// Its watermark with the clock applied; `None` before the first.
    pub watermark: Option<i64>,
    /// Windows that are open.
    pub open_windows: usize,
    /// How far its clock is off, event time less device time, where that is known.
    #[serde(default)]
    pub clock_offset: Option<i64>,
}

impl From<DeviceView> for Device {
    fn from(view: DeviceView) -> Self {
        Self {
            region: view.region.as_str().to_owned(),
            device: view.device.as_str().to_owned(),
            state: view.state.map(|(state, _)| state),
            since: view.state.map(|(_, since)| since.0),
            last_seen: view.last_seen.map(|at| at.0),
            watermark: view.watermark.map(|at| at.0),
            open_windows: view.open_windows,
            clock_offset: view.clock_offset.map(|offset| offset.0),
        }
    }
}
