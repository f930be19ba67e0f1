//! How far a device's clock is off, and whether that is known (SPEC 2.4).
//!
//! Only *live* messages tell: sent as soon as they were stamped, and heard as soon as they came. A message cannot prove
//! that of itself. A run of them can: whoever calls [`DeviceClock::hear`] leaves out what was retained, heard before or
//! queued at the broker, and of the rest those are live whose device time advanced by as much as monotonic time did.
//!
//! `arrival − device time` is the offset plus the delay, and delay only adds: the least of the last few is the best
//! estimate. Hence two rules. What is *lower* than believed needs no more than a second message that says the same, since
//! no network makes a message early: a device ahead is certainly wrong. What is *higher* needs five, since it may be a
//! slow network: that varies, and a wrong clock does not.
//!
//! The *pace* of a message is its monotonic arrival less its device time. It jumps when the device's clock does and when
//! the network does, and never because of the gateway's wall clock. Monotonic time means nothing outside one life of the
//! process, so all of this but the offset in force begins anew with each session.

use crate::engine::codec::{Reader, Writer};
use crate::engine::settings::{Correct, Policy};
use crate::time::{ArrivalTime, DeviceTime, EventTime, MonoTime, Span};

/// How exactly device time and monotonic time advance together in live messages, and how much those that prove a slow
/// clock may differ.
pub(super) const ALIKE: Span = Span::from_secs(2);

/// The last few: so many live messages are looked at, and prove that a clock is slow.
const FEW: usize = 5;

/// The least pace ever seen is forgotten this slowly: by one part in so many of the time, 216 s a day. No quartz drifts
/// like that, and no network takes that long to be slow and quick again.
const FORGETS: i64 = 400;

/// An offset this near to whole quarter hours is that of another time zone, of a clock that is right otherwise.
const NEAR_ZONE: Span = ALIKE;
const QUARTER: i64 = 900_000;

/// The offset in force follows in steps of at least this, so that a drift does not make each commit write it.
pub(super) const STEP: Span = Span(250);

/// The last few numbers, the latest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Few {
    latest: i64,
    /// Those before it, less the latest.
    earlier: [i32; FEW - 1],
    length: u8,
}

impl Few {
    pub(super) fn push(&mut self, number: i64) {
        if self.length > 0 {
            let moved = self.latest.saturating_sub(number);
            let moved = i32::try_from(moved).unwrap_or(if moved < 0 { i32::MIN } else { i32::MAX });
            self.earlier.rotate_right(1);
            self.earlier[0] = 0;
            self.earlier.iter_mut().for_each(|earlier| *earlier = earlier.saturating_add(moved));
        }
        self.latest = number;
        self.length = (self.length + 1).min(FEW as u8);
    }

    fn earlier(&self) -> &[i32] {
        &self.earlier[..usize::from(self.length.saturating_sub(1))]
    }

    pub(super) fn is_full(&self) -> bool {
        usize::from(self.length) == FEW
    }

    pub(super) fn least(&self) -> i64 {
        let least = self.earlier().iter().copied().min().unwrap_or(0).min(0);
        self.latest.saturating_add(i64::from(least))
    }

    fn spread(&self) -> Span {
        let greatest = self.earlier().iter().copied().max().unwrap_or(0).max(0);
        Span(self.latest.saturating_add(i64::from(greatest)).saturating_sub(self.least()))
    }
}

/// A message that may be live.
#[derive(Clone, Copy, Debug)]
pub struct Heard {
    /// Its device time.
    pub time: DeviceTime,
    /// When it arrived.
    pub mono: MonoTime,
    /// The same by a clock that times may be held against.
    pub reference: ArrivalTime,
    /// The session in which it came. Nothing is compared across two of them.
    pub session: u32,
}

impl Heard {
    /// `arrival − device time`: the offset, and the delay.
    fn offset(&self) -> Span {
        Span(self.reference.0.saturating_sub(self.time.0))
    }
}

/// When a message came, and its pace: monotonic arrival less device time, in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pace {
    pace: i64,
    at: MonoTime,
}

impl Pace {
    /// Both clocks advanced alike from `earlier` to this.
    fn keeps(&self, earlier: i64) -> bool {
        self.pace.saturating_sub(earlier).saturating_abs() <= ALIKE.0
    }

    /// Too close upon `earlier` to say anything: within the tolerance, any two messages are alike.
    fn is_too_soon(&self, earlier: MonoTime) -> bool {
        self.at - earlier <= ALIKE
    }

