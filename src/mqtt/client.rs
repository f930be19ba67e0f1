//! One connection in either version of MQTT. The client library has two clients that differ in their types and hardly in
//! what they do; this is as much of both as intake and output need, in one type.

use std::time::Duration;

use bytes::Bytes;
use rumqttc::v5::mqttbytes::{QoS as QoS5, v5 as p5};
use rumqttc::{self as v4, Outgoing, QoS, TlsConfiguration, Transport, v5};

use super::accepted::Accepted;
use super::error::LinkError;
use super::fault::Scene;
use super::{Access, Broker, CONNECT_TIMEOUT, Version};

/// What one side wants of its connections.
#[derive(Clone, Debug)]
pub(crate) struct Wishes {
    /// The broker shall forget us when we go. Else it keeps the session, in MQTT 5 for this long.
    pub(crate) session: Option<Duration>,
    /// Most messages towards us without an acknowledgement; the broker decides in 3.1.1.
    pub(crate) receive_maximum: Option<u16>,
    /// Largest packet towards us, in bytes. In MQTT 5 the broker is told; in 3.1.1 a larger one ends the connection.
    pub(crate) incoming: usize,
    /// Largest packet from us, in bytes.
    pub(crate) outgoing: usize,
    /// Packet ids for publishes of ours. The library reserves memory for each.
    pub(crate) packet_ids: u16,
    /// Requests that may wait for the event loop.
    pub(crate) requests: usize,
    /// What the broker shall say when we are gone without taking leave.
    pub(crate) will: Option<Will>,
}

/// A retained message at QoS 1.
#[derive(Clone, Debug)]
pub(crate) struct Will {
    pub(crate) topic: String,
    pub(crate) payload: Vec<u8>,
}

/// The end that asks for things.
#[derive(Clone, Debug)]
pub(crate) enum Client {
    V5(v5::AsyncClient),
    V4(v4::AsyncClient),
}

/// The connection is gone; [`Events::poll`] says why.
#[derive(Debug)]
pub(crate) struct Gone;

/// The end that does them, and says what happens.
pub(crate) struct Events {
    events: Loop,
    scene: Scene,
}

enum Loop {
    V5(Box<v5::EventLoop>),
    V4(Box<v4::EventLoop>),
}

/// What happened.
#[derive(Debug)]
pub(crate) enum Event {
    /// We were let in.
    Accepted(Accepted),
    /// A message came.
    Message(Message),
    /// A subscription was answered: for each filter at which quality, or why it was refused.
    Subscribed(Vec<Result<QoS, String>>),
    /// A request to unsubscribe was answered.
    Unsubscribed,
    /// A publish was answered.
    Answered { pkid: u16, verdict: Verdict },
    /// Something else came.
    Heard,
    /// A publish was written, with this packet id.
    Published(u16),
    /// We took leave.
    Left,
    /// Something else was written.
    Wrote,
}

/// A message as it came.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) topic: String,
    pub(crate) payload: Bytes,
    pub(crate) retain: bool,
    pub(crate) dup: bool,
    pub(crate) pkid: u16,
    pub(crate) qos: QoS,
}

/// What the broker says of a publish. In 3.1.1 it is always taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Taken,
    /// It takes none there, or none now: an ACL, a quota, trouble of its own.
    NotNow(String),
    /// It does not take this one.
    Refused(String),
}

impl Event {
    /// Whether it came from the broker: a sign of life.
    pub(crate) fn is_incoming(&self) -> bool {
        !matches!(self, Self::Published(_) | Self::Left | Self::Wrote)
    }
}

/// A client and its event loop for one connection, which the first [`Events::poll`] makes.
///
/// # Errors
/// A file that it takes cannot be used.
pub(crate) async fn open(broker: &Broker, wishes: &Wishes) -> Result<(Client, Events), LinkError> {
    let files = broker.clone();
    let access = tokio::task::spawn_blocking(move || files.access()).await;
    let access = access.expect("reading files does not panic")?;
    let scene = Scene {
        tls: broker.tls.is_some(),
        certificate: broker.tls.as_ref().is_some_and(|tls| tls.identity.is_some()),
        accepted: false,
    };
    Ok(match broker.version {
        Version::V5 => {
            let (client, events) =
                v5::AsyncClient::new(options_v5(broker, access, wishes), wishes.requests);
            (Client::V5(client), Events { events: Loop::V5(Box::new(events)), scene })
        }
        Version::V311 => {
            let (client, mut events) =
                v4::AsyncClient::new(options_v4(broker, access, wishes), wishes.requests);
            let mut network = events.network_options();
            network.set_connection_timeout(CONNECT_TIMEOUT.as_secs());
            events.set_network_options(network);
            (Client::V4(client), Events { events: Loop::V4(Box::new(events)), scene })
        }
    })
}

fn transport(access: &Access) -> Transport {
    let tls = access.tls.clone();
    tls.map_or_else(Transport::tcp, |tls| Transport::tls_with_config(TlsConfiguration::Rustls(tls)))
}

