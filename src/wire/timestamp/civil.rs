//! Dates and times of day as text: RFC 3339 and what devices write instead of it.

use crate::wire::timestamp::number::{digits, plain};

/// A time as its text has it, still without the zone that it may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Civil {
    /// Milliseconds from the epoch to that date and time of day as if they were UTC.
    pub(super) local: i64,
    /// It is a leap second, and `local` the last millisecond before it.
    pub(super) leap: bool,
    /// What the text says of its zone.
    pub(super) zone: Said,
}

/// What a text says of its zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// Nothing.
    Nothing,
    /// Minutes east of UTC.
    Offset(i64),
    /// Summer time, of whatever zone it is.
    Summer,
    /// Standard time.
    Winter,
}

/// Date, `T` or a blank, time of day, zone or none. Or what Dutch meters write,
/// `YYMMDDhhmmss` with `S` for summer and `W` for winter time.
pub(super) fn parse(text: &[u8]) -> Option<Civil> {
    if let Some(civil) = meter(text) {
        return Some(civil);
    }
    let (days, tail) = date(text)?;
    let [b'T' | b't' | b' ', tail @ ..] = tail else { return None };
    timed(days, tail)
}

/// The day first, without leading zeros or with them: `29/11/2026 18:01:10`.
pub(super) fn parse_day_first(text: &[u8]) -> Option<Civil> {
    let (day, tail) = digits(text);
    let [separator @ (b'/' | b'.' | b'-'), tail @ ..] = tail else { return None };
    let (month, tail) = digits(tail);
    let tail = tail.strip_prefix(&[*separator])?;
    let (year, tail) = digits(tail);
    let right = year.len() == 4 && day.len() < 3 && month.len() < 3;
    let days = right.then(|| days_of(number(year)?, number(month)?, number(day)?)).flatten()?;
    let tail = tail.strip_prefix(b",").unwrap_or(tail);
    let [b'T' | b't' | b' ', tail @ ..] = tail else { return None };
    timed(days, tail)
}

fn timed(days: i64, text: &[u8]) -> Option<Civil> {
    let (time, tail) = time_of_day(text)?;
    let zone = said(tail)?;
    Some(civil(days, time, zone))
}

fn civil(days: i64, time: TimeOfDay, zone: Said) -> Civil {
    let leap = time.second == 60;
    let ms = if leap { 59_999 } else { time.second * 1_000 + time.ms };
    Civil { local: (days * 1_440 + time.minutes) * 60_000 + ms, leap, zone }
}

fn meter(text: &[u8]) -> Option<Civil> {
    let (stamp, flag) = text.split_at_checked(12)?;
    let zone = match flag {
        [b'S' | b's'] => Said::Summer,
        [b'W' | b'w'] => Said::Winter,
        _ => return None,
    };
    let days = days_of(2_000 + number(&stamp[..2])?, number(&stamp[2..4])?, number(&stamp[4..6])?)?;
    let (time, _) = time_of_day(&stamp[6..])?;
    Some(civil(days, time, zone))
}

/// Days since the epoch of `YYYY-MM-DD` or `YYYYMMDD`, and what follows.
fn date(text: &[u8]) -> Option<(i64, &[u8])> {
    let (year, tail) = text.split_at_checked(4)?;
    let (month, day, tail) = match tail {
        [b'-', m1, m2, b'-', d1, d2, tail @ ..] | [m1, m2, d1, d2, tail @ ..] => {
            ([*m1, *m2], [*d1, *d2], tail)
        }
        _ => return None,
    };
    Some((days_of(number(year)?, number(&month)?, number(&day)?)?, tail))
}

/// Days since the epoch of a date of the calendar.
fn days_of(year: i64, month: i64, day: i64) -> Option<i64> {
    (1..=month_length(year, month)?).contains(&day).then(|| days_from_civil(year, month, day))
}

/// Days of a month from 1 to 12.
pub(super) fn month_length(year: i64, month: i64) -> Option<i64> {
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    Some(match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    })
}

/// Counted in years that begin in March, so that the leap day is the last of its year.
pub(super) fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month < 3);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year
        - 719_468
}

#[derive(Clone, Copy)]
struct TimeOfDay {
    minutes: i64,
    second: i64,
    ms: i64,
}

/// `hh:mm`, `hh:mm:ss`, `hhmm` or `hhmmss`, with a fraction where there are seconds; and what
/// follows.
fn time_of_day(text: &[u8]) -> Option<(TimeOfDay, &[u8])> {
    let (hour, tail) = two(text)?;
    let (colon, tail) = match tail {
        [b':', tail @ ..] => (true, tail),
        _ => (false, tail),
    };
    let (minute, tail) = two(tail)?;
    let ((second, ms), tail) = match tail {
        [b':', tail @ ..] if colon => seconds(tail)?,
        [b'0'..=b'9', ..] if !colon => seconds(tail)?,
        _ => ((0, 0), tail),
    };
    let time = TimeOfDay { minutes: hour * 60 + minute, second, ms };
    (hour < 24 && minute < 60 && second <= 60).then_some((time, tail))
}

/// Seconds, milliseconds of `.f…` or `,f…` with up to nine digits, and what follows.
fn seconds(text: &[u8]) -> Option<((i64, i64), &[u8])> {
    let (second, tail) = two(text)?;
    let [b'.' | b',', tail @ ..] = tail else { return Some(((second, 0), tail)) };
    let (found, tail) = digits(tail);
    if !(1..=9).contains(&found.len()) {
        return None;
    }
    let digit = |place| found.get(place).map_or(0, |digit| i64::from(digit - b'0'));
    let ms = (0..3).fold(0, |ms, place| ms * 10 + digit(place));
    Some(((second, ms), tail))
}

/// `Z`, `UTC`, `GMT`, `±hh`, `±hhmm`, `±hh:mm`, after a blank or not.
fn said(text: &[u8]) -> Option<Said> {
    let text = text.strip_prefix(b" ").unwrap_or(text);
    let (east, hours, minutes) = match text {
        [] => return Some(Said::Nothing),
        [b'Z' | b'z'] => return Some(Said::Offset(0)),
        [sign @ (b'+' | b'-'), h1, h2] => (*sign == b'+', [*h1, *h2], *b"00"),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] | [sign @ (b'+' | b'-'), h1, h2, m1, m2] => {
            (*sign == b'+', [*h1, *h2], [*m1, *m2])
        }
        _ => {
            let universal = [b"UTC", b"GMT"].iter().any(|name| text.eq_ignore_ascii_case(*name));
            return universal.then_some(Said::Offset(0));
        }
    };
    let (hours, minutes) = (number(&hours)?, number(&minutes)?);
    let offset = hours * 60 + minutes;
    let offset = if east { offset } else { -offset };
    (hours < 24 && minutes < 60).then_some(Said::Offset(offset))
}

fn two(text: &[u8]) -> Option<(i64, &[u8])> {
    let (found, tail) = text.split_at_checked(2)?;
    Some((number(found)?, tail))
}

fn number(text: &[u8]) -> Option<i64> {
    plain(text)?.try_into().ok()
}
