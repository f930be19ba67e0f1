//! `tidegate run`: devices' broker → engine → one durable commit → acknowledgements → central broker.
//!
//! One loop waits for one thing at a time and never for two. The order that nothing may change: a batch is committed,
//! then its messages are acknowledged, in the order in which they came and on the connection that brought them, and
//! then its outputs may be sent. A crash at any point makes the broker deliver again; `engine::dedup` drops the copy.
//!
//! When the store fails, everything is dropped and built anew from the store: carrying on from memory would
//! acknowledge what was never written.

mod adrift;
mod alerts;
mod announcing;
pub mod devices;
mod holding;
mod hurry;
mod incoming;
mod leaving;
mod links;
mod observed;
mod opening;
mod outgoing;
mod reload;
mod telling;
mod timekeeping;

use std::future::{Future, ready};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tracing::{debug, error, info, trace, warn};

use crate::clock::{Clock, Keeper};
use crate::config::Config;
use crate::egress::{Egress, EgressEvent};
use crate::engine::Engine;
use crate::engine::effect::Effects;
use crate::engine::input::Input;
use crate::engine::restore::RestoreError;
use crate::event::Class;
use crate::ids::OutboxSeq;
use crate::ingress::{AckToken, Ingress, IngressEvent};
use crate::notify::Notify;
use crate::phase::{Phase, reach};
use crate::status::socket::{Request, Server};
use crate::store::{Entry, Outbox, SledStore, Store, StoreError, Subscriptions};
use crate::time::{ClockStatus, MonoTime, Now};
use crate::wire::encode::{Identity, encode};

use self::adrift::Adrift;
use self::leaving::leave;
pub(crate) use self::links::{connection, covers};
pub use self::links::{connections, ingress_config, status_places};
use self::links::{date, egress_config};
use self::observed::Observed;
use self::opening::{commit_now, open_store};
use self::reload::Configured;
pub use self::reload::Reloads;
use self::telling::Telling;

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
    /// Something of the store is lost, and whoever asked is not to mend it.
    #[error(
        "{0}: something of the store is lost; the next start of the agent carries it on without"
    )]
    Damaged(String),
}

impl AgentError {
    /// Whether another configuration or another program would do, and no further try with these.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Restore {
                source: RestoreError::Changed(_) | RestoreError::Version(_), ..
            } => true,
            Self::Store(error) => error.is_newer(),
            Self::Damaged(_) => false,
        }
    }
}

/// First and longest pause before a store that failed is opened again.
const STORE_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Devices and outputs in one commit. sled keeps every page that a transaction replaces until it ends, so this bounds
/// memory in a burst of a large fleet: about 4 KB for each. A smaller fleet does not meet it.
const MAX_CHANGES: usize = 2_000;

/// Runs until `shutdown` is done, then commits and leaves cleanly, within ten seconds whatever the brokers do. `clock`
/// is what time it is for the engine; sockets and commits go by the machine's. The service manager is told over `notify`.
/// `reloads` says when there is another configuration.
///
/// # Errors
/// The store cannot be opened at the start, or fails at the end. One that fails in between is opened again, with a
/// growing pause.
pub async fn run(
    config: Config,
    clock: &Clock,
    mut notify: Notify,
    shutdown: impl Future<Output = ()>,
    mut reloads: Reloads,
) -> Result<(), AgentError> {
    let mut shutdown = pin!(shutdown);
    let started = clock.now().mono;
    let mut session = Session::open(Arc::new(config), clock, started, &mut notify)?;
    // Before anybody is asked. What is kept moves with what is heard, under whatever clock: it costs no commit.
    clock.set_floor(session.engine.listened());
    let keeper = Keeper::start(clock);
    let mut server = Server::start(&status_places(&session.config)).await;
    let mut pause = STORE_PAUSES.0;
    loop {
        let ended =
            session.work(&mut shutdown, &mut server, &keeper, &mut notify, &mut reloads).await;
        let failed = match ended {
            Ok(()) => return Ok(leave(session, &mut notify).await?),
            Err(failed) => failed,
        };
        let unacknowledged = session.egress.in_flight();
        error!(
            error = %failed, unacknowledged,
            "the store failed; nothing more is taken in until it is open again, and then results on their way are sent again"
        );
        let (last, config, configured) =
            (session.status(), session.config.clone(), session.configured.clone());
        drop(session);
        let adrift = Adrift::new(config, clock, &keeper, last, &failed);
        let reopened =
            adrift.reopens(started, &mut pause, &mut server, &mut notify, &mut shutdown).await;
        let Some(again) = reopened else { return Ok(()) };
        session = again;
        session.configured = configured;
        info!("the store is open again");
    }
}

