//! The pauses between connections, and what the log says about them.

use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use super::{Broker, LinkError};

/// The pauses between connections of one side, and what the log says about them.
///
/// The pause starts at 1 s and doubles to 60 s, each shortened by up to a half at random so that a
/// fleet does not come back in step. It starts again at 1 s after a connection that held for 10 s. A
/// session that another client took over, or seems to have, is left alone for minutes: two clients
/// with one id would otherwise throw each other out for ever.
#[derive(Debug)]
pub(crate) struct Retry {
    side: &'static str,
    broker: String,
    client_id: String,
    gateway: String,
    pause: Duration,
    up_since: Option<Instant>,
    /// How many connections in a row the broker closed before they held.
    closings: u32,
    /// How many it closed that had held, and when the last one: no more than [`Self::A_WHILE`] apart, and with nothing
    /// else wrong in between.
    evictions: Option<(u32, Instant)>,
    told: Option<LinkError>,
}

impl Retry {
    const FIRST: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_secs(60);
    const TAKEN_OVER: Duration = Duration::from_secs(240);
    const HELD: Duration = Duration::from_secs(10);
    const CLOSINGS: u32 = 5;
    const EVICTIONS: u32 = 3;
    /// Longer than the other of two clients with one id stays away.
    const A_WHILE: Duration = Duration::from_secs(900);

    pub(crate) fn new(side: &'static str, broker: &Broker) -> Self {
        Self {
            side,
            broker: broker.to_string(),
            client_id: broker.client_id.clone(),
            gateway: broker.gateway.clone(),
            pause: Self::FIRST,
            up_since: None,
            closings: 0,
            evictions: None,
            told: None,
        }
    }

    /// A connection was accepted. That does not mend what is only found out later.
    pub(crate) fn up(&mut self) {
        self.up_since = Some(Instant::now());
        self.told.take_if(|told| !matches!(told, LinkError::MayNotPublish(_)));
        info!(broker = %self.broker, "{} connected", self.side);
    }

    /// A connection ended or could not be made. Returns why, in the light of those before it, and how
    /// long to wait. Says so once per error.
    pub(crate) fn down(&mut self, error: LinkError) -> (LinkError, Duration) {
        let held = self.up_since.take().map(|since| since.elapsed());
        if held.is_some_and(|held| held >= Self::HELD) {
            self.told = None;
        }
        let error = self.judge(error, held, Instant::now());
        let pause = self.next_pause(&error, held.unwrap_or_default());
        self.tell(&error, pause);
        (error, pause)
    }

    /// `held` is how long the connection had been accepted, if it had.
    fn judge(&mut self, error: LinkError, held: Option<Duration>, now: Instant) -> LinkError {
        let at_once = error == LinkError::Closed && held.is_some_and(|held| held < Self::HELD);
        self.closings = if at_once { self.closings + 1 } else { 0 };
        if self.closings >= Self::CLOSINGS {
            return LinkError::KeepsClosing;
        }
        if error != LinkError::Closed {
            // A broker that is restarted closes too, but then cannot be reached for a moment.
            self.evictions = None;
        } else if held.is_some() && !at_once && self.count_eviction(now) >= Self::EVICTIONS {
            return LinkError::ClosedOnceMore;
        }
        error
    }

    fn count_eviction(&mut self, now: Instant) -> u32 {
        let before = self.evictions.filter(|(_, last)| now - *last < Self::A_WHILE);
        let count = before.map_or(1, |(count, _)| count + 1);
        self.evictions = Some((count, now));
        count
    }

