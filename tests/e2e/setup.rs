//! Two brokers, somebody who listens at the central one, and a configuration between them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::agent::{Agent, Books, Left};
use crate::central::{Arrived, Central};
use crate::fleet::{HOUR, MINUTE, Message, Times};
use crate::reference::{Expected, RegionStats, Rules, Stats};
use crate::support::{self, Broker};

/// The stage of one test.
pub struct Setup {
    pub devices: Broker,
    pub broker: Broker,
    pub central: Central,
    dir: TempDir,
    /// Where the agent finds the central broker.
    central_port: u16,
}

/// What differs from test to test.
pub struct Options {
    pub allowed_lateness: &'static str,
    pub idle_timeout: &'static str,
    /// Further lines for `[broker]`, where `{dir}` is the agent's directory.
    pub broker: &'static str,
    /// Further lines for `[upstream]`.
    pub upstream: &'static str,
    /// Further lines for the source of meters.
    pub meters: &'static str,
    /// Further tables, where `{dir}` is the agent's directory.
    pub tables: &'static str,
    /// Further lines for the devices' mosquitto.
    pub mosquitto: &'static str,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            allowed_lateness: "30m",
            idle_timeout: "1h",
            broker: "",
            upstream: "",
            meters: "",
            tables: "",
            mosquitto: "",
        }
    }
}

/// The rules of [`Options::default`].
pub fn rules(times: Times) -> Rules {
    Rules {
        lateness: BTreeMap::from([("north", 2 * MINUTE), ("moor", 10 * MINUTE)]),
        allowed_lateness: HOUR / 2,
        latest: times.now + HOUR,
    }
}

impl Setup {
    pub fn new() -> Self {
        Self::with(&Options::default())
    }

    pub fn with(options: &Options) -> Self {
        let setup = Self::absent(Broker::start_with(options.mosquitto), options);
        setup.configure(options, setup.central_port);
        setup
    }