/// Everything between one opening of the store and its failure.
struct Session<'a> {
    config: Arc<Config>,
    configured: Configured,
    clock: &'a Clock,
    /// What the engine was told of the clock.
    clock_status: ClockStatus,
    /// `None` only while a commit has it.
    store: Option<SledStore>,
    engine: Engine,
    outbox: Outbox,
    identity: Identity,
    effects: Effects,
    subscriptions: Subscriptions,
    ingress: Ingress,
    egress: Egress,
    /// Messages handled and not committed.
    uncommitted: Vec<AckToken>,
    /// When the next commit is due.
    commit_at: Option<Instant>,
    /// When the last one was made.
    committed_at: Option<Instant>,
    /// Mark of the last checkpoint whose messages were acknowledged.
    acknowledged: u64,
    /// Everything that the devices' broker had queued is processed.
    caught_up: bool,
    /// The devices' broker is another one, which cannot know us.
    moved: bool,
    /// When the last thing was done.
    awake_at: Now,
    observed: Observed,
    /// What was last logged of messages that are held.
    holding: Option<holding::Told>,
    telling: Telling,
}

/// What the loop woke up for.
enum Wake {
    Shutdown,
    Egress(EgressEvent),
    Asked(Request),
    Reload,
    Look,
    Sign,
    Ingress(IngressEvent),
    Commit,
    Held,
    Tick,
    Clock,
}

impl<'a> Session<'a> {
    fn open(
        config: Arc<Config>,
        clock: &'a Clock,
        started: MonoTime,
        notify: &mut Notify,
    ) -> Result<Self, AgentError> {
        let now = clock.now();
        let (mut store, engine) = open_store(&config, now, notify)?;
        reach(Phase::Recovering);
        let outbox = Outbox::load(&store, config.store.outbox_quota)?;
        let identity =
            Identity { gateway: config.gateway.as_str().into(), generation: store.generation() };
        info!(
            store = %config.store.path.display(), generation = %store.generation(),
            devices = engine.device_count(), outbox = outbox.len(), "store open"
        );
        let mut ingress = ingress_config(&config, engine.settings());
        let subscriptions = Subscriptions::open(&config.store.path, &ingress.filters);
        ingress.dropped_filters = subscriptions.dropped();
        date(&mut ingress.broker, clock);
        let egress = egress_config(&config, clock, &identity.generation.to_string());
        info!(devices = %ingress.broker, central = %egress.broker, "connecting");
        let addresses = [ingress.broker.to_string(), egress.broker.to_string()];
        let mut observed = Observed::new(started, now, addresses);
        observed.no_room_before(engine.books().no_room);
        let clock_of_arrivals = clock.clone();
        let mut session = Self {
            config,
            configured: Configured::new(now.wall),
            clock,
            clock_status: clock.status(),
            caught_up: false,
            moved: false,
            awake_at: now,
            store: None,
            engine,
            outbox,
            identity,
            effects: Effects::default(),
            subscriptions,
            ingress: Ingress::start(ingress, move || clock_of_arrivals.now()),
            egress: Egress::start(egress),
            uncommitted: Vec::new(),
            commit_at: None,
            committed_at: None,
            acknowledged: 0,
            observed,
            holding: None,
            telling: Telling::new(Instant::now()),
        };
        session.handle(Input::Boot(clock.boot_id().0), now);
        session.handle(Input::Clock(session.clock_status), now);
        session.tell_holding();
        // What a new store or a changed configuration has to say of itself is in the store before anything happens.
        commit_now(&mut store, &mut session.engine, &mut session.outbox)?;
        session.store = Some(store);
        Ok(session)
    }

