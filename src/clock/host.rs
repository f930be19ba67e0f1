//! The clocks of the host's kernel.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use super::selection::Estimate;

/// What an operator's word for the host's clock is taken for, in nanoseconds.
const TRUSTED: i64 = 1_000_000_000;

/// `CLOCK_BOOTTIME`, in nanoseconds.
pub(super) fn boottime() -> i64 {
    read(libc::CLOCK_BOOTTIME)
}

/// The host's wall clock less `CLOCK_BOOTTIME`, in nanoseconds.
pub(super) fn difference() -> i64 {
    let before = boottime();
    let wall = wall();
    wall - i64::midpoint(before, boottime())
}

/// What the host's clock says, if the kernel says that something keeps it, or the operator does.
pub(super) fn estimate(trusted: bool) -> Option<Estimate> {
    let bound = match kernel_error() {
        Some(bound) => bound,
        None if trusted => TRUSTED,
        None => return None,
    };
    Some(Estimate { server: usize::MAX, difference: difference(), bound })
}

/// Whether the kernel says that its clock is kept in step.
pub(super) fn is_synchronised() -> bool {
    kernel_error().is_some()
}

/// The host's wall clock, in nanoseconds since 1970; 64 bits of them last until the year 2262.
#[expect(clippy::disallowed_methods, reason = "this is where the wall clock is read")]
fn wall() -> i64 {
    // Not by `read`: seconds of a C library for 32 bits end in 2038, and the standard library asks for wider ones.
    let now = SystemTime::now();
    let (before, distance) = match now.duration_since(UNIX_EPOCH) {
        Ok(since) => (false, since),
        Err(until) => (true, until.duration()),
    };
    let distance = i64::try_from(distance.as_nanos()).unwrap_or(i64::MAX);
    if before { -distance } else { distance }
}

/// Reads a clock of the kernel that starts with the host, in nanoseconds.
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

/// How far off the kernel's clock is at most by its own account, in nanoseconds, if something keeps it in step with the
/// world.
#[expect(unsafe_code, reason = "only adjtimex tells whether the kernel's clock is disciplined")]
fn kernel_error() -> Option<i64> {
    // SAFETY: timex is plain data, for which zeroes are valid; modes 0 only reads.
    let (state, timex) = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&raw mut timex), timex)
    };
    #[allow(clippy::useless_conversion, clippy::cast_lossless, reason = "depends on the target")]
    let error = i64::from(timex.maxerror).saturating_mul(1_000);
    (state >= 0 && timex.status & libc::STA_UNSYNC == 0).then_some(error)
}

/// Identity of one boot of the machine: monotonic times of two boots cannot be compared.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BootId(pub u128);

impl BootId {
    /// The kernel's id of this boot. Where it cannot be read, a random one: no two starts then share
    /// a boot, which is the safe side.
    pub(super) fn read() -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_has_one_id() {
        assert_eq!(BootId::read(), BootId::read());
        let id = BootId::parse("d43bef6f-8f91-459e-be21-aeb1d47b291e\n").unwrap();
        assert_eq!(id.to_string(), "d43bef6f8f91459ebe21aeb1d47b291e");
        assert_eq!(BootId::parse(""), None);
    }

    #[test]
    fn a_trusted_host_says_what_time_it_is_whatever_the_kernel_says() {
        let estimate = estimate(true).unwrap();
        assert!((estimate.difference - difference()).abs() < 1_000_000_000);
        assert_eq!(super::estimate(false).is_some(), is_synchronised());
    }
}
