//! `tidegate run`: devices' broker → engine → one durable commit → acknowledgements → central broker.
//!
//! One loop waits for one thing at a time and never for two. The order that nothing may change: a batch is committed,
//! then its messages are acknowledged, in the order in which they came and on the connection that brought them, and
//! then its outputs may be sent. A crash at any point makes the broker deliver again; `engine::dedup` drops the copy.
//!
//! When the store fails, everything is dropped and built anew from the store: carrying on from memory would
//! acknowledge what was never written.

mod links;
mod opening;

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{debug, error, info, trace, warn};

use crate::clock::Clock;
use crate::config::Config;
use crate::egress::{Egress, EgressEvent, PublishError};
use crate::engine::Engine;
use crate::engine::effect::Effects;
use crate::engine::input::{self, Input, Publish, Topic};
use crate::engine::restore::RestoreError;
use crate::ingress::{AckToken, Ingress, IngressEvent, Received};
use crate::phase::{Phase, reach};
use crate::store::{Entry, Outbox, SledStore, Store, StoreError};
use crate::time::{ClockQuality, Now};
use crate::wire::encode::{Identity, encode};

use self::links::egress_config;
pub use self::links::ingress_config;
use self::opening::{commit_now, open_store};

/// Why the agent gave up. What can be waited for is not among it.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The store cannot be used at all.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store does not go with this configuration or version.
    #[error("{path}: {source}")]
    Restore {
        /// The store.
        path: String,
        /// Why.
        source: RestoreError,
    },
    /// A password cannot be read. The file is not named: what stands in its place may be the password.
    #[error("the password-file of user `{user}` cannot be read: {source}")]
    Password {
        /// Whose password.
        user: String,
        /// What the system said.
        source: std::io::Error,
    },
}

impl AgentError {
    /// Whether another configuration would do, and nothing else.
    pub fn is_of_configuration(&self) -> bool {
        match self {
            Self::Restore { source: RestoreError::Changed(_), .. } | Self::Password { .. } => true,
            Self::Restore { .. } | Self::Store(_) => false,
        }
    }
}

/// First and longest pause before a store that failed is opened again.
const STORE_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Devices and outputs in one commit. sled keeps every page that a transaction replaces until it ends, so this bounds
/// memory in a burst of a large fleet: about 4 KB for each. A smaller fleet does not meet it.
const MAX_CHANGES: usize = 2_000;

/// How long the agent waits, when it leaves, for acknowledgements of results that are on their way.
const LAST_PUBACKS: Duration = Duration::from_secs(3);

/// Runs until `shutdown` is done, then commits and leaves cleanly, within ten seconds whatever the brokers do.
///
/// # Errors
/// The store cannot be opened at the start, or fails at the end. One that fails in between is opened again, with a
/// growing pause.
pub async fn run(config: &Config, shutdown: impl Future<Output = ()>) -> Result<(), AgentError> {
    let mut shutdown = pin!(shutdown);
    let clock = Clock::start();
    let mut session = Session::open(config, &clock)?;
    let mut pause = STORE_PAUSES.0;
    loop {
        let failed = match session.work(&mut shutdown).await {
            Ok(()) => return Ok(session.leave().await?),
            Err(failed) => failed,
        };
        let unacknowledged = session.egress.in_flight();
        error!(
            error = %failed, unacknowledged,
            "the store failed; nothing more is taken in until it is open again, and then results on their way are sent again"
        );
        drop(session);
        session = loop {
            tokio::select! {
                () = &mut shutdown => return Ok(()),
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(STORE_PAUSES.1);
            match Session::open(config, &clock) {
                Ok(session) => break session,
                Err(error) => warn!(%error, ?pause, "the store cannot be opened yet"),
            }
        };
        info!("the store is open again");
    }
}

/// Everything between one opening of the store and its failure.
struct Session<'a> {
    config: &'a Config,
    clock: &'a Clock,
    quality: ClockQuality,
    /// `None` only while a commit has it.
    store: Option<SledStore>,
    engine: Engine,
    outbox: Outbox,
    identity: Identity,
    effects: Effects,
    ingress: Ingress,
    egress: Egress,
    /// Messages handled and not committed.
    uncommitted: Vec<AckToken>,
    /// When the next commit is due.
    commit_at: Option<Instant>,
    /// Mark of the last checkpoint whose messages were acknowledged.
    acknowledged: u64,
    /// Everything that the devices' broker had queued is processed.
    caught_up: bool,
}

/// What the loop woke up for.
enum Wake {
    Shutdown,
    Egress(EgressEvent),
    Ingress(IngressEvent),
    Commit,
    Tick,
}

