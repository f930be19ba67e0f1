//! Whether a message is processed now, or held until the time is known (SPEC 2.2). Decides, and counts what is held; the
//! messages themselves are in the store.
//!
//! ```text
//! closed ── sync-timeout ──► waived ── first good clock ──► open      for the rest of this life of the agent
//!    └─────────────── first good clock ─────────────────────┘
//! ```
//!
//! At each of these steps, and where more is held than the quota allows, the store is *gone through* from the oldest held
//! message on. Each is then released or kept. What comes meanwhile is held behind it, so that nothing newer comes first.

use crate::time::{ArrivalTime, MonoTime, Span};

/// How messages are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateSettings {
    /// How long everything is held while the clock is not good. Then records with a time of their own are processed.
    pub sync_timeout: Span,
    /// What held messages may take, in bytes.
    pub quota: u64,
}

impl Default for GateSettings {
    /// Five minutes, 64 MiB.
    fn default() -> Self {
        Self { sync_timeout: Span::from_mins(5), quota: 64 << 20 }
    }
}

/// A moment of one boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Which boot, as the kernel names it.
    pub boot: u128,
    /// Its monotonic time.
    pub mono: MonoTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The clock was never good in this life of the agent.
    Closed,
    /// And that for longer than we wait.
    Waived,
    /// The clock was good at this time first.
    Open(ArrivalTime),
}

/// What is to become of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// It is processed.
    Process,
    /// It is, if all its records have a usable time of their own.
    IfTimed,
    /// It is held.
    Hold,
}

/// Held messages are gone through: from which number on, and whether only until the quota is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pass {
    from: u64,
    evicts: bool,
    /// Some message was kept.
    kept: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Gate {
    settings: GateSettings,
    boot: u128,
    state: State,
    since: Option<MonoTime>,
    pass: Option<Pass>,
    next: u64,
    held: u64,
    bytes: u64,
    oldest: Option<Moment>,
    /// Not in the store yet.
    new: Vec<(u64, Vec<u8>)>,
    /// Still in the store.
    gone: Vec<u64>,
}

impl Gate {
    /// Closed, with nothing held.
    pub fn new(settings: GateSettings) -> Self {
        Self {
            settings,
            boot: 0,
            state: State::Closed,
            since: None,
            pass: None,
            next: 0,
            held: 0,
            bytes: 0,
            oldest: None,
            new: Vec::new(),
            gone: Vec::new(),
        }
    }

    /// Takes the place of one that counted the same messages: what began in this life of the agent goes on.
    pub fn carry_on(&mut self, before: &Self) {
        (self.boot, self.state, self.since) = (before.boot, before.state, before.since);
        if before.pass.is_some_and(|pass| !pass.evicts) {
            self.go_through();
        }
    }

    /// Which boot this is.
    pub fn set_boot(&mut self, boot: u128) {
        self.boot = boot;
    }

    /// A moment of this boot.
    pub fn moment(&self, mono: MonoTime) -> Moment {
        Moment { boot: self.boot, mono }
    }

    /// Waiting begins, if it has not begun.
    pub fn begin(&mut self, now: MonoTime) {
        self.since.get_or_insert(now);
    }

    /// When waiting ends; `None` once it has, or the clock is good.
    pub fn ends(&self) -> Option<MonoTime> {
        self.since.filter(|_| self.state == State::Closed).map(|at| at + self.settings.sync_timeout)
    }

    /// Since when the clock has not been good in this life; `None` once it was.
    pub fn since(&self) -> Option<MonoTime> {
        self.since.filter(|_| !self.is_open())
    }

    /// Whether the clock was good in this life.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Whether records with a time of their own pass a closed gate.
    pub fn is_waived(&self) -> bool {
        self.state == State::Waived
    }

    /// When the clock was good first in this life.
    pub fn opened(&self) -> Option<ArrivalTime> {
        match self.state {
            State::Open(at) => Some(at),
            State::Closed | State::Waived => None,
        }
    }

    /// Whether something that has arrived waits, so that silence says nothing.
    pub fn waits(&self) -> bool {
        self.state == State::Closed || self.pass.is_some_and(|pass| !pass.evicts)
    }

    /// We have waited long enough.
    pub fn waive(&mut self) {
        if self.state == State::Closed {
            self.state = State::Waived;
            self.go_through();
        }
    }

    /// The clock is good, at `now`.
    pub fn open(&mut self, now: ArrivalTime) {
        if !self.is_open() {
            self.state = State::Open(now);
            self.go_through();
        }
    }

    fn go_through(&mut self) {
        self.pass = (self.held > 0).then_some(Pass { from: 0, evicts: false, kept: false });
    }

    /// What becomes of a message that comes now.
    pub fn ruling(&self) -> Ruling {
        match self.state {
            State::Waived if !self.waits() => Ruling::IfTimed,
            State::Open(_) if !self.waits() => Ruling::Process,
            State::Closed | State::Waived | State::Open(_) => Ruling::Hold,
        }
    }

    /// What becomes of one that was held and is met now.
    pub fn ruling_of_held(&self) -> Ruling {
        match self.state {
            State::Open(_) => Ruling::Process,
            State::Closed | State::Waived if self.is_evicting() => Ruling::Process,
            State::Closed | State::Waived => Ruling::IfTimed,
        }
    }

    /// The oldest go, whatever they are, because too much is held.
    pub fn is_evicting(&self) -> bool {
        self.pass.is_some_and(|pass| pass.evicts)
    }

    /// Holds a message that came at `mono`.
    pub fn hold(&mut self, record: Vec<u8>, mono: MonoTime) {
        self.count(self.next, record.len(), self.moment(mono));
        self.new.push((self.next - 1, record));
        self.keep_quota();
    }