    fn next_pause(&mut self, error: &LinkError, held: Duration) -> Duration {
        if held >= Self::HELD {
            self.pause = Self::FIRST;
        }
        let base = match error {
            LinkError::TakenOver | LinkError::KeepsClosing => Self::TAKEN_OVER,
            _ => {
                let doubled = (self.pause * 2).min(Self::LONGEST);
                std::mem::replace(&mut self.pause, doubled)
            }
        };
        base.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    fn tell(&mut self, error: &LinkError, pause: Duration) {
        if self.told.as_ref() == Some(error) {
            debug!(broker = %self.broker, ?pause, "{} still down: {error}", self.side);
            return;
        }
        let remedy = error.remedy().unwrap_or("it will be tried again");
        let Self { side, broker, client_id, gateway, .. } = self;
        if error.is_of_two_clients() {
            error!(%broker, client_id, gateway, ?pause, "{side} down: {error}; {remedy}");
        } else {
            warn!(%broker, ?pause, "{side} down: {error}; {remedy}");
        }
        self.told = Some(error.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::Version;

    fn retry() -> Retry {
        Retry::new("ingress", &Broker::new(Version::V5, "localhost", 1883, "gw"))
    }

    fn lost() -> LinkError {
        LinkError::Lost("closed".into())
    }

    #[test]
    fn pauses_double_from_one_second_to_a_minute_and_are_shortened_by_at_most_a_half() {
        let mut retry = retry();
        for base in [1, 2, 4, 8, 16, 32, 60, 60, 60].map(Duration::from_secs) {
            let pause = retry.next_pause(&lost(), Duration::ZERO);
            assert!(pause >= base / 2 && pause <= base, "{pause:?} of {base:?}");
        }
    }

    #[test]
    fn only_a_connection_that_held_starts_the_pauses_again() {
        let mut retry = retry();
        for _ in 0..6 {
            retry.next_pause(&lost(), Duration::ZERO);
        }
        let thrown_out_at_once = retry.next_pause(&lost(), Duration::from_secs(9));
        assert!(thrown_out_at_once >= Duration::from_secs(30));
        assert!(retry.next_pause(&lost(), Duration::from_secs(10)) <= Duration::from_secs(1));
    }

    #[test]
    fn a_taken_over_session_is_left_alone_for_minutes() {
        let pause = retry().next_pause(&LinkError::TakenOver, Duration::from_secs(3_600));
        assert!(pause >= Duration::from_secs(120));
    }

    #[test]
    fn a_broker_that_closes_again_and_again_is_left_alone_for_minutes() {
        let mut retry = retry();
        let mut closed = |held| retry.judge(LinkError::Closed, held, Instant::now());
        let at_once = Some(Duration::from_secs(3));
        for _ in 0..4 {
            assert_eq!(closed(at_once), LinkError::Closed);
        }
        assert_eq!(closed(at_once), LinkError::KeepsClosing);
        assert_eq!(closed(Some(Duration::from_secs(10))), LinkError::Closed, "it held");
        assert_eq!(closed(None), LinkError::Closed, "it was not let in");
        assert_eq!(closed(at_once), LinkError::Closed);
        let pause = retry.next_pause(&LinkError::KeepsClosing, Duration::ZERO);
        assert!(pause >= Duration::from_secs(120));
    }

    #[test]
    fn the_client_that_keeps_the_session_learns_of_the_other_one_too() {
        let (mut retry, minutes) = (retry(), Duration::from_secs(180));
        let mut now = Instant::now();
        let mut after = |pause, error| {
            now += pause;
            retry.judge(error, Some(minutes), now)
        };
        let closed = LinkError::Closed;
        assert_eq!(after(minutes, closed.clone()), closed);
        assert_eq!(after(minutes, closed.clone()), closed);
        assert_eq!(after(minutes, closed.clone()), LinkError::ClosedOnceMore);
        // The broker is restarted.
        assert_eq!(after(minutes, lost()), lost());
        assert_eq!(after(minutes, closed.clone()), closed);
        assert_eq!(after(minutes, closed.clone()), closed);
        assert_eq!(after(Retry::A_WHILE, closed.clone()), closed, "the others were long ago");
        let pause = retry.next_pause(&LinkError::ClosedOnceMore, minutes);
        assert!(pause <= Duration::from_secs(1), "it goes on at once");
    }

    #[tokio::test]
    async fn what_is_told_is_told_again_only_after_something_else() {
        let mut retry = retry();
        let may_not = LinkError::MayNotPublish("NotAuthorized".into());
        retry.down(may_not.clone());
        retry.up();
        assert_eq!(retry.told, Some(may_not), "to be let in does not help");
        retry.down(LinkError::NotAuthorised);
        assert_eq!(retry.told, Some(LinkError::NotAuthorised));
        retry.up();
        assert_eq!(retry.told, None);
    }
}
