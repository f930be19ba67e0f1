//! The gateway's clock, and the only place where a clock is read.
//!
//! Wall time is `CLOCK_BOOTTIME` and a difference: a step of the host's clock, by whomever, changes nothing for this
//! process, and a suspend is no gap. The difference is taken from time servers, or from the host's clock where that is
//! kept in step, by a [`Keeper`]; [`Clock::status`] says what it is worth. Nothing here sets the host's clock.
//!
//! What is decided is decided in `query` (is this answer one?), `selection` (whom to believe?), `discipline` (what does
//! it do to our clock?) and `schedule` (when to ask again?), without sockets and in anybody's time; `server` and
//! `keeper` do what they say.
//!
//! For a demonstration there is a clock that runs faster than the machine's ([`Clock::accelerated`]).

mod anchor;
mod discipline;
mod host;
mod inquiry;
mod keeper;
mod query;
mod refusal;
mod schedule;
mod selection;
mod server;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use tokio::sync::Notify;

use crate::time::{ArrivalTime, ClockStatus, MonoTime, Now, Span};

use self::anchor::{Anchor, span};
use self::discipline::{Discipline, May, Patience, Verdict};
pub use self::host::BootId;
use self::host::boottime;
pub use self::inquiry::{Agreement, Heard, Inquiry, Said, inquire};
pub use self::keeper::Keeper;
pub use self::refusal::Refusal;
pub use self::server::ServerName;

const MILLI: i64 = 1_000_000;

fn nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

/// What the wall time is taken from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// Time servers, or the host's clock where none answers.
    #[default]
    Auto,
    /// Time servers only.
    Sntp,
    /// The host's clock only.
    System,
}

impl Source {
    /// As it is written in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Sntp => "sntp",
            Self::System => "system",
        }
    }
}

/// Whose clock this process goes by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// What the wall time is taken from.
    pub source: Source,
    /// The host's clock is right even where the kernel does not say so.
    pub trust_host: bool,
    /// Time servers.
    pub servers: Vec<ServerName>,
    /// How often they are asked.
    pub pace: Pace,
}

/// How often time servers are asked, and how long they may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Questions in a row to each, of which the one with the shortest round trip counts.
    pub burst: usize,
    /// Between them.
    pub spacing: Duration,
    /// How long one answer may take.
    pub patience: Duration,
    /// Shortest pause between two bursts while all is well, and the time until a jump may be confirmed.
    pub shortest: Duration,
    /// Longest pause.
    pub longest: Duration,
    /// First pause after a failure; doubled with each.
    pub quick: Duration,
    /// Pause between two looks at a host's clock that nothing keeps in step.
    pub host: Duration,
    /// How long a time before the last good one has to be said before it is believed.
    pub floor: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            burst: 4,
            spacing: Duration::from_millis(500),
            patience: Duration::from_secs(1),
            shortest: Duration::from_secs(64),
            longest: Duration::from_secs(1_024),
            quick: Duration::from_secs(2),
            host: Duration::from_secs(5),
            floor: Duration::from_secs(3_600),
        }
    }
}

impl Pace {
    fn patience(&self) -> Patience {
        Patience {
            first: nanos(self.quick),
            jump: nanos(self.shortest),
            floor: nanos(self.floor),
            stale: nanos(self.longest).saturating_mul(3),
        }
    }
}

/// Who told us the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// This time server.
    Server(Arc<str>),
    /// The host's clock.
    Host,
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server(name) => name,
            Self::Host => "host",
        })
    }
}

/// A large correction of our clock, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jump {
    /// What it showed.
    pub from: ArrivalTime,
    /// What it shows since.
    pub to: ArrivalTime,
    /// The one less the other.
    pub shift: Span,
    /// Who says so.
    pub source: Reference,
    /// It had never been taken from anybody before.
    pub first: bool,
}

/// What an operator can be told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// What the wall time is last taken from, and how long ago.
    pub reference: Option<(Reference, Span)>,
    /// How far our clock was off then, in microseconds.
    pub offset_us: Option<i64>,
    /// How far it is off at most now.
    pub bound: Option<Span>,
    /// What was not taken, by [`Refusal::as_str`], since the start.
    pub refused: BTreeMap<&'static str, u64>,
    /// Servers that do not want to be asked.
    pub banned: Vec<String>,
    /// The time servers contradict each other.
    pub disagreement: bool,
    /// A correction that has to be confirmed.
    pub doubted: Option<Span>,
    /// How far a host's clock that may not move ours is away from it.
    pub host_away: Option<Span>,
}

/// What is only told.
#[derive(Debug, Default)]
struct Report {
    refused: BTreeMap<&'static str, u64>,
    banned: Vec<String>,
    disagreement: bool,
    host_away: Option<Span>,
}

impl Report {
    fn refuse(&mut self, refusals: impl Iterator<Item = Refusal>) {
        for refusal in refusals {
            *self.refused.entry(refusal.as_str()).or_default() += 1;
        }
    }
}

