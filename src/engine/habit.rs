//! How a device writes its times: the unit, and local times in the two hours that its zone changes.
//!
//! Its time is read as what it is in any case. What is kept here decides between the two readings of a repeated hour,
//! and what is to be told of a device once.

use crate::engine::Engine;
use crate::engine::effect::Effects;
use crate::event::{Alert, AlertKind, Output, TimeUnit};
use crate::time::{ArrivalTime, DeviceTime, EventTime, Span};
use crate::wire::decode::{Item, Stamp};

/// What is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Habit {
    /// How it wrote its last time, where its source leaves that open.
    unit: Option<TimeUnit>,
    /// To which units it was told to have changed, a bit for each.
    told: u8,
    /// Its highest time in a repeated hour, those of the message in hand included.
    pub(super) repeated: EventTime,
    /// What the store has of it.
    pub(super) stored: u8,
}

impl Default for Habit {
    fn default() -> Self {
        Self { unit: None, told: 0, repeated: EventTime::MIN, stored: 0 }
    }
}

impl Habit {
    /// Notes how a time is written, and says from what it has changed to what, once for each unit that it changes to:
    /// a device that goes to and fro is not told with every message.
    fn write_in(&mut self, unit: TimeUnit) -> Option<AlertKind> {
        let before = self.unit.replace(unit).filter(|before| *before != unit)?;
        let bit = 1 << unit as u8;
        let known = self.told & bit != 0;
        self.told |= bit;
        (!known).then_some(AlertKind::UnitChanged { before, unit })
    }

    /// As one byte; 0 where nothing is known.
    pub(super) fn to_byte(self) -> u8 {
        self.unit.map_or(0, |unit| unit as u8 + 1) | self.told << 3
    }

    /// The inverse of [`Self::to_byte`]; `None` where it is no such byte.
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        let unit = match byte & 7 {
            0 => None,
            number => Some(*TimeUnit::ALL.get(usize::from(number) - 1)?),
        };
        Some(Self { unit, told: byte >> 3, stored: byte, ..Self::default() })
    }
}

/// Decides between the two readings of a repeated hour. `last` is the device's highest time so far, `ahead` by how much
/// a device may be ahead of us.
///
/// The one nearest to the arrival is taken where that tells: where the later is not ahead of it by more than `ahead`, nor
/// behind by more than half of what lies between the two. Else what came in order: the earlier, until the device has got
/// there.
pub fn settle(stamp: Stamp, arrival: Option<ArrivalTime>, ahead: Span, last: EventTime) -> Stamp {
    let Stamp::Repeated { earlier, later } = stamp else { return stamp };
    let half = (later.0 - earlier.0) / 2;
    let in_order = if earlier.accepted() > last { earlier } else { later };
    let Some(arrival) = arrival else { return Stamp::At(in_order) };
    let delay = arrival.0.saturating_sub(later.0);
    Stamp::At(match delay {
        _ if delay < -half.max(ahead.0) => earlier,
        _ if delay < -ahead.0 || delay > half => in_order,
        _ => later,
    })
}

impl Engine {
    /// Notes how a time was written that has become an event time. `raw` is the item as it was read.
    pub(super) fn note_habit(
        &mut self,
        device: usize,
        raw: Item<'_>,
        at: EventTime,
        out: &mut Effects,
    ) {
        if raw.unit.is_none() && matches!(raw.time, Stamp::At(_)) {
            return; // nearly all
        }
        let habit = &mut self.devices[device].habit;
        let changed = raw.unit.and_then(|unit| habit.write_in(unit));
        let oddity = match raw.time {
            Stamp::Skipped { change, .. } => {
                self.books.skipped_hour += 1;
                self.first_after(device, change).then_some(AlertKind::SkippedHour { time: at })
            }
            _ => None,
        };
        for kind in changed.into_iter().chain(oddity) {
            self.tell_oddity(device, kind, out);
        }
    }

    /// Whether nothing of a device was heard since its clocks should have been changed.
    fn first_after(&self, device: usize, change: DeviceTime) -> bool {
        self.devices[device].generator.highest() < change.accepted()
    }

