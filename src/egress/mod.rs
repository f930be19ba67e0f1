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
//! - An entry on which the broker closes the connection each time does not hold up the others for
//!   ever: it is found and named ([`EgressEvent::Rejected`], `care`).

mod care;
mod connection;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use rumqttc::{AsyncClient, QoS};
use tokio::sync::mpsc;

use self::care::Care;
use crate::ids::OutboxSeq;
use crate::mqtt::{Broker, LinkError, Task};

/// Largest topic and payload together, in bytes.
pub const LARGEST: usize = 1 << 20;

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
    /// The broker closes the connection whenever it gets this entry, alone and more than once: it is
    /// to be put aside. Comes after the `Down`.
    Rejected(OutboxSeq),
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
    /// What is to be told before anything else.
    ahead: VecDeque<EgressEvent>,
    link: Option<Link>,
    care: Care,
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
    /// Those of them that have no PUBACK.
    on_their_way: BTreeSet<OutboxSeq>,
}

impl Link {
    fn new(client: AsyncClient, given: mpsc::UnboundedSender<OutboxSeq>) -> Self {
        Self { client, given, on_their_way: BTreeSet::new() }
    }
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
        let task = Task::spawn(connection::run(config, outlet));
        let (ahead, care) = (VecDeque::new(), Care::default());
        Self { events, ahead, link: None, care, window, prefix, task }
    }

    /// The next event. Nothing is lost when the future is dropped.
    ///
    /// # Panics
    /// When the task has died, which is a fault of this program.
    pub async fn next(&mut self) -> EgressEvent {
        if let Some(event) = self.ahead.pop_front() {
            return event;
        }
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
        match event {
            EgressEvent::Acked(seq) => {
                let link = self.link.as_mut().expect("entries are acknowledged while connected");
                link.on_their_way.remove(seq);
                self.care.on_acked();
            }
            EgressEvent::Down { error } => {
                let Some(link) = self.link.take() else { return };
                if matches!(error, LinkError::Closed | LinkError::KeepsClosing) {
                    let rejected = self.care.on_closed(&link.on_their_way, self.window);
                    self.ahead.extend(rejected.map(EgressEvent::Rejected));
                }
            }
            EgressEvent::Up | EgressEvent::Rejected(_) => {}
        }
    }

    /// How many entries [`Egress::publish`] would take now.
    pub fn window(&self) -> usize {
        let limit = self.care.limit(self.window);
        self.link.as_ref().map_or(0, |link| limit.saturating_sub(link.on_their_way.len()))
    }

    /// How many entries are on their way without a PUBACK; none while there is no connection.
    pub fn in_flight(&self) -> usize {
        self.link.as_ref().map_or(0, |link| link.on_their_way.len())
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
        let free = self.window();
        let link = self.link.as_mut().ok_or(PublishError::Down)?;
        if free == 0 {
            return Err(PublishError::Full);
        }
        link.on_their_way.insert(seq);
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

    /// Takes leave. PUBACKs still on their way are not waited for: that is for [`Self::next`].
    pub async fn close(self) {
        let Some(link) = &self.link else { return };
        if link.client.try_disconnect().is_ok() {
            drop(self.events);
            self.task.ended(GOODBYE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
