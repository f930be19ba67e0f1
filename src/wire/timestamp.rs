//! Reading a device's time: exact, total, without allocation.
//!
//! | what is written | format | read by |
//! |---|---|---|
//! | an epoch in s, ms, µs, ns; or how long the device runs | `epoch_…`, `uptime_…` | `number` |
//! | RFC 3339 and its variants, with an offset or in a named zone | `rfc3339`, `local`, `local_dmy` | `civil`, `zone` |
//! | any of the epochs, or text | `auto` | both |
//!
//! `auto` tells the unit of an epoch by its digits before the point: up to 10 are seconds, 11 to 13
//! milliseconds, 14 to 16 microseconds, 17 to 19 nanoseconds. Each unit so reaches to 20 November
//! 2286, and the finer ones begin at 26 April 1970: no time from 1971 to 2286 can be taken for
//! another, so none that a device with a clock may write. A clock that was never set and counts
//! from 1970 in a finer unit is, for its first 115 days, read in a coarser one: nearly always a
//! time before `not-before`, or far from now. Where that matters, the unit is to be named.

mod civil;
mod number;
mod tzif;
mod zone;

use crate::event::TimeUnit;
use crate::time::{DeviceTime, Span};
use crate::wire::profile::TimeFormat;
use crate::wire::timestamp::civil::{Civil, Said};
use crate::wire::timestamp::number::{MICROS, MILLIS, NANOS, SECONDS, epoch, guessed, uptime};
use crate::wire::timestamp::zone::Meaning;

pub use crate::wire::timestamp::zone::Zone;

const DAY: i64 = 86_400_000;

/// The device time of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// The source declares none: the arrival time is the event time.
    Undeclared,
    /// Declared but absent, null, empty or unreadable.
    Unusable,
    /// As the device wrote it.
    At(DeviceTime),
    /// A local time that is there twice: its clocks were put back.
    Repeated {
        /// What it means before the change.
        earlier: DeviceTime,
        /// What it means after it.
        later: DeviceTime,
    },
    /// A local time that is not there: its clocks were put forward.
    Skipped {
        /// What it would mean without the change.
        at: DeviceTime,
        /// When the change is.
        change: DeviceTime,
    },
    /// How long the device has been running; not negative.
    Uptime(Span),
}

impl Stamp {
    /// The time, where the device wrote one that can be read; of two, the earlier. How long it has
    /// been running is none: that comes again after each start.
    pub fn time(self) -> Option<DeviceTime> {
        match self {
            Self::At(time)
            | Self::Repeated { earlier: time, .. }
            | Self::Skipped { at: time, .. } => Some(time),
            Self::Undeclared | Self::Unusable | Self::Uptime(_) => None,
        }
    }

    /// What the device wrote, in ms: its time, or how long it has been running.
    pub fn raw(self) -> Option<i64> {
        match self {
            Self::Uptime(uptime) => Some(uptime.0),
            other => other.time().map(|time| time.0),
        }
    }
}

/// A time as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// What it says.
    pub stamp: Stamp,
    /// How it was written, where the format leaves that open.
    pub unit: Option<TimeUnit>,
}

/// The time that `text` says, or `None` where it says none or one outside of `i64` milliseconds.
///
/// `text` is a JSON number as written, or what stands inside a string. Blanks around it do not
/// count.
#[inline]
pub fn read(text: &str, format: &TimeFormat) -> Option<Reading> {
    let text = text.trim().as_bytes();
    let stamp = match format {
        TimeFormat::EpochS => at(epoch(text, SECONDS)?),
        TimeFormat::EpochMs => at(epoch(text, MILLIS)?),
        _ => return read_other(text, format),
    };
    Some(Reading { stamp, unit: None })
}