    /// The store holds a message. They come in the order of their numbers.
    pub fn restore(&mut self, number: u64, bytes: usize, moment: Moment) {
        self.count(number, bytes, moment);
        self.keep_quota();
    }

    fn count(&mut self, number: u64, bytes: usize, moment: Moment) {
        self.next = number + 1;
        self.held += 1;
        self.bytes += bytes as u64;
        self.oldest.get_or_insert(moment);
    }

    fn keep_quota(&mut self) {
        if self.pass.is_none() && self.bytes > self.settings.quota {
            self.pass = Some(Pass { from: 0, evicts: true, kept: false });
        }
    }

    /// The number from which held messages are wanted.
    pub fn wanted(&self) -> Option<u64> {
        self.pass.map(|pass| pass.from)
    }

    /// A held message that was met is kept.
    pub fn keep(&mut self, number: u64, moment: Moment) {
        let Some(pass) = &mut self.pass else { return };
        if !pass.kept {
            self.oldest = Some(moment);
        }
        (pass.from, pass.kept) = (number + 1, true);
    }

    /// A held message that was met is no longer held.
    pub fn release(&mut self, number: u64, bytes: usize, moment: Moment) {
        self.held = self.held.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes as u64);
        self.gone.push(number);
        let Some(pass) = &mut self.pass else { return };
        pass.from = number + 1;
        if !pass.kept {
            self.oldest = Some(moment).filter(|_| self.held > 0); // the next one is as old, or younger
        }
        // Some room is made at once, or each further message would cost a look into the store.
        if pass.evicts && self.bytes <= self.settings.quota / 10 * 9 {
            self.pass = None;
        }
    }

    /// All were met. Says how many should be there and are not.
    pub fn end_pass(&mut self) -> u64 {
        let Some(pass) = self.pass.filter(|_| self.new.is_empty()) else { return 0 };
        self.pass = None;
        if self.is_open() || pass.evicts {
            (self.bytes, self.oldest) = (0, None);
            return std::mem::take(&mut self.held);
        }
        self.keep_quota();
        0
    }

    /// What the store has to write, and to delete.
    pub fn changes(&mut self) -> (Vec<(u64, Vec<u8>)>, Vec<u64>) {
        (std::mem::take(&mut self.new), std::mem::take(&mut self.gone))
    }

    /// Messages held.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Bytes that they take.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// When the oldest came, or one before it.
    pub fn oldest(&self) -> Option<Moment> {
        self.oldest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: ArrivalTime = ArrivalTime(1_795_953_600_000);

    fn gate(quota: u64) -> Gate {
        let mut gate = Gate::new(GateSettings { quota, ..GateSettings::default() });
        gate.begin(MonoTime(1_000));
        gate
    }

    fn hold(gate: &mut Gate, mono: i64) {
        gate.hold(vec![0; 10], MonoTime(mono));
    }

    #[test]
    fn it_is_closed_until_the_clock_is_good_or_the_wait_is_over() {
        let mut gate = gate(1_000);
        assert_eq!((gate.ruling(), gate.ends()), (Ruling::Hold, Some(MonoTime(301_000))));
        gate.waive();
        assert_eq!((gate.ruling(), gate.ends()), (Ruling::IfTimed, None));
        gate.open(NOW);
        assert_eq!((gate.ruling(), gate.opened()), (Ruling::Process, Some(NOW)));
        gate.waive();
        assert!(gate.is_open(), "it is never closed again in this life");
    }

    #[test]
    fn nothing_newer_comes_before_what_is_held() {
        let mut gate = gate(1_000);
        hold(&mut gate, 1);
        gate.open(NOW);
        assert_eq!((gate.ruling(), gate.wanted()), (Ruling::Hold, Some(0)));
        hold(&mut gate, 2);
        let at = gate.moment(MonoTime(1));
        gate.release(0, 10, at);
        assert_eq!(gate.end_pass(), 0);
        assert_eq!(gate.wanted(), Some(1), "one is not in the store yet");
        assert_eq!(gate.changes().0.len(), 2);
        gate.release(1, 10, at);
        assert_eq!((gate.end_pass(), gate.ruling()), (0, Ruling::Process));
        assert_eq!((gate.held(), gate.bytes(), gate.oldest()), (0, 0, None));
    }

    #[test]
    fn beyond_the_quota_the_oldest_go_and_a_tenth_of_it_is_free_then() {
        let mut gate = gate(100);
        for mono in 0..11 {
            assert_eq!(gate.wanted(), None);
            hold(&mut gate, mono);
        }
        assert_eq!((gate.wanted(), gate.waits()), (Some(0), true));
        let at = |gate: &Gate, mono| gate.moment(MonoTime(mono));
        gate.release(0, 10, at(&gate, 0));
        assert_eq!(gate.ruling_of_held(), Ruling::Process);
        gate.release(1, 10, at(&gate, 1));
        assert_eq!((gate.wanted(), gate.held(), gate.bytes()), (None, 9, 90));
        assert_eq!(gate.oldest(), Some(at(&gate, 1)));
    }

    #[test]
    fn what_the_store_has_lost_is_noticed_when_all_was_met() {
        let mut gate = gate(1_000);
        gate.restore(7, 10, Moment { boot: 3, mono: MonoTime(9) });
        gate.restore(9, 10, Moment { boot: 3, mono: MonoTime(10) });
        gate.open(NOW);
        gate.release(7, 10, Moment { boot: 3, mono: MonoTime(9) });
        assert_eq!((gate.end_pass(), gate.held()), (1, 0));
        assert_eq!(gate.ruling(), Ruling::Process);
    }
}
