//! What is done with an estimate of the time, and what our clock is worth meanwhile. Pure: `now` is `CLOCK_BOOTTIME`.
//!
//! A small shift slews. A large one, or a time before the last good one, is a *doubt*: nothing moves, the clock is
//! suspect, and only an estimate that says the same again, later, is taken. Without estimates the clock runs on, and
//! its bound grows.

use std::collections::VecDeque;

use super::anchor::{Anchor, span};
use super::query::EARLIEST_US;
use super::selection::Estimate;
use super::{Jump, Reference};
use crate::time::{ArrivalTime, ClockQuality, ClockStatus, Span};

const SECOND: i64 = 1_000_000_000;

/// A larger shift is a jump. Above a leap second.
const LARGE: i64 = 2 * SECOND;

/// How far two estimates that confirm each other may be apart beyond their bounds: a machine's drift meanwhile.
const AGREEMENT: i64 = SECOND / 4;

/// How fast a machine's clock may go wrong: 100 parts in a million, the worst of cheap crystals between frost and heat.
const DRIFT: i64 = 10_000;

/// So many failures in a row are a loss.
const LOST: u32 = 3;

/// Jumps that wait to be told.
const JUMPS: usize = 16;

/// How long things take, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Until a jump may be confirmed, where our clock never was good.
    pub first: i64,
    /// The same, where it is.
    pub jump: i64,
    /// The same for a time before the last good one.
    pub floor: i64,
    /// Without an estimate for so long, nobody keeps it.
    pub stale: i64,
}

/// How an estimate may move our clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum May {
    /// By any amount, when confirmed.
    Jump,
    /// By little.
    Slew,
}

/// What became of an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is what our clock goes by; so far was it off, in nanoseconds.
    Taken(i64),
    /// It has to be confirmed, not before this moment.
    Doubted {
        /// By `CLOCK_BOOTTIME`.
        until: i64,
    },
    /// It may not move our clock so far.
    Ignored,
}

#[derive(Clone, Debug)]
struct Taken {
    at: i64,
    bound: i64,
    offset: i64,
    reference: Reference,
}

#[derive(Clone, Debug)]
struct Doubt {
    estimate: Estimate,
    since: i64,
    early: bool,
}

/// The state of our clock.
#[derive(Clone, Debug)]
pub(super) struct Discipline {
    patience: Patience,
    pub anchor: Anchor,
    taken: Option<Taken>,
    doubt: Option<Doubt>,
    failures: u32,
    floor: ArrivalTime,
    jumps: VecDeque<Jump>,
}

impl Discipline {
    pub(super) fn new(anchor: Anchor, patience: Patience) -> Self {
        let floor = ArrivalTime(EARLIEST_US / 1_000);
        let jumps = VecDeque::new();
        Self { patience, anchor, taken: None, doubt: None, failures: 0, floor, jumps }
    }

    /// No time before this is good, also not the one that was taken already.
    pub(super) fn set_floor(&mut self, floor: ArrivalTime, now: i64) {
        self.floor = self.floor.max(floor);
        if self.anchor.wall(now) < self.floor
            && let Some(taken) = self.taken.take()
        {
            let (server, difference) = (usize::MAX, self.anchor.target());
            let estimate = Estimate { server, difference, bound: taken.bound };
            self.doubt = Some(Doubt { estimate, since: now, early: true });
        }
    }

    /// Somebody says what time it is.
    pub(super) fn offer(
        &mut self,
        estimate: Estimate,
        reference: &Reference,
        may: May,
        now: i64,
    ) -> Verdict {
        let shift = estimate.difference - self.anchor.target();
        let large = shift.saturating_abs() > LARGE;
        if large && may == May::Slew {
            self.failed();
            return Verdict::Ignored;
        }
        let wall = Anchor::new(estimate.difference, now).wall(now);
        if wall.0 < EARLIEST_US / 1_000 {
            self.failed();
            return Verdict::Ignored;
        }
        let early = wall < self.floor;
        if (large || early) && !self.is_confirmed(&estimate, early, now) {
            let until = self.doubted(estimate, early, now);
            return Verdict::Doubted { until };
        }
        self.take(estimate, reference, now);
        Verdict::Taken(shift)
    }

    fn take(&mut self, estimate: Estimate, reference: &Reference, now: i64) {
        let shift = estimate.difference - self.anchor.target();
        let (from, first) = (self.anchor.wall(now), self.taken.is_none());
        self.anchor = match shift.saturating_abs() <= LARGE && !first {
            true => self.anchor.slewed_to(estimate.difference, now),
            false => Anchor::new(estimate.difference, now),
        };
        let to = self.anchor.wall(now);
        if shift.saturating_abs() > LARGE {
            let source = reference.clone();
            self.jumps.push_back(Jump { from, to, shift: span(shift), source, first });
            self.jumps.drain(..self.jumps.len().saturating_sub(JUMPS));
        }
        if to < self.floor {
            // It was confirmed against the floor, which was wrong then.
            self.floor = to;
        }
        let (bound, reference) = (estimate.bound, reference.clone());
        self.taken = Some(Taken { at: now, bound, offset: shift, reference });
        (self.doubt, self.failures) = (None, 0);
    }

