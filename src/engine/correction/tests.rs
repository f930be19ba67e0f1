use super::*;

const NOON: i64 = 1_795_953_600_000;
const SECOND: i64 = 1_000;
const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

/// One device, and a gateway whose clock is right.
struct World {
    clock: DeviceClock,
    policy: Policy,
    session: u32,
}

fn world() -> World {
    World { clock: DeviceClock::default(), policy: Policy::default(), session: 1 }
}

impl World {
    /// A message with this device time comes at `at`; both after noon.
    fn hears(&mut self, at: i64, time: i64) -> Option<ClockChange> {
        let (mono, reference) = (MonoTime(at + 7), ArrivalTime(NOON + at));
        let heard = Heard { time: DeviceTime(NOON + time), mono, reference, session: self.session };
        self.clock.hear(heard, &self.policy)
    }

    /// One a minute from minute `from` to `to`, of a clock that is off by `error` and a network that needs `delay`.
    fn minutes(&mut self, from: i64, to: i64, error: i64, delay: i64) -> Vec<ClockChange> {
        let minutes = from..to;
        minutes.filter_map(|n| self.hears(n * MINUTE + delay, n * MINUTE + error)).collect()
    }

    fn offset(&self) -> Option<i64> {
        self.clock.offset().map(|offset| offset.0)
    }

    /// Where a device time ends that comes at `at`.
    fn corrected(&self, at: i64, time: i64) -> Option<i64> {
        let reference = ArrivalTime(NOON + at);
        let corrected = self.clock.correct(DeviceTime(NOON + time), reference, &self.policy);
        corrected.map(|corrected| corrected.at.0 - NOON)
    }
}

#[test]
fn a_device_ahead_is_corrected_from_its_second_live_message() {
    let mut world = world();
    assert_eq!(world.hears(200, 10 * MINUTE), None);
    assert_eq!(world.offset(), None, "one may be a slip");
    let told = world.hears(MINUTE + 300, 11 * MINUTE);
    assert_eq!(told, Some(ClockChange::Wrong(Span(200 - 10 * MINUTE))));
    assert_eq!(world.corrected(MINUTE + 300, 11 * MINUTE), Some(MINUTE + 200));
}

#[test]
fn ahead_by_the_tolerance_is_right_and_a_millisecond_more_is_not() {
    for (error, expected) in [(30_000, None), (30_001, Some(-30_001))] {
        let mut world = world();
        world.minutes(0, 10, error, 0);
        assert_eq!(world.offset(), expected, "{error}");
    }
}

#[test]
fn a_device_behind_is_corrected_from_its_fifth_live_message() {
    let mut world = world();
    assert_eq!(world.minutes(0, 4, -10 * MINUTE, 100), []);
    let told = world.minutes(4, 9, -10 * MINUTE, 100);
    assert_eq!(told, [ClockChange::Wrong(Span(10 * MINUTE + 100))], "once");
}

#[test]
fn behind_by_the_tolerance_is_a_slow_network() {
    for (delay, expected) in [(5 * MINUTE, None), (5 * MINUTE + 1, Some(5 * MINUTE + 1))] {
        let mut world = world();
        world.minutes(0, 60, 0, delay);
        assert_eq!(world.offset(), expected, "{delay}");
    }
}

#[test]
fn five_messages_that_differ_by_more_than_two_seconds_prove_no_slow_clock() {
    for (step, expected) in [(500, true), (501, false)] {
        let mut world = world();
        for n in 0..5 {
            world.hears(n * MINUTE + 8 * MINUTE + n * step, n * MINUTE);
        }
        assert_eq!(world.offset().is_some(), expected, "{step}");
    }
}

#[test]
fn messages_that_come_at_once_are_not_live_however_many_they_are() {
    let mut world = world();
    world.minutes(0, 3, 0, 100);
    for n in 3..33 {
        assert_eq!(world.hears(33 * MINUTE + n, n * MINUTE), None);
    }
    assert_eq!(world.offset(), None);
}

/// All of them waited for ten minutes; that they are alike says nothing.
#[test]
fn messages_of_one_second_are_not_live_however_alike_they_are() {
    let mut world = world();
    for n in 0..30 {
        assert_eq!(world.hears(10 * MINUTE + n * 60, n * 60), None);
    }
    assert_eq!(world.offset(), None);
}

#[test]
fn a_network_that_grows_slow_little_by_little_moves_nobody() {
    let mut world = world();
    for minute in 0..1_000 {
        let delay = (minute * SECOND).min(9 * MINUTE);
        assert_eq!(world.hears(minute * MINUTE + delay, minute * MINUTE), None, "{minute}");
    }
    assert_eq!(world.offset(), None);
}