/// All but the two that nearly every device writes.
fn read_other(text: &[u8], format: &TimeFormat) -> Option<Reading> {
    let stamp = match format {
        TimeFormat::EpochS => at(epoch(text, SECONDS)?),
        TimeFormat::EpochMs => at(epoch(text, MILLIS)?),
        TimeFormat::EpochUs => at(epoch(text, MICROS)?),
        TimeFormat::EpochNs => at(epoch(text, NANOS)?),
        TimeFormat::Auto(zone) => return auto(text, zone.as_ref()),
        TimeFormat::Rfc3339 => stamp(civil::parse(text)?, None)?,
        TimeFormat::Local(zone) => stamp(civil::parse(text)?, Some(zone))?,
        TimeFormat::LocalDmy(zone) => stamp(civil::parse_day_first(text)?, Some(zone))?,
        TimeFormat::UptimeS => Stamp::Uptime(uptime(text, SECONDS)?),
        TimeFormat::UptimeMs => Stamp::Uptime(uptime(text, MILLIS)?),
    };
    Some(Reading { stamp, unit: None })
}

fn at(ms: i64) -> Stamp {
    Stamp::At(DeviceTime(ms))
}

fn auto(text: &[u8], zone: Option<&Zone>) -> Option<Reading> {
    let (stamp, unit) = match guessed(text) {
        Some((ms, unit)) => (at(ms), unit),
        None => (stamp(civil::parse(text)?, zone)?, TimeUnit::Text),
    };
    Some(Reading { stamp, unit: Some(unit) })
}

/// What a date and time of day says. Without an offset of its own it needs a zone.
fn stamp(civil: Civil, zone: Option<&Zone>) -> Option<Stamp> {
    let Civil { local, leap, zone: said } = civil;
    let stamp = match said {
        Said::Offset(minutes) => at(local - minutes * 60_000),
        said => in_zone(zone?.meaning(local), said),
    };
    let ends_day = stamp.time().is_some_and(|time| (time.0 + 1).rem_euclid(DAY) == 0);
    (!leap || ends_day).then_some(stamp)
}

