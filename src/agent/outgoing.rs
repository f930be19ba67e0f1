//! From the outbox to the central broker.

use tokio::time::Instant;
use tracing::{debug, error, info};

use super::Session;
use super::observed::{down, enter};
use crate::egress::{EgressEvent, PublishError, TOLD};
use crate::phase::{Phase, reach};
use crate::status::LinkState;
use crate::store::{Store, StoreError};

impl Session<'_> {
    pub(super) fn on_egress(&mut self, event: EgressEvent) {
        match event {
            EgressEvent::Up => {
                enter(&mut self.observed.upstream, LinkState::Connected, self.clock.now());
                self.telling.again(Instant::now());
                info!(outbox = self.outbox.len(), "connected to the central broker");
                self.outbox.rewind();
            }
            EgressEvent::Acked(TOLD) => {}
            EgressEvent::Acked(seq) => {
                reach(Phase::Published);
                self.outbox.acked(seq);
                self.commit_soon();
            }
            EgressEvent::Rejected(seq) => {
                error!(seq = seq.0, "the central broker refuses this output; it is dropped");
                self.outbox.acked(seq);
                self.commit_soon();
            }
            EgressEvent::Down { error } => {
                debug!(%error, "not connected to the central broker");
                down(&mut self.observed.upstream, &error, self.clock.now());
            }
        }
    }

    /// Hands committed entries to the client, as many as its window takes.
    pub(super) fn send(&mut self) -> Result<(), StoreError> {
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
}
