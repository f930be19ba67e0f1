//! One connection after the other, and the incoming half of each.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rumqttc::QoS;
use tokio::select;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::catch_up::{CatchUp, Due};
use super::writer::{Command, Writer, probe_topic};
use super::{AckToken, IngressConfig, IngressEvent, Item, Outlet, Received};
use crate::mqtt::{
    self, CONNECT_TIMEOUT, Event, Events, LinkError, Message, Retry, Verdict, Version, Wishes,
};
use crate::time::Now;

/// Requests on their way to the event loop. The writer waits when there are more.
const REQUESTS: usize = 64;

/// Publishes of ours, probes that is, that may be unacknowledged. The client library reserves memory
/// for each.
const OUTGOING: u16 = 16;

/// What a packet may hold besides its payload: a topic of any length, and properties.
const OVERHEAD: usize = 66 << 10;

/// In 3.1.1 the broker cannot be told a largest packet, and one that is above ours comes again on every connection: it
/// has to be read, to be counted as too large. This much memory is spent on that.
const INCOMING_V311: usize = 16 << 20;

/// The intake task.
pub(super) struct Intake {
    pub(super) config: IngressConfig,
    pub(super) now: Box<dyn Fn() -> Now + Send + Sync>,
    pub(super) outlet: Outlet,
    pub(super) tokens: mpsc::UnboundedReceiver<Vec<AckToken>>,
    pub(super) redelivered: Arc<AtomicU64>,
    /// The session at the broker holds our filters, all of them: it was told so by this process.
    pub(super) again: Arc<Notify>,
    pub(super) subscribed: bool,
}

impl Intake {
    /// Connects, again and again, until the agent leaves.
    pub(super) async fn run(mut self) {
        let mut retry = Retry::new("ingress", &self.config.broker);
        for epoch in 1.. {
            let Err(error) = self.connection(epoch, &mut retry).await else { return };
            let (error, pause) = retry.down(self.config.broker.dated(error));
            self.outlet.tell(Item::Event(IngressEvent::Down { error })).await;
            if self.agent_leaves_within(pause).await {
                return;
            }
        }
    }

    /// One connection, from the first packet to the last. `Ok` when we took leave.
    async fn connection(&mut self, epoch: u32, retry: &mut Retry) -> Result<(), LinkError> {
        let (client, events) = mqtt::open(&self.config.broker, &wishes(&self.config)).await?;
        let (commands, to_do) = mpsc::unbounded_channel();
        let written = AtomicU64::new(0);
        let writer = Writer {
            config: &self.config,
            client,
            outlet: &self.outlet,
            tokens: &mut self.tokens,
            epoch,
            written: &written,
            settled: 0,
            fence: None,
            leaving: false,
        };
        let reader = Reader {
            config: &self.config,
            now: &*self.now,
            outlet: &self.outlet,
            redelivered: &self.redelivered,
            again: &self.again,
            subscribed: &mut self.subscribed,
            retry,
            epoch,
            commands,
            catch_up: CatchUp::new(),
            probe_topic: probe_topic(&self.config.broker.client_id),
            dropping: self.config.dropped_filters.len(),
            received: 0,
            acknowledged: &written,
            keep_alive: self.config.broker.keep_alive(),
            silent_at: Instant::now() + CONNECT_TIMEOUT * 2,
        };
        select! {
            end = reader.run(events) => end,
            never = writer.run(to_do) => never,
        }
    }

    /// Waits; acknowledgements for the connection that is gone go nowhere.
    async fn agent_leaves_within(&mut self, pause: Duration) -> bool {
        let leaves = async { while self.tokens.recv().await.is_some() {} };
        select! {
            () = leaves => true,
            () = self.config.broker.pause(pause) => false,
        }
    }
}

fn wishes(config: &IngressConfig) -> Wishes {
    let packet = config.max_payload.saturating_add(OVERHEAD);
    Wishes {
        session: Some(config.session_expiry).filter(|session| !session.is_zero()),
        receive_maximum: Some(config.in_flight),
        incoming: match config.broker.version {
            Version::V5 => packet,
            Version::V311 => packet.max(INCOMING_V311),
        },
        // Subscriptions, and probes.
        outgoing: 1 << 20,
        packet_ids: OUTGOING,
        requests: REQUESTS,
        will: None,
    }
}

/// The incoming half of one connection.
struct Reader<'a> {
    config: &'a IngressConfig,
    now: &'a (dyn Fn() -> Now + Send + Sync),
    outlet: &'a Outlet,
    redelivered: &'a AtomicU64,
    again: &'a Notify,
    subscribed: &'a mut bool,
    retry: &'a mut Retry,
    epoch: u32,
    commands: mpsc::UnboundedSender<Command>,
    catch_up: CatchUp,
    probe_topic: String,
    /// Answers to requests to give up a filter that are still to come before those of fences.
    dropping: usize,
    /// Messages received that need an acknowledgement, and how many of those were written.
    received: u64,
    acknowledged: &'a AtomicU64,
    keep_alive: Duration,
    /// When the link counts as dead, unless something comes.
    silent_at: Instant,
}

