//! The two MQTT clients of the demonstration: the fleet's and the centre's.

use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::Bytes;
use rumqttc::{Event, MqttOptions, Packet, QoS, v5};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::DemoError;
use crate::mqtt::Task;

/// How long a loopback connection may take to be of use.
const PATIENCE: Duration = Duration::from_secs(10);
const REQUESTS: usize = 1_000;

/// A topic and what came on it.
pub(super) type Delivered = (String, Bytes);

/// Publishes for all meters, and hears the agent's probe: from then on it is subscribed.
pub(super) struct Meters {
    client: v5::AsyncClient,
    pub(super) probes: mpsc::UnboundedReceiver<Delivered>,
    _task: Task,
}

impl Meters {
    pub(super) async fn connect(port: u16, probes: &str) -> Result<Self, DemoError> {
        let mut options = v5::MqttOptions::new("fleet", Ipv4Addr::LOCALHOST.to_string(), port);
        options.set_keep_alive(Duration::from_secs(30)).set_outgoing_inflight_upper_limit(100);
        let (client, mut events) = v5::AsyncClient::new(options, REQUESTS);
        let at_least_once = v5::mqttbytes::QoS::AtLeastOnce;
        client.subscribe(probes, at_least_once).await.map_err(|_| DemoError::OwnConnection)?;
        let (deliver, probes) = mpsc::unbounded_channel();
        let (subscribed, ready) = oneshot::channel();
        let task = Task::spawn(async move {
            let mut subscribed = Some(subscribed);
            // A connection that fails is not made anew: what was on its way is not known then.
            while let Ok(event) = events.poll().await {
                match event {
                    v5::Event::Incoming(v5::Incoming::SubAck(_)) => tell(&mut subscribed),
                    v5::Event::Incoming(v5::Incoming::Publish(publish)) => {
                        let topic = String::from_utf8_lossy(&publish.topic).into_owned();
                        // Nobody takes it once the agent was heard.
                        let _unwanted = deliver.send((topic, publish.payload));
                    }
                    _ => {}
                }
            }
        });
        wait(ready).await?;
        Ok(Self { client, probes, _task: task })
    }

    pub(super) async fn publish(&self, topic: String, payload: String) -> Result<(), DemoError> {
        let at_least_once = v5::mqttbytes::QoS::AtLeastOnce;
        let published = self.client.publish(topic, at_least_once, false, payload).await;
        published.map_err(|_| DemoError::OwnConnection)
    }
}

/// What subscribes at the central broker.
pub(super) struct Centre {
    pub(super) messages: mpsc::UnboundedReceiver<Delivered>,
    _task: Task,
}

impl Centre {
    pub(super) async fn connect(port: u16, filter: String) -> Result<Self, DemoError> {
        let mut options = MqttOptions::new("centre", Ipv4Addr::LOCALHOST.to_string(), port);
        options.set_keep_alive(Duration::from_secs(30)).set_max_packet_size(64 << 10, 64 << 10);
        let (client, mut events) = rumqttc::AsyncClient::new(options, REQUESTS);
        let subscribe = client.subscribe(filter, QoS::AtLeastOnce).await;
        subscribe.map_err(|_| DemoError::OwnConnection)?;
        let (deliver, messages) = mpsc::unbounded_channel();
        let (subscribed, ready) = oneshot::channel();
        let task = Task::spawn(async move {
            // The event loop ends when nobody can ask it for anything.
            let _client = client;
            let mut subscribed = Some(subscribed);
            while let Ok(event) = events.poll().await {
                match event {
                    Event::Incoming(Packet::SubAck(_)) => tell(&mut subscribed),
                    Event::Incoming(Packet::Publish(publish)) => {
                        // Nobody takes it at the end.
                        let _over = deliver.send((publish.topic, publish.payload));
                    }
                    _ => {}
                }
            }
        });
        wait(ready).await?;
        Ok(Self { messages, _task: task })
    }
}

fn tell(subscribed: &mut Option<oneshot::Sender<()>>) {
    if let Some(subscribed) = subscribed.take() {
        // Whoever does not wait any more has given up.
        let _given_up = subscribed.send(());
    }
}

async fn wait(ready: oneshot::Receiver<()>) -> Result<(), DemoError> {
    match timeout(PATIENCE, ready).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(DemoError::OwnConnection),
    }
}
