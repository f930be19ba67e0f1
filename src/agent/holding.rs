//! Messages that are held until the time is known: gone through in the store, and spoken of.

use tokio::time::Instant;
use tracing::{info, warn};

use super::Session;
use crate::engine::held::Holding;
use crate::engine::input::Input;
use crate::status::health;
use crate::store::{Store as _, StoreError};

/// Held messages in one commit, and what they take together in bytes, about: so much of them is in memory at once.
const AT_ONCE: (usize, usize) = (500, 1 << 20);

/// What was logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// The agent was started just now.
    Asking,
    /// Everything is held.
    Holding,
    /// Only what has no time of its own.
    Waived,
    /// The clock is good, and what was held is processed.
    Releasing,
    /// Nothing is held.
    Over,
}

impl Session<'_> {
    /// Takes the next held messages from the store. What becomes of them, and that they are gone, is committed together.
    pub(super) async fn go_through_held(&mut self) -> Result<(), StoreError> {
        self.commit().await?; // what was held last is in the store then
        let Some(wanted) = self.engine.held_wanted() else { return Ok(()) };
        let store = self.store.as_ref().expect("no commit is under way");
        let (mut found, mut bytes, mut more) = (Vec::new(), 0, false);
        store.scan_state(&wanted.start..&wanted.end, &mut |key, value| {
            more = found.len() >= AT_ONCE.0 || bytes >= AT_ONCE.1;
            if !more {
                bytes += value.len();
                found.push((key.to_vec(), value.to_vec()));
            }
            !more
        })?;
        let now = self.clock.now();
        for (key, value) in &found {
            self.handle(Input::Held { key, value }, now);
        }
        if !more {
            self.handle(Input::HeldEnd, now);
        }
        self.commit().await?;
        self.tell_holding();
        Ok(())
    }

    /// Says in the log when holding begins, changes and ends.
    pub(super) fn tell_holding(&mut self) {
        let holding = self.engine.holding(self.clock.now());
        let state = state(&holding);
        let before = self.holding.replace(state);
        if before == Some(state) || (before.is_none() && state == Told::Over) {
            return;
        }
        let Holding { messages, bytes, .. } = holding;
        match state {
            Told::Asking => {
                info!("it is not known yet what time it is; messages are held until it is");
            }
            Told::Holding => warn!(
                messages, bytes, until = ?self.config.gate.sync_timeout, remedy = health::TIME_IS_NOT_KNOWN,
                "the time has not been known since the start: messages are held until it is, or for clock.sync-timeout"
            ),
            Told::Waived => warn!(
                messages,
                bytes,
                "still no good clock: records with a usable time of their own are processed and marked, the others held"
            ),
            Told::Releasing => {
                info!(messages, bytes, "the clock is good: what was held is processed");
            }
            Told::Over => info!("the clock is good; no message is held"),
        }
        self.telling.soon(Instant::now());
    }
}

fn state(holding: &Holding) -> Told {
    match holding.waiting {
        Some(_) if holding.waived => Told::Waived,
        Some(waited) if waited.0 < health::ASKED_FOR => Told::Asking,
        Some(_) => Told::Holding,
        None if holding.messages > 0 => Told::Releasing,
        None => Told::Over,
    }
}
