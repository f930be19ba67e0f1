//! Intake: a persistent session at the devices' broker, with acknowledgements by hand.
//!
//! [`Ingress`] is the agent's end. The other end is a task that makes one connection after the other
//! (`connection`), each with a reader and a writer, and hands everything over in the order in which
//! it came, through a channel that is bounded in messages and in bytes. When the channel is full the
//! socket is not read: the broker keeps the rest, which is what it is for.
//!
//! # What holds
//! - A message is acknowledged only on the connection that brought it. An acknowledgement of an older
//!   one is dropped, since the broker may have given its packet id to another message; it delivers
//!   again what was not acknowledged.
//! - [`IngressEvent::CaughtUp`] comes after every message that the broker had queued (`catch_up`).
//! - [`IngressEvent::AcksSettled`] comes when the broker has answered a request that was sent after
//!   the last acknowledgement: it has then read them all.

mod catch_up;
mod connection;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rumqttc::QoS;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};

use crate::mqtt::{Broker, LinkError, Task};
use crate::time::Now;

/// Bytes of messages that may wait for the agent, whatever their number.
const BUFFER_BYTES: usize = 8 << 20;

/// How long to wait for a clean end.
const GOODBYE: Duration = Duration::from_secs(3);

/// How to take messages in.
#[derive(Clone, Debug)]
pub struct IngressConfig {
    /// The devices' broker.
    pub broker: Broker,
    /// Valid MQTT filters to subscribe to, at QoS 1.
    pub filters: Vec<String>,
    /// Filters of an earlier configuration, which the session may still hold: they are given up.
    pub dropped_filters: Vec<String>,
    /// Most messages that the broker may have sent without an acknowledgement, 1 to 65,535. In MQTT 5 it is told
    /// ("receive maximum"); in 3.1.1 this is what it grants by itself.
    pub in_flight: u16,
    /// Longest payload in bytes. In MQTT 5 the broker is told, and withholds what is much longer.
    pub max_payload: usize,
    /// How long the broker keeps the session, and queues for it, while we are away. In 3.1.1 it decides by itself.
    pub session_expiry: Duration,
}

impl IngressConfig {
    /// A configuration with 10,000 messages in flight, payloads to 256 KiB, a session kept for a week.
    pub fn new(broker: Broker, filters: Vec<String>) -> Self {
        Self {
            broker,
            filters,
            dropped_filters: Vec::new(),
            in_flight: 10_000,
            max_payload: 256 << 10,
            session_expiry: Duration::from_secs(7 * 24 * 3_600),
        }
    }
}

/// What intake tells the agent, in the order in which it happened.
#[derive(Debug)]
pub enum IngressEvent {
    /// Connected. What the broker had queued is still to come.
    Up {
        /// The broker had kept the session. If not, what it had queued is lost.
        session_present: bool,
    },
    /// The broker refused to subscribe us to these filters: nothing will come from them.
    Refused {
        /// As configured.
        filters: Vec<String>,
    },
    /// The broker has accepted a subscription of ours, not necessarily all of them: `Refused` came before this then.
    Subscribed,
    /// A message.
    Message(Received),
    /// Every message that the broker had queued has come before this.
    CaughtUp,
    /// The broker has read every acknowledgement given so far: none of these messages comes again.
    AcksSettled,
    /// There is no connection. Told again for each attempt that fails.
    Down {
        /// Why.
        error: LinkError,
    },
}

/// A message as it was received.
#[derive(Debug)]
pub struct Received {
    /// Its topic.
    pub topic: String,
    /// Its payload.
    pub payload: Bytes,
    /// It was retained when we subscribed: history, not news.
    pub retain: bool,
    /// The broker may have delivered it before.
    pub dup: bool,
    /// When it was taken from the connection.
    pub arrival: Now,
    /// What to give to [`Ingress::ack`] when it is safe.
    pub ack: AckToken,
}

/// The right to acknowledge one message, on the connection that brought it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckToken {
    epoch: u32,
    pkid: u16,
    qos: QoS,
}

impl AckToken {
    /// Whether the message was sent at QoS 0: then there is nothing to acknowledge, and giving it to
    /// [`Ingress::ack`] does nothing.
    pub fn is_empty(&self) -> bool {
        self.qos == QoS::AtMostOnce
    }
}

/// The agent's end of intake.
#[derive(Debug)]
pub struct Ingress {
    queue: mpsc::Receiver<Queued>,
    acks: mpsc::UnboundedSender<Vec<AckToken>>,
    redelivered: Arc<AtomicU64>,
    hurry: Arc<Notify>,
    again: Arc<Notify>,
    task: Task,
    /// The connection that the last `Up` spoke of.
    epoch: u32,
    /// Acknowledgements given on it.
    given: u64,
}

