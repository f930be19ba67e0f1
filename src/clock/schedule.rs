//! When whom to ask next. Pure: times are nanoseconds of `CLOCK_BOOTTIME`.

use std::time::Duration;

use super::discipline::Verdict;
use super::refusal::Refusal;

/// A smaller offset, in nanoseconds, says that asking more rarely would do.
const STABLE: i64 = 5_000_000;

/// So many stable ones in a row double the pause.
const IN_A_ROW: u32 = 4;

/// Longest rest that a server asks for by its kisses of death.
const LONGEST_REST: i64 = 3_600_000_000_000;

/// Pauses between questions to all servers.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    shortest: Duration,
    longest: Duration,
    quick: Duration,
    pause: Duration,
    retry: Duration,
    stable: u32,
}

impl Schedule {
    /// From `shortest` to `longest` while all is well, `quick` and doubled each time while it is not.
    pub(super) fn new(shortest: Duration, longest: Duration, quick: Duration) -> Self {
        Self { shortest, longest, quick, pause: shortest, retry: quick, stable: 0 }
    }

    /// The pause after an estimate.
    pub(super) fn after(&mut self, verdict: Verdict, now: i64) -> Duration {
        match verdict {
            Verdict::Taken(offset) => self.after_taken(offset.saturating_abs()),
            Verdict::Doubted { until } => {
                (self.stable, self.pause) = (0, self.shortest);
                let wait = Duration::from_nanos(u64::try_from(until - now).unwrap_or_default());
                wait.clamp(self.quick, self.shortest.max(self.quick))
            }
            Verdict::Ignored => self.after_failure(),
        }
    }

    fn after_taken(&mut self, offset: i64) -> Duration {
        self.retry = self.quick;
        if offset > STABLE {
            (self.stable, self.pause) = (0, (self.pause / 2).max(self.shortest));
            return self.pause;
        }
        self.stable += 1;
        if self.stable >= IN_A_ROW {
            (self.stable, self.pause) = (0, (self.pause * 2).min(self.longest));
        }
        self.pause
    }

    /// The pause after nobody could say.
    pub(super) fn after_failure(&mut self) -> Duration {
        let pause = self.retry;
        self.retry = (self.retry * 2).min(self.shortest.max(self.quick));
        pause
    }
}

/// What is thought of one server.
#[derive(Clone, Debug, Default)]
pub(super) struct Standing {
    rests_until: i64,
    kisses: u32,
    banned: bool,
    /// Shortest round trip, in nanoseconds.
    pub nearest: Option<i64>,
}

impl Standing {
    /// Whether it may be asked.
    pub(super) fn may_be_asked(&self, now: i64) -> bool {
        !self.banned && now >= self.rests_until
    }

    /// It does not want to be asked any more, until the agent is started again.
    pub(super) fn is_banned(&self) -> bool {
        self.banned
    }

    /// Whether it is to be left alone, and for how long: doubled with each kiss, from twice the shortest pause.
    pub(super) fn refused(&mut self, refusal: Refusal, shortest: Duration, now: i64) {
        match refusal {
            Refusal::KissDeny => self.banned = true,
            Refusal::KissRate => {
                self.kisses = (self.kisses + 1).min(16);
                let shortest = i64::try_from(shortest.as_nanos()).unwrap_or(LONGEST_REST);
                let rest = shortest.saturating_mul(1 << self.kisses).min(LONGEST_REST);
                self.rests_until = now.saturating_add(rest);
            }
            _ => {}
        }
    }

    /// It answered.
    pub(super) fn answered(&mut self, round_trip: i64) {
        self.kisses = self.kisses.saturating_sub(1);
        // What was near once is forgotten slowly: the network changes.
        let kept = self.nearest.map_or(round_trip, |nearest| nearest + nearest / 8);
        self.nearest = Some(round_trip.min(kept));
    }

    /// Whether another question would hardly be answered faster.
    pub(super) fn is_near(&self, round_trip: i64) -> bool {
        self.nearest.is_some_and(|nearest| round_trip <= nearest + nearest / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule() -> Schedule {
        let [shortest, longest, quick] = [64, 1_024, 2].map(Duration::from_secs);
        Schedule::new(shortest, longest, quick)
    }

    fn seconds(pauses: impl IntoIterator<Item = Duration>) -> Vec<u64> {
        pauses.into_iter().map(|pause| pause.as_secs()).collect()
    }

    #[test]
    fn retries_grow_from_two_seconds_to_a_minute_and_start_again_after_an_answer() {
        let mut schedule = schedule();
        let pauses = (0..7).map(|_| schedule.after_failure());
        assert_eq!(seconds(pauses), [2, 4, 8, 16, 32, 64, 64]);
        schedule.after(Verdict::Taken(0), 0);
        assert_eq!(schedule.after_failure(), Duration::from_secs(2));
    }

    #[test]
    fn who_is_stable_asks_more_rarely_and_who_is_not_more_often() {
        let mut schedule = schedule();
        let pauses: Vec<_> = (0..20).map(|_| schedule.after(Verdict::Taken(STABLE), 0)).collect();
        let quarter = [pauses[0], pauses[3], pauses[7], pauses[11], pauses[15], pauses[19]];
        assert_eq!(seconds(quarter), [64, 128, 256, 512, 1_024, 1_024]);
        let off = -STABLE - 1;
        let pauses: Vec<_> = (0..5).map(|_| schedule.after(Verdict::Taken(off), 0)).collect();
        assert_eq!(seconds(pauses), [512, 256, 128, 64, 64]);
    }

    #[test]
    fn a_doubt_is_asked_about_when_it_can_be_confirmed() {
        let mut schedule = schedule();
        let until = 64_000_000_000;
        assert_eq!(schedule.after(Verdict::Doubted { until }, 0), Duration::from_secs(64));
        let wait = schedule.after(Verdict::Doubted { until }, 63_900_000_000);
        assert_eq!(wait, Duration::from_secs(2));
        let wait = schedule.after(Verdict::Doubted { until: 3_600_000_000_000 }, 0);
        assert_eq!(wait, Duration::from_secs(64));
    }

    #[test]
    fn a_server_that_asks_for_rest_gets_more_each_time_and_one_that_refuses_is_left_alone() {
        let (mut server, shortest) = (Standing::default(), Duration::from_secs(64));
        for rest in [128, 256, 512, 1_024, 2_048, 3_600, 3_600] {
            server.refused(Refusal::KissRate, shortest, 0);
            assert!(!server.may_be_asked(rest * 1_000_000_000 - 1), "{rest}");
            assert!(server.may_be_asked(rest * 1_000_000_000), "{rest}");
        }
        server.refused(Refusal::Kiss, shortest, 0);
        server.refused(Refusal::Silent, shortest, 0);
        assert!(server.may_be_asked(i64::MAX) && !server.is_banned());
        server.refused(Refusal::KissDeny, shortest, 0);
        assert!(!server.may_be_asked(i64::MAX) && server.is_banned());
    }
}