    /// With a devices' broker that may not run yet.
    pub fn absent(devices: Broker, options: &Options) -> Self {
        let broker = Broker::start();
        let central = Central::at(broker.port());
        let central_port = broker.port();
        let dir = TempDir::new().expect("a directory for the agent");
        let setup = Self { devices, broker, central, dir, central_port };
        setup.configure(options, central_port);
        setup
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn config(&self) -> PathBuf {
        self.dir.path().join("tidegate.toml")
    }

    pub fn agent(&self) -> Agent {
        Agent::run(&self.config())
    }

    /// Writes the configuration, with the central broker at this port.
    pub fn configure(&self, options: &Options, central_port: u16) {
        let Options { allowed_lateness, idle_timeout, broker, upstream, meters, tables, .. } =
            options;
        let broker = broker.replace("{dir}", &self.dir.path().display().to_string());
        let tables = tables.replace("{dir}", &self.dir.path().display().to_string());
        let (devices, store) = (self.devices.port(), self.dir.path().join("store"));
        let text = format!(
            r#"
gateway.id = "gw"
clock.trust-host = true

[broker]
host = "127.0.0.1"
port = {devices}
client-id = "{AGENT}"
in-flight = 200
{broker}

[upstream]
host = "127.0.0.1"
port = {central_port}
{upstream}
fields = ["all"]

[store]
path = "{store}"
commit-interval = "200ms"

[status]
socket = "{socket}"

[defaults]
allowed-lateness = "{allowed_lateness}"
idle-timeout = "{idle_timeout}"
revision-delay = "1s"
max-hold = "3h"

[[region]]
name = "north"
lateness = "2m"

[[region]]
name = "moor"
lateness = "10m"

[[source]]
name = "meters"
topic = "meters/{{region}}/{{device}}/{{kind}}"
{meters}
time = {{ from = "/ts", as = "epoch_ms" }}
heartbeat = {{ from = "topic:kind", equals = "heartbeat" }}
rollups = ["day"]
metric = [{{ name = "power", from = "/power", unit = "W", aggregates = {AGGREGATES} }}]

[[source]]
name = "arrays"
topic = "arrays/{{region}}/{{device}}"
items = "/samples"
time = {{ from = "/ts", as = "epoch_ms" }}
heartbeat = {{ from = "root:/beat", equals = true }}
rollups = ["day"]
metric = [{{ name = "power", from = "/power", unit = "W", aggregates = {AGGREGATES} }}]

{tables}
"#,
            store = store.display(),
            socket = self.dir.path().join("status.sock").display(),
        );
        fs::write(self.config(), text).expect("the directory is ours");
    }

    /// Publishes at the devices' broker, in order.
    pub fn publish(&self, messages: &[Message]) {
        let port = self.devices.port();
        block_on(async {
            for messages in messages.chunks(5_000) {
                let pairs = messages.iter().map(|it| (it.topic.as_str(), it.payload.as_str()));
                support::publish(port, pairs).await;
            }
        });
    }

    /// Returns when the devices' broker has answered somebody else.
    pub fn round_trip(&self) {
        let nothing: [(&str, &str); 0] = [];
        block_on(support::publish(self.devices.port(), nothing));
    }

    /// Waits until everything that was expected has arrived, in its last revision, and nothing else has.
    pub fn arrives(&self, expected: &Expected) {
        self.central.agrees(|arrived| compare(expected, arrived));
        assert_eq!(self.central.arrived().contradictions, Vec::<String>::new());
    }

    /// Stops the agent, and starts it again as often as it takes until nothing waits in the outbox.
    pub fn leaves_empty(&self, mut agent: Agent) -> Left {
        for _ in 0..10 {
            let left = agent.stop();
            if left.number("outbox") == 0 {
                return left;
            }
            agent = self.agent();
            agent.hears("connected to the central broker");
            agent.hears("committed");
        }
        panic!("the outbox never empties:\n{}", agent.last_words());
    }
}

/// The agent's client id at the devices' broker.
pub const AGENT: &str = "agent-under-test";

const AGGREGATES: &str = r#"["sum", "mean", "min", "max", "first", "last", "deviation"]"#;

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

/// The books are those of the messages, redeliveries apart, which are duplicates.
pub fn books_agree(books: &Books, expected: &Expected) {
    let Expected { aggregated, valueless, quarantined, stamped, .. } = *expected;
    let late = expected.late.len() as u64;
    let columns = [
        ("aggregated", aggregated),
        ("valueless", valueless),
        ("late", late),
        ("quarantined", quarantined),
        ("stamped", stamped),
        ("no_room", 0),
        ("malformed", 0),
        ("unmatched", 0),
        ("unreadable", 0),
        ("region_missed", 0),
    ];
    for (column, count) in columns {
        assert_eq!(books.of(column), count, "{column} in {books:?}");
    }
    assert!(books.of("duplicate") >= expected.duplicate, "{books:?}");
}

/// The first difference, in words.
pub fn compare(expected: &Expected, arrived: &Arrived) -> Result<(), String> {
    let last = arrived.last();
    for ((topic, start), stats) in &expected.windows {
        let body = last.get(&(topic.as_str(), *start));
        let body = body.ok_or_else(|| format!("{topic} {start} has not arrived"))?;
        agree(is_window(stats, body), topic, *start, body, stats)?;
    }
    for ((topic, start), stats) in &expected.regions {
        let body = last.get(&(topic.as_str(), *start));
        let body = body.ok_or_else(|| format!("{topic} {start} has not arrived"))?;
        agree(is_region(stats, body), topic, *start, body, stats)?;
    }
    for (topic, start) in last.keys() {
        let key = ((*topic).to_owned(), *start);
        // What carries the arrival time belongs to the hour in which the test runs; some tests watch by a device
        // of their own.
        let known = topic.contains("/odd")
            || topic.contains("/watch")
            || expected.windows.contains_key(&key)
            || expected.regions.contains_key(&key);
        if !known {
            return Err(format!("{topic} {start} was not expected"));
        }
    }
    let missing = expected.late.difference(&arrived.late).next();
    let surplus = arrived.late.difference(&expected.late).next();
    match (missing, surplus) {
        (None, None) => Ok(()),
        (missing, surplus) => Err(format!("late: {missing:?} missing, {surplus:?} too many")),
    }
}

fn agree(
    so: bool,
    topic: &str,
    start: i64,
    body: &Value,
    stats: &impl std::fmt::Debug,
) -> Result<(), String> {
    if so { Ok(()) } else { Err(format!("{topic} {start}: {stats:?} is not in {body}")) }
}

fn is_window(stats: &Stats, body: &Value) -> bool {
    let power = &body["metrics"]["power"];
    let exact = [
        ("sum", stats.sum),
        ("min", stats.min),
        ("max", stats.max),
        ("first", stats.first),
        ("last", stats.last),
    ];
    body["samples"] == stats.count
        && power["count"] == stats.count
        && exact.iter().all(|(name, value)| power[name].as_f64() == Some(*value))
        && near(&power["mean"], stats.sum / stats.count as f64)
}

fn is_region(stats: &RegionStats, body: &Value) -> bool {
    let power = &body["metrics"]["power"];
    let exact = [("sum", stats.sum), ("min", stats.min), ("max", stats.max)];
    body["samples"] == stats.count
        && body["reporting"] == stats.reporting
        && body["devices"] == stats.devices
        && exact.iter().all(|(name, value)| power[name].as_f64() == Some(*value))
        && near(&power["sum_of_means"], stats.sum_of_means)
}

fn near(got: &Value, value: f64) -> bool {
    got.as_f64().is_some_and(|got| (got - value).abs() <= 1e-9 * value.abs().max(1.0))
}
