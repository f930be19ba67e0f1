//! Who came and who went, and when nobody was listening.

use crate::ids::{DeviceId, RegionId};
use crate::time::{ArrivalTime, ClockQuality, Span};

/// A device came or went (SPEC 5).
#[derive(Clone, Debug, PartialEq)]
pub struct PresenceReport {
    /// The device's region.
    pub region: RegionId,
    /// The device.
    pub device: DeviceId,
    /// What it is now.
    pub state: PresenceState,
    /// When it came to be so: the arrival of the news, or the exact deadline.
    pub since: ArrivalTime,
    /// Why.
    pub cause: PresenceCause,
    /// Arrival of its last news, less its age; `None`: there never was any. Never goes back.
    pub last_seen: Option<ArrivalTime>,
    /// On recovery: from when it was last seen to the news.
    pub outage: Option<Span>,
    /// Quality of the gateway's clock.
    pub clock: ClockQuality,
}

/// What a device is. The names are part of the upstream contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PresenceState {
    /// It is declared, and nothing ever came from it.
    NeverSeen,
    /// It was heard within `offline-after`.
    Online,
    /// It is said to be gone, and may come back at once.
    Suspect,
    /// It has been silent for `offline-after`, or left a last will and did not come back.
    Offline,
    /// It comes and goes too often to be told each time.
    Flapping,
    /// Nobody misses it any more. It is told anew when it is heard again.
    Forgotten,
}

/// Why a device is what it is. The names are part of the upstream contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PresenceCause {
    /// It was heard.
    News,
    /// It was not heard for `offline-after`.
    Silence,
    /// Its last will came, or it said itself that it leaves.
    Will,
    /// What it hangs on is gone.
    Parent,
    /// It is heard, but what it sends is always older than `offline-after`.
    Delayed,
    /// It changed more than `flap-count` times within `flap-window`.
    Changes,
    /// It did not change for one `flap-window`.
    Calm,
    /// An operator wanted it.
    Asked,
}

/// The gateway heard nothing from `start` to `end`. No device is judged by that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapReport {
    /// When it last listened.
    pub start: ArrivalTime,
    /// When it had heard again all that the broker had kept for it.
    pub end: ArrivalTime,
    /// Why.
    pub cause: GapCause,
    /// Quality of the gateway's clock at the end.
    pub clock: ClockQuality,
}

/// Why a gateway heard nothing. The names are part of the upstream contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GapCause {
    /// The agent did not run: it was stopped, or the gateway was.
    AgentStopped,
    /// The devices' broker was away.
    BrokerAway,
}
