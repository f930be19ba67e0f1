//! Presence of one device (SPEC 5): online, suspect, offline, flapping; never because of us.
//!
//! Silence is the age of the last news plus the listened duration since. All deadlines are therefore moments of the
//! listened duration, which stands still while we hear nothing: whatever the gateway does, no device goes offline by
//! it. News moves the deadline and nothing else; whoever waits for it looks again when the old one comes up.
//!
//! A device that goes offline or comes back more than `flap-count` times within `flap-window` is *flapping*: that is told once, its
//! changes go on unseen, and what it came to is told after one window without a change.

use crate::engine::codec::{Reader, Writer};
use crate::event::{PresenceCause, PresenceState};
use crate::time::{ArrivalTime, Span};

/// The parameters of presence, resolved for one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PresencePolicy {
    /// After this much silence a device is offline; above zero.
    pub offline_after: Span,
    /// How long after its last will a device is offline if no news comes; from zero.
    pub will_debounce: Span,
    /// Going offline and coming back more often than this within [`Self::flap_window`] are flapping; at least 1.
    pub flap_count: u8,
    /// See [`Self::flap_count`]; above zero.
    pub flap_window: Span,
    /// After this much silence, and not before it is offline, a device is forgotten; `None`: never.
    pub forget_after: Option<Span>,
}

impl Default for PresencePolicy {
    /// The documented defaults.
    fn default() -> Self {
        Self {
            offline_after: Span::from_mins(30),
            will_debounce: Span::from_secs(30),
            flap_count: 4,
            flap_window: Span::from_hours(1),
            forget_after: None,
        }
    }
}

/// What a device is, whether or not that is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Nothing was told of it, and it is not declared.
    Unknown,
    /// Declared, and nothing was told of it yet.
    Expected,
    NeverSeen,
    Online,
    Suspect,
    Offline,
    /// Nobody misses it. When it is heard again, it is told as if it were for the first time.
    Forgotten,
}

impl Standing {
    const ALL: [Self; 7] = [
        Self::Unknown,
        Self::Expected,
        Self::NeverSeen,
        Self::Online,
        Self::Suspect,
        Self::Offline,
        Self::Forgotten,
    ];

    fn told_as(self) -> Option<PresenceState> {
        match self {
            Self::Unknown | Self::Expected => None,
            Self::NeverSeen => Some(PresenceState::NeverSeen),
            Self::Online => Some(PresenceState::Online),
            Self::Suspect => Some(PresenceState::Suspect),
            Self::Offline => Some(PresenceState::Offline),
            Self::Forgotten => Some(PresenceState::Forgotten),
        }
    }
}

/// A moment on both scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// By the gateway's clock.
    pub wall: ArrivalTime,
    /// Listened duration.
    pub heard: Span,
}

/// How old a message was when it arrived. None is negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Age {
    /// By the clock.
    pub whole: Span,
    /// What of that we listened: the rest says nothing of the device.
    pub listened: Span,
    /// How long we have listened since it arrived, because it was held.
    pub held: Span,
}

/// What is to be told of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// What it is now.
    pub state: PresenceState,
    /// When it came to be so.
    pub since: ArrivalTime,
    /// Why.
    pub cause: PresenceCause,
    /// When it was last known to live; `None`: it never was.
    pub last_seen: Option<ArrivalTime>,
    /// On recovery: from when it was last seen to the news.
    pub outage: Option<Span>,
}

/// Presence of one device.
#[derive(Clone, Debug, PartialEq)]
pub struct Presence {
    standing: Standing,
    flapping: bool,
    /// When it came to its standing.
    since: ArrivalTime,
    /// Listened duration at which its silence began; of a declared one that never spoke, at which it was declared.
    silent_from: Span,
    /// Arrival of its last news, less its age; [`ArrivalTime::MIN`] before the first.
    last_seen: ArrivalTime,
    /// When a suspect that left a last will is offline.
    will_due: Option<Span>,
    /// Listened durations at which it last went offline or was online again, the oldest first.
    changes: Vec<Span>,
    /// Offline: since when all its news has been too old.
    delayed: Option<Span>,
    /// That its news is too old was told.
    delay_is_told: bool,
    /// The deadline that is set.
    pub armed: Option<Span>,
    /// Its record is out of date.
    pub dirty: bool,
}

impl Default for Presence {
    fn default() -> Self {
        Self {
            standing: Standing::Unknown,
            flapping: false,
            since: ArrivalTime::MIN,
            silent_from: Span(i64::MIN),
            last_seen: ArrivalTime::MIN,
            will_due: None,
            changes: Vec::new(),
            delayed: None,
            delay_is_told: false,
            armed: None,
            dirty: false,
        }
    }
}

impl Presence {
    /// What it is, as it was told; `None`: nothing was told.
    pub fn state(&self) -> Option<PresenceState> {
        if self.flapping { Some(PresenceState::Flapping) } else { self.standing.told_as() }
    }

    /// When it came to what it is under its flapping, if anything was told.
    pub fn since(&self) -> Option<ArrivalTime> {
        self.state().map(|_| self.since)
    }

