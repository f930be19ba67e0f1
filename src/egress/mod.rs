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
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};

use self::care::Care;
use crate::ids::OutboxSeq;
use crate::mqtt::{Accepted, Broker, Client, LinkError, Task};

/// Largest topic and payload together, in bytes.
pub const LARGEST: usize = 1 << 20;

/// Stands for a message that is in no outbox: see [`Egress::tell`].
pub const TOLD: OutboxSeq = OutboxSeq(u64::MAX);

/// Messages of ours and the leave-taking, for which there is always room beside the window.
const BESIDE: usize = 3;

/// What the packet of a publish has besides topic and payload, at most.
const OVERHEAD: usize = 16;

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
    /// What the broker is to say, retained, when it no longer hears us: topic below the prefix, and payload.
    pub will: Option<(String, Vec<u8>)>,
}

impl EgressConfig {
    /// A configuration with 100 publishes in flight.
    pub fn new(broker: Broker, prefix: &str) -> Self {
        Self { broker, in_flight: 100, prefix: prefix.into(), will: None }
    }

    /// A topic below the prefix.
    fn full_topic(&self, topic: &str) -> String {
        below(&self.prefix, topic)
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
    /// The broker has taken this entry over, or [`TOLD`]. There is room in the window again.
    Acked(OutboxSeq),
    /// The broker refuses this entry or closes the connection on it, alone and more than once: it is
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
    #[error("{size} bytes of topic and payload, of at most {most}")]
    TooLarge {
        /// Topic and payload together, in bytes.
        size: usize,
        /// What goes through: [`LARGEST`], or less where the broker says so.
        most: usize,
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
    hurry: Arc<Notify>,
    task: Task,
}

/// The connection that the last `Up` spoke of.
#[derive(Debug)]
struct Link {
    client: Client,
    /// Entries in the order in which they are given to the client.
    given: mpsc::UnboundedSender<OutboxSeq>,
    /// Those of them that have no PUBACK.
    on_their_way: BTreeSet<OutboxSeq>,
    /// What the broker grants.
    accepted: Accepted,
}

impl Link {
    fn new(client: Client, given: mpsc::UnboundedSender<OutboxSeq>, accepted: Accepted) -> Self {
        Self { client, given, on_their_way: BTreeSet::new(), accepted }
    }

    /// The window, which in MQTT 5 the broker may narrow.
    fn window(&self, configured: usize) -> usize {
        self.accepted.receive_maximum.map_or(configured, |most| configured.min(most.into()))
    }

    /// Topic and payload that may go out, in bytes.
    fn largest(&self) -> usize {
        self.accepted.largest.map_or(LARGEST, |most| most.saturating_sub(OVERHEAD).min(LARGEST))
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
        Self::start_after(std::future::ready(()), config)
    }

    /// Takes leave as [`Self::close`] does and, once that is done, connects in this way.
    pub fn change(&mut self, config: EgressConfig) {
        let (leaves, left) = oneshot::channel::<Task>();
        let before_it = async {
            if let Ok(task) = left.await {
                task.ended(GOODBYE).await;
            }
        };
        let Self { events, link, task, .. } =
            std::mem::replace(self, Self::start_after(before_it, config));
        if link.is_some_and(|link| link.client.try_disconnect().is_ok()) {
            drop(events);
            // Nobody takes it when the runtime ends, and with it the task.
            let _ending = leaves.send(task);
        }
    }

    fn start_after(
        before_it: impl Future<Output = ()> + Send + 'static,
        config: EgressConfig,
    ) -> Self {
        let (outlet, events) = mpsc::channel(config.window() + 16);
        let (window, prefix) = (config.window(), config.prefix.clone());
        let hurry = config.broker.hurry.clone();
        let task = Task::spawn(async {
            before_it.await;
            connection::run(config, outlet).await;
        });
        let (ahead, care) = (VecDeque::new(), Care::default());
        Self { events, ahead, link: None, care, window, prefix, hurry, task }
    }

    /// What was wrong may be right now: a pause between two attempts ends.
    pub fn retry_now(&self) {
        self.hurry.notify_one();
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
                if error.is_closing() || matches!(error, LinkError::PublishRefused(_)) {
                    let window = link.window(self.window);
                    let rejected = self.care.on_closed(&link.on_their_way, window);
                    self.ahead.extend(rejected.map(EgressEvent::Rejected));
                }
            }
            EgressEvent::Up | EgressEvent::Rejected(_) => {}
        }
    }

    /// How many entries [`Egress::publish`] would take now.
    pub fn window(&self) -> usize {
        self.link.as_ref().map_or(0, |link| {
            let limit = self.care.limit(link.window(self.window));
            limit.saturating_sub(link.on_their_way.len())
        })
    }

    /// How many entries are on their way without a PUBACK; none while there is no connection.
    pub fn in_flight(&self) -> usize {
        let all = self.link.as_ref().map_or(0, |link| link.on_their_way.len());
        all - usize::from(self.is_telling())
    }

    /// Whether there is a connection.
    pub fn is_up(&self) -> bool {
        self.link.is_some()
    }

    /// Whether what [`Self::tell`] was given last is on its way without a PUBACK.
    pub fn is_telling(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.on_their_way.contains(&TOLD))
    }

    /// Publishes something retained at QoS 1, below the prefix, beside the window: one message at a time, and another
    /// when we leave. It is in no outbox; its PUBACK comes as that of [`TOLD`].
    pub fn tell(&mut self, topic: &str, payload: Vec<u8>) -> Result<(), PublishError> {
        let topic = self.full_topic(topic)?;
        self.give(TOLD, topic, true, payload)
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
        let most = self.link.as_ref().map_or(LARGEST, Link::largest);
        if size > most {
            return Err(PublishError::TooLarge { size, most });
        }
        if self.link.is_some() && self.window() == 0 {
            return Err(PublishError::Full);
        }
        self.give(seq, topic, false, payload)
    }

    fn give(
        &mut self,
        seq: OutboxSeq,
        topic: String,
        retain: bool,
        payload: Vec<u8>,
    ) -> Result<(), PublishError> {
        let link = self.link.as_mut().ok_or(PublishError::Down)?;
        link.on_their_way.insert(seq);
        // Both fail only when the connection is gone. `Down` is then on its way, and what became of
        // this connection's entries does not matter any more.
        link.given.send(seq).map_err(|_| PublishError::Down)?;
        link.client.try_publish(topic, retain, payload).map_err(|_| PublishError::Down)
    }

    fn full_topic(&self, topic: &str) -> Result<String, PublishError> {
        let full = below(&self.prefix, topic);
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

fn below(prefix: &str, topic: &str) -> String {
    match prefix.trim_end_matches('/') {
        "" => topic.to_owned(),
        prefix => format!("{prefix}/{topic}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::Version;

    #[tokio::test]
    async fn what_can_never_be_sent_is_told_apart_from_what_cannot_be_sent_now() {
        let broker = Broker::new(Version::V311, "127.0.0.1", 9, "gw");
        let mut egress = Egress::start(EgressConfig::new(broker, "tidegate/gw/"));
        let mut publish = |topic: &str, size| egress.publish(OutboxSeq(1), topic, vec![0; size]);
        assert_eq!(publish("window/hour", 10), Err(PublishError::Down));
        assert_eq!(
            publish("window/+", 10),
            Err(PublishError::Topic("tidegate/gw/window/+".into()))
        );
        let size = LARGEST + "tidegate/gw/t".len();
        assert_eq!(publish("t", LARGEST), Err(PublishError::TooLarge { size, most: LARGEST }));
    }
}
