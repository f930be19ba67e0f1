//! Both MQTT sides against a real mosquitto.

#![allow(clippy::disallowed_methods, reason = "tests have deadlines of their own")]
#![allow(missing_docs, reason = "tests are sentences")]

mod egress;
mod ingress;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use tidegate::mqtt;

/// A broker on this machine, with the shortest keep-alive.
fn at(port: u16, client_id: &str) -> mqtt::Broker {
    let keep_alive = Duration::from_secs(5);
    mqtt::Broker { keep_alive, ..mqtt::Broker::new("127.0.0.1", port, client_id) }
}