    /// Arrival of its last news, less its age.
    pub fn last_seen(&self) -> Option<ArrivalTime> {
        Some(self.last_seen).filter(|at| *at != ArrivalTime::MIN)
    }

    /// It is declared at `now`, and is expected to speak.
    pub fn declare(&mut self, now: Span) {
        if self.standing == Standing::Unknown && self.last_seen().is_none() {
            (self.standing, self.silent_from, self.dirty) = (Standing::Expected, now, true);
        }
    }

    /// News came at `now`, by the wall clock; its listened duration is that of this moment. What is older than `offline-after` does not bring it online.
    pub fn on_news(&mut self, rules: &PresencePolicy, now: Moment, age: Age) -> Option<Told> {
        let seen_before = self.last_seen();
        self.last_seen = self.last_seen.max(now.wall - age.whole);
        self.silent_from = self.silent_from.max(now.heard - age.listened - age.held);
        let is_first =
            !matches!(self.standing, Standing::Online | Standing::Suspect | Standing::Offline);
        let is_old = match is_first {
            true => age.listened + age.held >= rules.offline_after,
            false => age.whole + age.held >= rules.offline_after,
        };
        match (is_old, self.standing) {
            (true, Standing::Online | Standing::Suspect) => None,
            (true, Standing::Offline) => self.on_old_news(rules, now, age),
            (true, _) => {
                let since = now.wall - (age.listened - rules.offline_after);
                self.delayed = Some(now.heard);
                let cause = PresenceCause::Silence;
                self.enter(rules, Standing::Offline, Moment { wall: since, ..now }, cause)
            }
            (false, Standing::Online) => None,
            (false, was) => {
                (self.delayed, self.delay_is_told, self.will_due) = (None, false, None);
                let told = self.enter(rules, Standing::Online, now, PresenceCause::News)?;
                let recovers = was == Standing::Offline && told.state == PresenceState::Online;
                let outage = seen_before.filter(|_| recovers);
                Some(Told { outage: outage.map(|last| (now.wall - last).max(Span::ZERO)), ..told })
            }
        }
    }

    /// Old news of a device that is offline. When nothing else came for as long, that is told once: it lives, and what
    /// it sends comes late.
    fn on_old_news(&mut self, rules: &PresencePolicy, now: Moment, age: Age) -> Option<Told> {
        if age.listened + age.held < rules.offline_after {
            return None; // the rest of its age is ours
        }
        let Some(since) = self.delayed else {
            (self.delayed, self.dirty) = (Some(now.heard), true);
            return None;
        };
        if self.delay_is_told || self.flapping || now.heard - since < rules.offline_after {
            return None;
        }
        (self.delay_is_told, self.dirty) = (true, true);
        Some(self.told(PresenceState::Offline, PresenceCause::Delayed))
    }

    /// Somebody says that it is gone. `is_final`: without news it is offline after the debounce; else only its silence
    /// can make it that.
    pub fn on_death(
        &mut self,
        rules: &PresencePolicy,
        now: Moment,
        cause: PresenceCause,
        is_final: bool,
    ) -> Option<Told> {
        let will_due = is_final.then(|| now.heard + rules.will_debounce);
        match self.standing {
            Standing::Offline => None,
            Standing::Suspect => {
                let due = self.will_due.into_iter().chain(will_due).min();
                self.dirty |= due != self.will_due;
                self.will_due = due;
                None
            }
            Standing::Online => {
                self.will_due = will_due;
                self.enter(rules, Standing::Suspect, now, cause)
            }
            // What was never heard is not missed, unless its own last will comes now.
            _ if is_final => {
                self.will_due = will_due;
                self.enter(rules, Standing::Suspect, now, cause)
            }
            _ => None,
        }
    }

    /// The listened duration at which something is to be done if no news comes.
    pub fn deadline(&self, rules: &PresencePolicy) -> Option<Span> {
        let silent = self.silent_from + rules.offline_after;
        let silence = match self.standing {
            Standing::Online | Standing::Expected => Some(silent),
            Standing::Suspect | Standing::Unknown => self.last_seen().map(|_| silent),
            Standing::Offline => {
                rules.forget_after.map(|after| self.silent_from + after.max(rules.offline_after))
            }
            Standing::NeverSeen | Standing::Forgotten => None,
        };
        silence.into_iter().chain(self.will_due).chain(self.calm_at(rules)).min()
    }

    /// When it no longer counts as flapping.
    fn calm_at(&self, rules: &PresencePolicy) -> Option<Span> {
        self.changes.last().filter(|_| self.flapping).map(|last| *last + rules.flap_window)
    }

    /// Does what is due at `at`, which is its deadline, and says what to tell. There may be more due.
    pub fn on_deadline(&mut self, rules: &PresencePolicy, at: Moment) -> Option<Told> {
        if self.calm_at(rules).is_some_and(|calm| calm <= at.heard) {
            (self.flapping, self.dirty) = (false, true);
            self.changes.clear();
            let state = self.standing.told_as()?;
            return Some(self.told(state, PresenceCause::Calm));
        }
        if self.standing == Standing::Offline {
            return self.forget(at.wall, PresenceCause::Silence);
        }
        let by_will = self.will_due.take().is_some_and(|due| due <= at.heard);
        let cause = if by_will { PresenceCause::Will } else { PresenceCause::Silence };
        let never = self.standing == Standing::Expected;
        let standing = if never { Standing::NeverSeen } else { Standing::Offline };
        self.enter(rules, standing, at, cause)
    }

