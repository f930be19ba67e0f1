//! The only place where a clock is read.
//!
//! Wall time is read from the system once, at the start, and carried on by `CLOCK_BOOTTIME`: a step of
//! the system clock, by whomever, changes nothing for this process. It follows that a wall time that
//! was wrong at the start stays wrong; [`Clock::status`] says so.
//!
//! For a demonstration there is a clock that runs faster than the machine's ([`Clock::accelerated`]).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::time::{ArrivalTime, ClockQuality, ClockStatus, MonoTime, Now, Span};

/// How far the system clock may be from ours before we call ourselves suspect. Above a leap second.
const AGREEMENT: Span = Span::from_secs(2);

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

/// Whose clock this process goes by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// What the wall time is taken from.
    pub source: Source,
    /// The host's clock is right even where the kernel does not say so.
    pub trust_host: bool,
}

/// Wall and monotonic time of this process. Clones read the same clock.
#[derive(Clone, Debug)]
pub struct Clock {
    anchor: Arc<Anchor>,
}

/// Both clocks at the start, and how fast they run from there.
#[derive(Debug)]
struct Anchor {
    /// `CLOCK_BOOTTIME`, in nanoseconds.
    machine: i64,
    start: Now,
    factor: u32,
    boot_id: BootId,
    settings: Settings,
}

impl Clock {
    /// Takes the wall time from the system clock, once.
    pub fn start() -> Self {
        Self::start_with(Settings::default())
    }

    /// The same; what it is worth is judged by these settings.
    pub fn start_with(settings: Settings) -> Self {
        let machine = read(libc::CLOCK_BOOTTIME);
        let start = Now { wall: system_time(), mono: MonoTime(millis(machine)) };
        Self::anchored(Anchor { machine, start, factor: 1, boot_id: BootId::read(), settings })
    }

    /// A clock that starts at `wall` and runs `factor` (at least 1) times as fast as the machine's, wall and monotonic
    /// time alike. It is what its world goes by, so it counts as synchronised.
    pub fn accelerated(factor: u32, wall: ArrivalTime) -> Self {
        let machine = read(libc::CLOCK_BOOTTIME);
        let start = Now { wall, mono: MonoTime(millis(machine)) };
        let (factor, settings) = (factor.max(1), Settings::default());
        Self::anchored(Anchor { machine, start, factor, boot_id: BootId::read(), settings })
    }

    fn anchored(anchor: Anchor) -> Self {
        Self { anchor: Arc::new(anchor) }
    }

    /// Both clocks, at one moment.
    pub fn now(&self) -> Now {
        let Anchor { machine, start, factor, .. } = &*self.anchor;
        let machine_elapsed = read(libc::CLOCK_BOOTTIME) - machine;
        let elapsed = Span(millis(machine_elapsed.saturating_mul(i64::from(*factor))));
        Now { wall: start.wall + elapsed, mono: start.mono + elapsed }
    }

    /// How long the machine takes until this clock has moved on by `span`; zero where that is past.
    pub fn machine_time(&self, span: Span) -> Duration {
        let millis = u64::try_from(span.0).unwrap_or(0);
        let factor = u64::from(self.anchor.factor);
        // Rounded up: who wakes up too early has to wait again.
        Duration::from_nanos(millis.saturating_mul(1_000_000).div_ceil(factor))
    }

    /// The boot in which [`Now::mono`] has a meaning.
    pub fn boot_id(&self) -> BootId {
        self.anchor.boot_id
    }

    /// How far [`Now::wall`] can be trusted, by what the kernel says about its own clock, or by what the operator
    /// does ([`Settings::trust_host`]).
    ///
    /// Synchronised when the kernel is and ours agrees with it; suspect when the kernel is and ours is
    /// more than 2 s away, since then the system clock was set after we started; else unsynchronised.
    pub fn status(&self) -> ClockStatus {
        if self.anchor.factor > 1 {
            return ClockStatus::EXACT;
        }
        let away = system_time() - self.now().wall;
        ClockStatus { quality: judge(self.host_is_right(), away), bound: Span::MAX }
    }

    fn host_is_right(&self) -> bool {
        let Settings { source, trust_host } = self.anchor.settings;
        source != Source::Sntp && (trust_host || kernel_synchronised())
    }
}

fn judge(host_is_right: bool, away: Span) -> ClockQuality {
    match (host_is_right, Span(away.0.saturating_abs()) <= AGREEMENT) {
        (true, true) => ClockQuality::Synchronised,
        (true, false) => ClockQuality::Suspect,
        (false, _) => ClockQuality::Unsynchronised,
    }
}

/// Identity of one boot of the machine: monotonic times of two boots cannot be compared.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BootId(pub u128);

impl BootId {
    /// The kernel's id of this boot. Where it cannot be read, a random one: no two starts then share
    /// a boot, which is the safe side.
    fn read() -> Self {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self::parse(&text).unwrap_or_else(|| Self(fastrand::u128(..)))
    }

    fn parse(text: &str) -> Option<Self> {
        let digits = text.trim().replace('-', "");
        u128::from_str_radix(&digits, 16).ok().map(Self)
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

fn system_time() -> ArrivalTime {
    ArrivalTime(millis(read(libc::CLOCK_REALTIME)))
}

fn millis(nanos: i64) -> i64 {
    nanos.div_euclid(1_000_000)
}

/// Reads a kernel clock, in nanoseconds; 64 bits of them last until the year 2262.
#[expect(unsafe_code, reason = "the standard library has no CLOCK_BOOTTIME")]
fn read(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid, writable timespec for the duration of the call.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(result, 0, "clock {clock} is supported since Linux 2.6.39");
    // The fields are 32 bits wide on some ARM targets.
    #[allow(clippy::useless_conversion, clippy::cast_lossless, reason = "depends on the target")]
    let (seconds, nanoseconds) = (i64::from(time.tv_sec), i64::from(time.tv_nsec));
    seconds * 1_000_000_000 + nanoseconds
}

/// Whether something keeps the kernel's clock in step with the world.
#[expect(unsafe_code, reason = "only adjtimex tells whether the kernel's clock is disciplined")]
fn kernel_synchronised() -> bool {
    // SAFETY: timex is plain data, for which zeroes are valid; modes 0 only reads.
    let (state, status) = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        let state = libc::adjtimex(&raw mut timex);
        (state, timex.status)
    };
    state >= 0 && status & libc::STA_UNSYNC == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_and_monotonic_time_advance_together() {
        let clock = Clock::start();
        let (first, second) = (clock.now(), clock.clone().now());
        assert!(second.mono >= first.mono);
        assert_eq!(second.wall - first.wall, second.mono - first.mono);
        assert!((system_time() - second.wall).0.abs() < 1_000);
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
    fn a_system_clock_set_after_the_start_makes_ours_suspect() {
        assert_eq!(judge(true, Span(-2_000)), ClockQuality::Synchronised);
        assert_eq!(judge(true, Span(2_001)), ClockQuality::Suspect);
        assert_eq!(judge(true, Span(i64::MIN)), ClockQuality::Suspect);
        assert_eq!(judge(false, Span::ZERO), ClockQuality::Unsynchronised);
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
    fn a_boot_has_one_id() {
        assert_eq!(Clock::start().boot_id(), Clock::start().boot_id());
        let id = BootId::parse("d43bef6f-8f91-459e-be21-aeb1d47b291e\n").unwrap();
        assert_eq!(id.to_string(), "d43bef6f8f91459ebe21aeb1d47b291e");
        assert_eq!(BootId::parse(""), None);
    }
}
