//! The access lists that ship, at a real mosquitto: who may do what.
//!
//! mosquitto's `acl_file` refuses no subscription and acknowledges what it throws away (MQTT 3.1.1), so what is
//! forbidden shows only in what does not arrive.

use std::time::{Duration, Instant};

use tidegate::clock::Clock;
use tidegate::ingress::{Ingress, IngressConfig, IngressEvent};
use tidegate::mqtt::{self, Credentials, FileName, Version};

use crate::at;
use crate::support::{Broker, Login, Subscriber, publish_as, within};

const AGENT: Login<'static> = ("tidegate", "for the agent");
const ONE: Login<'static> = ("m-1", "for one");
const OTHER: Login<'static> = ("m-2", "for the other");

fn agent_of(version: Version, broker: &Broker) -> Ingress {
    let password = broker.dir().join("agent.password");
    std::fs::write(&password, AGENT.1).unwrap();
    let credentials =
        Credentials { user: AGENT.0.into(), password_file: Some(FileName::new(password)) };
    let link =
        mqtt::Broker { credentials: Some(credentials), ..at(version, broker.port(), "gw/1") };
    let clock = Clock::start();
    Ingress::start(IngressConfig::new(link, vec!["meters/#".into()]), move || clock.now())
}

/// The payloads that come until one is `last`.
async fn until(ingress: &mut Ingress, last: &str) -> Vec<String> {
    let mut all = Vec::new();
    while all.last().is_none_or(|payload| payload != last) {
        if let IngressEvent::Message(message) = within(30, ingress.next()).await {
            all.push(String::from_utf8_lossy(&message.payload).into_owned());
        }
    }
    all
}

async fn at_the_devices_broker_each_writes_its_own_and_the_agent_reads_all(version: Version) {
    let broker = Broker::restricted("mosquitto.acl", &[AGENT, ONE, OTHER]);
    let port = broker.port();
    let mut ingress = agent_of(version, &broker);
    let started = Instant::now();
    while !matches!(within(30, ingress.next()).await, IngressEvent::CaughtUp) {}
    assert!(started.elapsed() < Duration::from_secs(9), "by the probe, not by silence");

    publish_as(ONE, port, [("meters/south/m-2/telemetry", "forged")]).await;
    publish_as(ONE, port, [("meters/south/m-1", "1"), ("meters/north/m-1/status/x", "2")]).await;
    publish_as(AGENT, port, [("meters/south/m-1/telemetry", "by the agent")]).await;
    publish_as(OTHER, port, [("tidegate/probe/gw_1", "forged"), ("meters/north/m-2/t", "3")]).await;
    assert_eq!(until(&mut ingress, "3").await, ["1", "2", "3"]);
}

#[tokio::test]
async fn devices_read_nothing_at_their_broker() {
    let broker = Broker::restricted("mosquitto.acl", &[AGENT, ONE, OTHER]);
    let port = broker.port();
    let mut spies = Vec::new();
    for filter in ["#", "meters/#", "meters/north/m-1/#", "tidegate/#"] {
        spies.push(Subscriber::logged_in(ONE, port, filter).await);
    }
    let mut agent = Subscriber::logged_in(AGENT, port, "#").await;
    publish_as(OTHER, port, [("meters/north/m-2/telemetry", "1")]).await;
    publish_as(ONE, port, [("meters/north/m-1/telemetry", "2")]).await;
    publish_as(AGENT, port, [("tidegate/probe/gw", "3")]).await;
    for payload in ["1", "2", "3"] {
        assert_eq!(agent.next().await.expect("connected").payload, payload);
    }
    for spy in &mut spies {
        assert_eq!(spy.until_answered().await, []);
    }
}

#[tokio::test]
async fn at_the_centre_a_gateway_writes_below_its_own_prefix_and_reads_nothing() {
    let (gateway, other) = (("gw-1", "one"), ("gw-2", "two"));
    let centre = ("centre", "for the centre");
    let broker = Broker::restricted("central.acl", &[gateway, other, centre]);
    let port = broker.port();
    let mut spy = Subscriber::logged_in(other, port, "#").await;
    let mut reader = Subscriber::logged_in(centre, port, "tidegate/#").await;
    publish_as(gateway, port, [("tidegate/gw-2/status", "forged"), ("tidegate/gw-1", "1")]).await;
    publish_as(centre, port, [("tidegate/gw-1/status", "by the centre")]).await;
    publish_as(gateway, port, [("tidegate/gw-1/window/hour/north/m-1", "2")]).await;
    for payload in ["1", "2"] {
        assert_eq!(reader.next().await.expect("connected").payload, payload);
    }
    assert_eq!(spy.until_answered().await, []);
}

both! {
    at_the_devices_broker_each_writes_its_own_and_the_agent_reads_all,
}