    async fn work(
        &mut self,
        shutdown: &mut (impl Future<Output = ()> + Unpin),
        server: &mut Server,
        keeper: &Keeper,
        notify: &mut Notify,
        reloads: &mut Reloads,
    ) -> Result<(), StoreError> {
        // What it had to say while the store was away.
        self.on_clock();
        loop {
            let wake = self.wait(shutdown, server, keeper, notify.wake_at(), reloads).await;
            self.notice_absence();
            match wake {
                Wake::Shutdown => return Ok(()),
                Wake::Egress(event) => self.on_egress(event),
                Wake::Asked(request) => self.on_asked(request).await?,
                Wake::Reload => self.reload(reloads, notify).await?,
                Wake::Look => self.look(),
                Wake::Sign => {}
                Wake::Ingress(event) => self.on_ingress(event),
                Wake::Commit => self.commit().await?,
                Wake::Held => self.go_through_held().await?,
                Wake::Tick => self.tick(),
                Wake::Clock => self.on_clock(),
            }
            self.hurry();
            if self.must_commit() {
                self.commit().await?;
            }
            self.send()?;
            self.announce(notify);
            self.awake_at = self.clock.now();
        }
    }

    /// Waits for one thing. Messages that wait come before ticks, so that a tick never speaks of a time at which
    /// something that had arrived was not yet processed.
    async fn wait(
        &mut self,
        shutdown: &mut (impl Future<Output = ()> + Unpin),
        server: &mut Server,
        keeper: &Keeper,
        sign_at: Option<Instant>,
        reloads: &mut Reloads,
    ) -> Wake {
        let tick_at = self.tick_at();
        tokio::select! {
            biased;
            () = shutdown => Wake::Shutdown,
            event = self.egress.next() => Wake::Egress(event),
            request = server.next() => Wake::Asked(request),
            () = reloads.asked() => Wake::Reload,
            () = sleep_until(self.telling.look_at) => Wake::Look,
            () = until(sign_at) => Wake::Sign,
            () = keeper.changed() => Wake::Clock,
            // Before anything newer.
            () = ready(()), if self.engine.held_wanted().is_some() => Wake::Held,
            () = until(self.commit_at) => Wake::Commit,
            event = self.ingress.next() => Wake::Ingress(event),
            () = until(tick_at) => Wake::Tick,
        }
    }

    fn tick_at(&self) -> Option<Instant> {
        let (at, reason) = self.engine.next_deadline()?;
        let wait = self.clock.machine_time(at - self.clock.now().mono);
        trace!(?reason, ?wait, "next deadline");
        Some(Instant::now() + wait)
    }

    fn tick(&mut self) {
        let now = self.clock.now();
        self.tell_of_the_clock(now);
        self.handle(Input::Tick, now);
        self.tell_holding();
    }

    fn handle(&mut self, input: Input<'_>, now: Now) {
        self.engine.handle(input, now, &mut self.effects);
        let mut outputs = std::mem::take(&mut self.effects.outputs);
        for output in outputs.drain(..) {
            alerts::log(&output);
            let encoded = encode(&output, &self.identity, self.config.upstream.fields);
            self.append(Entry::of(encoded, now.wall));
        }
        self.effects.outputs = outputs;
        if self.outbox.has_changes() {
            self.commit_soon();
        }
    }

    fn append(&mut self, entry: Entry) {
        let appended = self.outbox.append(entry);
        self.note_evicted(&appended.evicted);
    }

    fn note_evicted(&mut self, evicted: &[(OutboxSeq, Class)]) {
        if !evicted.is_empty() {
            self.observed.evicted(evicted.iter().map(|(_, class)| *class), self.clock.now());
            warn!(?evicted, "the outbox is full; the least valuable had to go");
        }
    }

    fn commit_soon(&mut self) {
        let interval = self.config.store.commit_interval;
        self.commit_at.get_or_insert_with(|| Instant::now() + interval);
    }

    /// Half the in-flight window waits for its acknowledgements, or the transaction is large enough.
    fn must_commit(&self) -> bool {
        let half = (usize::from(self.config.broker.link.in_flight) / 2).max(1);
        let large = self.engine.changed_devices() + self.outbox.changes() >= MAX_CHANGES;
        self.uncommitted.len() >= half || large
    }

    /// Makes durable, then acknowledges.
    async fn commit(&mut self) -> Result<(), StoreError> {
        (self.commit_at, self.committed_at) = (None, Some(Instant::now()));
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
            self.observed.last_commit = Some((self.clock.now().wall, micros / 1_000));
            debug!(target: "tidegate::commit", messages, changes, micros, "committed");
        }
        reach(Phase::Committed);
        self.acknowledged = mark;
        self.ingress.ack(std::mem::take(&mut self.uncommitted));
        Ok(())
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