fn options_v5(broker: &Broker, access: Access, wishes: &Wishes) -> v5::MqttOptions {
    let mut options = v5::MqttOptions::new(&broker.client_id, broker.bare_host(), broker.port);
    options
        .set_transport(transport(&access))
        .set_keep_alive(broker.keep_alive())
        .set_connection_timeout(CONNECT_TIMEOUT.as_secs())
        .set_clean_start(wishes.session.is_none())
        .set_session_expiry_interval(
            wishes.session.map(|session| u32::try_from(session.as_secs()).unwrap_or(u32::MAX)),
        )
        .set_receive_maximum(wishes.receive_maximum.map(|window| window.max(1)))
        .set_max_packet_size(Some(u32::try_from(wishes.incoming).unwrap_or(u32::MAX)))
        .set_outgoing_inflight_upper_limit(wishes.packet_ids)
        .set_manual_acks(true);
    if let Some((user, password)) = access.login {
        options.set_credentials(user, password);
    }
    if let Some(Will { topic, payload }) = wishes.will.clone() {
        options.set_last_will(p5::LastWill::new(topic, payload, QoS5::AtLeastOnce, true, None));
    }
    options
}

fn options_v4(broker: &Broker, access: Access, wishes: &Wishes) -> v4::MqttOptions {
    let mut options = v4::MqttOptions::new(&broker.client_id, broker.bare_host(), broker.port);
    options
        .set_transport(transport(&access))
        .set_keep_alive(broker.keep_alive())
        .set_clean_session(wishes.session.is_none())
        .set_max_packet_size(wishes.incoming, wishes.outgoing)
        .set_inflight(wishes.packet_ids)
        .set_manual_acks(true);
    if let Some((user, password)) = access.login {
        options.set_credentials(user, password);
    }
    if let Some(Will { topic, payload }) = wishes.will.clone() {
        options.set_last_will(v4::LastWill::new(topic, payload, QoS::AtLeastOnce, true));
    }
    options
}

impl Client {
    /// Subscribes at QoS 1. Retained messages come with filters that are new, in 3.1.1 with all.
    pub(crate) async fn subscribe<'a>(
        &self,
        filters: impl Iterator<Item = &'a String>,
    ) -> Result<(), Gone> {
        match self {
            Self::V5(client) => {
                let filters = filters.map(|path| p5::Filter {
                    retain_forward_rule: p5::RetainForwardRule::OnNewSubscribe,
                    ..p5::Filter::new(path, QoS5::AtLeastOnce)
                });
                client.subscribe_many(filters.collect::<Vec<_>>()).await.map_err(|_| Gone)
            }
            Self::V4(client) => {
                let filters =
                    filters.map(|path| v4::SubscribeFilter::new(path.clone(), QoS::AtLeastOnce));
                client.subscribe_many(filters.collect::<Vec<_>>()).await.map_err(|_| Gone)
            }
        }
    }

    pub(crate) async fn unsubscribe(&self, filter: &str) -> Result<(), Gone> {
        match self {
            Self::V5(client) => client.unsubscribe(filter).await.map_err(|_| Gone),
            Self::V4(client) => client.unsubscribe(filter).await.map_err(|_| Gone),
        }
    }

    /// Publishes at QoS 1.
    pub(crate) async fn publish(&self, topic: String, payload: Vec<u8>) -> Result<(), Gone> {
        match self {
            Self::V5(client) => {
                let given = client.publish(topic, QoS5::AtLeastOnce, false, payload).await;
                given.map_err(|_| Gone)
            }
            Self::V4(client) => {
                let given = client.publish(topic, QoS::AtLeastOnce, false, payload).await;
                given.map_err(|_| Gone)
            }
        }
    }

    /// Publishes at QoS 1, unless it would have to wait.
    pub(crate) fn try_publish(
        &self,
        topic: String,
        retain: bool,
        payload: Vec<u8>,
    ) -> Result<(), Gone> {
        match self {
            Self::V5(client) => {
                let given = client.try_publish(topic, QoS5::AtLeastOnce, retain, payload);
                given.map_err(|_| Gone)
            }
            Self::V4(client) => {
                let given = client.try_publish(topic, QoS::AtLeastOnce, retain, payload);
                given.map_err(|_| Gone)
            }
        }
    }

    /// Acknowledges a message. The library needs no more of it than this.
    pub(crate) async fn ack(&self, pkid: u16, qos: QoS) -> Result<(), Gone> {
        match self {
            Self::V5(client) => {
                let bare = p5::Publish { pkid, qos: to_v5(qos), ..p5::Publish::default() };
                client.ack(&bare).await.map_err(|_| Gone)
            }
            Self::V4(client) => {
                let bare = v4::Publish { pkid, ..v4::Publish::new("", qos, "") };
                client.ack(&bare).await.map_err(|_| Gone)
            }
        }
    }

    pub(crate) async fn disconnect(&self) -> Result<(), Gone> {
        match self {
            Self::V5(client) => client.disconnect().await.map_err(|_| Gone),
            Self::V4(client) => client.disconnect().await.map_err(|_| Gone),
        }
    }

    pub(crate) fn try_disconnect(&self) -> Result<(), Gone> {
        match self {
            Self::V5(client) => client.try_disconnect().map_err(|_| Gone),
            Self::V4(client) => client.try_disconnect().map_err(|_| Gone),
        }
    }
}

