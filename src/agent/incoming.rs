//! What the devices' broker sends, and how the connection to it is.

use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use super::Session;
use super::observed::{down, enter};
use crate::engine::input::{self, Input, Publish, Topic};
use crate::ingress::{IngressEvent, Received};
use crate::phase::{Phase, reach};
use crate::status::LinkState;

/// The loop wakes more often than this, whatever happens: to look whether the centre is to be told something.
const ASLEEP: Duration = Duration::from_secs(15);

impl Session<'_> {
    /// The machine slept, or this process was stopped: what the devices sent meanwhile is not yet heard, and nobody was
    /// silent.
    pub(super) fn notice_absence(&mut self) {
        let asleep = self.clock.machine_time(self.clock.now().mono - self.awake_at.mono);
        if asleep < ASLEEP || !self.caught_up {
            return;
        }
        warn!(?asleep, "the agent did not run for a while; first what came meanwhile is heard");
        self.caught_up = false;
        enter(&mut self.observed.broker, LinkState::CatchingUp, self.clock.now());
        self.handle(Input::Ingress(input::Ingress::Absent), self.awake_at);
        self.ingress.catch_up_again();
    }

    pub(super) fn on_ingress(&mut self, event: IngressEvent) {
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
                enter(&mut self.observed.broker, LinkState::CatchingUp, now);
                self.observed.refused_filters.clear();
                self.handle(Input::Ingress(input::Ingress::Up), now);
            }
            IngressEvent::CaughtUp => {
                info!("caught up with what the broker had queued");
                self.caught_up = true;
                self.subscriptions.settle();
                enter(&mut self.observed.broker, LinkState::Connected, now);
                self.telling.soon(Instant::now());
                self.handle(Input::Ingress(input::Ingress::CaughtUp), now);
            }
            IngressEvent::Subscribed => self.observed.subscribed = true,
            IngressEvent::AcksSettled => {
                let through = self.acknowledged;
                self.handle(Input::Ingress(input::Ingress::AcksSettled { through }), now);
            }
            IngressEvent::Down { error } => {
                debug!(%error, "not connected to the devices' broker");
                self.caught_up = false;
                self.observed.subscribed = false;
                down(&mut self.observed.broker, &error, now);
                self.telling.soon(Instant::now());
                self.handle(Input::Ingress(input::Ingress::Down), now);
            }
            IngressEvent::Refused { filters } => {
                error!(?filters, "the devices' broker refused to subscribe us; check its ACL");
                self.observed.refused_filters = filters;
                self.telling.soon(Instant::now());
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
        self.observed.no_room(self.engine.books().no_room, message.arrival);
        self.uncommitted.push(message.ack);
        self.commit_soon();
        reach(Phase::Receiving);
    }
}