impl Reader<'_> {
    async fn run(mut self, mut events: Events) -> Result<(), LinkError> {
        loop {
            let event = self.poll(&mut events).await?;
            if matches!(event, Event::Left) {
                return Ok(());
            }
            if event.is_incoming() {
                // The broker may have asked for another one.
                self.keep_alive = events.keep_alive();
                self.on_event(event).await?;
                self.silent_at = Instant::now() + self.keep_alive.mul_f32(1.5);
            }
        }
    }

    /// The next event. The event loop's future must not be dropped before it is done, or a packet may
    /// be lost half-written: what else is due is done beside it.
    async fn poll(&mut self, events: &mut Events) -> Result<Event, LinkError> {
        let mut event = pin!(events.poll());
        loop {
            let due = self.catch_up.next_deadline();
            select! {
                biased;
                event = &mut event => return event,
                () = sleep_until(self.silent_at) => return Err(self.silent()),
                () = self.again.notified() => self.catch_up.again(Instant::now()),
                () = sleep_until(due.unwrap_or(self.silent_at)) => self.on_due().await,
            }
        }
    }

    fn silent(&self) -> LinkError {
        LinkError::Silent(self.keep_alive.mul_f32(1.5))
    }

    async fn on_due(&mut self) {
        let now = Instant::now();
        match self.catch_up.take_due(now) {
            Some(Due::Probe) => self.order(Command::Probe(self.catch_up.nonce())),
            Some(Due::Silence) if self.window_is_full() => self.catch_up.on_noise(now),
            Some(Due::Silence) => {
                self.catch_up.on_silence();
                warn!(topic = %self.probe_topic, "no probe came back; 10 s of silence have to do");
                self.caught_up().await;
            }
            None => {}
        }
    }

    /// Whether the broker waits for us before it may send more: its silence then means nothing.
    fn window_is_full(&self) -> bool {
        let unacknowledged = self.received - self.acknowledged.load(Ordering::Relaxed);
        unacknowledged >= u64::from(self.config.in_flight)
    }

    async fn on_event(&mut self, event: Event) -> Result<(), LinkError> {
        match event {
            Event::Accepted(accepted) => self.on_connected(accepted.session_present).await,
            Event::Subscribed(refusals) => self.on_subscribed(&refusals).await,
            Event::Message(message) => self.on_message(message).await?,
            Event::Answered { verdict, .. } => self.on_probe_taken(&verdict),
            Event::Unsubscribed => self.on_filter_given_up(),
            _ => {}
        }
        Ok(())
    }

    async fn on_connected(&mut self, session_present: bool) {
        self.retry.up();
        info!(session_present, "session {}", if session_present { "resumed" } else { "new" });
        self.outlet.tell(Item::Up { epoch: self.epoch, session_present }).await;
        // In 3.1.1 each subscription brings the retained messages again, so it is made no more often than it has to be.
        let again = *self.subscribed && self.config.broker.version == Version::V311;
        if session_present && again {
            self.dropping = 0;
            self.outlet.tell(Item::Event(IngressEvent::Subscribed)).await;
            self.catch_up.on_subscribed(Instant::now());
        } else {
            self.order(Command::Subscribe);
        }
    }

    async fn on_subscribed(&mut self, refusals: &[Option<String>]) {
        let asked = self.config.filters.iter().chain([&self.probe_topic]);
        let unanswered = Some("no answer".to_owned());
        let mut answers = refusals.iter().chain(std::iter::repeat(&unanswered));
        let mut filters = Vec::new();
        for filter in asked {
            if let Some(Some(reason)) = answers.next() {
                warn!(%filter, reason, "subscription refused; check the broker's access list");
                filters.push(filter.clone());
            }
        }
        *self.subscribed = filters.is_empty();
        filters.retain(|filter| *filter != self.probe_topic);
        let accepted = filters.len() < self.config.filters.len();
        if !filters.is_empty() {
            self.outlet.tell(Item::Event(IngressEvent::Refused { filters })).await;
        }
        if accepted {
            self.outlet.tell(Item::Event(IngressEvent::Subscribed)).await;
        }
        self.catch_up.on_subscribed(Instant::now());
    }

    async fn on_message(&mut self, message: Message) -> Result<(), LinkError> {
        let ack = AckToken { epoch: self.epoch, pkid: message.pkid, qos: message.qos };
        if message.topic == self.probe_topic {
            return self.on_probe(&message.payload, ack).await;
        }
        self.received += u64::from(message.qos != QoS::AtMostOnce);
        self.redelivered.fetch_add(message.dup.into(), Ordering::Relaxed);
        let received = Received {
            topic: message.topic,
            payload: message.payload,
            retain: message.retain,
            dup: message.dup,
            arrival: (self.now)(),
            ack,
        };
        self.outlet.message(received).await?;
        self.catch_up.on_noise(Instant::now());
        Ok(())
    }

    async fn on_probe(&mut self, payload: &[u8], ack: AckToken) -> Result<(), LinkError> {
        if !ack.is_empty() {
            self.order(Command::AckProbe(ack));
        }
        if self.catch_up.on_probe(payload) {
            self.caught_up().await;
        }
        Ok(())
    }

    async fn caught_up(&mut self) {
        self.outlet.tell(Item::Event(IngressEvent::CaughtUp)).await;
    }

    fn on_probe_taken(&self, verdict: &Verdict) {
        if let Verdict::NotNow(reason) | Verdict::Refused(reason) = verdict {
            let topic = &self.probe_topic;
            warn!(%topic, reason, "probe refused; allow this client to write and read the topic");
        }
    }

    fn on_filter_given_up(&mut self) {
        match self.dropping.checked_sub(1) {
            Some(left) => self.dropping = left,
            None => self.order(Command::FenceAnswered),
        }
    }

    /// The writer lives as long as the reader.
    fn order(&self, command: Command) {
        let _ = self.commands.send(command);
    }
}