/// Wall and monotonic time of this process. Clones read the same clock; reading it takes nanoseconds, from any thread.
#[derive(Clone, Debug)]
pub struct Clock {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: Settings,
    boot_id: BootId,
    /// A clock of a world of its own: where it began by `CLOCK_BOOTTIME`, with what, and how fast it runs.
    accelerated: Option<(i64, Now, u32)>,
    state: RwLock<Discipline>,
    report: Mutex<Report>,
    news: Notify,
}

impl Clock {
    /// By the host's clock, as long as no [`Keeper`] keeps it.
    pub fn start() -> Self {
        Self::start_with(Settings::default())
    }

    /// The same; whom a [`Keeper`] then asks is in the settings.
    pub fn start_with(settings: Settings) -> Self {
        let clock = Self::new(settings, None);
        if clock.shared.settings.goes_by_the_host() {
            clock.shared.ask_host();
        }
        clock
    }

    /// A clock that starts at `wall` and runs `factor` (at least 1) times as fast as the machine's, wall and monotonic
    /// time alike. It is what its world goes by, so it counts as synchronised.
    pub fn accelerated(factor: u32, wall: ArrivalTime) -> Self {
        let machine = boottime();
        let start = Now { wall, mono: MonoTime(machine.div_euclid(MILLI)) };
        Self::new(Settings::default(), Some((machine, start, factor.max(1))))
    }

    fn new(settings: Settings, accelerated: Option<(i64, Now, u32)>) -> Self {
        let anchor = Anchor::new(host::difference(), boottime());
        let state = RwLock::new(Discipline::new(anchor, settings.pace.patience()));
        let (report, news) = (Mutex::default(), Notify::new());
        let boot_id = BootId::read();
        Self { shared: Arc::new(Shared { settings, boot_id, accelerated, state, report, news }) }
    }

    /// Both clocks, at one moment.
    pub fn now(&self) -> Now {
        let Some((machine, start, factor)) = self.shared.accelerated else {
            let state = self.shared.state();
            let at = boottime();
            return Now { wall: state.anchor.wall(at), mono: MonoTime(at.div_euclid(MILLI)) };
        };
        let elapsed = (boottime() - machine).saturating_mul(i64::from(factor));
        let elapsed = Span(elapsed.div_euclid(MILLI));
        Now { wall: start.wall + elapsed, mono: start.mono + elapsed }
    }

    /// How long the machine takes until this clock has moved on by `span`; zero where that is past.
    pub fn machine_time(&self, span: Span) -> Duration {
        let millis = u64::try_from(span.0).unwrap_or(0);
        let factor = self.shared.accelerated.map_or(1, |(_, _, factor)| u64::from(factor));
        // Rounded up: who wakes up too early has to wait again.
        Duration::from_nanos(millis.saturating_mul(1_000_000).div_ceil(factor))
    }

    /// The boot in which [`Now::mono`] has a meaning.
    pub fn boot_id(&self) -> BootId {
        self.shared.boot_id
    }

    /// How far [`Now::wall`] can be trusted. The bound is in whole seconds, rounded up.
    pub fn status(&self) -> ClockStatus {
        self.shared.status()
    }

    /// What [`Clock::status`] is after `span`, if nobody says what time it is until then.
    pub fn status_in(&self, span: Span) -> ClockStatus {
        match self.shared.is_accelerated() {
            true => ClockStatus::EXACT,
            false => {
                let ahead = span.0.saturating_mul(MILLI);
                self.shared.state().status(boottime().saturating_add(ahead))
            }
        }
    }

    /// Nobody is believed who says that it is before `floor`, short of an hour of saying so: it was later once.
    pub fn set_floor(&self, floor: ArrivalTime) {
        self.shared.state_mut().set_floor(floor, boottime());
    }

    /// Large corrections since this was last asked; at most the last 16.
    pub fn take_jumps(&self) -> Vec<Jump> {
        self.shared.state_mut().take_jumps()
    }

    /// What an operator can be told.
    pub fn view(&self) -> View {
        let (state, report, now) = (self.shared.state(), self.shared.report(), boottime());
        let last = state.last();
        View {
            reference: last.map(|(reference, _, at)| (reference.clone(), span(now - at))),
            offset_us: last.map(|(_, offset, _)| offset / 1_000),
            bound: state.bound(now).map(|bound| span(bound + MILLI - 1)),
            refused: report.refused.clone(),
            banned: report.banned.clone(),
            disagreement: report.disagreement,
            doubted: state.doubted_shift().map(span),
            host_away: report.host_away,
        }
    }
}

impl Settings {
    /// There is nobody else to be asked.
    fn goes_by_the_host(&self) -> bool {
        match self.source {
            Source::System => true,
            Source::Auto => self.servers.is_empty(),
            Source::Sntp => false,
        }
    }
}

// A panic in between cannot leave a state half changed: nothing in it panics, and each change is of plain numbers.
impl Shared {
    fn state(&self) -> RwLockReadGuard<'_, Discipline> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_mut(&self) -> RwLockWriteGuard<'_, Discipline> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_accelerated(&self) -> bool {
        self.accelerated.is_some()
    }

    fn status(&self) -> ClockStatus {
        match self.is_accelerated() {
            true => ClockStatus::EXACT,
            false => self.state().status(boottime()),
        }
    }