/// The flag decides where there are two readings, and nowhere else: meters have been seen that do
/// not change it.
fn in_zone(meaning: Meaning, said: Said) -> Stamp {
    match (meaning, said) {
        (Meaning::Once(time), _) => at(time),
        (Meaning::Twice { earlier, .. }, Said::Summer) => at(earlier),
        (Meaning::Twice { later, .. }, Said::Winter) => at(later),
        (Meaning::Twice { earlier, later }, _) => {
            Stamp::Repeated { earlier: DeviceTime(earlier), later: DeviceTime(later) }
        }
        (Meaning::Never { at, change }, _) => {
            Stamp::Skipped { at: DeviceTime(at), change: DeviceTime(change) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::{DateTime, SecondsFormat, Utc};
    use proptest::prelude::*;

    fn ms(text: &str, format: &TimeFormat) -> Option<i64> {
        match read(text, format)? {
            Reading { stamp: Stamp::At(time), .. } => Some(time.0),
            other => panic!("{text}: {other:?}"),
        }
    }

    fn s(text: &str) -> Option<i64> {
        ms(text, &TimeFormat::EpochS)
    }

    fn millis(text: &str) -> Option<i64> {
        ms(text, &TimeFormat::EpochMs)
    }

    fn iso(text: &str) -> Option<i64> {
        ms(text, &TimeFormat::Rfc3339)
    }

    fn zone(name: &str) -> Zone {
        Zone::named(name).unwrap()
    }

    fn amsterdam() -> TimeFormat {
        TimeFormat::Local(zone("Europe/Amsterdam"))
    }

    fn local(text: &str) -> Option<Stamp> {
        read(text, &amsterdam()).map(|reading| reading.stamp)
    }

    fn auto(text: &str) -> Option<(i64, TimeUnit)> {
        let reading = read(text, &TimeFormat::Auto(None))?;
        Some((reading.stamp.time().unwrap().0, reading.unit.unwrap()))
    }

    fn uptime(text: &str, format: &TimeFormat) -> Option<i64> {
        match read(text, format)?.stamp {
            Stamp::Uptime(span) => Some(span.0),
            other => panic!("{text}: {other:?}"),
        }
    }

    fn formats() -> [TimeFormat; 11] {
        [
            TimeFormat::EpochS,
            TimeFormat::EpochMs,
            TimeFormat::EpochUs,
            TimeFormat::EpochNs,
            TimeFormat::Auto(None),
            TimeFormat::Auto(Some(zone("Europe/Amsterdam"))),
            TimeFormat::Rfc3339,
            amsterdam(),
            TimeFormat::LocalDmy(zone("Australia/Lord_Howe")),
            TimeFormat::UptimeS,
            TimeFormat::UptimeMs,
        ]
    }

    #[test]
    fn an_epoch_is_read_as_integer_fraction_or_scientific_number() {
        assert_eq!(s("1749946087"), Some(1_749_946_087_000));
        assert_eq!(s("1749946087.916"), Some(1_749_946_087_916));
        assert_eq!(s(" 1749946087.9169 "), Some(1_749_946_087_916));
        assert_eq!(millis("1749946087916"), Some(1_749_946_087_916));
        assert_eq!(millis("1.749946087916e12"), Some(1_749_946_087_916));
        assert_eq!(millis("17499460879169E-1"), Some(1_749_946_087_916));
        assert_eq!(s("+5"), Some(5_000));
        assert_eq!(s(".0015"), Some(1));
        assert_eq!(s("0e999999999999999999999"), Some(0));
    }

    #[test]
    fn fractions_of_a_millisecond_are_cut_towards_the_past() {
        assert_eq!(millis("-0.5"), Some(-1));
        assert_eq!(millis("-1.0"), Some(-1));
        assert_eq!(s("-0.0001"), Some(-1));
        assert_eq!(s("-1.0005"), Some(-1_001));
        assert_eq!(millis("-1e-30"), Some(-1));
        assert_eq!(millis("1.9999"), Some(1));
    }

    #[test]
    fn nineteen_digits_keep_their_last_one() {
        assert_eq!(millis("9223372036854775807"), Some(i64::MAX));
        assert_eq!(millis("-9223372036854775808"), Some(i64::MIN));
        assert_eq!(s("9007199254740.993"), Some(9_007_199_254_740_993));
    }

    #[test]
    fn what_leaves_64_bits_is_no_time() {
        assert_eq!(millis("9223372036854775808"), None);
        assert_eq!(millis("-9223372036854775808.1"), None);
        assert_eq!(s("9223372036854775.808"), None);
        assert_eq!(s("999999999999999999"), None);
        assert_eq!(millis("1e400"), None);
        assert_eq!(millis("99999999999999999999999999999999999999999"), None);
        assert_eq!(s("1e9223372036854775807"), None);
    }

    #[test]
    fn what_is_no_number_is_no_epoch() {
        for text in
            ["", " ", "-", ".", "1e", "1e+", "1x", "1 2", "nan", "inf", "0x10", "1_0", "--1"]
        {
            assert_eq!(s(text), None, "{text}");
        }
    }

    #[test]
    fn rfc_3339_is_read_with_its_common_variants() {
        let expected = Some(1_749_946_087_000);
        assert_eq!(iso("2025-06-15T00:08:07Z"), expected);
        assert_eq!(iso("2025-06-15t00:08:07z"), expected);
        assert_eq!(iso("2025-06-15 00:08:07+00:00"), expected);
        assert_eq!(iso("2025-06-15T02:08:07+0200"), expected);
        assert_eq!(iso("2025-06-14T18:38:07-05:30"), expected);
        assert_eq!(iso("2025-06-15T00:08:07.9Z"), Some(1_749_946_087_900));
        assert_eq!(iso("2025-06-15T00:08:07.916999999Z"), Some(1_749_946_087_916));
        assert_eq!(iso("1969-12-31T23:59:59.9999Z"), Some(-1));
        assert_eq!(iso("0000-01-01T00:00:00Z"), Some(-62_167_219_200_000));
        assert_eq!(iso("2024-02-29T00:00:00-00:00"), Some(1_709_164_800_000));
    }

    #[test]
    fn iso_8601_is_read_as_devices_write_it() {
        let expected = Some(1_749_946_087_000);
        for text in [
            "20250615T000807Z",
            "20250615T020807+0200",
            "20250615 02:08:07+02",
            "2025-06-15 000807z",
            "2025-06-15T02:08:07+02",
            "2025-06-15 02:08:07 +02:00",
            "2025-06-15 02:08:07 +0200",
            "2025-06-15 00:08:07 UTC",
            "2025-06-15T00:08:07 gmt",
            "2025-06-15T00:08:07,000Z",
            " 2025-06-15T00:08:07Z\n",
        ] {
            assert_eq!(iso(text), expected, "{text}");
        }
        assert_eq!(iso("2025-06-15T00:08:07,5+00:00"), Some(1_749_946_087_500));
        assert_eq!(iso("20250615T000807.25Z"), Some(1_749_946_087_250));
        assert_eq!(iso("2025-06-15T00:08Z"), Some(1_749_946_080_000));
        assert_eq!(iso("20250615T0008Z"), Some(1_749_946_080_000));
    }

    #[test]
    fn every_unit_of_an_epoch_is_read_exactly() {
        let us = |text| ms(text, &TimeFormat::EpochUs);
        let ns = |text| ms(text, &TimeFormat::EpochNs);
        assert_eq!(us("1749946087916999"), Some(1_749_946_087_916));
        assert_eq!(us("1749946087916000.5"), Some(1_749_946_087_916));
        assert_eq!(us("-1"), Some(-1));
        assert_eq!(ns("1749946087916000000"), Some(1_749_946_087_916));
        // As doubles these two are 1749946087916000000 and 1749946087917000000.
        assert_eq!(ns("1749946087915999999"), Some(1_749_946_087_915));
        assert_eq!(ns("1749946087916999999"), Some(1_749_946_087_916));
        assert_eq!(ns("9999999999999999999"), Some(9_999_999_999_999));
        assert_eq!(ns("1.749946087916e18"), Some(1_749_946_087_916));
        assert_eq!(ns("9223372036854775807999999"), Some(i64::MAX));
        assert_eq!(ns("9223372036854775808000000"), None);
    }

    #[test]
    fn auto_reads_one_instant_however_it_is_written() {
        use TimeUnit::{Microseconds, Milliseconds, Nanoseconds, Seconds, Text};
        for (text, unit) in [
            ("1749946087", Seconds),
            ("1749946087.000", Seconds),
            ("1.749946087e9", Seconds),
            ("1749946087000", Milliseconds),
            ("1749946087000.25", Milliseconds),
            ("1749946087000000", Microseconds),
            ("1749946087000000000", Nanoseconds),
            ("2025-06-15T00:08:07Z", Text),
            ("20250615T020807+02", Text),
        ] {
            assert_eq!(auto(text), Some((1_749_946_087_000, unit)), "{text}");
        }
        assert_eq!(auto("2025-06-15T02:08:07"), None, "nobody says whose time that is");
        let zoned = read("2025-06-15T02:08:07", &TimeFormat::Auto(Some(zone("Europe/Amsterdam"))));
        let stamp = Stamp::At(DeviceTime(1_749_946_087_000));
        assert_eq!(zoned, Some(Reading { stamp, unit: Some(Text) }));
    }

    #[test]
    fn auto_tells_units_by_the_digits_before_the_point() {
        use TimeUnit::{Microseconds, Milliseconds, Nanoseconds, Seconds};
        for (text, read) in [
            ("0", Some((0, Seconds))),
            ("-0.5", Some((-500, Seconds))),
            ("00000000000000000005", Some((5_000, Seconds))),
            ("9999999999", Some((9_999_999_999_000, Seconds))),
            ("10000000000", Some((10_000_000_000, Milliseconds))),
            ("9999999999.9999999", Some((9_999_999_999_999, Seconds))),
            ("9999999999999", Some((9_999_999_999_999, Milliseconds))),
            ("10000000000000", Some((10_000_000_000, Microseconds))),
            ("9999999999999999", Some((9_999_999_999_999, Microseconds))),
            ("10000000000000000", Some((10_000_000_000, Nanoseconds))),
            ("9999999999999999999", Some((9_999_999_999_999, Nanoseconds))),
            ("-1749946087000", Some((-1_749_946_087_000, Milliseconds))),
            ("10000000000000000000", None),
            ("1e400", None),
        ] {
            assert_eq!(auto(text), read, "{text}");
        }
    }

    #[test]
    fn a_local_time_is_one_instant_but_in_two_hours_of_the_year() {
        let at = |time| Some(Stamp::At(DeviceTime(time)));
        assert_eq!(local("2026-11-29T18:00:00"), at(1_795_971_600_000));
        assert_eq!(local("2026-11-29 18:00"), at(1_795_971_600_000));
        assert_eq!(local("2026-11-29T18:05:00+01:00"), at(1_795_971_900_000), "its own offset");
        assert_eq!(local("2026-10-25T01:59:59.999"), at(1_792_886_399_999));
        let repeated = |earlier, later| {
            Some(Stamp::Repeated { earlier: DeviceTime(earlier), later: DeviceTime(later) })
        };
        let (first, second) = (1_792_888_200_000, 1_792_891_800_000);
        assert_eq!(local("2026-10-25T02:30:00"), repeated(first, second));
        assert_eq!(local("2026-10-25T02:30:00+01:00"), at(second));
        assert_eq!(local("2026-10-25T03:00:00"), at(second + 1_800_000));
        let change = DeviceTime(1_774_746_000_000); // 2026-03-29T01:00:00Z
        let skipped = Stamp::Skipped { at: DeviceTime(change.0 + 1_800_000), change };
        assert_eq!(local("2026-03-29T02:30:00"), Some(skipped));
        assert_eq!(local("2026-03-29T03:00:00"), at(change.0));
    }

    #[test]
    fn a_meter_says_which_of_two_hours_it_means() {
        let at = |time| Some(Stamp::At(DeviceTime(time)));
        assert_eq!(local("261129180010W"), at(1_795_971_610_000));
        assert_eq!(local("261025023000S"), at(1_792_888_200_000));
        assert_eq!(local("261025023000w"), at(1_792_891_800_000));
        assert_eq!(local("260615120000W"), at(1_781_517_600_000), "it does not know of summer");
        for text in ["261129180010", "261129180010X", "261329180010W", "261129250010W"] {
            assert_eq!(local(text), None, "{text}");
        }
        assert_eq!(iso("261129180010W"), None, "it needs a zone");
    }

    #[test]
    fn the_day_may_come_first() {
        let dmy = TimeFormat::LocalDmy(zone("Europe/Amsterdam"));
        let at = |text| ms(text, &dmy);
        let expected = Some(1_795_971_670_000);
        for text in ["29/11/2026 18:01:10", "29.11.2026, 18:01:10", "29-11-2026T18:01:10"] {
            assert_eq!(at(text), expected, "{text}");
        }
        assert_eq!(at("1/2/2026 00:00"), Some(1_769_900_400_000));
        for text in ["29/11.2026 18:01", "29/11/26 18:01", "11/29/2026 18:01", "29/11/2026"] {
            assert_eq!(at(text), None, "{text}");
        }
    }

    #[test]
    fn how_long_a_device_has_been_running_is_a_span() {
        for (text, span) in [
            ("81022", Some(81_022_000)),
            ("14.62", Some(14_620)),
            ("@2.184210s", Some(2_184)),
            ("3T04:12:09", Some(274_329_000)),
            ("0:13:37", Some(817_000)),
            ("100:00:00", Some(360_000_000)),
            ("-1", None),
            ("-0.0001", None),
            ("3T04:12", None),
            ("1:60:00", None),
            ("9999999999T00:00:00", None),
            ("@1", None),
            ("", None),
        ] {
            assert_eq!(uptime(text, &TimeFormat::UptimeS), span, "{text}");
        }
        assert_eq!(uptime("14620", &TimeFormat::UptimeMs), Some(14_620));
        assert_eq!(uptime("@14620s", &TimeFormat::UptimeMs), None);
    }

    #[test]
    fn every_zone_of_the_database_is_read_and_goes_on_for_ever() {
        let mut seen = 0;
        for name in Zone::names() {
            let zone = zone(name);
            assert_eq!((zone.name(), format!("{zone:?}")), (name, name.to_owned()));
            // The year 2500 has no table; the last offset holds.
            let far = TimeFormat::Local(zone);
            assert!(ms("2500-07-01T00:00:00", &far).is_some(), "{name}");
            seen += 1;
        }
        assert!(seen > 400, "only {seen} zones");
        assert_eq!(Zone::named("Europe/Atlantis"), None);
        assert_eq!(zone("europe/amsterdam").name(), "Europe/Amsterdam");
    }

    #[test]
    fn a_stamp_without_zone_or_outside_the_calendar_is_no_time() {
        for text in [
            "2025-06-15T00:08:07",
            "2025-06-15T00:08:07.Z",
            "2025-06-15T00:08:07.1234567890Z",
            "2025-06-15T00:08:07+24:00",
            "2025-06-15T00:08:07+01:60",
            "2025-06-15T24:00:00Z",
            "2025-06-15T00:60:00Z",
            "2025-06-15T00:08:61Z",
            "2025-02-29T00:00:00Z",
            "1900-02-29T00:00:00Z",
            "2025-13-01T00:00:00Z",
            "2025-00-01T00:00:00Z",
            "2025-06-31T00:00:00Z",
            "2025/06/15T00:08:07Z",
            "2025-06-15_00:08:07Z",
            "2025-06-15T00:08:07+0",
            "2025-06-15T00:08:07  Z",
            "2025-06-15T00:08:07 CET",
            "2025-06-15T00:08.5Z",
            "2025-06-15T0008:07Z",
            "2025-06-15T00Z",
            "2025-06-15Z",
            "2025-0615T000807Z",
            "20250615000807Z",
            "1749946087",
            "",
            "ä025-06-15T00:08:0Z",
        ] {
            assert_eq!(iso(text), None, "{text}");
        }
    }

    #[test]
    fn a_leap_second_stays_in_the_hour_it_ended() {
        assert_eq!(iso("2016-12-31T23:59:60Z"), Some(1_483_228_799_999));
        assert_eq!(iso("2017-01-01T00:59:60.5+01:00"), Some(1_483_228_799_999));
        assert_eq!(iso("2016-12-31T12:30:60Z"), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*", stamp in "[-0-9TZtzSW@s/:.,+ eE]{0,40}") {
            for format in formats() {
                let _ = (read(&text, &format), read(&stamp, &format));
            }
        }

        #[test]
        fn auto_is_the_format_that_it_says(text in "[-+]?[0-9]{1,21}(\\.[0-9]{0,4})?(e-?[0-9])?") {
            let reading = read(&text, &TimeFormat::Auto(None));
            let format = match reading.and_then(|reading| reading.unit) {
                Some(TimeUnit::Seconds) => TimeFormat::EpochS,
                Some(TimeUnit::Milliseconds) => TimeFormat::EpochMs,
                Some(TimeUnit::Microseconds) => TimeFormat::EpochUs,
                Some(TimeUnit::Nanoseconds) => TimeFormat::EpochNs,
                unit => {
                    prop_assert_eq!(unit, None);
                    return Ok(());
                }
            };
            let stamp = read(&text, &format).map(|reading| reading.stamp);
            prop_assert_eq!(reading.map(|reading| reading.stamp), stamp);
        }

        #[test]
        fn an_instant_comes_back_from_every_format_and_from_auto(
            time in 31_536_000_000_i64..9_999_999_999_999, // 1971 to 2286
        ) {
            let utc = DateTime::<Utc>::from_timestamp_millis(time).unwrap();
            let (secs, part) = (time / 1_000, time % 1_000);
            for (text, format) in [
                (format!("{secs}.{part:03}"), TimeFormat::EpochS),
                (time.to_string(), TimeFormat::EpochMs),
                (format!("{time}999"), TimeFormat::EpochUs),
                (format!("{time}999999"), TimeFormat::EpochNs),
                (utc.to_rfc3339_opts(SecondsFormat::Millis, true), TimeFormat::Rfc3339),
                (utc.format("%Y%m%dT%H%M%S,%3fZ").to_string(), TimeFormat::Rfc3339),
                (utc.format("%Y-%m-%d %H:%M:%S%.3f").to_string(), TimeFormat::Local(zone("UTC"))),
                (utc.format("%d.%m.%Y, %H:%M:%S%.3f").to_string(), TimeFormat::LocalDmy(zone("UTC"))),
            ] {
                prop_assert_eq!(ms(&text, &format), Some(time), "{}", &text);
                if !matches!(format, TimeFormat::LocalDmy(_)) {
                    let auto = TimeFormat::Auto(Some(zone("UTC")));
                    prop_assert_eq!(ms(&text, &auto), Some(time), "{}", &text);
                }
            }
            let span = uptime(&format!("{secs}.{part:03}"), &TimeFormat::UptimeS);
            prop_assert_eq!(span, Some(time));
            prop_assert_eq!(uptime(&time.to_string(), &TimeFormat::UptimeMs), Some(time));
        }

        #[test]
        fn an_epoch_comes_back_as_it_was_written(time: i64) {
            prop_assert_eq!(millis(&time.to_string()), Some(time));
            let (sign, size) = (if time < 0 { "-" } else { "" }, time.unsigned_abs());
            let seconds = format!("{sign}{}.{:03}", size / 1_000, size % 1_000);
            prop_assert_eq!(s(&seconds), Some(time));
        }

        #[test]
        fn an_epoch_is_floored_exactly(
            value in -1_000_000_000_i64..1_000_000_000, exponent in -12_i32..6,
        ) {
            let exact = i128::from(value) * 10_i128.pow(12);
            let exact = if exponent < 0 {
                exact.div_euclid(10_i128.pow(exponent.unsigned_abs()))
            } else {
                exact * 10_i128.pow(exponent.unsigned_abs())
            };
            let floor = i64::try_from(exact.div_euclid(10_i128.pow(12))).unwrap();
            prop_assert_eq!(millis(&format!("{value}e{exponent}")), Some(floor));
        }

        #[test]
        fn rfc_3339_comes_back_as_it_was_written(
            time in -62_167_219_200_000_i64..253_402_300_800_000, minutes in -1_439_i32..1_440,
        ) {
            let utc = DateTime::<Utc>::from_timestamp_millis(time).unwrap();
            prop_assert_eq!(iso(&utc.to_rfc3339_opts(SecondsFormat::Millis, true)), Some(time));
            let zone = chrono::FixedOffset::east_opt(minutes * 60).unwrap();
            let local = utc.with_timezone(&zone).to_rfc3339_opts(SecondsFormat::Nanos, false);
            prop_assume!(local.len() == 35); // years of four digits only
            prop_assert_eq!(iso(&local), Some(time));
        }
    }
}
