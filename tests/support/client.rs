//! Plain clients: a device that publishes, and somebody who listens.

use std::time::Duration;

use rumqttc::{AsyncClient, Event, MqttOptions, Packet, QoS};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// A user name and a password.
pub type Login<'a> = (&'a str, &'a str);

fn client(port: u16, login: Option<Login<'_>>) -> (AsyncClient, rumqttc::EventLoop) {
    let id = format!("test-{:016x}", fastrand::u64(..));
    let mut options = MqttOptions::new(id, "127.0.0.1", port);
    options.set_max_packet_size(4 << 20, 4 << 20).set_inflight(1_000);
    if let Some((user, password)) = login {
        options.set_credentials(user, password);
    }
    AsyncClient::new(options, 10_000)
}

/// Publishes all of it at QoS 1; returns when the broker has taken it over.
pub async fn publish<T: Into<String>, P: Into<Vec<u8>>>(
    port: u16,
    messages: impl IntoIterator<Item = (T, P)>,
) {
    publish_at(QoS::AtLeastOnce, false, port, messages).await;
}

/// Publishes all of it; returns when the broker has taken it over.
pub async fn publish_at<T: Into<String>, P: Into<Vec<u8>>>(
    qos: QoS,
    retain: bool,
    port: u16,
    messages: impl IntoIterator<Item = (T, P)>,
) {
    send(client(port, None), qos, retain, messages).await;
}

/// Publishes all of it at QoS 1 as this user; returns when the broker has acknowledged it, which says nothing of
/// whether it was allowed.
pub async fn publish_as<T: Into<String>, P: Into<Vec<u8>>>(
    login: Login<'_>,
    port: u16,
    messages: impl IntoIterator<Item = (T, P)>,
) {
    send(client(port, Some(login)), QoS::AtLeastOnce, false, messages).await;
}

async fn send<T: Into<String>, P: Into<Vec<u8>>>(
    (client, mut events): (AsyncClient, rumqttc::EventLoop),
    qos: QoS,
    retain: bool,
    messages: impl IntoIterator<Item = (T, P)>,
) {
    let mut given = 0;
    for (topic, payload) in messages {
        client.try_publish(topic, qos, retain, payload).expect("at most 10,000 at a time");
        given += 1;
    }
    // Behind them all; at QoS 0 nothing else tells.
    client.try_publish("test/end", QoS::AtLeastOnce, false, "").expect("at most 10,000 at a time");
    let mut acknowledged = if qos == QoS::AtMostOnce { given } else { 0 };
    while acknowledged < given + 1 {
        let event = super::within(30, events.poll()).await.expect("the broker takes it");
        acknowledged += u32::from(matches!(event, Event::Incoming(Packet::PubAck(_))));
    }
    let _ = client.disconnect().await;
    while events.poll().await.is_ok() {}
}

/// Somebody who is subscribed, on one connection.
pub struct Subscriber {
    client: AsyncClient,
    messages: mpsc::UnboundedReceiver<Option<rumqttc::Publish>>,
    polling: JoinHandle<()>,
}

impl Subscriber {
    /// Subscribes at QoS 1; returns when the broker has confirmed it.
    pub async fn to(port: u16, filter: &str) -> Self {
        Self::with(client(port, None), filter).await
    }

    /// The same as this user, whatever it is then allowed to read.
    pub async fn logged_in(login: Login<'_>, port: u16, filter: &str) -> Self {
        Self::with(client(port, Some(login)), filter).await
    }

    async fn with((client, mut events): (AsyncClient, rumqttc::EventLoop), filter: &str) -> Self {
        client.try_subscribe(filter, QoS::AtLeastOnce).expect("room for one");
        loop {
            let event = super::within(10, events.poll()).await.expect("the broker is there");
            if matches!(event, Event::Incoming(Packet::SubAck(_))) {
                break;
            }
        }
        let (sender, messages) = mpsc::unbounded_channel();
        let polling = tokio::spawn(async move {
            while let Ok(event) = events.poll().await {
                let _ = match event {
                    Event::Incoming(Packet::Publish(publish)) => sender.send(Some(publish)),
                    Event::Incoming(Packet::UnsubAck(_)) => sender.send(None),
                    _ => Ok(()),
                };
            }
        });
        Self { client, messages, polling }
    }

    /// The next message. `None` when the connection is gone.
    pub async fn next(&mut self) -> Option<rumqttc::Publish> {
        super::within(30, self.messages.recv()).await.flatten()
    }

    /// All that has come when the broker has answered a request of this connection: it keeps the order.
    pub async fn until_answered(&mut self) -> Vec<rumqttc::Publish> {
        self.client.try_unsubscribe("nothing").expect("room for one");
        let mut all = Vec::new();
        while let Some(message) = self.next().await {
            all.push(message);
        }
        all
    }

    /// All that comes until nothing came for `quiet`.
    pub async fn drain(&mut self, quiet: Duration) -> Vec<rumqttc::Publish> {
        let mut all = Vec::new();
        while let Ok(Some(message)) = tokio::time::timeout(quiet, self.messages.recv()).await {
            all.extend(message);
        }
        all
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.polling.abort();
    }
}