impl<'a> Session<'a> {
    fn open(config: &'a Config, clock: &'a Clock) -> Result<Self, AgentError> {
        let now = clock.now();
        let (mut store, engine) = open_store(config, now)?;
        reach(Phase::Recovering);
        let outbox = Outbox::load(&store, config.store.outbox_quota)?;
        let identity =
            Identity { gateway: config.gateway.as_str().into(), generation: store.generation() };
        info!(
            store = %config.store.path.display(), generation = %store.generation(),
            devices = engine.device_count(), outbox = outbox.len(), "store open"
        );
        let ingress = ingress_config(&config.broker, engine.settings())?;
        let egress = egress_config(&config.upstream)?;
        info!(devices = %ingress.broker, central = %egress.broker, "connecting");
        let clock_of_arrivals = clock.clone();
        let mut session = Self {
            config,
            clock,
            quality: clock.quality(),
            caught_up: false,
            store: None,
            engine,
            outbox,
            identity,
            effects: Effects::default(),
            ingress: Ingress::start(ingress, move || clock_of_arrivals.now()),
            egress: Egress::start(egress),
            uncommitted: Vec::new(),
            commit_at: None,
            acknowledged: 0,
        };
        session.handle(Input::Clock(session.quality), now);
        // What a new store or a changed configuration has to say of itself is in the store before anything happens.
        commit_now(&mut store, &mut session.engine, &mut session.outbox)?;
        session.store = Some(store);
        Ok(session)
    }

    async fn work(
        &mut self,
        shutdown: &mut (impl Future<Output = ()> + Unpin),
    ) -> Result<(), StoreError> {
        loop {
            match self.wait(shutdown).await {
                Wake::Shutdown => return Ok(()),
                Wake::Egress(event) => self.on_egress(event),
                Wake::Ingress(event) => self.on_ingress(event),
                Wake::Commit => self.commit().await?,
                Wake::Tick => self.tick(),
            }
            if self.must_commit() {
                self.commit().await?;
            }
            self.send()?;
        }
    }

    /// Waits for one thing. Messages that wait come before ticks, so that a tick never speaks of a time at which
    /// something that had arrived was not yet processed.
    async fn wait(&mut self, shutdown: &mut (impl Future<Output = ()> + Unpin)) -> Wake {
        let tick_at = self.tick_at();
        tokio::select! {
            biased;
            () = shutdown => Wake::Shutdown,
            event = self.egress.next() => Wake::Egress(event),
            () = until(self.commit_at) => Wake::Commit,
            event = self.ingress.next() => Wake::Ingress(event),
            () = until(tick_at) => Wake::Tick,
        }
    }

    fn tick_at(&self) -> Option<Instant> {
        let (at, reason) = self.engine.next_deadline()?;
        let wait = u64::try_from((at - self.clock.now().mono).0).unwrap_or(0);
        trace!(?reason, wait, "next deadline");
        Some(Instant::now() + Duration::from_millis(wait))
    }

    fn tick(&mut self) {
        let quality = self.clock.quality();
        if quality != self.quality {
            info!(?quality, "the gateway's clock");
            self.quality = quality;
            self.handle(Input::Clock(quality), self.clock.now());
        }
        self.handle(Input::Tick, self.clock.now());
    }

    fn on_ingress(&mut self, event: IngressEvent) {
        let now = self.clock.now();
        match event {
            IngressEvent::Message(message) => self.on_message(&message),
            IngressEvent::Up { session_present } => {
                info!(session_present, "connected to the devices' broker");
                if !session_present && self.engine.books().received > 0 {
                    warn!(
                        "the devices' broker no longer had our session: it expired or the broker lost it, and what was \
                         published since we last listened is lost; check its persistence, and broker.session-expiry"
                    );
                }
                self.handle(Input::Ingress(input::Ingress::Up), now);
            }
            IngressEvent::CaughtUp => {
                info!("caught up with what the broker had queued");
                self.caught_up = true;
                self.handle(Input::Ingress(input::Ingress::CaughtUp), now);
            }
            IngressEvent::AcksSettled => {
                let through = self.acknowledged;
                self.handle(Input::Ingress(input::Ingress::AcksSettled { through }), now);
            }
            IngressEvent::Down { error } => {
                debug!(%error, "not connected to the devices' broker");
                self.caught_up = false;
                self.handle(Input::Ingress(input::Ingress::Down), now);
            }
            IngressEvent::Refused { filters } => {
                error!(?filters, "the devices' broker refused to subscribe us; check its ACL");
            }
        }
    }

    fn on_message(&mut self, message: &Received) {
        let publish = Publish {
            topic: Topic::Name(&message.topic),
            payload: &message.payload,
            retain: message.retain,
            dup: message.dup,
        };
        self.handle(Input::Publish(publish), message.arrival);
        self.uncommitted.push(message.ack);
        self.commit_soon();
        reach(Phase::Receiving);
    }

