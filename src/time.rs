//! The four times of SPEC 2.1, as four types: none becomes another by accident.
//!
//! All wall times are milliseconds since the Unix epoch, UTC, signed. Monotonic time is milliseconds of
//! `CLOCK_BOOTTIME` (suspend counts); its zero means nothing outside one boot.

use std::fmt;
use std::ops::{Add, Sub};

/// A span of time in milliseconds. Signed, so that differences of times are spans too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(pub i64);

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// Longer than anything configured.
    pub const MAX: Self = Self(i64::MAX);

    /// A span of whole seconds.
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(1_000))
    }

    /// A span of whole minutes.
    pub const fn from_mins(mins: i64) -> Self {
        Self(mins.saturating_mul(60_000))
    }

    /// A span of whole hours.
    pub const fn from_hours(hours: i64) -> Self {
        Self(hours.saturating_mul(3_600_000))
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Span {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

macro_rules! instant {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub i64);

        impl $name {
            /// Before everything.
            pub const MIN: Self = Self(i64::MIN);
            /// After everything.
            pub const MAX: Self = Self(i64::MAX);
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }

        impl Add<Span> for $name {
            type Output = Self;
            fn add(self, span: Span) -> Self {
                Self(self.0.saturating_add(span.0))
            }
        }

        impl Sub<Span> for $name {
            type Output = Self;
            fn sub(self, span: Span) -> Self {
                Self(self.0.saturating_sub(span.0))
            }
        }

        impl Sub for $name {
            type Output = Span;
            fn sub(self, other: Self) -> Span {
                Span(self.0.saturating_sub(other.0))
            }
        }
    };
}

instant! {
    /// What the device wrote into its message. Believed by nobody until validated.
    DeviceTime
}
instant! {
    /// When the reading was taken, after validation: the only time that windows and watermarks know.
    EventTime
}
instant! {
    /// The gateway's wall clock when the message was received.
    ArrivalTime
}
instant! {
    /// Monotonic time of this boot.
    MonoTime
}

impl DeviceTime {
    /// A device time that passed validation as it stands.
    pub const fn accepted(self) -> EventTime {
        EventTime(self.0)
    }
}

impl ArrivalTime {
    /// Arrival time in the place of an unusable device time (SPEC 2.4, "stamped").
    pub const fn stamped(self) -> EventTime {
        EventTime(self.0)
    }
}

/// The two clocks read at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Gateway wall clock.
    pub wall: ArrivalTime,
    /// Monotonic clock; spans and deadlines are counted on it.
    pub mono: MonoTime,
}

/// How far the gateway's clock can be trusted (SPEC 2.2). Every output carries it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum ClockQuality {
    /// Disciplined by a time server.
    Synchronised,
    /// Servers lost; the error bound grows.
    Holdover,
    /// An unconfirmed jump, or a time before the last good one.
    Suspect,
    /// Never had the time.
    Unsynchronised,
}

/// What the gateway's clock is worth at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockStatus {
    /// How far it can be trusted.
    pub quality: ClockQuality,
    /// How far from the true time it is at most, where anything is known; [`Span::MAX`] where nothing is.
    pub bound: Span,
}

impl ClockStatus {
    /// Nothing is known of the time.
    pub const UNSYNCHRONISED: Self =
        Self { quality: ClockQuality::Unsynchronised, bound: Span::MAX };
    /// The time itself.
    pub const EXACT: Self = Self { quality: ClockQuality::Synchronised, bound: Span::ZERO };

    /// Whether windows may be closed, and times refused and corrected, by it: it is synchronised, or in holdover and off
    /// by less than `lateness` and a minute (SPEC 2.2).
    pub fn is_good(&self, lateness: Span) -> bool {
        match self.quality {
            ClockQuality::Synchronised => true,
            ClockQuality::Holdover => self.bound < lateness.min(Span::from_mins(1)),
            ClockQuality::Suspect | ClockQuality::Unsynchronised => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(EventTime::MAX + Span(1), EventTime::MAX);
        assert_eq!(EventTime::MIN - Span(1), EventTime::MIN);
        assert_eq!(EventTime::MAX - EventTime::MIN, Span::MAX);
        assert_eq!(Span::from_hours(i64::MAX), Span::MAX);
    }

    #[test]
    fn a_clock_in_holdover_is_good_while_its_bound_is_under_the_lateness_and_a_minute() {
        let good = |quality, bound, lateness| {
            ClockStatus { quality, bound: Span::from_secs(bound) }
                .is_good(Span::from_secs(lateness))
        };
        assert!(good(ClockQuality::Holdover, 59, 120));
        assert!(!good(ClockQuality::Holdover, 60, 120));
        assert!(good(ClockQuality::Holdover, 29, 30));
        assert!(!good(ClockQuality::Holdover, 30, 30));
        assert!(good(ClockQuality::Synchronised, 3_600, 0));
        assert!(!good(ClockQuality::Suspect, 0, 120));
        assert!(!ClockStatus::UNSYNCHRONISED.is_good(Span::MAX));
    }
}
