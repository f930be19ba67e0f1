//! The clean end.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tracing::{debug, info};

use super::Session;
use super::observed::VERSION;
use super::opening::commit_now;
use crate::clock::Clock;
use crate::egress::{Egress, EgressEvent};
use crate::notify::Notify;
use crate::status::message;
use crate::store::{Outbox, StoreError};

/// How long the agent waits, when it leaves, for acknowledgements of results that are on their way.
const LAST_PUBACKS: Duration = Duration::from_secs(3);

/// Commits, and takes leave of both brokers. Acknowledgements given so far go out, the session stays. Nothing more is
/// sent but that we leave, and what is on its way is not sent again at the next start if its acknowledgement comes in
/// time.
pub(super) async fn leave(mut session: Session<'_>, notify: &mut Notify) -> Result<(), StoreError> {
    notify.stopping("leaving: committing");
    session.commit().await?;
    let Session { ingress, mut egress, mut engine, mut outbox, store, clock, identity, .. } =
        session;
    let redelivered = ingress.redelivered();
    info!(unacknowledged = egress.in_flight(), "leaving");
    say_farewell(&mut egress, clock, &identity.generation.to_string());
    notify.step(Duration::ZERO, "leaving: waiting for the central broker's acknowledgements");
    tokio::join!(ingress.close(), last_pubacks(&mut egress, &mut outbox));
    notify.step(Duration::ZERO, "leaving: committing what was acknowledged");
    let mut store = store.expect("no commit is under way");
    commit_now(&mut store, &mut engine, &mut outbox)?;
    let unacknowledged = egress.in_flight();
    egress.close().await;
    info!(books = ?engine.books(), redelivered, outbox = outbox.len(), unacknowledged, "left");
    Ok(())
}

/// Tells the centre that we leave on purpose: with our leave-taking the broker forgets the last will.
pub(super) fn say_farewell(egress: &mut Egress, clock: &Clock, generation: &str) {
    let payload = message::stopped(generation, VERSION, clock.now().wall.0);
    if let Err(error) = egress.tell(message::TOPIC, payload) {
        debug!(%error, "the centre is not told that we leave");
    }
}

/// Waits for the acknowledgements of what is on its way, while there is a connection and not for long.
async fn last_pubacks(egress: &mut Egress, outbox: &mut Outbox) {
    let deadline = Instant::now() + LAST_PUBACKS;
    while egress.in_flight() > 0 || egress.is_telling() {
        let Ok(event) = timeout_at(deadline, egress.next()).await else { return };
        if let EgressEvent::Acked(seq) = event {
            outbox.acked(seq);
        }
    }
}
