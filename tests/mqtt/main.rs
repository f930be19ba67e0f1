//! Both MQTT sides against a real mosquitto.

#![allow(clippy::disallowed_methods, reason = "tests have deadlines of their own")]
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(missing_docs, reason = "tests are sentences")]

#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use tidegate::mqtt::{self, Version};

/// A broker on this machine, with the shortest keep-alive.
fn at(version: Version, port: u16, client_id: &str) -> mqtt::Broker {
    let keep_alive = Duration::from_secs(5);
    mqtt::Broker { keep_alive, ..mqtt::Broker::new(version, "127.0.0.1", port, client_id) }
}

/// The same test in both versions of MQTT.
macro_rules! both {
    ($($name:ident,)*) => {
        mod mqtt_5 {
            $(#[tokio::test]
            async fn $name() {
                super::$name(tidegate::mqtt::Version::V5).await;
            })*
        }
        mod mqtt_3_1_1 {
            $(#[tokio::test]
            async fn $name() {
                super::$name(tidegate::mqtt::Version::V311).await;
            })*
        }
    };
}

mod access;
mod egress;
mod ingress;
