//! Numbers as times: exact, never through a double.
//!
//! A number is read as decimal text, so that 19 digits keep their last one. Fractions of a
//! millisecond are cut off towards the past, before the epoch too: a reading never moves into a
//! later window.

use crate::event::TimeUnit;
use crate::time::Span;

/// A unit as a power of ten: what a number in it is multiplied by to give milliseconds.
pub(super) const SECONDS: i64 = 3;
pub(super) const MILLIS: i64 = 0;
pub(super) const MICROS: i64 = -3;
pub(super) const NANOS: i64 = -6;

/// The greatest integer not above `text` × 10^`shift`.
#[inline]
pub(super) fn epoch(text: &[u8], shift: i64) -> Option<i64> {
    match plain(text) {
        Some(value) if text.len() <= 15 && shift == SECONDS => Some(value as i64 * 1_000), // it fits
        Some(value) => scaled(value, shift),
        None => Decimal::parse(text)?.floor(shift),
    }
}

/// An epoch whose unit its magnitude tells, and that unit.
pub(super) fn guessed(text: &[u8]) -> Option<(i64, TimeUnit)> {
    if let Some(value) = plain(text) {
        let (unit, shift) = unit_of(value.checked_ilog10().map_or(0, |log| i64::from(log) + 1))?;
        return Some((scaled(value, shift)?, unit));
    }
    let number = Decimal::parse(text)?;
    let (unit, shift) = unit_of(number.magnitude())?;
    Some((number.floor(shift)?, unit))
}

/// The unit of an epoch with so many digits before the point: at most 10, 13, 16, 19. Each unit
/// begins where the one before it reaches November 2286, at 26 April 1970 of its own: no time of
/// the years from 1971 to 2286 can be taken for another.
fn unit_of(digits: i64) -> Option<(TimeUnit, i64)> {
    Some(match digits {
        ..=10 => (TimeUnit::Seconds, SECONDS),
        11..=13 => (TimeUnit::Milliseconds, MILLIS),
        14..=16 => (TimeUnit::Microseconds, MICROS),
        17..=19 => (TimeUnit::Nanoseconds, NANOS),
        _ => return None,
    })
}

/// How long a device has been running: a number, as rtl_433 writes it (`@2.184210s`), or days,
/// hours, minutes and seconds (`3T04:12:09`, `0:13:37`).
pub(super) fn uptime(text: &[u8], shift: i64) -> Option<Span> {
    let span = match text {
        [b'@', number @ .., b's'] if shift == SECONDS => epoch(number, shift)?,
        _ if text.contains(&b':') => counted(text)?,
        _ => epoch(text, shift)?,
    };
    (span >= 0).then_some(Span(span))
}

/// `[D…T]h…:mm:ss`, up to nine digits of days or hours.
fn counted(text: &[u8]) -> Option<i64> {
    let (found, tail) = digits(text);
    let ((days, hours), tail) = match tail {
        [b'T', tail @ ..] => {
            let (hours, tail) = digits(tail);
            ((short(found)?, short(hours)?), tail)
        }
        _ => ((0, short(found)?), tail),
    };
    let [b':', m1, m2, b':', s1, s2] = tail else { return None };
    let (minutes, seconds) = (short(&[*m1, *m2])?, short(&[*s1, *s2])?);
    let fits = minutes < 60 && seconds < 60;
    fits.then_some((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000)
}

fn short(text: &[u8]) -> Option<i64> {
    (1..=9).contains(&text.len()).then(|| plain(text)).flatten().and_then(|n| n.try_into().ok())
}

/// The common case: up to 19 digits and nothing else, so that nothing can overflow.
#[inline]
pub(super) fn plain(text: &[u8]) -> Option<u64> {
    if !(1..=19).contains(&text.len()) {
        return None;
    }
    text.iter().try_fold(0, |value, digit| {
        digit.is_ascii_digit().then(|| value * 10 + u64::from(digit - b'0'))
    })
}

#[inline]
fn scaled(value: u64, shift: i64) -> Option<i64> {
    let value = match shift {
        SECONDS => value.checked_mul(1_000)?,
        MICROS => value / 1_000,
        NANOS => value / 1_000_000,
        _ => value,
    };
    i64::try_from(value).ok()
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

    /// Digits before the point; none or fewer for what is below one.
    fn magnitude(self) -> i64 {
        let first = self.whole.iter().chain(self.fraction).position(|digit| *digit != b'0');
        let Some(first) = first else { return 0 };
        let count = |length: usize| i64::try_from(length).unwrap_or(i64::MAX);
        count(self.whole.len()).saturating_sub(count(first)).saturating_add(self.exponent)
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

pub(super) fn digits(text: &[u8]) -> (&[u8], &[u8]) {
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