#[test]
fn a_network_that_varies_for_a_day_moves_nobody() {
    let mut world = world();
    let day = 24.0 * HOUR as f64;
    for minute in (0..2 * 24 * 60).step_by(5) {
        let turn = (minute * MINUTE) as f64 / day * std::f64::consts::TAU;
        let delay = (5.0 * MINUTE as f64 * (1.0 - turn.cos())) as i64;
        assert_eq!(world.hears(minute * MINUTE + delay, minute * MINUTE), None, "{minute}");
    }
    assert_eq!(world.offset(), None);
}

#[test]
fn a_right_clock_that_is_set_back_is_corrected_after_five() {
    let mut world = world();
    world.minutes(0, 100, 0, 80);
    assert_eq!(world.minutes(100, 104, -HOUR - 123, 80), []);
    assert_eq!(world.minutes(104, 108, -7 * MINUTE, 80), [], "another step begins anew");
    let told = world.minutes(108, 110, -7 * MINUTE, 80);
    assert_eq!(told, [ClockChange::Wrong(Span(7 * MINUTE + 80))]);
}

#[test]
fn a_device_that_gets_its_time_back_is_followed_at_once() {
    for error in [20 * MINUTE, -20 * MINUTE] {
        let mut world = world();
        world.minutes(0, 10, error, 90);
        assert_eq!(world.offset(), Some(90 - error));
        let told = world.hears(10 * MINUTE + 90, 10 * MINUTE);
        assert_eq!(told, Some(ClockChange::Right(Span(90))), "{error}");
        assert_eq!(world.corrected(10 * MINUTE + 90, 10 * MINUTE), None);
        assert_eq!(world.minutes(11, 20, 0, 90), []);
    }
}

/// Its own network was away for ten minutes: one of what it has kept seems to be right.
#[test]
fn a_fast_device_that_empties_its_queue_is_not_taken_for_right() {
    let mut world = world();
    world.minutes(0, 10, 10 * MINUTE, 90);
    for n in 10..22 {
        assert_eq!(world.hears(22 * MINUTE + n, n * MINUTE + 10 * MINUTE), None, "{n}");
        assert_eq!(world.offset(), Some(90 - 10 * MINUTE));
    }
    assert_eq!(world.corrected(22 * MINUTE, 25 * MINUTE), Some(15 * MINUTE + 90));
}

#[test]
fn what_a_slow_device_cannot_have_sent_yet_is_taken_as_it_stands() {
    let mut world = world();
    world.minutes(0, 10, -20 * MINUTE, 0);
    assert_eq!(world.corrected(12 * MINUTE, -9 * MINUTE), Some(11 * MINUTE));
    assert_eq!(world.corrected(12 * MINUTE, -8 * MINUTE + 30_000), Some(12 * MINUTE + 30_000));
    assert_eq!(world.corrected(12 * MINUTE, -8 * MINUTE + 30_001), None);
}

#[test]
fn a_correction_never_leaves_the_tolerance() {
    let mut world = world();
    world.policy.future_tolerance = Span(100);
    world.minutes(0, 10, 20 * MINUTE, 0);
    assert_eq!(world.corrected(MINUTE, 21 * MINUTE + 1_000), Some(MINUTE + 100));
    assert_eq!(world.corrected(MINUTE, 21 * MINUTE + 2_001), None);
}

#[test]
fn a_step_to_another_wrong_time_restarts_the_estimate() {
    let mut world = world();
    world.minutes(0, 10, 10 * MINUTE, 0);
    assert_eq!(world.hears(10 * MINUTE, 50 * MINUTE), None);
    assert_eq!(world.corrected(10 * MINUTE, 50 * MINUTE), None, "it is refused as from the future");
    let told = world.hears(11 * MINUTE, 51 * MINUTE);
    assert_eq!(told, Some(ClockChange::Wrong(Span(-40 * MINUTE))));
    let told = world.minutes(12, 17, 20 * MINUTE, 0);
    assert_eq!(told, [ClockChange::Wrong(Span(-20 * MINUTE))], "the fifth of what may be a delay");
}

#[test]
fn a_clock_that_lost_its_time_is_not_corrected_and_forgotten() {
    let mut world = world();
    world.minutes(0, 10, 10 * MINUTE, 0);
    for minute in 10..30 {
        assert_eq!(world.hears(minute * MINUTE, minute * MINUTE - NOON), None);
        assert_eq!(world.offset(), None);
    }
    assert_eq!(world.minutes(30, 32, 0, 0), [ClockChange::Right(Span(0))]);
}