impl Ingress {
    /// Starts to connect, in a task of the current runtime. `now` stamps the arrivals.
    ///
    /// # Panics
    /// When a filter is not a valid one: the configuration must not let it come so far.
    pub fn start(config: IngressConfig, now: impl Fn() -> Now + Send + Sync + 'static) -> Self {
        let invalid = config.filters.iter().find(|filter| !rumqttc::valid_filter(filter));
        assert_eq!(invalid, None, "not an MQTT filter");
        let (events, queue) = mpsc::channel(usize::from(config.in_flight) + 64);
        let (acks, tokens) = mpsc::unbounded_channel();
        let redelivered = Arc::new(AtomicU64::new(0));
        let outlet = Outlet {
            queue: events,
            room: Arc::new(Semaphore::new(BUFFER_BYTES)),
            patience: config.broker.keep_alive(),
        };
        let (hurry, again) = (config.broker.hurry.clone(), Arc::new(Notify::new()));
        let intake = connection::Intake {
            config,
            now: Box::new(now),
            outlet,
            tokens,
            redelivered: redelivered.clone(),
            again: again.clone(),
            subscribed: false,
        };
        let task = Task::spawn(intake.run());
        Self { queue, acks, redelivered, hurry, again, task, epoch: 0, given: 0 }
    }

    /// The next event. Nothing is lost when the future is dropped.
    ///
    /// # Panics
    /// When the task has died, which is a fault of this program.
    pub async fn next(&mut self) -> IngressEvent {
        loop {
            let queued =
                self.queue.recv().await.expect("the intake task lives as long as its owner");
            if let Some(event) = self.interpret(queued.item) {
                return event;
            }
        }
    }

    fn interpret(&mut self, item: Item) -> Option<IngressEvent> {
        match item {
            Item::Event(event) => Some(event),
            Item::Up { epoch, session_present } => {
                (self.epoch, self.given) = (epoch, 0);
                Some(IngressEvent::Up { session_present })
            }
            // More may have been given since the broker was asked; then it is asked again.
            Item::Settled { epoch, given } => {
                (epoch == self.epoch && given == self.given).then_some(IngressEvent::AcksSettled)
            }
        }
    }

    /// Acknowledges, in this order. Tokens of an older connection are dropped: the broker delivers
    /// those messages again.
    pub fn ack(&mut self, mut tokens: Vec<AckToken>) {
        tokens.retain(|token| token.epoch == self.epoch && !token.is_empty());
        if tokens.is_empty() {
            return;
        }
        self.given += tokens.len() as u64;
        // The task is gone only when it panicked; `next` says so.
        let _ = self.acks.send(tokens);
    }

    /// What was wrong may be right now: a pause between two attempts ends.
    pub fn retry_now(&self) {
        self.hurry.notify_one();
    }

    /// We were not there for a while: once all that the broker has sent meanwhile has come, [`IngressEvent::CaughtUp`] is told
    /// again.
    pub fn catch_up_again(&self) {
        self.again.notify_one();
    }

    /// Deliveries so far that the broker had marked as possible repetitions.
    pub fn redelivered(&self) -> u64 {
        self.redelivered.load(Ordering::Relaxed)
    }

    /// Sends the acknowledgements given so far and takes leave; the broker keeps the session.
    pub async fn close(self) {
        let Self { queue, acks, task, .. } = self;
        drop((queue, acks));
        task.ended(GOODBYE).await;
    }
}

/// One thing on its way to the agent, and the room it takes there.
#[derive(Debug)]
struct Queued {
    item: Item,
    _room: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
enum Item {
    Event(IngressEvent),
    Up { epoch: u32, session_present: bool },
    Settled { epoch: u32, given: u64 },
}

/// The task's end of the channel to the agent.
#[derive(Clone, Debug)]
struct Outlet {
    queue: mpsc::Sender<Queued>,
    room: Arc<Semaphore>,
    patience: Duration,
}

impl Outlet {
    /// Hands a message over when there is room for it.
    ///
    /// While we wait the connection is not served. The broker cuts it after 1.5 keep-alives without a
    /// ping; giving up after one says why.
    async fn message(&self, received: Received) -> Result<(), LinkError> {
        let bytes = received.topic.len() + received.payload.len() + size_of::<Queued>();
        let bytes = u32::try_from(bytes.min(BUFFER_BYTES)).expect("the buffer is below 4 GiB");
        let handed_over = async {
            let room = self.room.clone().acquire_many_owned(bytes).await.ok();
            let item = Item::Event(IngressEvent::Message(received));
            self.queue.send(Queued { item, _room: room }).await
        };
        let waited = tokio::time::timeout(self.patience, handed_over).await;
        // Nobody takes any more: we are leaving, and the broker will deliver it again.
        waited.map(|_leaving| ()).map_err(|_| LinkError::Stalled(self.patience))
    }

    /// Hands over what is not a message, however long it takes.
    async fn tell(&self, item: Item) {
        // As above: nobody takes any more when we are leaving.
        let _leaving = self.queue.send(Queued { item, _room: None }).await;
    }
}