    /// How high its pace is for a floor that rises as it is forgotten.
    fn floor(&self) -> i64 {
        self.pace.saturating_sub(self.at.0 / FORGETS)
    }
}

/// Live messages, each of which keeps pace with the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    paces: Few,
    at: MonoTime,
}

/// What is known of the clock of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceClock {
    /// The offset that is trusted: event time less device time.
    offset: Option<Span>,
    /// That it is wrong was the last that was told of it.
    told_wrong: bool,
    session: u32,
    run: Option<Run>,
    /// The latest message that does not keep pace with the run, if it is the latest: another may keep pace with it.
    stray: Option<Pace>,
    /// It came right after the run and far from it: if another keeps pace with it, the clock was set.
    jumped: bool,
    /// The least pace since the clock was last set, as [`Pace::floor`].
    floor: i64,
}

impl Default for DeviceClock {
    fn default() -> Self {
        Self {
            offset: None,
            told_wrong: false,
            session: 0,
            run: None,
            stray: None,
            jumped: false,
            floor: i64::MAX,
        }
    }
}

/// A device time with its offset applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrected {
    /// The event time.
    pub at: EventTime,
    /// The offset that was added.
    pub offset: Span,
}

/// Something to be told of a device's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockChange {
    /// It is off by this, or by another amount than was told: event time less device time.
    Wrong(Span),
    /// It is right again: off by no more than this, the delay included.
    Right(Span),
}

impl DeviceClock {
    /// The offset that is trusted, whether or not it is applied.
    pub fn offset(&self) -> Option<Span> {
        self.offset
    }

    /// The device time corrected; `None` where it is to be taken as it stands: no offset is trusted, none is to be
    /// applied, or it is out of date, since with it the message would have been sent after it came.
    pub fn correct(
        &self,
        time: DeviceTime,
        reference: ArrivalTime,
        policy: &Policy,
    ) -> Option<Corrected> {
        let offset = self.offset.filter(|_| policy.correct == Correct::On)?;
        let at = (time + offset).0;
        let possible = at <= (reference + policy.future_tolerance.max(ALIKE)).0;
        let at = EventTime(at.min((reference + policy.future_tolerance).0));
        possible.then_some(Corrected { at, offset })
    }

    /// Hears a message that may be live, before it is corrected itself; says what is to be told.
    pub fn hear(&mut self, heard: Heard, policy: &Policy) -> Option<ClockChange> {
        if heard.time < policy.not_before {
            // It lost its time. Nobody knows what it will say when it has it back.
            *self = Self { told_wrong: self.told_wrong, ..Self::default() };
            return None;
        }
        if heard.session != self.session {
            let Self { offset, told_wrong, .. } = *self;
            *self = Self { offset, told_wrong, session: heard.session, ..Self::default() };
        }
        let pace = heard.mono.0.saturating_sub(heard.time.0);
        let pace = Pace { pace, at: heard.mono };
        let before = self.offset;
        let set_right = self.is_set_right(pace, heard.offset(), policy);
        if set_right {
            self.offset = None;
        }
        self.floor = self.floor.min(pace.floor());
        let live = self.take(pace, policy);
        if live {
            self.decide(pace.at, heard.reference, policy);
        }
        self.change(before, (live || set_right).then(|| heard.offset()), policy)
    }

    /// Whether one message says that the clock was set, and the offset is out of date: with it a slow device would have
    /// sent this after it came, or a fast one, which has the right time now, would have needed just that long for it.
    fn is_set_right(&self, pace: Pace, offset: Span, policy: &Policy) -> bool {
        let near = policy.future_tolerance.max(ALIKE);
        let last = self.stray.map(|stray| stray.pace).or(self.run.map(|run| run.paces.latest));
        // Else it is a queue of the device's that empties: each of these came quicker than the one before.
        let rose = || last.is_none_or(|last| pace.pace > last.saturating_add(ALIKE.0));
        match self.offset {
            Some(slow) if slow > Span::ZERO => offset < slow - near,
            Some(_) => offset >= half_ahead(policy) && offset <= near && rose(),
            None => false,
        }
    }