    /// Nobody misses it any more. What is known of its time is kept: should it speak again, nothing of it is told twice.
    pub fn forget(&mut self, since: ArrivalTime, cause: PresenceCause) -> Option<Told> {
        if !self.is_missed() {
            return None;
        }
        (self.standing, self.since, self.dirty) =
            (Standing::Forgotten, self.since.max(since), true);
        (self.flapping, self.will_due, self.delayed) = (false, None, None);
        self.delay_is_told = false;
        self.changes.clear();
        Some(self.told(PresenceState::Forgotten, cause))
    }

    /// Whether it can be forgotten: something was told of it, or will be.
    pub fn is_missed(&self) -> bool {
        !matches!(self.standing, Standing::Unknown | Standing::Forgotten)
    }

    /// Whether nobody misses it.
    pub fn is_forgotten(&self) -> bool {
        self.standing == Standing::Forgotten
    }

    fn enter(
        &mut self,
        rules: &PresencePolicy,
        standing: Standing,
        at: Moment,
        cause: PresenceCause,
    ) -> Option<Told> {
        // A suspicion is no change by itself: what it comes to is.
        let is_change = matches!(standing, Standing::Online | Standing::Offline)
            && matches!(self.standing, Standing::Online | Standing::Suspect | Standing::Offline);
        // Whoever reads the events goes by the greatest: a wall clock that is set back does not undo what was told.
        (self.standing, self.since, self.dirty) = (standing, self.since.max(at.wall), true);
        if is_change {
            self.changes.retain(|then| at.heard - *then < rules.flap_window);
            self.changes.push(at.heard);
            let enough = usize::from(rules.flap_count) + 1;
            self.changes.drain(..self.changes.len().saturating_sub(enough));
        }
        if self.flapping {
            return None;
        }
        if self.changes.len() > usize::from(rules.flap_count) {
            self.flapping = true;
            return Some(self.told(PresenceState::Flapping, PresenceCause::Changes));
        }
        let state = standing.told_as()?;
        Some(self.told(state, cause))
    }

    fn told(&self, state: PresenceState, cause: PresenceCause) -> Told {
        let (since, last_seen) = (self.since, self.last_seen());
        Told { state, since, cause, last_seen, outage: None }
    }

    /// What moves with every news, never back: it is kept where the device's progress is.
    pub(super) fn progress(&self) -> (Span, ArrivalTime) {
        (self.silent_from, self.last_seen)
    }

    /// It is carried on after a restart, at this listened duration. A store from before presence does not say when a
    /// device was heard: its silence begins now.
    pub(super) fn wake(&mut self, now: Span) {
        if self.last_seen().is_some() && self.silent_from == Span(i64::MIN) {
            self.silent_from = now;
        }
    }

    /// Brings it as far as a record says.
    pub(super) fn advance(&mut self, (silent_from, last_seen): (Span, ArrivalTime)) {
        self.silent_from = self.silent_from.max(silent_from);
        self.last_seen = self.last_seen.max(last_seen);
    }

    /// What changes seldom. `heard` is a listened duration that no later change comes before.
    pub(super) fn record(&self, rules: &PresencePolicy, heard: Span) -> Vec<u8> {
        let mut w = Writer::default();
        let flags =
            [self.flapping, self.delay_is_told, self.will_due.is_some(), self.delayed.is_some()];
        let flags =
            flags.iter().zip(4..).fold(0, |bits, (flag, bit)| bits | u8::from(*flag) << bit);
        w.u8(self.standing as u8 | flags).signed(self.since.0);
        for at in [self.will_due, self.delayed].into_iter().flatten() {
            w.signed(at.0);
        }
        for at in &self.changes {
            if self.flapping || heard - *at < rules.flap_window {
                w.signed(at.0);
            }
        }
        w.0
    }

    /// The inverse of [`Self::record`]; what moves with news is left alone.
    pub(super) fn read_record(&mut self, value: &[u8]) -> Option<()> {
        let mut r = Reader(value);
        let flags = r.u8()?;
        let standing = Standing::ALL.into_iter().find(|it| *it as u8 == flags & 0xf)?;
        let since = ArrivalTime(r.signed()?);
        let will_due = if flags & 0x40 != 0 { Some(Span(r.signed()?)) } else { None };
        let delayed = if flags & 0x80 != 0 { Some(Span(r.signed()?)) } else { None };
        let mut changes = Vec::new();
        while !r.0.is_empty() {
            changes.push(Span(r.signed()?));
        }
        (self.standing, self.since, self.changes) = (standing, since, changes);
        (self.will_due, self.delayed) = (will_due, delayed);
        (self.flapping, self.delay_is_told) = (flags & 0x10 != 0, flags & 0x20 != 0);
        Some(())
    }
}

#[cfg(test)]
mod tests;
