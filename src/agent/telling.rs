//! When the centre is told how we are: at once after each connection, ten seconds after a change of health at the
//! latest, and every five minutes.

use std::time::Duration;

use tokio::time::Instant;
use tracing::debug;

use super::Session;
use crate::egress::Egress;
use crate::status::{Health, Level, Status, message};

/// How often we look at ourselves, and the shortest pause between two messages.
const LOOK: Duration = Duration::from_secs(10);

/// Longest pause between two messages.
const AGAIN: Duration = Duration::from_secs(300);

/// What was told last, and when we look again.
#[derive(Debug)]
pub(super) struct Telling {
    /// When to look at ourselves next.
    pub(super) look_at: Instant,
    told_at: Instant,
    told: Option<(Level, Vec<String>)>,
}

impl Telling {
    pub(super) fn new(now: Instant) -> Self {
        Self { look_at: now + LOOK, told_at: now, told: None }
    }

    /// There is a new connection: nothing was told on it.
    pub(super) fn again(&mut self, now: Instant) {
        (self.told, self.look_at) = (None, now);
    }

    /// Something happened that may be a change.
    pub(super) fn soon(&mut self, now: Instant) {
        let earliest = self.told.as_ref().map(|_| self.told_at + LOOK);
        self.look_at = self.look_at.min(earliest.map_or(now, |earliest| earliest.max(now)));
    }

    /// There is nobody to be told.
    pub(super) fn later(&mut self, now: Instant) {
        self.look_at = now + LOOK;
    }

    /// It is time to look at ourselves. Whether the centre can be told: it is there, and has taken what it was told last.
    pub(super) fn looks(&mut self, egress: &Egress, now: Instant) -> bool {
        self.later(now);
        egress.is_up() && !egress.is_telling()
    }

    /// Tells the centre how we are, when that is due.
    pub(super) fn tell(&mut self, egress: &mut Egress, status: &Status, now: Instant) {
        if self.is_due(&status.health, now)
            && let Err(error) = egress.tell(message::TOPIC, message::online(status))
        {
            debug!(%error, "the centre is not told how we are");
        }
    }

    /// Whether this is to be told; then it counts as told.
    fn is_due(&mut self, health: &Health, now: Instant) -> bool {
        self.later(now);
        let codes = health.reasons.iter().map(|reason| reason.code.clone()).collect();
        let state = Some((health.level, codes));
        let due = state != self.told || now >= self.told_at + AGAIN;
        if due {
            (self.told, self.told_at) = (state, now);
        }
        due
    }
}

impl Session<'_> {
    pub(super) fn look(&mut self) {
        let now = Instant::now();
        self.tell_holding();
        if self.telling.looks(&self.egress, now) {
            let status = self.status();
            self.telling.tell(&mut self.egress, &status, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Reason;

    fn health(code: &str) -> Health {
        let (code, text, remedy) = (code.to_owned(), String::new(), String::new());
        let reasons = vec![Reason { level: Level::Degraded, code, text, remedy }];
        Health { level: Level::Degraded, reasons }
    }

    #[test]
    fn a_change_is_told_ten_seconds_after_the_last_message_at_the_earliest() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut telling = Telling::new(at(0));
        telling.again(at(1));
        assert_eq!(telling.look_at, at(1));
        assert!(telling.is_due(&health("a"), at(1)));
        telling.soon(at(4));
        assert_eq!(telling.look_at, at(11));
        assert!(!telling.is_due(&health("a"), at(11)));
        assert!(telling.is_due(&health("b"), at(21)), "another reason is a change");
        telling.later(at(41));
        telling.soon(at(42));
        assert_eq!(telling.look_at, at(42));
    }

    #[test]
    fn without_a_change_it_is_told_every_five_minutes_and_on_each_connection() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut telling = Telling::new(at(0));
        assert!(telling.is_due(&health("a"), at(0)));
        assert!(!telling.is_due(&health("a"), at(299)));
        assert!(telling.is_due(&health("a"), at(300)));
        telling.again(at(301));
        assert!(telling.is_due(&health("a"), at(301)));
    }
}
