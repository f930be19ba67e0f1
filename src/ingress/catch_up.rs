//! When everything that the broker had queued has been heard.
//!
//! Brokers do not say where the backlog ends. But they deliver in order: a message that we publish to
//! ourselves once we are subscribed comes back behind everything that was queued before. It is sent
//! again every 10 s, since a broker whose queue is full drops it without a word. Where it cannot come
//! back at all (an access list may forbid it), 10 s without a message have to do.

use std::time::Duration;

use tokio::time::Instant;

/// How long a probe may take before another is sent, and how long a silence must be.
const PATIENCE: Duration = Duration::from_secs(10);

/// The state of one connection.
#[derive(Debug)]
pub(super) struct CatchUp {
    /// What our probes carry; those of older connections carry something else.
    nonce: [u8; 8],
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Subscribing,
    Probing { probe_at: Instant, silence_at: Instant },
    CaughtUp,
}

/// What is to be done now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Send a probe.
    Probe,
    /// Nothing came for a while.
    Silence,
}

impl CatchUp {
    pub(super) fn new() -> Self {
        Self { nonce: fastrand::u64(..).to_be_bytes(), phase: Phase::Subscribing }
    }

    pub(super) fn nonce(&self) -> [u8; 8] {
        self.nonce
    }

    /// The subscriptions are in place: a probe is due.
    pub(super) fn on_subscribed(&mut self, now: Instant) {
        self.phase = Phase::Probing { probe_at: now, silence_at: now + PATIENCE };
    }

    /// A message was taken, or the broker is not free to send one: the silence begins anew.
    pub(super) fn on_noise(&mut self, now: Instant) {
        if let Phase::Probing { silence_at, .. } = &mut self.phase {
            *silence_at = now + PATIENCE;
        }
    }

    /// A probe came back. Returns whether it tells, for the first time, that we are caught up.
    pub(super) fn on_probe(&mut self, payload: &[u8]) -> bool {
        let probing = matches!(self.phase, Phase::Probing { .. });
        let news = probing && payload == self.nonce;
        if news {
            self.phase = Phase::CaughtUp;
        }
        news
    }

    /// More may have been queued since we were caught up: probe anew.
    pub(super) fn again(&mut self, now: Instant) {
        if matches!(self.phase, Phase::CaughtUp) {
            self.nonce = fastrand::u64(..).to_be_bytes();
            self.on_subscribed(now);
        }
    }

    /// The silence was long enough.
    pub(super) fn on_silence(&mut self) {
        self.phase = Phase::CaughtUp;
    }

    /// When to look again.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Probing { probe_at, silence_at } => Some(probe_at.min(silence_at)),
            Phase::Subscribing | Phase::CaughtUp => None,
        }
    }

    /// What is due, if anything is. A due probe counts as sent.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Due> {
        match &mut self.phase {
            Phase::Probing { silence_at, .. } if *silence_at <= now => Some(Due::Silence),
            Phase::Probing { probe_at, .. } if *probe_at <= now => {
                *probe_at = now + PATIENCE;
                Some(Due::Probe)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscribed() -> (CatchUp, Instant) {
        let (mut catch_up, start) = (CatchUp::new(), Instant::now());
        catch_up.on_subscribed(start);
        (catch_up, start)
    }

    #[test]
    fn who_was_away_probes_anew_and_takes_no_older_probe_for_the_answer() {
        let (mut catch_up, now) = subscribed();
        catch_up.again(now);
        let first = catch_up.nonce();
        assert!(catch_up.on_probe(&first), "while probing there is nothing to begin anew");
        catch_up.again(now);
        assert_eq!(catch_up.take_due(now), Some(Due::Probe));
        assert!(!catch_up.on_probe(&first));
        let second = catch_up.nonce();
        assert!(catch_up.on_probe(&second));
    }

    #[test]
    fn only_the_first_probe_of_this_connection_tells() {
        let (mut catch_up, _) = subscribed();
        let nonce = catch_up.nonce();
        assert!(!catch_up.on_probe(&CatchUp::new().nonce()));
        assert!(catch_up.on_probe(&nonce));
        assert!(!catch_up.on_probe(&nonce));
        assert_eq!(catch_up.next_deadline(), None);
    }

    #[test]
    fn a_lost_probe_is_sent_again_while_messages_come() {
        let (mut catch_up, start) = subscribed();
        assert_eq!(catch_up.take_due(start), Some(Due::Probe));
        assert_eq!(catch_up.take_due(start), None);
        let later = start + PATIENCE;
        catch_up.on_noise(later - Duration::from_secs(1));
        assert_eq!(catch_up.next_deadline(), Some(later));
        assert_eq!(catch_up.take_due(later), Some(Due::Probe));
    }

    #[test]
    fn ten_seconds_without_a_message_are_due_as_silence() {
        let (mut catch_up, start) = subscribed();
        assert_eq!(catch_up.take_due(start), Some(Due::Probe));
        assert_eq!(catch_up.take_due(start + PATIENCE), Some(Due::Silence));
        catch_up.on_silence();
        assert_eq!(catch_up.take_due(start + PATIENCE * 9), None);
    }
}
