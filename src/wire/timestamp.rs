//! Reading a device's time: exact, total, without allocation.
//!
//! An epoch is read as decimal text and never through a double, so that 19 digits keep their last
//! one. Fractions of a millisecond are cut off towards the past, before the epoch too: a reading
//! never moves into a later window.

use crate::time::DeviceTime;
use crate::wire::profile::TimeFormat;

/// The time that `text` says, or `None` where it says none or one outside of `i64` milliseconds.
///
/// `text` is a JSON number as written, or what stands inside a string. Blanks around it do not
/// count.
pub fn read(text: &str, format: TimeFormat) -> Option<DeviceTime> {
    let text = text.trim();
    match format {
        TimeFormat::EpochS => epoch(text.as_bytes(), 3),
        TimeFormat::EpochMs => epoch(text.as_bytes(), 0),
        TimeFormat::Rfc3339 => rfc3339(text.as_bytes()),
    }
    .map(DeviceTime)
}

/// The greatest integer not above `text` × 10^`shift`.
fn epoch(text: &[u8], shift: i64) -> Option<i64> {
    plain_integer(text, shift).or_else(|| Decimal::parse(text)?.floor(shift))
}

/// The common case: up to 15 digits and nothing else, so that nothing can overflow.
fn plain_integer(text: &[u8], shift: i64) -> Option<i64> {
    if !(1..=15).contains(&text.len()) {
        return None;
    }
    let value = text.iter().try_fold(0, |value, digit| {
        digit.is_ascii_digit().then(|| value * 10 + i64::from(digit - b'0'))
    })?;
    Some(if shift == 3 { value * 1_000 } else { value })
}

/// A decimal number as written: `whole` and `fraction` are digits, `exponent` a power of ten.
#[derive(Clone, Copy)]
struct Decimal<'a> {
    negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: i64,
}

impl<'a> Decimal<'a> {
    fn parse(text: &'a [u8]) -> Option<Self> {
        let (negative, text) = sign(text);
        let (whole, text) = digits(text);
        let (fraction, text) = match text {
            [b'.', tail @ ..] => digits(tail),
            _ => (&text[..0], text),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        Some(Self { negative, whole, fraction, exponent: exponent(text)? })
    }

    /// The greatest integer not above the number × 10^`shift`.
    fn floor(self, shift: i64) -> Option<i64> {
        let mut digits =
            self.whole.iter().chain(self.fraction).map(|digit| i128::from(digit - b'0'));
        let mut places =
            i64::try_from(self.whole.len()).ok()?.saturating_add(self.exponent + shift);
        let Some(first) = digits.by_ref().inspect(|_| places -= 1).find(|digit| *digit != 0) else {
            return Some(0);
        };
        // `places` now counts the digits of the integer part after the first one that is not 0.
        if places >= 19 {
            return None;
        }
        if places < 0 {
            return Some(if self.negative { -1 } else { 0 });
        }
        let whole = (0..places).fold(first, |value, _| value * 10 + digits.next().unwrap_or(0));
        let part = digits.any(|digit| digit != 0);
        let value = if self.negative { -whole - i128::from(part) } else { whole };
        i64::try_from(value).ok()
    }
}

fn sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', tail @ ..] => (true, tail),
        [b'+', tail @ ..] => (false, tail),
        _ => (false, text),
    }
}

fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// The exponent that is all of `text`: `e-3`, or 0 where there is none. Held to a range in which
/// sums stay exact.
fn exponent(text: &[u8]) -> Option<i64> {
    let [b'e' | b'E', tail @ ..] = text else { return text.is_empty().then_some(0) };
    let (negative, tail) = sign(tail);
    let (found, rest) = digits(tail);
    if found.is_empty() || !rest.is_empty() {
        return None;
    }
    let add = |value: i64, digit: &u8| (value * 10 + i64::from(digit - b'0')).min(1 << 40);
    let value = found.iter().fold(0, add);
    Some(if negative { -value } else { value })
}

