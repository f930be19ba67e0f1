//! The configuration: TOML files and environment in, types that cannot be wrong out.
//!
//! ```text
//! files, environment → layers (merged, with positions) → raw (serde) → check → Config → Settings
//! ```
//!
//! A mistake is shown with file, line, the value, and what would be right, and all mistakes of one kind at once: first
//! those of syntax, then those of shape (unknown keys, wrong types, bad durations), then contradictions.
//! `docs/configuration.md` has every key with its unit, range and default.

mod check;
mod clock;
mod devices;
mod explain;
mod finding;
mod identity;
mod layers;
mod links;
mod policy;
mod raw;
mod secret;
mod settings;
mod sources;
mod statuses;
mod text;
mod values;
mod warnings;

pub use finding::{ConfigErrors, Finding, Origin};
pub use layers::{ENVIRONMENT_PREFIX, FILE_VARIABLE};

use crate::clock::Settings as ClockSettings;
use crate::engine::gate::GateSettings;
use crate::engine::settings::{ClockRules, Limits, Policies, Scope};
use crate::ids::RegionId;
use crate::mqtt::{Credentials, Tls, Version};
use crate::time::Span;
use crate::wire::fields::Fields;

use identity::Doubt;
use layers::Layers;
use sources::Sources;
use std::path::PathBuf;
use std::time::Duration;

/// A configuration without mistakes.
///
/// What the engine needs of it comes from [`Config::settings`].
#[derive(Clone, Debug)]
pub struct Config {
    /// What this gateway is called upstream; by default the host's name and a part of a hash of the machine id.
    pub gateway: String,
    doubt: Option<Doubt>,
    /// Whose clock the agent goes by.
    pub clock: ClockSettings,
    /// How messages are held until that clock is good.
    pub gate: GateSettings,
    /// The devices' broker.
    pub broker: Broker,
    /// The central broker.
    pub upstream: Upstream,
    /// What is kept on disk.
    pub store: Store,
    /// Where the agent says how it is.
    pub status: Status,
    /// `compat = "flink"`: Flink's semantics, for replays only.
    pub flink: bool,
    engine: Engine,
    layers: Layers,
}

/// A connection to a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Host name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Which MQTT to speak.
    pub version: Version,
    /// MQTT client id.
    pub client_id: String,
    /// User and password, where the broker asks for them.
    pub credentials: Option<Credentials>,
    /// How to speak TLS; plain TCP without.
    pub tls: Option<Tls>,
    /// MQTT keep-alive; whole seconds, 5 s to 18 h.
    pub keep_alive: Duration,
    /// Messages on their way without an acknowledgement, at least 1: towards us from the devices' broker (as its receive
    /// maximum; in MQTT 3.1.1 as it grants by itself), from us to the central one.
    pub in_flight: u16,
}

/// The devices' broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    /// How to connect.
    pub link: Link,
    /// Longest payload that is accepted, in bytes.
    pub max_payload: usize,
    /// How long the broker keeps our session while we are away; whole seconds.
    pub session_expiry: Duration,
}

/// The central broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// How to connect.
    pub link: Link,
    /// What all topics begin with, without a slash at its end.
    pub prefix: String,
    /// What results tell besides what they always do.
    pub fields: Fields,
}

/// What is kept on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// Directory.
    pub path: PathBuf,
    /// After the first message that is not committed yet, a commit is made no later than this; zero: at once.
    pub commit_interval: Duration,
    /// What the outbox may take, in bytes.
    pub outbox_quota: u64,
}

/// Where the agent says how it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Whether it can be asked.
    pub enabled: bool,
    /// The socket; `None` is in the runtime directory.
    pub socket: Option<PathBuf>,
}

/// What the settings of an engine are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Live.
    Run,
    /// Over a recorded file, with or without arrival times in it.
    Replay(ClockRules),
}

/// What the engine is told, short of the compiled profiles.
#[derive(Clone, Debug)]
struct Engine {
    scope: Scope,
    sources: Sources,
    regions: Vec<RegionId>,
    policies: Policies,
    region_rollups: bool,
    watermark_interval: Span,
    gap_after: Span,
    limits: Limits,
}

impl Config {
    /// Reads `paths` in their order, later ones over earlier ones, and lays the variables of `env` over them
    /// (`TIDEGATE_UPSTREAM__HOST=…`; see [`environment`]).
    pub fn load(
        paths: &[PathBuf],
        env: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigErrors> {
        check::config(Layers::read(paths, env)?)
    }

    /// Reads one text, called `configuration` in errors.
    pub fn from_toml(toml: &str) -> Result<Self, ConfigErrors> {
        check::config(Layers::of_text("configuration", toml)?)
    }
}

/// The variables of this process that can be meant for a configuration.
pub fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into(), value.to_string_lossy().into()))
        .filter(|(name, _): &(String, String)| name.starts_with(ENVIRONMENT_PREFIX))
        .collect()
}
