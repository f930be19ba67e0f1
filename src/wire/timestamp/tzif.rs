//! The tables of the time zone database (TZif, RFC 9636), spread out into periods.
//!
//! They hold the changes of the past, and a rule for those to come (POSIX `TZ`).

use crate::wire::timestamp::civil::{days_from_civil, month_length};
use crate::wire::timestamp::zone::Period;

/// Changes are spread out up to here; later than any time that a device may have.
const LAST_YEAR: i64 = 2_290;

const DAY: i64 = 86_400;

/// The periods of a zone; `None` where `data` is no such table.
pub(super) fn periods(data: &[u8]) -> Option<Vec<Period>> {
    let (first, data) = header(data)?;
    let (_, data) = data.split_at_checked(first.length(4)?)?;
    let (counts, data) = header(data)?;
    let (block, footer) = data.split_at_checked(counts.length(8)?)?;
    let mut changes = changes(block, &counts)?;
    let rule = footer.strip_prefix(b"\n")?.strip_suffix(b"\n")?;
    if let Some(rule) = Rule::read(rule) {
        rule.spread(&mut changes);
    }
    changes.dedup_by_key(|(_, offset)| *offset);
    let period = |(from, offset): (i64, i64)| Period {
        from: from.saturating_mul(1_000),
        offset: offset * 1_000,
    };
    Some(changes.into_iter().map(period).collect())
}

/// How much of what is in a block.
struct Counts {
    times: usize,
    types: usize,
    /// Bytes of all that follows the types, without leap seconds.
    rest: usize,
    leaps: usize,
}

impl Counts {
    /// Bytes of a block that writes times in `width` bytes.
    fn length(&self, width: usize) -> Option<usize> {
        let times = self.times.checked_mul(width + 1)?.checked_add(self.types.checked_mul(6)?)?;
        times.checked_add(self.leaps.checked_mul(width + 4)?)?.checked_add(self.rest)
    }
}

fn header(data: &[u8]) -> Option<(Counts, &[u8])> {
    let (header, data) = data.split_at_checked(44)?;
    let counts = header.strip_prefix(b"TZif")?.get(16..)?.as_chunks::<4>().0;
    let counts: Vec<usize> = counts.iter().map(|n| u32::from_be_bytes(*n) as usize).collect();
    let [utc, standard, leaps, times, types, names] = counts[..] else { return None };
    let rest = utc.checked_add(standard)?.checked_add(names)?;
    Some((Counts { times, types, rest, leaps }, data))
}

/// Instants in seconds and the offset from each on; the first is before everything.
fn changes(block: &[u8], counts: &Counts) -> Option<Vec<(i64, i64)>> {
    let (times, block) = block.split_at_checked(counts.times * 8)?;
    let (numbers, block) = block.split_at_checked(counts.times)?;
    let types = block.get(..counts.types * 6)?.as_chunks::<6>().0;
    let offset = |number: usize| {
        let [a, b, c, d, ..] = *types.get(number)?;
        Some(i64::from(i32::from_be_bytes([a, b, c, d])))
    };
    let mut changes = vec![(i64::MIN, offset(0)?)];
    for (time, number) in times.as_chunks::<8>().0.iter().zip(numbers) {
        changes.push((i64::from_be_bytes(*time), offset(usize::from(*number))?));
    }
    Some(changes)
}

/// A zone that changes twice a year: `CET-1CEST,M3.5.0,M10.5.0/3`.
struct Rule {
    standard: i64,
    summer: i64,
    begins: When,
    ends: When,
}

/// A moment of each year, in the local time before it.
struct When {
    day: Day,
    /// Seconds from the beginning of that day.
    time: i64,
}

enum Day {
    /// A weekday of a month, counted from its beginning; the fifth is the last.
    Weekday { month: i64, week: i64, weekday: i64 },
    /// Counted from 1, without the leap day.
    Julian(i64),
    /// Counted from 0, with it.
    Ordinal(i64),
}

