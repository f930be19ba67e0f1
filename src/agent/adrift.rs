//! While the store is away: nothing is taken in and no result is sent, but whoever asks is told, and so is the centre.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tracing::warn;

use super::leaving::say_farewell;
use super::links::egress_config;
use super::observed::{down, enter};
use super::telling::Telling;
use super::timekeeping::{may_be_right, say, timekeeping};
use super::{STORE_PAUSES, Session, until};
use crate::clock::{Clock, Keeper};
use crate::config::Config;
use crate::egress::{Egress, EgressEvent};
use crate::notify::{Line, Notify};
use crate::status::question::{Answer, Ask};
use crate::status::socket::{Request, Server};
use crate::status::{LinkState, Status, health};
use crate::store::StoreError;
use crate::time::{ClockStatus, MonoTime};

/// The agent without a store.
pub(super) struct Adrift<'a> {
    config: &'a Config,
    clock: &'a Clock,
    keeper: &'a Keeper,
    /// What the clock was worth.
    clock_status: ClockStatus,
    /// The last that was known.
    status: Status,
    egress: Egress,
    telling: Telling,
}

impl<'a> Adrift<'a> {
    /// From the last that was known, and why the store failed.
    pub(super) fn new(
        config: &'a Config,
        clock: &'a Clock,
        keeper: &'a Keeper,
        mut status: Status,
        error: &StoreError,
    ) -> Self {
        let now = clock.now();
        status.store.error = Some(error.to_string());
        for link in [&mut status.broker, &mut status.upstream] {
            enter(link, LinkState::Away, now);
            link.in_flight = 0;
        }
        let egress = Egress::start(egress_config(config, clock, &status.generation));
        let (clock_status, telling) = (clock.status(), Telling::new(Instant::now()));
        Self { config, clock, keeper, clock_status, status, egress, telling }
    }

    /// Tries to open the store again, after a growing `pause`, until it opens. `None`: we were asked to end, and took
    /// leave.
    pub(super) async fn reopens(
        mut self,
        started: MonoTime,
        pause: &mut Duration,
        server: &mut Server,
        notify: &mut Notify,
        shutdown: &mut (impl Future<Output = ()> + Unpin),
    ) -> Option<Session<'a>> {
        while self.waits(*pause, server, notify, shutdown).await {
            *pause = (*pause * 2).min(STORE_PAUSES.1);
            match Session::open(self.config, self.clock, started, notify) {
                Ok(session) => return Some(session),
                Err(error) => {
                    warn!(%error, ?pause, "the store cannot be opened yet");
                    self.status.store.error = Some(error.to_string());
                }
            }
        }
        notify.stopping("leaving without the store");
        self.leave().await;
        None
    }

    /// Waits. `false`: we are asked to end.
    async fn waits(
        &mut self,
        pause: Duration,
        server: &mut Server,
        notify: &mut Notify,
        shutdown: &mut (impl Future<Output = ()> + Unpin),
    ) -> bool {
        let reopens_at = Instant::now() + pause;
        loop {
            notify.turn(false, || self.line(pause));
            let look_at = self.telling.look_at;
            tokio::select! {
                () = &mut *shutdown => return false,
                () = sleep_until(reopens_at) => return true,
                request = server.next() => self.on_asked(request),
                event = self.egress.next() => self.on_egress(&event),
                () = sleep_until(look_at) => self.look(),
                () = self.keeper.changed() => self.on_clock(),
                () = until(notify.wake_at()) => {}
            }
        }
    }

    fn line(&self, pause: Duration) -> Line {
        let error = self.status.store.error.as_deref().unwrap_or_default();
        let again = pause.as_secs();
        let state = format!("the store failed, and is opened again after {again} s: {error}");
        Line { state, ..Line::default() }
    }

    /// Takes leave of the centre.
    async fn leave(mut self) {
        say_farewell(&mut self.egress, self.clock, &self.status.generation);
        self.egress.close().await;
    }

    fn on_asked(&mut self, request: Request) {
        match request.ask {
            Ask::Status {} => request.status(self.judged()),
            Ask::Devices { .. } | Ask::Device { .. } | Ask::Forget { .. } => {
                let message = "the store cannot be used; `tidegate status` says why";
                request.answer(&Answer::Refused(message.to_owned()));
            }
        }
    }

    fn judged(&mut self) -> &Status {
        self.status.at = self.clock.now().wall.0;
        self.status.clock = Some(self.clock.status().quality);
        self.status.timekeeping = timekeeping(self.config, self.clock);
        self.status.health = health::judge(&self.status);
        &self.status
    }

    /// Jumps wait until there is a store for them.
    fn on_clock(&mut self) {
        let status = self.clock.status();
        if may_be_right(status) && !may_be_right(self.clock_status) {
            self.egress.retry_now();
        }
        say(self.clock_status, status);
        self.clock_status = status;
        self.telling.soon(Instant::now());
    }

    fn on_egress(&mut self, event: &EgressEvent) {
        let now = self.clock.now();
        match event {
            EgressEvent::Up => {
                enter(&mut self.status.upstream, LinkState::Connected, now);
                self.telling.again(Instant::now());
            }
            EgressEvent::Down { error } => down(&mut self.status.upstream, error, now),
            EgressEvent::Acked(_) | EgressEvent::Rejected(_) => {}
        }
    }

    fn look(&mut self) {
        let now = Instant::now();
        if self.telling.looks(&self.egress, now) {
            self.judged();
            self.telling.tell(&mut self.egress, &self.status, now);
        }
    }
}
