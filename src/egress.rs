//! Output: publishes at QoS 1 to the central broker, from an outbox that is the only truth.
//!
//! [`Egress`] is the agent's end; the other end is a task that makes one connection after the other.
//! Nothing survives a connection: after [`EgressEvent::Up`] the agent sends again from its oldest
//! entry without a PUBACK, in order. What was published and not acknowledged arrives twice, never
//! not at all.
//!
//! # What holds
//! - Never more than `in_flight` publishes are on their way without a PUBACK. Above that the client
//!   library reuses packet ids and loses messages.
//! - [`EgressEvent::Acked`] names the entry whose own PUBACK came. The library does not say which
//!   packet id a publish gets; but it names the ids in the order in which the publishes were given.

use std::collections::BTreeMap;
use std::time::Duration;

use rumqttc::{AsyncClient, Event, EventLoop, MqttOptions, Outgoing, Packet, QoS};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::ids::OutboxSeq;
use crate::mqtt::{Broker, CONNECT_TIMEOUT, LinkError, Retry, Task};

/// Largest topic and payload together, in bytes.
pub const LARGEST: usize = 1 << 20;

/// How long publishes may stay without any PUBACK before the connection is made anew.
const UNACKNOWLEDGED: Duration = Duration::from_secs(120);

/// Largest packet that the broker may send us; it has nothing to send but acknowledgements.
const INCOMING: usize = 10 << 10;

/// How long to wait for a clean end.
const GOODBYE: Duration = Duration::from_secs(3);

/// How to publish.
#[derive(Clone, Debug)]
pub struct EgressConfig {
    /// The central broker.
    pub broker: Broker,
    /// Most publishes on their way without an acknowledgement, at least 1. Over a link with round
    /// trip time T at most `in_flight / T` messages go out in a second.
    pub in_flight: u16,
    /// What every topic begins with; a `/` follows it. None when empty.
    pub prefix: String,
}

impl EgressConfig {
    /// A configuration with 100 publishes in flight.
    pub fn new(broker: Broker, prefix: &str) -> Self {
        Self { broker, in_flight: 100, prefix: prefix.into() }
    }

    fn window(&self) -> usize {
        usize::from(self.in_flight.max(1))
    }
}

/// What output tells the agent, in the order in which it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EgressEvent {
    /// Connected: to be sent again from the oldest entry without a PUBACK.
    Up,
    /// The broker has taken this entry over. There is room in the window again.
    Acked(OutboxSeq),
    /// There is no connection. Told again for each attempt that fails.
    Down {
        /// Why.
        error: LinkError,
    },
}

/// Why an entry was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// There is no connection; it is to be sent after the next [`EgressEvent::Up`].
    #[error("not connected")]
    Down,
    /// The window is full; it is to be sent after the next [`EgressEvent::Acked`].
    #[error("the window is full")]
    Full,
    /// It can never be sent.
    #[error("{size} bytes of topic and payload, of at most {LARGEST}")]
    TooLarge {
        /// Topic and payload together, in bytes.
        size: usize,
    },
    /// It can never be sent.
    #[error("{0:?} is not a topic to publish to")]
    Topic(String),
}

/// The agent's end of output.
#[derive(Debug)]
pub struct Egress {
    events: mpsc::Receiver<Item>,
    link: Option<Link>,
    window: usize,
    prefix: String,
    task: Task,
}

/// The connection that the last `Up` spoke of.
#[derive(Debug)]
struct Link {
    client: AsyncClient,
    /// Entries in the order in which they are given to the client.
    given: mpsc::UnboundedSender<OutboxSeq>,
    /// How many of them have no PUBACK.
    on_their_way: usize,
}

#[derive(Debug)]
enum Item {
    Up(Link),
    Event(EgressEvent),
}

impl Egress {
    /// Starts to connect, in a task of the current runtime.
    pub fn start(config: EgressConfig) -> Self {
        let (outlet, events) = mpsc::channel(config.window() + 16);
        let (window, prefix) = (config.window(), config.prefix.clone());
        let task = Task::spawn(run(config, outlet));
        Self { events, link: None, window, prefix, task }
    }

    /// The next event. Nothing is lost when the future is dropped.
    ///
    /// # Panics
    /// When the task has died, which is a fault of this program.
    pub async fn next(&mut self) -> EgressEvent {
        match self.events.recv().await.expect("the output task lives as long as its owner") {
            Item::Up(link) => {
                self.link = Some(link);
                EgressEvent::Up
            }
            Item::Event(event) => {
                self.account(&event);
                event
            }
        }
    }

    fn account(&mut self, event: &EgressEvent) {
        match (event, &mut self.link) {
            (EgressEvent::Acked(_), Some(link)) => link.on_their_way -= 1,
            (EgressEvent::Down { .. }, link) => *link = None,
            _ => {}
        }
    }