/// Milliseconds that were taken for seconds run a thousand times too fast.
#[test]
fn a_clock_that_does_not_keep_pace_is_never_corrected() {
    let mut world = world();
    for minute in 0..100 {
        let time = (NOON + minute * MINUTE).saturating_mul(1_000) - NOON;
        assert_eq!(world.hears(minute * MINUTE, time), None);
        assert_eq!(world.offset(), None);
    }
}

#[test]
fn numbers_at_the_end_of_the_range_are_survived() {
    let mut world = world();
    for (at, time) in [(0, i64::MAX), (MINUTE, i64::MIN), (2 * MINUTE, i64::MAX), (3 * MINUTE, 0)] {
        let reference = ArrivalTime(at);
        let heard = Heard { time: DeviceTime(time), mono: MonoTime(at), reference, session: 0 };
        world.policy.not_before = DeviceTime(i64::MIN);
        world.clock.hear(heard, &world.policy);
        world.clock.correct(DeviceTime(time), reference, &world.policy);
    }
}

#[test]
fn a_drift_is_followed_without_a_word() {
    for ppm in [-200, 200] {
        let mut world = world();
        let mut told = Vec::new();
        for minute in 0..3 * 24 * 60 {
            let (at, error) = (minute * MINUTE, 10 * MINUTE + minute * MINUTE * ppm / 1_000_000);
            told.extend(world.hears(at + 150, at + error));
            let Some(placed) = world.corrected(at + 150, at + error) else { continue };
            // The least delay, a step, and what five minutes of drift make.
            assert!((placed - at).abs() <= 150 + 250 + 60, "{ppm} {minute} {}", placed - at);
        }
        assert_eq!(told.len(), 1, "{ppm}: {told:?}");
    }
}

#[test]
fn the_offset_is_that_of_the_quickest_of_the_last_five() {
    let mut world = world();
    for (n, delay) in [900, 400, 1_700, 800, 1_200, 1_300].into_iter().enumerate() {
        let at = i64::try_from(n).expect("few") * MINUTE;
        world.hears(at + delay, at + 20 * MINUTE);
    }
    assert_eq!(world.offset(), Some(400 - 20 * MINUTE));
    for (n, delay) in [(6, 1_500), (7, 1_900)] {
        world.hears(n * MINUTE + delay, n * MINUTE + 20 * MINUTE);
    }
    assert_eq!(world.offset(), Some(800 - 20 * MINUTE), "the quickest is too long ago");
}

#[test]
fn nothing_is_compared_across_two_sessions_and_the_offset_stays() {
    let mut world = world();
    world.minutes(0, 4, -HOUR - 61 * SECOND, 0);
    world.session = 2;
    world.minutes(4, 8, -HOUR - 61 * SECOND, 0);
    assert_eq!(world.offset(), None, "four and four are not five");
    world.minutes(8, 9, -HOUR - 61 * SECOND, 0);
    assert_eq!(world.offset(), Some(HOUR + 61 * SECOND));
    world.session = 3;
    world.minutes(9, 11, -HOUR - 61 * SECOND, 0);
    assert_eq!(world.offset(), Some(HOUR + 61 * SECOND));
}

#[test]
fn whole_quarter_hours_are_those_of_another_zone() {
    for (delay, expected) in [(0, -HOUR), (1_900, -HOUR), (2_001, 2_001 - HOUR)] {
        let mut world = world();
        world.minutes(0, 10, HOUR, delay);
        assert_eq!(world.offset(), Some(expected), "{delay}");
    }
}

#[test]
fn flagged_clocks_are_told_and_move_nothing() {
    let mut world = world();
    world.policy.correct = Correct::Flag;
    let told = world.minutes(0, 10, 10 * MINUTE, 0);
    assert_eq!(told, [ClockChange::Wrong(Span(-10 * MINUTE))]);
    assert_eq!(world.corrected(10 * MINUTE, 20 * MINUTE), None);
}

#[test]
fn a_record_of_the_offset_is_read_as_it_was_written() {
    for (offset, told_wrong) in [(None, true), (Some(Span(-77)), true), (Some(Span(5)), false)] {
        let clock = DeviceClock { offset, told_wrong, ..DeviceClock::default() };
        let mut w = Writer::default();
        clock.write(&mut w);
        assert_eq!(DeviceClock::read(&mut Reader(&w.0)), Some(clock));
    }
    assert_eq!(DeviceClock::read(&mut Reader(&[1])), None);
}

#[test]
fn what_is_known_of_a_clock_is_small() {
    let size = std::mem::size_of::<DeviceClock>();
    assert!(size <= 128, "{size} bytes for each of 50,000 devices");
}
