//! What an operator should look at.

use crate::ids::{DeviceId, RegionId};
use crate::time::{ClockQuality, EventTime, Span};

/// Something an operator should look at.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// What happened.
    pub kind: AlertKind,
    /// Region it happened in.
    pub region: RegionId,
    /// Device it happened to.
    pub device: DeviceId,
    /// Its watermark then; [`EventTime::MIN`] before the first.
    pub watermark: EventTime,
    /// Quality of the gateway's clock.
    pub clock: ClockQuality,
}

/// Kinds of alerts. The names are part of the upstream contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlertKind {
    /// The device lags more than `max-hold` behind its region: the region no longer waits for it.
    HeldOut,
    /// It is back within `max-hold`.
    BackIn,
    /// The device writes its times in another unit than before, and each is read as what it is.
    UnitChanged {
        /// How it wrote them before.
        before: TimeUnit,
        /// How it does now.
        unit: TimeUnit,
    },
    /// The device wrote a local time that its zone leaves out; it counts as if the clocks had not been changed.
    SkippedHour {
        /// What the first such time of this change is read as.
        time: EventTime,
    },
    /// The device's clock is off by this (event time less device time), and its times are corrected from now on, or by
    /// another offset than before.
    ClockCorrected(Span),
    /// The same, and nothing is corrected (`correct = "flag"`).
    ClockWrong(Span),
    /// The device's clock is right again, and this is the delay.
    ClockRight(Span),
}

impl AlertKind {
    /// Its name in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HeldOut => "held-out",
            Self::BackIn => "back-in",
            Self::UnitChanged { .. } => "unit-changed",
            Self::SkippedHour { .. } => "skipped-hour",
            Self::ClockCorrected(_) => "clock-corrected",
            Self::ClockWrong(_) => "clock-wrong",
            Self::ClockRight(_) => "clock-right",
        }
    }

    /// Of what speaks of the device's clock: its offset, event time less device time.
    pub const fn clock_offset(&self) -> Option<Span> {
        match self {
            Self::ClockCorrected(offset) | Self::ClockWrong(offset) | Self::ClockRight(offset) => {
                Some(*offset)
            }
            _ => None,
        }
    }
}

/// How a device writes its times. The names are part of the upstream contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimeUnit {
    /// Seconds since the epoch.
    Seconds,
    /// Milliseconds since the epoch.
    Milliseconds,
    /// Microseconds since the epoch.
    Microseconds,
    /// Nanoseconds since the epoch.
    Nanoseconds,
    /// Date and time of day.
    Text,
}

impl TimeUnit {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Seconds, Self::Milliseconds, Self::Microseconds, Self::Nanoseconds, Self::Text];

    /// Its name in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Milliseconds => "milliseconds",
            Self::Microseconds => "microseconds",
            Self::Nanoseconds => "nanoseconds",
            Self::Text => "text",
        }
    }
}
