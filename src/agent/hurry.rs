//! What cannot wait for the commit interval.

use std::time::Duration;

use tokio::time::Instant;

use super::Session;

/// Shortest pause between two commits that are made only because something cannot wait: a whole fleet may come or go at
/// once.
const HURRY: Duration = Duration::from_secs(1);

impl Session<'_> {
    /// Something was said that cannot wait. While a backlog is worked off nothing is news enough to pay for a commit of
    /// its own.
    pub(super) fn hurry(&mut self) {
        if self.effects.urgent && self.caught_up {
            let at = self.committed_at.map_or_else(Instant::now, |last| last + HURRY);
            self.commit_at = Some(self.commit_at.map_or(at, |due| due.min(at)));
        }
    }
}