    fn handle(&mut self, input: Input<'_>, now: Now) {
        self.engine.handle(input, now, &mut self.effects);
        for output in self.effects.outputs.drain(..) {
            let encoded = encode(&output, &self.identity, self.config.upstream.fields);
            let appended = self.outbox.append(Entry {
                topic: encoded.topic,
                payload: encoded.payload,
                class: encoded.class,
                supersedes: encoded.supersedes,
            });
            if !appended.evicted.is_empty() {
                warn!(evicted = ?appended.evicted, "the outbox is full; the least valuable had to go");
            }
        }
        if self.outbox.has_changes() {
            self.commit_soon();
        }
    }

    fn commit_soon(&mut self) {
        let interval = self.config.store.commit_interval;
        self.commit_at.get_or_insert_with(|| Instant::now() + interval);
    }

    /// Half the in-flight window waits for its acknowledgements, the transaction is large enough, or something was said
    /// that cannot wait. While a backlog is worked off nothing is news enough to pay for a commit of its own.
    fn must_commit(&self) -> bool {
        let half = (usize::from(self.config.broker.link.in_flight) / 2).max(1);
        let large = self.engine.changed_devices() + self.outbox.changes() >= MAX_CHANGES;
        self.uncommitted.len() >= half || large || (self.effects.urgent && self.caught_up)
    }

    /// Makes durable, then acknowledges.
    async fn commit(&mut self) -> Result<(), StoreError> {
        self.commit_at = None;
        self.effects.urgent = false;
        let state = self.engine.checkpoint();
        let mark = state.mark;
        let batch = self.outbox.drain_changes().with_state(state);
        if !batch.is_empty() {
            let (began, changes) = (Instant::now(), batch.state.changes.len());
            let mut store = self.store.take().expect("a commit gives it back");
            let committed = tokio::task::spawn_blocking(move || {
                let receipt = store.commit(&batch);
                (store, receipt)
            });
            let (store, receipt) = committed.await.expect("a commit does not panic");
            self.store = Some(store);
            self.outbox.committed(receipt?);
            let (messages, micros) = (self.uncommitted.len(), began.elapsed().as_micros() as u64);
            debug!(target: "tidegate::commit", messages, changes, micros, "committed");
        }
        reach(Phase::Committed);
        self.acknowledged = mark;
        self.ingress.ack(std::mem::take(&mut self.uncommitted));
        Ok(())
    }

    fn on_egress(&mut self, event: EgressEvent) {
        match event {
            EgressEvent::Up => {
                info!(outbox = self.outbox.len(), "connected to the central broker");
                self.outbox.rewind();
            }
            EgressEvent::Acked(seq) => {
                reach(Phase::Published);
                self.outbox.acked(seq);
                self.commit_soon();
            }
            EgressEvent::Rejected(seq) => {
                error!(
                    seq = seq.0,
                    "the central broker closes the connection on this output; it is dropped"
                );
                self.outbox.acked(seq);
                self.commit_soon();
            }
            EgressEvent::Down { error } => debug!(%error, "not connected to the central broker"),
        }
    }

    /// Hands committed entries to the client, as many as its window takes.
    fn send(&mut self) -> Result<(), StoreError> {
        while self.egress.window() > 0 {
            let Some(seq) = self.outbox.next_to_send() else { return Ok(()) };
            let store = self.store.as_ref().expect("no commit is under way");
            let Some(entry) = store.read(seq)? else {
                self.outbox.acked(seq);
                continue;
            };
            match self.egress.publish(seq, &entry.topic, entry.payload) {
                Ok(()) => {}
                Err(PublishError::Down | PublishError::Full) => return Ok(()),
                Err(error @ (PublishError::TooLarge { .. } | PublishError::Topic(_))) => {
                    error!(%error, topic = entry.topic, "an output cannot be sent and is dropped");
                    self.outbox.acked(seq);
                    self.commit_soon();
                }
            }
        }
        Ok(())
    }

    /// Commits, and takes leave of both brokers. Acknowledgements given so far go out, the session stays. Nothing more
    /// is sent, and what is on its way is not sent again at the next start if its acknowledgement comes in time.
    async fn leave(mut self) -> Result<(), StoreError> {
        self.commit().await?;
        let Self { ingress, mut egress, mut engine, mut outbox, store, .. } = self;
        let redelivered = ingress.redelivered();
        info!(unacknowledged = egress.in_flight(), "leaving");
        tokio::join!(ingress.close(), last_pubacks(&mut egress, &mut outbox));
        let mut store = store.expect("no commit is under way");
        commit_now(&mut store, &mut engine, &mut outbox)?;
        let unacknowledged = egress.in_flight();
        egress.close().await;
        info!(books = ?engine.books(), redelivered, outbox = outbox.len(), unacknowledged, "left");
        Ok(())
    }
}

/// Waits for the acknowledgements of what is on its way, while there is a connection and not for long.
async fn last_pubacks(egress: &mut Egress, outbox: &mut Outbox) {
    let deadline = Instant::now() + LAST_PUBACKS;
    while egress.in_flight() > 0 {
        let Ok(event) = timeout_at(deadline, egress.next()).await else { return };
        if let EgressEvent::Acked(seq) = event {
            outbox.acked(seq);
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
