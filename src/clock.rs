//! The only place where a clock is read.
//!
//! Wall time is read from the system once, at the start, and carried on by `CLOCK_BOOTTIME`: a step of
//! the system clock, by whomever, changes nothing for this process. It follows that a wall time that
//! was wrong at the start stays wrong; [`Clock::quality`] says so.

use std::fmt;
use std::sync::Arc;

use crate::time::{ArrivalTime, ClockQuality, MonoTime, Now, Span};

/// How far the system clock may be from ours before we call ourselves suspect. Above a leap second.
const AGREEMENT: Span = Span::from_secs(2);

/// Wall and monotonic time of this process. Clones read the same clock.
#[derive(Clone, Debug)]
pub struct Clock {
    anchor: Arc<Anchor>,
}

#[derive(Debug)]
struct Anchor {
    /// Wall time when `CLOCK_BOOTTIME` was zero, by the system clock at the start.
    wall_at_boot: ArrivalTime,
    boot_id: BootId,
}

impl Clock {
    /// Takes the wall time from the system clock, once.
    pub fn start() -> Self {
        let since_boot = boottime() - MonoTime(0);
        let wall_at_boot = system_time() - since_boot;
        Self { anchor: Arc::new(Anchor { wall_at_boot, boot_id: BootId::read() }) }
    }

    /// Both clocks, at one moment.
    pub fn now(&self) -> Now {
        let mono = boottime();
        Now { wall: self.anchor.wall_at_boot + (mono - MonoTime(0)), mono }
    }

    /// The boot in which [`Now::mono`] has a meaning.
    pub fn boot_id(&self) -> BootId {
        self.anchor.boot_id
    }

    /// How far [`Now::wall`] can be trusted, by what the kernel says about its own clock.
    ///
    /// Synchronised when the kernel is and ours agrees with it; suspect when the kernel is and ours is
    /// more than 2 s away, since then the system clock was set after we started; else unsynchronised.
    pub fn quality(&self) -> ClockQuality {
        judge(kernel_synchronised(), system_time() - self.now().wall)
    }
}

fn judge(kernel_synchronised: bool, away: Span) -> ClockQuality {
    match (kernel_synchronised, Span(away.0.saturating_abs()) <= AGREEMENT) {
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

fn boottime() -> MonoTime {
    MonoTime(read(libc::CLOCK_BOOTTIME))
}

fn system_time() -> ArrivalTime {
    ArrivalTime(read(libc::CLOCK_REALTIME))
}

/// Reads a kernel clock, in milliseconds.
#[expect(unsafe_code, reason = "the standard library has no CLOCK_BOOTTIME")]
fn read(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid, writable timespec for the duration of the call.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(result, 0, "clock {clock} is supported since Linux 2.6.39");
    // The fields are 32 bits wide on some ARM targets.
    #[allow(clippy::useless_conversion, clippy::cast_lossless, reason = "depends on the target")]
    let (seconds, nanoseconds) = (i64::from(time.tv_sec), i64::from(time.tv_nsec));
    seconds * 1_000 + nanoseconds / 1_000_000
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
    fn a_system_clock_set_after_the_start_makes_ours_suspect() {
        assert_eq!(judge(true, Span(-2_000)), ClockQuality::Synchronised);
        assert_eq!(judge(true, Span(2_001)), ClockQuality::Suspect);
        assert_eq!(judge(true, Span(i64::MIN)), ClockQuality::Suspect);
        assert_eq!(judge(false, Span::ZERO), ClockQuality::Unsynchronised);
    }

    #[test]
    fn a_boot_has_one_id() {
        assert_eq!(Clock::start().boot_id(), Clock::start().boot_id());
        let id = BootId::parse("d43bef6f-8f91-459e-be21-aeb1d47b291e\n").unwrap();
        assert_eq!(id.to_string(), "d43bef6f8f91459ebe21aeb1d47b291e");
        assert_eq!(BootId::parse(""), None);
    }
}
