//! What the service manager is told of a session, in one line.

use chrono::DateTime;

use super::Session;
use crate::notify::{Line, Notify};
use crate::status::{Link, LinkState};
use crate::time::ClockQuality;

impl Session<'_> {
    /// The loop has come round.
    pub(super) fn announce(&self, notify: &mut Notify) {
        notify.turn(self.observed.subscribed, || self.line());
    }

    fn line(&self) -> Line {
        let observed = &self.observed;
        let holding = self.engine.holding(self.clock.now());
        let held = format!("{} held", counted(holding.messages, "message"));
        let (mut state, numbers) = match observed.broker.state {
            LinkState::Away => (waiting(&observed.broker), self.numbers()),
            _ if !observed.subscribed => (self.unsubscribed(), self.numbers()),
            _ if holding.waiting.is_some() => (HOLDING.to_owned(), held),
            _ if holding.messages > 0 => (RELEASING.to_owned(), held),
            LinkState::CatchingUp => (CATCHING_UP.to_owned(), self.numbers()),
            LinkState::Connected => (self.running(), self.numbers()),
        };
        if observed.upstream.state == LinkState::Away {
            state += &format!("; central broker away since {}", moment(observed.upstream.since));
        }
        Line { state, numbers }
    }

    fn unsubscribed(&self) -> String {
        match self.observed.refused_filters.first() {
            Some(filter) => format!("the devices' broker refused to subscribe us to {filter}"),
            None => "subscribing at the devices' broker".to_owned(),
        }
    }

    fn running(&self) -> String {
        let quality = match self.clock_status.quality {
            ClockQuality::Synchronised => "synchronised",
            ClockQuality::Holdover => "running on",
            ClockQuality::Suspect => "suspect",
            ClockQuality::Unsynchronised => "not synchronised",
        };
        format!("running; clock {quality}")
    }

    fn numbers(&self) -> String {
        let devices = counted(self.engine.device_count() as u64, "device");
        format!("{devices}, {} waiting in the outbox", self.outbox.len())
    }
}

const HOLDING: &str = "holding messages until the clock is good";
const RELEASING: &str = "the clock is good: processing what was held";
const CATCHING_UP: &str = "catching up with what the devices' broker had queued";

fn waiting(broker: &Link) -> String {
    let why = broker.error.as_ref().map_or_else(String::new, |error| format!(": {error}"));
    format!("waiting for the devices' broker, {}{why}", broker.address)
}

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn moment(ms: i64) -> String {
    DateTime::from_timestamp_millis(ms)
        .map_or_else(|| "an unknown time".to_owned(), |at| at.format("%m-%d %H:%M UTC").to_string())
}
