//! An engine that takes the place of a living one, under other settings.
//!
//! It is restored from the checkpoint that the other one has just given away, as after a restart ([`restore`]). What no
//! store keeps because it ends with the process has not ended: listening goes on without a break, a gate that was open
//! stays open, and what came on this connection is not delivered again on it.
//!
//! [`restore`]: crate::engine::restore

use crate::engine::Engine;

impl Engine {
    /// Goes on where `before` was at its last checkpoint, from which this engine was restored. Nothing was handled by
    /// either since.
    pub fn carry_on(&mut self, before: Self) {
        self.clock = before.clock;
        self.caught_up = before.caught_up;
        self.listening = before.listening;
        self.gate.carry_on(&before.gate);
        self.dedup.carry_on(before.dedup);
        self.committed = before.committed;
        if self.listening.is_caught_up() {
            self.start_publishing();
        }
        // While nobody listens by a good clock, nothing is due by it: so it was when this engine was restored.
        (0..self.regions.len()).for_each(|region| self.hint(region));
    }
}
