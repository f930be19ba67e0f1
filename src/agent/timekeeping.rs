//! The gateway's clock: what the engine, the centre and whoever asks are told of it.

use tokio::time::Instant;
use tracing::{info, warn};

use super::Session;
use crate::clock::{Clock, Jump, View};
use crate::config::Config;
use crate::engine::input::Input;
use crate::event::Class;
use crate::status::{Timekeeping, message};
use crate::store::Entry;
use crate::time::{ClockQuality, ClockStatus, Now};

/// Whether connections that failed for the sake of the time are worth another try.
pub(super) fn may_be_right(status: ClockStatus) -> bool {
    matches!(status.quality, ClockQuality::Synchronised | ClockQuality::Holdover)
}

impl Session<'_> {
    /// The clock has something to say.
    pub(super) fn on_clock(&mut self) {
        let now = self.clock.now();
        self.tell_of_the_clock(now);
        for jump in self.clock.take_jumps() {
            self.append_jump(&jump, now);
        }
    }

    /// Tells the engine what the clock is worth, where that has changed.
    pub(super) fn tell_of_the_clock(&mut self, now: Now) {
        let status = self.clock.status();
        if status == self.clock_status {
            return;
        }
        if may_be_right(status) && !may_be_right(self.clock_status) {
            self.egress.retry_now();
            self.ingress.retry_now();
        }
        say(self.clock_status, status);
        self.clock_status = status;
        self.telling.soon(Instant::now());
        self.handle(Input::Clock(status), now);
        self.tell_holding();
    }

    fn append_jump(&mut self, jump: &Jump, now: Now) {
        self.observed.shift(jump.shift);
        self.configured.shift(jump.shift);
        let generation = self.identity.generation.to_string();
        self.append(Entry {
            topic: message::CLOCK.to_owned(),
            payload: message::jumped(&generation, &event(jump)),
            class: Class::Alert,
            supersedes: None,
            queued: now.wall,
        });
        // Whoever relies on times should know at once.
        self.effects.urgent = true;
        self.commit_soon();
    }
}

/// Says so where somebody should know.
pub(super) fn say(before: ClockStatus, now: ClockStatus) {
    if before.quality == now.quality {
        return;
    }
    match now.quality {
        ClockQuality::Synchronised => info!("the gateway's clock is synchronised"),
        quality => warn!(?quality, "the gateway's clock"),
    }
}

fn event(jump: &Jump) -> message::Jumped {
    let Jump { from, to, shift, source, first } = jump;
    warn!(shift_ms = shift.0, %source, first, "the gateway's clock was set");
    message::Jumped {
        from: from.0,
        to: to.0,
        shift: shift.0,
        source: source.to_string(),
        initial: *first,
    }
}

/// What an operator is told of it.
pub(super) fn timekeeping(config: &Config, clock: &Clock) -> Timekeeping {
    let View { reference, offset_us, bound, refused, banned, disagreement, doubted, host_away } =
        clock.view();
    let (reference, age) = reference.unzip();
    Timekeeping {
        source: config.clock.source.as_str().to_owned(),
        servers: config.clock.servers.iter().map(ToString::to_string).collect(),
        reference: reference.map(|reference| reference.to_string()),
        age: age.map(|age| age.0),
        offset_us,
        bound: bound.map(|bound| bound.0),
        refused: refused.into_iter().map(|(reason, count)| (reason.to_owned(), count)).collect(),
        banned,
        disagreement,
        doubted: doubted.map(|shift| shift.0),
        host_away: host_away.map(|away| away.0),
    }
}
