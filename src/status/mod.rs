//! How the agent is: one document, for whoever asks at the gateway and for the centre.
//!
//! `agent` makes a [`Status`] from what it holds in memory, [`health`] judges it, and everybody shows the same one:
//! [`socket`] hands it out whole, [`message`] publishes an extract of it, [`table`] writes it for people.
//!
//! Times are milliseconds since the epoch, UTC; spans are milliseconds. `docs/wire.md` has it field by field.

pub mod asking;
pub mod health;
pub mod message;
pub mod question;
pub mod socket;
pub mod table;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::engine::books::Books;
use crate::time::ClockQuality;

pub use self::health::{Health, Level, Reason};

/// Version of the document and of the message. Fields may be added within one.
pub const SCHEMA: u32 = 1;

/// Most regions that a document names: those furthest behind.
pub const MOST_REGIONS: usize = 100;

/// Everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What this gateway is called.
    pub gateway: String,
    /// Version of the agent.
    pub version: String,
    /// Life of the store, 16 hexadecimal digits.
    pub generation: String,
    /// The configuration that the agent runs with.
    #[serde(default)]
    pub configuration: Configuration,
    /// When this was true, by the agent's clock.
    pub at: i64,
    /// When the agent was started, by the same clock.
    pub since: i64,
    /// Whether all is well.
    pub health: Health,
    /// What the gateway's clock is worth; `None` only in a document that nobody has filled.
    pub clock: Option<ClockQuality>,
    /// Whom it is taken from, and what became of what others said.
    #[serde(default)]
    pub timekeeping: Timekeeping,
    /// The devices' broker.
    pub broker: Link,
    /// Filters that it refused to subscribe us to.
    pub refused_filters: Vec<String>,
    /// The central broker.
    pub upstream: Link,
    /// The store.
    pub store: Store,
    /// What waits for the centre.
    pub outbox: Outbox,
    /// The gateway's watermark as last published.
    pub watermark: Option<i64>,
    /// Regions, those furthest behind first; at most [`MOST_REGIONS`].
    pub regions: Vec<Region>,
    /// Regions in all.
    pub region_count: usize,
    /// Devices.
    pub devices: Devices,
    /// Topics of messages that no source claims, the latest first, since the start.
    pub unmatched: Vec<Example>,
    /// What was refused, the latest first, since the start.
    pub refused: Vec<Example>,
    /// Messages that are held until the clock is good.
    #[serde(default)]
    pub held: Held,
    /// The books, since the store was created.
    pub books: Books,
    /// When a record last found no room (`limits`), since the start.
    pub no_room_at: Option<i64>,
}

/// The configuration that the agent runs with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// When it was read.
    pub loaded: i64,
    /// When a later one was refused.
    pub refused_at: Option<i64>,
    /// Why it was.
    pub refused: Option<String>,
}

/// The gateway's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timekeeping {
    /// `clock.source`.
    pub source: String,
    /// `clock.servers`.
    pub servers: Vec<String>,
    /// The server that it was last taken from, or `host`.
    pub reference: Option<String>,
    /// How long ago that was.
    pub age: Option<i64>,
    /// How far our clock was off then, in microseconds; it has been corrected since.
    pub offset_us: Option<i64>,
    /// How far it is off at most.
    pub bound: Option<i64>,
    /// What was not taken, by reason, since the start.
    pub refused: BTreeMap<String, u64>,
    /// Servers that do not want to be asked.
    pub banned: Vec<String>,
    /// The servers contradict each other, and nobody is believed.
    pub disagreement: bool,
    /// A large correction that has to be confirmed.
    pub doubted: Option<i64>,
    /// How far the host's clock is from ours, where it may not move it.
    pub host_away: Option<i64>,
}

/// A connection to a broker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Whom we connect to, and as whom.
    pub address: String,
    /// Whether we are connected.
    pub state: LinkState,
    /// When it came to be so.
    pub since: i64,
    /// Why there is no connection.
    pub error: Option<String>,
    /// What to do about that.
    pub remedy: Option<String>,
    /// Messages on their way without an acknowledgement: handled and not committed, or sent.
    pub in_flight: usize,
}

/// Whether there is a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkState {
    /// There is none.
    #[default]
    Away,
    /// Connected to the devices' broker; what it had queued is still coming.
    CatchingUp,
    /// Connected, and everything that was queued has been heard.
    Connected,
}

/// The store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Store {
    /// Where it is.
    pub path: String,
    /// Why it cannot be used, while it cannot.
    pub error: Option<String>,
    /// When the last commit ended.
    pub last_commit: Option<i64>,
    /// How long it took.
    pub commit_took: Option<u64>,
}

/// What waits for the centre.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outbox {
    /// Messages in it.
    pub entries: usize,
    /// What they count against the quota.
    pub bytes: u64,
    /// `store.outbox-quota`, in bytes.
    pub quota: u64,
    /// When the oldest was made.
    pub oldest: Option<i64>,
    /// Messages that had to go because it was full, since the store was opened.
    pub evicted: u64,
    /// When more than progress of event time last had to go, since the start.
    pub lost_at: Option<i64>,
}

/// Messages that are held until the clock is good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// When waiting for the clock began; `None` once it was good.
    pub since: Option<i64>,
    /// Records with a usable time of their own are processed meanwhile.
    pub waived: bool,
    /// How many are held.
    pub messages: u64,
    /// What they take in the store.
    pub bytes: u64,
    /// When the oldest came, or one before it; `None` where nobody knows.
    pub oldest: Option<i64>,
}

/// A region.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// Its name.
    pub region: String,
    /// Its watermark; `None` before it has one.
    pub watermark: Option<i64>,
    /// The agent's time less the watermark.
    pub lag: Option<i64>,
    /// Longest lag while all is well: lateness and idle timeout of its devices.
    pub usual_lag: i64,
    /// Devices known in it.
    pub devices: usize,
    /// Nothing of it is heard, and nobody waits for it (region scope).
    pub idle: bool,
}

impl Region {
    /// How much the lag is above the usual; `None` where it says nothing.
    pub fn excess(&self) -> Option<i64> {
        self.lag.filter(|_| !self.idle).map(|lag| lag.saturating_sub(self.usual_lag))
    }
}

/// Devices by what is known of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Devices {
    /// All of them.
    pub known: usize,
    /// Heard within their idle timeout.
    pub active: usize,
    /// Silent, and their own watermark is still ahead of the clock's.
    pub idle: usize,
    /// Silent, and the clock closes their windows.
    pub following: usize,
    /// Nothing with a usable time ever came from them.
    pub without_time: usize,
    /// Told to be online.
    #[serde(default)]
    pub online: usize,
    /// Told to be suspect.
    #[serde(default)]
    pub suspect: usize,
    /// Told to be offline.
    #[serde(default)]
    pub offline: usize,
    /// Told to be flapping.
    #[serde(default)]
    pub flapping: usize,
    /// Declared, and told to have never been seen.
    #[serde(default)]
    pub never_seen: usize,
    /// Known, and no longer missed.
    #[serde(default)]
    pub forgotten: usize,
}

/// A topic, and how often something came on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Example {
    /// Why it was refused, as in `quarantine/{reason}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The topic, at most 256 bytes of it.
    pub topic: String,
    /// How often.
    pub count: u64,
    /// When last.
    pub last: Option<i64>,
}