    /// How many entries [`Egress::publish`] would take now.
    pub fn window(&self) -> usize {
        self.link.as_ref().map_or(0, |link| self.window - link.on_their_way)
    }

    /// Publishes an entry at QoS 1, below the prefix. Never waits.
    pub fn publish(
        &mut self,
        seq: OutboxSeq,
        topic: &str,
        payload: Vec<u8>,
    ) -> Result<(), PublishError> {
        let topic = self.full_topic(topic)?;
        let size = topic.len() + payload.len();
        if size > LARGEST {
            return Err(PublishError::TooLarge { size });
        }
        let link = self.link.as_mut().ok_or(PublishError::Down)?;
        if link.on_their_way == self.window {
            return Err(PublishError::Full);
        }
        link.on_their_way += 1;
        // Both fail only when the connection is gone. `Down` is then on its way, and what became of
        // this connection's entries does not matter any more.
        link.given.send(seq).map_err(|_| PublishError::Down)?;
        let given = link.client.try_publish(topic, QoS::AtLeastOnce, false, payload);
        given.map_err(|_| PublishError::Down)
    }

    fn full_topic(&self, topic: &str) -> Result<String, PublishError> {
        let full = match self.prefix.trim_end_matches('/') {
            "" => topic.to_owned(),
            prefix => format!("{prefix}/{topic}"),
        };
        let fits = full.len() <= usize::from(u16::MAX) && !full.contains(['+', '#', '\0']);
        if fits && !full.is_empty() { Ok(full) } else { Err(PublishError::Topic(full)) }
    }

    /// Takes leave. PUBACKs still on their way are not waited for.
    pub async fn close(self) {
        let Some(link) = &self.link else { return };
        if link.client.try_disconnect().is_ok() {
            drop(self.events);
            self.task.ended(GOODBYE).await;
        }
    }
}

/// The output task: connects, again and again, until the agent leaves.
async fn run(config: EgressConfig, outlet: mpsc::Sender<Item>) {
    let mut retry = Retry::new("egress", &config.broker);
    loop {
        let Err(error) = connection(&config, &outlet, &mut retry).await else { return };
        let (error, pause) = retry.down(error);
        tell(&outlet, EgressEvent::Down { error }).await;
        tokio::time::sleep(pause).await;
    }
}

/// One connection, from the first packet to the last. `Ok` when we took leave.
async fn connection(
    config: &EgressConfig,
    outlet: &mpsc::Sender<Item>,
    retry: &mut Retry,
) -> Result<(), LinkError> {
    // One more than the window, so that there is always room to take leave.
    let (client, mut events) = AsyncClient::new(options(config), config.window() + 1);
    let mut network = events.network_options();
    network.set_connection_timeout(CONNECT_TIMEOUT.as_secs());
    events.set_network_options(network);
    let (given, sent) = mpsc::unbounded_channel();
    let mut link = Some(Link { client, given, on_their_way: 0 });
    let mut flight = Flight::new(sent, config.broker.keep_alive());
    loop {
        match flight.poll(&mut events).await? {
            Event::Incoming(Packet::ConnAck(_)) => {
                retry.up();
                let link = link.take().expect("a connection is accepted once");
                // Nobody takes it when we are leaving.
                let _leaving = outlet.send(Item::Up(link)).await;
            }
            Event::Incoming(Packet::PubAck(puback)) => {
                let seq = flight.land(puback.pkid)?;
                tell(outlet, EgressEvent::Acked(seq)).await;
            }
            Event::Outgoing(Outgoing::Publish(pkid)) => flight.take_off(pkid),
            Event::Outgoing(Outgoing::Disconnect) => return Ok(()),
            _ => {}
        }
    }
}

async fn tell(outlet: &mpsc::Sender<Item>, event: EgressEvent) {
    // Nobody takes it when we are leaving.
    let _leaving = outlet.send(Item::Event(event)).await;
}

fn options(config: &EgressConfig) -> MqttOptions {
    let Broker { port, client_id, credentials, .. } = &config.broker;
    let mut options = MqttOptions::new(client_id, config.broker.authority(), *port);
    if let Some(credentials) = credentials {
        options.set_credentials(&credentials.user, &credentials.password);
    }
    // The library numbers publishes from 1 to `inflight` and stops when a number is still in use.
    // Eight windows of numbers let a PUBACK come late without holding up the others.
    options
        .set_keep_alive(config.broker.keep_alive())
        .set_clean_session(true)
        .set_max_packet_size(INCOMING, LARGEST + 16)
        .set_inflight(config.in_flight.max(1).saturating_mul(8));
    options
}