    /// Status, whether a jump waits to be told, and when the status changes by itself.
    fn what_now(&self) -> (ClockStatus, bool, Option<i64>) {
        let (state, now) = (self.state(), boottime());
        (state.status(now), state.has_jumps(), state.next_change(now))
    }

    /// Asks the host's clock. `None`: neither the kernel nor the operator says that it is kept in step, or it says
    /// something that it may not.
    fn ask_host(&self) -> Option<Verdict> {
        let (trusted, now) = (self.settings.trust_host, boottime());
        let mut state = self.state_mut();
        let Some(estimate) = host::estimate(trusted) else {
            state.failed();
            return None;
        };
        let kept = match (host::is_synchronised(), self.settings.goes_by_the_host()) {
            (true, true) => false,
            // The servers' word outweighs the host's as long as it is worth something.
            (true, false) => state.is_usable(now),
            // Who sets a clock that nothing keeps does not tell whether it was right before or is right now.
            (false, _) => state.was_taken(),
        };
        let may = if kept { May::Slew } else { May::Jump };
        let verdict = state.offer(estimate, &Reference::Host, may, now);
        let away = estimate.difference - state.anchor.target();
        self.report().host_away = (verdict == Verdict::Ignored).then(|| span(away));
        Some(verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::ClockQuality;

    #[test]
    fn wall_and_monotonic_time_advance_together() {
        let clock = Clock::start();
        let (first, second) = (clock.now(), clock.clone().now());
        assert!(second.mono >= first.mono);
        assert_eq!(second.wall - first.wall, second.mono - first.mono);
        let system = (host::difference() + boottime()) / MILLI;
        assert!((system - second.wall.0).abs() < 1_000);
    }

    #[test]
    fn an_accelerated_clock_runs_a_whole_factor_faster_from_where_it_was_set() {
        let (machine, clock) = (Clock::start(), Clock::accelerated(1_000, ArrivalTime(7)));
        let (began, first) = (machine.now(), clock.now());
        while machine.now().mono - began.mono < Span(20) {
            std::hint::spin_loop();
        }
        let (second, ended) = (clock.now(), machine.now());
        assert!(first.wall >= ArrivalTime(7));
        assert_eq!(second.wall - first.wall, second.mono - first.mono);
        let elapsed = second.mono - first.mono;
        assert!(elapsed >= Span(19_000), "{elapsed:?}");
        assert!(elapsed.0 <= ((ended.mono - began.mono).0 + 1) * 1_000, "{elapsed:?}");
        assert_eq!(clock.status(), ClockStatus::EXACT);
    }

    #[test]
    fn the_machine_needs_a_factor_less_time_rounded_up() {
        let clock = Clock::accelerated(240, ArrivalTime(0));
        assert_eq!(clock.machine_time(Span::from_hours(4)), Duration::from_secs(60));
        assert_eq!(clock.machine_time(Span(1)), Duration::from_nanos(4_167));
        assert_eq!(clock.machine_time(Span(-1)), Duration::ZERO);
        assert_eq!(Clock::start().machine_time(Span(3)), Duration::from_millis(3));
    }

    #[test]
    fn an_operator_who_trusts_the_host_is_believed_without_the_kernel() {
        let trusting = Settings { trust_host: true, ..Settings::default() };
        let quality = |settings| Clock::start_with(settings).status().quality;
        assert_eq!(quality(trusting.clone()), ClockQuality::Synchronised);
        let servers_only = Settings { source: Source::Sntp, ..trusting };
        assert_eq!(quality(servers_only), ClockQuality::Unsynchronised);
    }

    #[test]
    fn a_clock_that_nobody_keeps_is_worth_less_each_day() {
        let clock = Clock::start_with(Settings { trust_host: true, ..Settings::default() });
        assert_eq!(clock.status_in(Span::ZERO).quality, ClockQuality::Synchronised);
        let [hour, day, week] = [1, 24, 168].map(|hours| clock.status_in(Span::from_hours(hours)));
        assert_eq!([hour, day, week].map(|status| status.quality), [ClockQuality::Holdover; 3]);
        // 100 parts in a million.
        let grown = week.bound - day.bound;
        assert!((Span::from_secs(51)..=Span::from_secs(53)).contains(&grown), "{grown:?}");
        let never = Clock::start_with(Settings { source: Source::Sntp, ..Settings::default() });
        assert_eq!(never.status_in(Span::from_hours(1)), ClockStatus::UNSYNCHRONISED);
        let demonstration = Clock::accelerated(9, ArrivalTime(0));
        assert_eq!(demonstration.status_in(Span::from_hours(168)), ClockStatus::EXACT);
    }

    #[test]
    fn a_host_that_is_trusted_and_says_a_time_before_the_last_good_one_is_not() {
        let clock = Clock::start_with(Settings { trust_host: true, ..Settings::default() });
        clock.set_floor(clock.now().wall - Span::from_hours(1));
        assert_eq!(clock.status().quality, ClockQuality::Synchronised);
        clock.set_floor(clock.now().wall + Span::from_hours(1));
        assert_eq!(clock.status().quality, ClockQuality::Suspect);
    }
}