    fn is_confirmed(&self, estimate: &Estimate, early: bool, now: i64) -> bool {
        let doubt = self.doubt.as_ref().filter(|doubt| doubt.says(estimate, early));
        doubt.is_some_and(|doubt| now >= doubt.since + self.patience_with(doubt))
    }

    fn patience_with(&self, doubt: &Doubt) -> i64 {
        match (doubt.early, self.taken.is_some()) {
            (true, _) => self.patience.floor,
            (false, true) => self.patience.jump,
            (false, false) => self.patience.first,
        }
    }

    fn doubted(&mut self, estimate: Estimate, early: bool, now: i64) -> i64 {
        let known = self.doubt.take().filter(|doubt| doubt.says(&estimate, early));
        let doubt = known.unwrap_or(Doubt { estimate, since: now, early });
        let until = doubt.since + self.patience_with(&doubt);
        (self.doubt, self.failures) = (Some(doubt), 0);
        until
    }

    /// Nobody says what time it is.
    pub(super) fn failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= LOST {
            self.doubt = None;
        }
    }

    /// What the clock is worth. The bound is told in whole seconds, rounded up: so that a change is rare.
    pub(super) fn status(&self, now: i64) -> ClockStatus {
        let seconds = self.bound(now).map(|nanos| nanos.saturating_add(SECOND - 1) / SECOND);
        let bound = seconds.map_or(Span::MAX, Span::from_secs);
        ClockStatus { quality: self.quality(now), bound }
    }

    fn quality(&self, now: i64) -> ClockQuality {
        match &self.taken {
            _ if self.doubt.is_some() => ClockQuality::Suspect,
            None if self.anchor.wall(now) < self.floor => ClockQuality::Suspect,
            None => ClockQuality::Unsynchronised,
            Some(taken) if self.failures >= LOST || now >= self.stale_at(taken) => {
                ClockQuality::Holdover
            }
            Some(_) => ClockQuality::Synchronised,
        }
    }

    fn stale_at(&self, taken: &Taken) -> i64 {
        taken.at.saturating_add(self.patience.stale)
    }

    /// How far the clock is off at most, in nanoseconds, where anything is known.
    pub(super) fn bound(&self, now: i64) -> Option<i64> {
        let taken = self.taken.as_ref()?;
        let drift = (now - taken.at).max(0) / DRIFT;
        Some(taken.bound + drift + self.anchor.remaining(now).abs())
    }

    /// When the status changes by itself, if nothing happens before.
    pub(super) fn next_change(&self, now: i64) -> Option<i64> {
        let taken = self.taken.as_ref()?;
        let bound = self.bound(now)?;
        let second = bound.saturating_add(SECOND) / SECOND * SECOND;
        let grown = now + (second - bound + 1).saturating_mul(DRIFT);
        let stale = Some(self.stale_at(taken)).filter(|at| *at > now);
        Some(stale.map_or(grown, |stale| stale.min(grown)))
    }

    /// What our clock has to say where others contradict each other: nothing while it is in doubt.
    pub(super) fn witness(&self, now: i64) -> Option<Estimate> {
        let bound = self.bound(now).filter(|_| self.doubt.is_none())?;
        let difference = self.anchor.difference(now);
        Some(Estimate { server: usize::MAX, difference, bound })
    }

    /// It was taken from somebody once, and is not off by a minute yet.
    pub(super) fn is_usable(&self, now: i64) -> bool {
        self.bound(now).is_some_and(|bound| bound < 60 * SECOND)
    }

    /// Whether it was ever taken from anybody.
    pub(super) fn was_taken(&self) -> bool {
        self.taken.is_some()
    }

    /// Whom it was last taken from, how far it was off then and when that was, in nanoseconds.
    pub(super) fn last(&self) -> Option<(&Reference, i64, i64)> {
        self.taken.as_ref().map(|taken| (&taken.reference, taken.offset, taken.at))
    }

    /// Shift that waits to be confirmed, in nanoseconds.
    pub(super) fn doubted_shift(&self) -> Option<i64> {
        let doubt = self.doubt.as_ref()?;
        Some(doubt.estimate.difference - self.anchor.target())
    }

    /// Jumps that nobody was told of.
    pub(super) fn take_jumps(&mut self) -> Vec<Jump> {
        self.jumps.drain(..).collect()
    }

    pub(super) fn has_jumps(&self) -> bool {
        !self.jumps.is_empty()
    }
}

impl Doubt {
    fn says(&self, estimate: &Estimate, early: bool) -> bool {
        let apart = (self.estimate.difference - estimate.difference).saturating_abs();
        early == self.early && apart <= self.estimate.bound + estimate.bound + AGREEMENT
    }
}

#[cfg(test)]
mod tests;