/// What is on its way on one connection, and how long nothing has come back.
struct Flight {
    /// Entries given to the client, whose packet id is not known yet.
    given: mpsc::UnboundedReceiver<OutboxSeq>,
    unacknowledged: BTreeMap<u16, OutboxSeq>,
    keep_alive: Duration,
    /// When the link counts as dead, unless something comes.
    silent_at: Instant,
    /// When the broker counts as stuck, unless a PUBACK comes. Holds while there are publishes.
    stuck_at: Instant,
}

impl Flight {
    fn new(given: mpsc::UnboundedReceiver<OutboxSeq>, keep_alive: Duration) -> Self {
        let now = Instant::now();
        Self {
            given,
            unacknowledged: BTreeMap::new(),
            keep_alive,
            silent_at: now + CONNECT_TIMEOUT * 2,
            stuck_at: now,
        }
    }

    /// The next event, or why there is no point in waiting for it. The future of the event loop is
    /// then dropped, and so must the event loop be.
    async fn poll(&mut self, events: &mut EventLoop) -> Result<Event, LinkError> {
        let deadline = match self.unacknowledged.is_empty() {
            true => self.silent_at,
            false => self.silent_at.min(self.stuck_at),
        };
        let Ok(event) = timeout_at(deadline, events.poll()).await else {
            return Err(self.overdue());
        };
        let event = event?;
        if matches!(event, Event::Incoming(_)) {
            self.silent_at = Instant::now() + self.patience();
        }
        Ok(event)
    }

    fn patience(&self) -> Duration {
        self.keep_alive.mul_f32(1.5)
    }

    fn overdue(&self) -> LinkError {
        if self.silent_at <= Instant::now() {
            LinkError::Silent(self.patience())
        } else {
            LinkError::Unacknowledged(UNACKNOWLEDGED)
        }
    }

    /// A publish was written: the oldest given one has this packet id.
    fn take_off(&mut self, pkid: u16) {
        let seq =
            self.given.try_recv().expect("an entry is noted before it is given to the client");
        if self.unacknowledged.is_empty() {
            self.stuck_at = Instant::now() + UNACKNOWLEDGED;
        }
        let before = self.unacknowledged.insert(pkid, seq);
        assert_eq!(before, None, "packet id {pkid} was given to {seq:?} while in use");
    }

    /// A PUBACK came for this packet id.
    fn land(&mut self, pkid: u16) -> Result<OutboxSeq, LinkError> {
        self.stuck_at = Instant::now() + UNACKNOWLEDGED;
        let seq = self.unacknowledged.remove(&pkid);
        seq.ok_or_else(|| LinkError::Protocol(format!("PUBACK for {pkid}, which is not in use")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight() -> (mpsc::UnboundedSender<OutboxSeq>, Flight) {
        let (given, sent) = mpsc::unbounded_channel();
        (given, Flight::new(sent, Duration::from_secs(30)))
    }

    #[test]
    fn entries_get_packet_ids_in_the_order_given_and_land_on_their_own_puback() {
        let (given, mut flight) = flight();
        for seq in 1..=3 {
            given.send(OutboxSeq(seq)).unwrap();
            flight.take_off(u16::try_from(seq).unwrap() + 6);
        }
        assert_eq!(flight.land(8), Ok(OutboxSeq(2)));
        assert_eq!(flight.land(7), Ok(OutboxSeq(1)));
        assert_eq!(flight.land(9), Ok(OutboxSeq(3)));
        assert!(flight.land(9).is_err());
    }

    #[test]
    fn a_packet_id_is_free_again_once_its_publish_has_landed() {
        let (given, mut flight) = flight();
        given.send(OutboxSeq(1)).unwrap();
        given.send(OutboxSeq(2)).unwrap();
        flight.take_off(1);
        assert_eq!(flight.land(1), Ok(OutboxSeq(1)));
        flight.take_off(1);
        assert_eq!(flight.land(1), Ok(OutboxSeq(2)));
    }

    #[tokio::test]
    async fn what_can_never_be_sent_is_told_apart_from_what_cannot_be_sent_now() {
        let broker = Broker::new("127.0.0.1", 9, "gw");
        let mut egress = Egress::start(EgressConfig::new(broker, "tidegate/gw/"));
        let mut publish = |topic: &str, size| egress.publish(OutboxSeq(1), topic, vec![0; size]);
        assert_eq!(publish("window/hour", 10), Err(PublishError::Down));
        assert_eq!(
            publish("window/+", 10),
            Err(PublishError::Topic("tidegate/gw/window/+".into()))
        );
        let size = LARGEST + "tidegate/gw/t".len();
        assert_eq!(publish("t", LARGEST), Err(PublishError::TooLarge { size }));
    }
}