    /// Adds a message to the run, or begins another one with it; whether it is live.
    fn take(&mut self, pace: Pace, policy: &Policy) -> bool {
        if let Some(run) = self.run.as_mut().filter(|run| pace.keeps(run.paces.latest)) {
            if pace.is_too_soon(run.at) {
                return false;
            }
            run.paces.push(pace.pace);
            run.at = pace.at;
            self.stray = None;
            return true;
        }
        match self.stray.filter(|stray| pace.keeps(stray.pace)) {
            Some(stray) if pace.is_too_soon(stray.at) => false,
            Some(stray) => {
                let mut paces = Few::default();
                paces.push(stray.pace);
                paces.push(pace.pace);
                self.run = Some(Run { paces, at: pace.at });
                self.stray = None;
                if self.jumped {
                    // From one message to the next, and steady before and after: that was the clock.
                    self.floor = stray.floor().min(pace.floor());
                }
                true
            }
            None => {
                let from = self.run.filter(|_| self.stray.is_none()).map(|run| run.paces.latest);
                let far = |from: i64| pace.pace.saturating_sub(from).saturating_abs();
                self.jumped = from.is_some_and(|from| far(from) > policy.slow_tolerance.0 / 2);
                self.stray = Some(pace);
                false
            }
        }
    }

    /// What the run says of the offset.
    fn decide(&mut self, now: MonoTime, reference: ArrivalTime, policy: &Policy) {
        let Some(Run { paces, .. }) = self.run else { return };
        let as_offset = |pace: i64| Span(reference.0.saturating_sub(now.0).saturating_add(pace));
        let least = as_offset(paces.least());
        if let Some(offset) = self.offset {
            if least < offset || paces.is_full() {
                self.follow(offset, least, policy);
            }
            if self.offset.is_some() {
                return;
            }
        }
        let floor = as_offset(self.floor.saturating_add(now.0 / FORGETS));
        let slow =
            paces.is_full() && paces.spread() <= ALIKE && least.min(floor) > policy.slow_tolerance;
        if least < Span::ZERO - policy.future_tolerance || slow {
            self.offset = Some(of_zone(least));
        }
    }

    /// The offset in force becomes `least`, or none: then the clock is right, or wrong the other way.
    fn follow(&mut self, offset: Span, least: Span, policy: &Policy) {
        let (new, old) = (of_zone(least), offset);
        let still_wrong = if old < Span::ZERO {
            new < half_ahead(policy)
        } else {
            new > Span(policy.slow_tolerance.0 / 2)
        };
        if !still_wrong {
            self.offset = None;
        } else if (new - old).0.saturating_abs() >= STEP.0 {
            self.offset = Some(new);
        }
    }

    /// What is to be told after a message; `live` is its offset where it says what the clock is now.
    fn change(
        &mut self,
        before: Option<Span>,
        live: Option<Span>,
        policy: &Policy,
    ) -> Option<ClockChange> {
        match self.offset {
            Some(now) => {
                let same =
                    before.is_some_and(|before| (now - before).0.saturating_abs() <= ALIKE.0);
                self.told_wrong = true;
                (!same).then_some(ClockChange::Wrong(now))
            }
            None => {
                let right = half_ahead(policy)..=policy.slow_tolerance;
                let offset = live.filter(|offset| self.told_wrong && right.contains(offset))?;
                self.told_wrong = false;
                Some(ClockChange::Right(offset))
            }
        }
    }

    /// Whether a store keeps anything of it.
    pub(super) fn is_kept(&self) -> bool {
        self.offset.is_some() || self.told_wrong
    }

    /// Whether a store that has the record of `other` has that of this.
    pub(super) fn is_kept_as(&self, other: &Self) -> bool {
        (self.offset, self.told_wrong) == (other.offset, other.told_wrong)
    }

    pub(super) fn write(&self, w: &mut Writer) {
        w.u8(u8::from(self.offset.is_some()) | u8::from(self.told_wrong) << 1);
        if let Some(offset) = self.offset {
            w.signed(offset.0);
        }
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Option<Self> {
        let flags = r.u8()?;
        let offset = if flags & 1 == 0 { None } else { Some(Span(r.signed()?)) };
        Some(Self { offset, told_wrong: flags & 2 != 0, ..Self::default() })
    }
}

/// A clock that was wrong by more than the tolerance is right again at half of it: so that one at the edge does not turn
/// this way and that with its delay.
fn half_ahead(policy: &Policy) -> Span {
    Span(-(policy.future_tolerance.0 / 2))
}

/// An offset as it is applied: that of a time zone where it is that.
fn of_zone(offset: Span) -> Span {
    let whole = offset.0.saturating_add(QUARTER / 2).div_euclid(QUARTER).saturating_mul(QUARTER);
    let is_zone = whole != 0 && (offset - Span(whole)).0.saturating_abs() <= NEAR_ZONE.0;
    if is_zone { Span(whole) } else { offset }
}

#[cfg(test)]
mod tests;
