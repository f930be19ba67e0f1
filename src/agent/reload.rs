//! Another configuration while the agent runs (SIGHUP): all of it, or nothing.
//!
//! It is read as at a start, and refused with every mistake in it. Then what is there is committed and acknowledged, and
//! an engine is restored from the store under the new settings, beside the old one: what a start would refuse is refused
//! here, and the old one goes on unharmed. Only then is anything exchanged. A connection that is as good as before is
//! kept; another is left cleanly and made anew, and the broker keeps for the session what comes meanwhile.

use std::fmt;
use std::sync::Arc;

use tokio::signal::unix::Signal;
use tokio::time::{Duration, Instant, timeout_at};
use tracing::{error, info, warn};

use super::Session;
use super::leaving::{last_pubacks, say_farewell};
use super::links::{date, egress_config, ingress_config};
use super::opening::restore_again;
use crate::config::{Config, ConfigErrors, Mode};
use crate::engine::Engine;
use crate::engine::input::{self, Input};
use crate::ingress::{IngressConfig, IngressEvent};
use crate::notify::Notify;
use crate::store::{StoreError, Subscriptions};
use crate::telemetry::Logging;
use crate::time::{ArrivalTime, Now, Span};

/// Longest time for what a broker that we leave for another has still to send.
const THE_REST: Duration = Duration::from_secs(10);

/// A refusal is told in at most so many characters; the log has all of it.
const TOLD: usize = 400;

/// Where another configuration comes from.
pub struct Reloads {
    hangups: Option<Signal>,
    read: Box<dyn Fn() -> Result<Config, ConfigErrors> + Send + Sync>,
    logging: Option<Logging>,
    /// Asked for, and not yet done.
    wanted: bool,
}

impl fmt::Debug for Reloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloads").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

impl Reloads {
    /// The configuration stays as it is.
    pub fn never() -> Self {
        Self {
            hangups: None,
            read: Box::new(|| unreachable!("nobody asks")),
            logging: None,
            wanted: false,
        }
    }

    /// At each of these signals, from where `read` finds it. What is logged follows it.
    pub fn at(
        hangups: Signal,
        logging: Logging,
        read: impl Fn() -> Result<Config, ConfigErrors> + Send + Sync + 'static,
    ) -> Self {
        Self { hangups: Some(hangups), read: Box::new(read), logging: Some(logging), wanted: false }
    }

    /// Done when another configuration is asked for, and until it is there or refused. Several signals are one. Nothing
    /// is lost when the future is dropped.
    pub(super) async fn asked(&mut self) {
        if self.wanted {
            return;
        }
        let heard = match &mut self.hangups {
            Some(hangups) => hangups.recv().await,
            None => None,
        };
        match heard {
            Some(()) => self.wanted = true,
            None => std::future::pending().await,
        }
    }

    /// Reads it, as strictly as at a start.
    fn read(&self, running: &Config) -> Result<Config, ConfigErrors> {
        let config = (self.read)()?;
        config.check(Mode::Run)?;
        config.follows(running)?;
        Ok(config)
    }

    fn done(&mut self, config: &Config) {
        self.wanted = false;
        if let Some(logging) = &self.logging {
            logging.follow(&config.log.level);
        }
    }
}

/// When the configuration was read, and what became of a later one.
#[derive(Clone, Debug)]
pub(super) struct Configured {
    /// When that in use was.
    pub(super) at: ArrivalTime,
    /// When a later one was refused, and why.
    pub(super) refused: Option<(ArrivalTime, String)>,
}

impl Configured {
    pub(super) fn new(at: ArrivalTime) -> Self {
        Self { at, refused: None }
    }

    /// The clock was set: it was as long ago as before.
    pub(super) fn shift(&mut self, by: Span) {
        self.at = self.at + by;
        if let Some((at, _)) = &mut self.refused {
            *at = *at + by;
        }
    }
}

/// Why the configuration of before goes on: a line for each mistake.
type Refusal = Vec<String>;

