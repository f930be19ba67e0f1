//! Three gateways at one central broker, two of them with one id.

use std::fs;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::agent::Agent;
use crate::support::{Broker, Subscriber, publish, within};

/// A gateway with a broker for its devices.
struct Gateway {
    devices: Broker,
    _dir: TempDir,
    agent: Agent,
}

const HOUR: i64 = 3_600_000;

impl Gateway {
    fn start(id: &str, central: u16, version: &str) -> Self {
        let (devices, dir) = (Broker::start(), TempDir::new().expect("a directory"));
        let (port, path) = (devices.port(), dir.path().display());
        let text = format!(
            r#"
gateway.id = "{id}"
clock.trust-host = true
store = {{ path = "{path}/store", commit-interval = "100ms" }}
broker = {{ host = "127.0.0.1", port = {port}, version = "{version}", in-flight = 20 }}
upstream = {{ host = "127.0.0.1", port = {central}, version = "{version}" }}
[[source]]
name = "meters"
topic = "meters/{{region}}/{{device}}/{{kind}}"
time = {{ from = "/ts", as = "epoch_ms" }}
heartbeat = {{ from = "topic:kind", equals = "heartbeat" }}
metric = [{{ name = "power", from = "/power" }}]
"#
        );
        let config = dir.path().join("tidegate.toml");
        fs::write(&config, text).expect("the directory is ours");
        let mut agent = Agent::run(&config);
        agent.hears("caught up");
        Self { devices, _dir: dir, agent }
    }

    /// A device of this name sends an hour.
    async fn measure(&self, device: &str) {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = i64::try_from(now.expect("after 1970").as_millis()).expect("in range");
        let hour = now.div_euclid(HOUR) * HOUR - 2 * HOUR;
        let sample = format!(r#"{{"ts":{hour},"power":7.5}}"#);
        let beat = format!(r#"{{"ts":{}}}"#, hour + HOUR + 600_000);
        let messages = [
            (format!("meters/north/{device}/telemetry"), sample),
            (format!("meters/north/{device}/heartbeat"), beat),
        ];
        publish(self.devices.port(), messages).await;
    }
}

/// That this result of an hour comes.
async fn arrives(central: &mut Subscriber, gateway: &str, device: &str) {
    let topic = format!("tidegate/{gateway}/window/hour/north/{device}");
    while central.next().await.expect("the central broker is there").topic != topic {}
}

/// The one of two that says this first, and the other.
fn first_to_say(mut twins: [Gateway; 2], texts: &[&str]) -> (Gateway, Gateway) {
    let deadline = Instant::now() + Duration::from_secs(90);
    while !twins[0].agent.says_within(Duration::from_millis(200), texts) {
        assert!(Instant::now() < deadline, "never said: {}", twins[0].agent.last_words());
        twins.reverse();
    }
    twins.into()
}

async fn two_with_one_id(version: &str) {
    let broker = Broker::start();
    let mut central = Subscriber::to(broker.port(), "tidegate/#").await;
    let single = Gateway::start("single", broker.port(), version);
    let twins = ["north", "south"].map(|_| Gateway::start("twin", broker.port(), version));
    let started = Instant::now();
    let ids =
        ["ERROR", "egress down: ", "gateway=\"twin\"", "client_id=\"tidegate-twin-upstream\""];
    let (away, holds) = first_to_say(twins, &ids);
    let connections =
        away.agent.count(&["egress connected"]) + holds.agent.count(&["egress connected"]);
    println!("told after {:?} and {connections} connections", started.elapsed());
    assert!(connections <= 14, "{connections}");
    assert_eq!(
        away.agent.count(&[&ids[..], &["a gateway.id and a client id of its own"]].concat()),
        1
    );

    // Two of the three work, and the third keeps what it has.
    single.measure("a").await;
    arrives(&mut central, "single", "a").await;
    holds.measure("b").await;
    within(60, arrives(&mut central, "twin", "b")).await;
    away.measure("c").await;
    assert_eq!(single.agent.count(&["egress connected"]), 1);
    assert_eq!(single.agent.count(&["WARN", "egress"]) + single.agent.count(&["ERROR"]), 0);
    let before = away.agent.count(&["committed"]);
    let mut agent = away.agent;
    while agent.count(&["committed"]) == before {
        agent.hears("committed");
    }
    let left = agent.stop();
    assert!(left.number("outbox") > 0, "the outbox is intact");
}

#[tokio::test]
async fn two_gateways_with_one_id_leave_the_third_alone_in_mqtt_5() {
    two_with_one_id("5").await;
}

#[tokio::test]
async fn two_gateways_with_one_id_leave_the_third_alone_in_mqtt_3_1_1() {
    two_with_one_id("3.1.1").await;
}