    fn tell_oddity(&mut self, device: usize, kind: AlertKind, out: &mut Effects) {
        let device = &self.devices[device];
        out.push(Output::Alert(Alert {
            kind,
            region: device.region_id.clone(),
            device: device.id.clone(),
            watermark: device.generator.watermark(),
            clock: self.clock.quality,
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: i64 = 1_792_891_800_000; // 2026-10-25T01:30:00Z, the second 02:30 of Amsterdam
    const EARLIER: i64 = LATER - 3_600_000;
    const MINUTE: i64 = 60_000;

    /// Minutes from the later reading to the arrival, and from the earlier to the device's last time.
    fn decided(arrival: Option<i64>, last: Option<i64>) -> i64 {
        let stamp = Stamp::Repeated { earlier: DeviceTime(EARLIER), later: DeviceTime(LATER) };
        let arrival = arrival.map(|minutes| ArrivalTime(LATER + minutes * MINUTE));
        let last = last.map_or(EventTime::MIN, |minutes| EventTime(EARLIER + minutes * MINUTE));
        let settled = settle(stamp, arrival, Span::from_secs(30), last);
        settled.time().map_or(0, |time| time.0)
    }

    #[test]
    fn the_reading_nearest_to_the_arrival_is_taken_whatever_came_before() {
        for last in [None, Some(-30), Some(0), Some(60)] {
            assert_eq!(decided(Some(0), last), LATER);
            assert_eq!(decided(Some(30), last), LATER);
            assert_eq!(decided(Some(-60), last), EARLIER);
            assert_eq!(decided(Some(-31), last), EARLIER);
        }
    }

    #[test]
    fn where_the_arrival_does_not_tell_the_earlier_reading_comes_first() {
        for arrival in [None, Some(31), Some(600), Some(-30), Some(-1)] {
            for last in [None, Some(-60), Some(-1)] {
                assert_eq!(decided(arrival, last), EARLIER, "{arrival:?} {last:?}");
            }
            for last in [0, 15, 60, 600] {
                assert_eq!(decided(arrival, Some(last)), LATER, "{arrival:?} {last}");
            }
        }
    }

    #[test]
    fn every_other_stamp_is_left_as_it_is() {
        let at = DeviceTime(7);
        for stamp in [
            Stamp::Undeclared,
            Stamp::Unusable,
            Stamp::At(at),
            Stamp::Skipped { at, change: at },
            Stamp::Uptime(Span(7)),
        ] {
            assert_eq!(settle(stamp, Some(ArrivalTime(0)), Span::ZERO, EventTime(9)), stamp);
        }
    }

    #[test]
    fn no_times_overflow() {
        let ends = [i64::MIN, -1, 0, 1, i64::MAX];
        for (arrival, last) in ends.into_iter().flat_map(|a| ends.map(|b| (a, b))) {
            let stamp = Stamp::Repeated { earlier: DeviceTime(EARLIER), later: DeviceTime(LATER) };
            for ahead in [Span::ZERO, Span::MAX] {
                settle(stamp, Some(ArrivalTime(arrival)), ahead, EventTime(last));
            }
        }
    }

    #[test]
    fn a_change_of_unit_is_told_once_for_each_unit() {
        use TimeUnit::{Milliseconds, Nanoseconds, Seconds};
        let mut habit = Habit::default();
        let mut told = |unit| habit.write_in(unit);
        assert_eq!([told(Seconds), told(Seconds)], [None, None]);
        let change = |before, unit| Some(AlertKind::UnitChanged { before, unit });
        assert_eq!(told(Milliseconds), change(Seconds, Milliseconds));
        assert_eq!(told(Milliseconds), None);
        assert_eq!(told(Seconds), change(Milliseconds, Seconds));
        assert_eq!([told(Milliseconds), told(Seconds)], [None, None], "to and fro");
        assert_eq!(told(Nanoseconds), change(Seconds, Nanoseconds));
    }

    #[test]
    fn a_habit_is_one_byte() {
        for unit in TimeUnit::ALL {
            for told in 0..32 {
                let habit = Habit { unit: Some(unit), told, ..Habit::default() };
                let read = Habit::from_byte(habit.to_byte()).expect("a habit");
                assert_eq!((read.unit, read.told), (Some(unit), told));
            }
        }
        assert_eq!(Habit::from_byte(0), Some(Habit::default()));
        assert_eq!([6, 7].map(Habit::from_byte), [None; 2]);
    }
}