impl Rule {
    /// `None` where nothing changes, or the rule is none.
    fn read(text: &[u8]) -> Option<Self> {
        let (standard, text) = offset(name(text)?)?;
        let text = name(text)?;
        let (summer, text) = match text {
            [b',', ..] => (standard + 3_600, text),
            _ => offset(text)?,
        };
        let (begins, text) = When::read(text.strip_prefix(b",")?)?;
        let (ends, text) = When::read(text.strip_prefix(b",")?)?;
        text.is_empty().then_some(Self { standard, summer, begins, ends })
    }

    /// Adds the changes that come after those which are there.
    fn spread(&self, changes: &mut Vec<(i64, i64)>) {
        let last = changes.last().map_or(0, |(at, _)| *at).max(0);
        for year in 1_970 + last / (366 * DAY)..=LAST_YEAR {
            let begins = (self.begins.in_year(year) - self.standard, self.summer);
            let ends = (self.ends.in_year(year) - self.summer, self.standard);
            let order = if begins.0 <= ends.0 { [begins, ends] } else { [ends, begins] };
            changes.extend(order.into_iter().filter(|(at, _)| *at > last));
        }
    }
}

impl When {
    fn read(text: &[u8]) -> Option<(Self, &[u8])> {
        let (day, text) = match text {
            [b'M', text @ ..] => {
                let (month, text) = number(text)?;
                let (week, text) = number(text.strip_prefix(b".")?)?;
                let (weekday, text) = number(text.strip_prefix(b".")?)?;
                let right = (1..=12).contains(&month) && (1..=5).contains(&week) && weekday < 7;
                (right.then_some(Day::Weekday { month, week, weekday })?, text)
            }
            [b'J', text @ ..] => number(text).map(|(day, text)| (Day::Julian(day), text))?,
            _ => number(text).map(|(day, text)| (Day::Ordinal(day), text))?,
        };
        let (time, text) = match text {
            [b'/', text @ ..] => span(text)?,
            _ => (7_200, text),
        };
        Some((Self { day, time }, text))
    }

    /// Seconds since the epoch, as if the local time were UTC.
    fn in_year(&self, year: i64) -> i64 {
        let days = match self.day {
            Day::Weekday { month, week, weekday } => {
                let first = days_from_civil(year, month, 1);
                // The epoch was a Thursday.
                let day = (weekday - first - 4).rem_euclid(7) + 7 * (week - 1);
                let length = month_length(year, month).unwrap_or(31);
                first + if day < length { day } else { day - 7 }
            }
            Day::Julian(day) => {
                let leaps = month_length(year, 2) == Some(29) && day > 59;
                days_from_civil(year, 1, 1) + day - 1 + i64::from(leaps)
            }
            Day::Ordinal(day) => days_from_civil(year, 1, 1) + day,
        };
        days * DAY + self.time
    }
}

/// What follows the name of an offset: letters, or anything in `<>`.
fn name(text: &[u8]) -> Option<&[u8]> {
    let end = match text {
        [b'<', ..] => text.iter().position(|byte| *byte == b'>')? + 1,
        _ => text.iter().position(|byte| !byte.is_ascii_alphabetic())?,
    };
    text.get(end..).filter(|_| end > 0)
}

/// Seconds east of UTC; written the other way round.
fn offset(text: &[u8]) -> Option<(i64, &[u8])> {
    span(text).map(|(west, text)| (-west, text))
}

/// Seconds of `[±]h[:mm[:ss]]`.
fn span(text: &[u8]) -> Option<(i64, &[u8])> {
    let (negative, text) = match text {
        [b'-', text @ ..] => (true, text),
        [b'+', text @ ..] => (false, text),
        _ => (false, text),
    };
    let (hours, mut text) = number(text)?;
    let mut seconds = hours * 3_600;
    for unit in [60, 1] {
        let [b':', rest @ ..] = text else { break };
        let (count, rest) = number(rest)?;
        (seconds, text) = (seconds + count * unit, rest);
    }
    Some((if negative { -seconds } else { seconds }, text))
}

/// Up to three digits.
fn number(text: &[u8]) -> Option<(i64, &[u8])> {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (found, text) = text.split_at(end);
    let value = found.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0'));
    (1..=3).contains(&end).then_some((value, text))
}