impl Session<'_> {
    /// Goes on under the configuration as it is written now; or under that of before, and says why.
    ///
    /// # Errors
    /// The store failed. It is asked for again then.
    pub(super) async fn reload(
        &mut self,
        reloads: &mut Reloads,
        notify: &mut Notify,
    ) -> Result<(), StoreError> {
        notify.reloading();
        let began = Instant::now();
        let refusal = self.try_reload(reloads).await?.err();
        reloads.done(&self.config);
        let at = self.clock.now().wall;
        match refusal {
            None => {
                self.configured = Configured::new(at);
                info!(took = ?began.elapsed(), "the configuration is loaded anew");
            }
            Some(refusal) => {
                refusal.iter().for_each(|line| error!("{line}"));
                error!(
                    "the configuration is refused, and that of before goes on; mend it and reload again"
                );
                let mut told = refusal.join("; ");
                if let Some((end, _)) = told.char_indices().nth(TOLD) {
                    told.truncate(end);
                    told.push('…');
                }
                self.configured.refused = Some((at, told));
            }
        }
        self.telling.soon(Instant::now());
        notify.ready();
        Ok(())
    }

    async fn try_reload(&mut self, reloads: &Reloads) -> Result<Result<(), Refusal>, StoreError> {
        let config = match reloads.read(&self.config) {
            Ok(config) => Arc::new(config),
            Err(errors) => return Ok(Err(errors.to_string().lines().map(str::to_owned).collect())),
        };
        for warning in config.warnings() {
            warn!("{warning}");
        }
        let leaves = config.broker.is_elsewhere(&self.config.broker);
        self.hear_what_waits(leaves).await?;
        // Listened time up to now is in the store then, and nobody was silent meanwhile.
        let now = self.clock.now();
        self.tell_of_the_clock(now);
        self.handle(Input::Tick, now);
        self.commit().await?;
        let engine = match self.restored(&config).await? {
            Ok(engine) => engine,
            Err(why) => return Ok(Err(vec![why])),
        };
        self.exchange(config, engine, now).await?;
        self.commit().await?;
        Ok(Ok(()))
    }

    /// An engine as a start would restore it, under other settings. The store is where it was.
    async fn restored(&mut self, config: &Config) -> Result<Result<Engine, String>, StoreError> {
        let settings = config.settings(Mode::Run);
        let store = self.store.take().expect("no commit is under way");
        let restored = tokio::task::spawn_blocking(move || {
            let engine = restore_again(&store, settings);
            (store, engine)
        });
        let (store, engine) = restored.await.expect("a restore does not panic");
        self.store = Some(store);
        engine
    }

    /// Processes what was received so far. Where we leave the broker also what it has still to send; it is kept there
    /// for nobody.
    async fn hear_what_waits(&mut self, leaves: bool) -> Result<(), StoreError> {
        let deadline = Instant::now() + THE_REST;
        let all = leaves && self.caught_up;
        if all {
            self.ingress.catch_up_again();
        }
        for _ in 0..usize::from(self.config.broker.link.in_flight) + 64 {
            let Some(event) = self.ingress.ready() else { break };
            self.on_ingress(event);
            self.commit_where_due().await?;
        }
        while all && self.caught_up {
            let Ok(event) = timeout_at(deadline, self.ingress.next()).await else { break };
            let is_all = matches!(event, IngressEvent::CaughtUp);
            self.on_ingress(event);
            self.commit_where_due().await?;
            if is_all {
                break;
            }
        }
        Ok(())
    }

    async fn commit_where_due(&mut self) -> Result<(), StoreError> {
        if self.must_commit() { self.commit().await } else { Ok(()) }
    }

    /// The new engine, and the connections that it needs.
    async fn exchange(
        &mut self,
        config: Arc<Config>,
        mut engine: Engine,
        now: Now,
    ) -> Result<(), StoreError> {
        let before = ingress_config(&self.config, self.engine.settings());
        let wanted = ingress_config(&config, engine.settings());
        let hears_on = self.config.broker == config.broker && before.filters == wanted.filters;
        let tells_on = self.config.upstream.is_alike(&config.upstream);
        self.moved = config.broker.is_elsewhere(&self.config.broker);
        std::mem::swap(&mut self.engine, &mut engine);
        self.engine.carry_on(engine);
        self.config = config;
        let evicted = self.outbox.set_quota(self.config.store.outbox_quota);
        self.note_evicted(&evicted);
        // Another lateness is another measure of what the clock is worth.
        self.handle(Input::Clock(self.clock_status), now);
        if !tells_on {
            self.tell_elsewhere(now).await;
        }
        if !hears_on {
            // What came meanwhile would not all come again: at QoS 0 it is sent once.
            self.hear_what_waits(false).await?;
            self.commit().await?;
            self.listen_elsewhere(wanted);
        }
        self.tell_holding();
        Ok(())
    }

    fn listen_elsewhere(&mut self, mut ingress: IngressConfig) {
        let now = self.clock.now();
        self.caught_up = false;
        self.handle(Input::Ingress(input::Ingress::Absent), now);
        self.subscriptions = Subscriptions::open(&self.config.store.path, &ingress.filters);
        ingress.dropped_filters = self.subscriptions.dropped();
        date(&mut ingress.broker, self.clock);
        self.observed.broker_changes(ingress.broker.to_string(), now);
        let clock_of_arrivals = self.clock.clone();
        self.ingress.change(ingress, move || clock_of_arrivals.now());
    }

    async fn tell_elsewhere(&mut self, now: Now) {
        self.leave_the_centre().await;
        let generation = self.identity.generation.to_string();
        let egress = egress_config(&self.config, self.clock, &generation);
        self.observed.upstream_changes(egress.broker.to_string(), now);
        self.egress.change(egress);
    }

    /// What is on its way is acknowledged, if that takes seconds, and whoever listens there knows that we are gone.
    async fn leave_the_centre(&mut self) {
        if self.egress.is_up() {
            let generation = self.identity.generation.to_string();
            say_farewell(&mut self.egress, self.clock, &generation);
            last_pubacks(&mut self.egress, &mut self.outbox).await;
        }
    }
}