/// `YYYY-MM-DDThh:mm:ss[.f…]` with `Z`, `±hh:mm` or `±hhmm`; a blank or `t` may stand for `T`, `z`
/// for `Z`.
fn rfc3339(text: &[u8]) -> Option<i64> {
    let (head, tail) = text.split_at_checked(19)?;
    let days = date(&head[..10])?;
    if !matches!(head[10], b'T' | b't' | b' ') {
        return None;
    }
    let (minutes, seconds) = time_of_day(&head[11..])?;
    let (ms, tail) = fraction(tail)?;
    let minutes = days * 1_440 + minutes - zone(tail)?;
    if seconds == 60 {
        return leap_second(minutes);
    }
    Some(minutes * 60_000 + seconds * 1_000 + ms)
}

/// A leap second is the 61st of the last minute of a UTC day. It counts as the day's last
/// millisecond, so that the reading stays in the hour that it ended.
fn leap_second(minutes: i64) -> Option<i64> {
    (minutes.rem_euclid(1_440) == 1_439).then_some(minutes * 60_000 + 59_999)
}

/// Days since the epoch of `YYYY-MM-DD`.
fn date(text: &[u8]) -> Option<i64> {
    let (year, month, day) = (number(&text[..4])?, number(&text[5..7])?, number(&text[8..10])?);
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let length = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    let valid = text[4] == b'-' && text[7] == b'-' && (1..=length).contains(&day);
    valid.then(|| days_from_civil(year, month, day))
}

/// Counted in years that begin in March, so that the leap day is the last of its year.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month < 3);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year
        - 719_468
}

/// Minutes of the day and seconds of `hh:mm:ss`.
fn time_of_day(text: &[u8]) -> Option<(i64, i64)> {
    let (hour, minute, second) = (number(&text[..2])?, number(&text[3..5])?, number(&text[6..8])?);
    let colons = text[2] == b':' && text[5] == b':';
    (colons && hour < 24 && minute < 60 && second <= 60).then_some((hour * 60 + minute, second))
}

/// Milliseconds of `.f…`, up to nine digits, and what follows.
fn fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let [b'.', tail @ ..] = text else { return Some((0, text)) };
    let (found, tail) = digits(tail);
    if !(1..=9).contains(&found.len()) {
        return None;
    }
    let ms =
        (0..3).fold(0, |ms, place| ms * 10 + found.get(place).map_or(0, |d| i64::from(d - b'0')));
    Some((ms, tail))
}

/// Minutes east of UTC.
fn zone(text: &[u8]) -> Option<i64> {
    let (east, hours, minutes) = match text {
        [b'Z' | b'z'] => return Some(0),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] | [sign @ (b'+' | b'-'), h1, h2, m1, m2] => {
            (*sign == b'+', number(&[*h1, *h2])?, number(&[*m1, *m2])?)
        }
        _ => return None,
    };
    let offset = hours * 60 + minutes;
    (hours < 24 && minutes < 60).then_some(if east { offset } else { -offset })
}

fn number(text: &[u8]) -> Option<i64> {
    let digit =
        |value: i64, byte: &u8| byte.is_ascii_digit().then(|| value * 10 + i64::from(byte - b'0'));
    text.iter().try_fold(0, digit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::{DateTime, SecondsFormat, Utc};
    use proptest::prelude::*;

    fn ms(text: &str, format: TimeFormat) -> Option<i64> {
        read(text, format).map(|time| time.0)
    }

    fn s(text: &str) -> Option<i64> {
        ms(text, TimeFormat::EpochS)
    }

    fn millis(text: &str) -> Option<i64> {
        ms(text, TimeFormat::EpochMs)
    }

    fn iso(text: &str) -> Option<i64> {
        ms(text, TimeFormat::Rfc3339)
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
    fn a_stamp_without_zone_or_outside_the_calendar_is_no_time() {
        for text in [
            "2025-06-15T00:08:07",
            "2025-06-15T00:08:07.Z",
            "2025-06-15T00:08:07.1234567890Z",
            "2025-06-15T00:08:07 Z",
            "2025-06-15T00:08:07+01",
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
            "2025-06-15T00:08Z",
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
        fn no_text_panics(text in "\\PC*", stamp in "[-0-9TZtz:.+ eE]{0,40}") {
            for format in [TimeFormat::EpochS, TimeFormat::EpochMs, TimeFormat::Rfc3339] {
                let _ = (read(&text, format), read(&stamp, format));
            }
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
