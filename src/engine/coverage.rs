//! How much of a window was seen: a bit per slot.
//!
//! A window is cut into at most 64 slots: one per reporting interval where that is known, else [`Slots::UNKNOWN`]. A
//! slot is covered when it holds a sample. Bits do not care for order, so late and repeated samples cost nothing and
//! hours merge into days; the price is the resolution: gaps shorter than a slot are not seen.

use crate::time::Span;

/// How a window is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    size: i64,
    count: u32,
}

impl Slots {
    /// Slots of a window whose devices report at an unknown interval.
    pub const UNKNOWN: i64 = 60;

    /// Cuts a window of `size` for devices that report every `interval`.
    pub fn new(size: Span, interval: Option<Span>) -> Self {
        let count = interval.map_or(Self::UNKNOWN, |every| size.0 / every.0.max(1)).clamp(1, 64);
        Self { size: size.0.max(1), count: u32::try_from(count).unwrap_or(64) }
    }

    fn index(self, offset: i64) -> u32 {
        let slot = match offset.checked_mul(i64::from(self.count)) {
            Some(product) => i128::from(product / self.size), // nearly always, and a short division
            None => i128::from(offset) * i128::from(self.count) / i128::from(self.size),
        };
        u32::try_from(slot).unwrap_or(0).min(self.count - 1)
    }

    fn begin(self, slot: u32) -> i64 {
        let count = i128::from(self.count);
        let begin = (i128::from(slot) * i128::from(self.size) + count - 1) / count;
        i64::try_from(begin).unwrap_or(i64::MAX)
    }

    /// The slot of a sample `offset` after the window's start, as a bit.
    pub fn bit(self, offset: Span) -> u64 {
        1 << self.index(offset.0)
    }

    /// The bits of a part of this window, cut as `part`, that starts `offset` after it.
    pub fn widen(self, bits: u64, part: Self, offset: Span) -> u64 {
        (0..part.count)
            .filter(|slot| bits >> slot & 1 == 1)
            .fold(0, |whole, slot| whole | self.bit(offset + Span(part.begin(slot))))
    }

    /// Share of slots that are covered, 0 to 1.
    pub fn coverage(self, bits: u64) -> f64 {
        f64::from(bits.count_ones()) / f64::from(self.count)
    }

    /// The longest run of slots without a sample.
    pub fn largest_gap(self, bits: u64) -> Span {
        let mut longest = 0;
        let mut run = 0;
        for slot in 0..self.count {
            run = if bits >> slot & 1 == 1 { 0 } else { run + 1 };
            longest = longest.max(run);
        }
        Span(
            i64::try_from(i128::from(longest) * i128::from(self.size) / i128::from(self.count))
                .unwrap_or(i64::MAX),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Span = Span::from_hours(1);

    #[test]
    fn an_hour_of_quarters_has_four_slots() {
        let slots = Slots::new(HOUR, Some(Span::from_mins(15)));
        let bits = [0, 15, 45].iter().fold(0, |bits, &m| bits | slots.bit(Span::from_mins(m)));
        assert_eq!(slots.coverage(bits), 0.75);
        assert_eq!(slots.largest_gap(bits), Span::from_mins(15));
    }

    #[test]
    fn an_unknown_interval_is_seen_by_the_minute() {
        let slots = Slots::new(HOUR, None);
        let bits = slots.bit(Span::ZERO) | slots.bit(HOUR + Span(-1));
        assert_eq!(slots.largest_gap(bits), Span::from_mins(58));
    }

    #[test]
    fn hours_merge_into_a_day() {
        let day = Slots::new(Span::from_hours(24), None);
        let hour = Slots::new(HOUR, None);
        let bits = (0..24)
            .filter(|&h| h != 7)
            .fold(0, |bits, h| bits | day.widen(u64::MAX >> 4, hour, Span::from_hours(h)));
        assert_eq!(
            day.largest_gap(bits),
            Span::from_mins(48),
            "of 7:00 to 8:00, 6:48 to 7:12 is one slot"
        );
        assert_eq!(day.widen(0, hour, HOUR), 0);
    }

    #[test]
    fn an_interval_longer_than_the_window_gives_one_slot() {
        let slots = Slots::new(HOUR, Some(Span::from_hours(6)));
        assert_eq!(slots.coverage(slots.bit(Span::from_mins(59))), 1.0);
    }
}