impl Events {
    /// The next event, or the end of the connection: the event loop is to be dropped then. It must be dropped too when
    /// this future is dropped before it is done, since a packet may then be lost half-written.
    pub(crate) async fn poll(&mut self) -> Result<Event, LinkError> {
        let event = match &mut self.events {
            Loop::V5(events) => {
                events.poll().await.map(of_v5).map_err(|error| self.scene.judge_v5(error))
            }
            Loop::V4(events) => {
                events.poll().await.map(of_v4).map_err(|error| self.scene.judge_v4(error))
            }
        }?;
        self.scene.accepted |= matches!(event, Event::Accepted(_));
        Ok(event)
    }

    /// The keep-alive of this connection: in MQTT 5 the broker may ask for another one.
    pub(crate) fn keep_alive(&self) -> Duration {
        match &self.events {
            Loop::V5(events) => events.options.keep_alive(),
            Loop::V4(events) => events.mqtt_options.keep_alive(),
        }
    }
}

fn of_v5(event: v5::Event) -> Event {
    use p5::{Packet, SubscribeReasonCode};
    let packet = match event {
        v5::Event::Incoming(packet) => packet,
        v5::Event::Outgoing(outgoing) => return of_outgoing(&outgoing),
    };
    match packet {
        Packet::ConnAck(connack) => Event::Accepted(Accepted::of_v5(&connack)),
        Packet::Publish(publish) => Event::Message(Message {
            topic: String::from_utf8_lossy(&publish.topic).into_owned(),
            payload: publish.payload,
            retain: publish.retain,
            dup: publish.dup,
            pkid: publish.pkid,
            qos: from_v5(publish.qos),
        }),
        Packet::SubAck(suback) => {
            let codes = suback.return_codes.iter().map(|code| match code {
                SubscribeReasonCode::Success(qos) => Ok(from_v5(*qos)),
                code => Err(format!("{code:?}")),
            });
            Event::Subscribed(codes.collect())
        }
        Packet::UnsubAck(_) => Event::Unsubscribed,
        Packet::PubAck(puback) => {
            Event::Answered { pkid: puback.pkid, verdict: verdict(puback.reason) }
        }
        _ => Event::Heard,
    }
}

/// Only what is wrong with the publish itself counts against it: of all else a broker may think better.
fn verdict(reason: p5::PubAckReason) -> Verdict {
    use p5::PubAckReason as Reason;
    match reason {
        Reason::Success | Reason::NoMatchingSubscribers => Verdict::Taken,
        Reason::TopicNameInvalid | Reason::PayloadFormatInvalid => {
            Verdict::Refused(format!("{reason:?}"))
        }
        reason => Verdict::NotNow(format!("{reason:?}")),
    }
}

fn of_v4(event: v4::Event) -> Event {
    use v4::{Packet, SubscribeReasonCode};
    let packet = match event {
        v4::Event::Incoming(packet) => packet,
        v4::Event::Outgoing(outgoing) => return of_outgoing(&outgoing),
    };
    match packet {
        Packet::ConnAck(connack) => Event::Accepted(Accepted {
            session_present: connack.session_present,
            ..Accepted::default()
        }),
        Packet::Publish(publish) => Event::Message(Message {
            topic: publish.topic,
            payload: publish.payload,
            retain: publish.retain,
            dup: publish.dup,
            pkid: publish.pkid,
            qos: publish.qos,
        }),
        Packet::SubAck(suback) => {
            let codes = suback.return_codes.iter().map(|code| match code {
                SubscribeReasonCode::Success(qos) => Ok(*qos),
                SubscribeReasonCode::Failure => Err("Failure".to_owned()),
            });
            Event::Subscribed(codes.collect())
        }
        Packet::UnsubAck(_) => Event::Unsubscribed,
        Packet::PubAck(puback) => Event::Answered { pkid: puback.pkid, verdict: Verdict::Taken },
        _ => Event::Heard,
    }
}

fn of_outgoing(outgoing: &Outgoing) -> Event {
    match outgoing {
        Outgoing::Publish(pkid) => Event::Published(*pkid),
        Outgoing::Disconnect => Event::Left,
        _ => Event::Wrote,
    }
}

fn to_v5(qos: QoS) -> QoS5 {
    match qos {
        QoS::AtMostOnce => QoS5::AtMostOnce,
        QoS::AtLeastOnce => QoS5::AtLeastOnce,
        QoS::ExactlyOnce => QoS5::ExactlyOnce,
    }
}

fn from_v5(qos: QoS5) -> QoS {
    match qos {
        QoS5::AtMostOnce => QoS::AtMostOnce,
        QoS5::AtLeastOnce => QoS::AtLeastOnce,
        QoS5::ExactlyOnce => QoS::ExactlyOnce,
    }
}
