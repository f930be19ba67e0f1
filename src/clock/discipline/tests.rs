use super::*;
use crate::clock::Pace;
use proptest::prelude::*;
use std::time::Duration;

const MILLI: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
/// 2026-11-29, less what the machine has run.
const NOVEMBER: i64 = 1_795_953_600 * SECOND;

fn unset() -> Discipline {
    Discipline::new(Anchor::new(0, 0), Pace::default().patience())
}

fn says(difference: i64) -> Estimate {
    Estimate { server: 0, difference, bound: 10 * MILLI }
}

fn server() -> Reference {
    Reference::Server("ntp".into())
}

impl Discipline {
    fn hears(&mut self, difference: i64, now: i64) -> Verdict {
        self.offer(says(difference), &server(), May::Jump, now)
    }

    fn is(&self, now: i64) -> ClockQuality {
        self.status(now).quality
    }

    fn wall_at(&self, now: i64) -> i64 {
        self.anchor.wall(now).0
    }
}

/// A clock that was right at 10 s.
fn right() -> Discipline {
    let mut clock = Discipline::new(Anchor::new(NOVEMBER, 0), Pace::default().patience());
    assert_eq!(clock.hears(NOVEMBER, 10 * SECOND), Verdict::Taken(0));
    clock
}

#[test]
fn a_clock_that_is_nearly_right_is_synchronised_by_the_first_sample_and_exactly_right_at_once() {
    let mut clock = Discipline::new(Anchor::new(NOVEMBER, 0), Pace::default().patience());
    assert_eq!(clock.is(SECOND), ClockQuality::Unsynchronised);
    assert_eq!(clock.status(SECOND).bound, Span::MAX);
    clock.hears(NOVEMBER + 300 * MILLI, SECOND);
    assert_eq!(clock.is(SECOND), ClockQuality::Synchronised);
    assert_eq!(clock.wall_at(SECOND), (NOVEMBER + 1_300 * MILLI) / MILLI);
    assert!(clock.take_jumps().is_empty());
}

#[test]
fn a_clock_of_1970_is_suspect_until_a_second_sample_says_the_same_and_then_told() {
    let mut clock = unset();
    assert_eq!(clock.is(0), ClockQuality::Suspect);
    let doubted = Verdict::Doubted { until: 3 * SECOND };
    assert_eq!(clock.hears(NOVEMBER, SECOND), doubted);
    assert_eq!(clock.hears(NOVEMBER, 2 * SECOND), doubted, "too soon after the first");
    assert_eq!((clock.is(2 * SECOND), clock.wall_at(2 * SECOND)), (ClockQuality::Suspect, 2_000));
    assert_eq!(clock.hears(NOVEMBER + MILLI, 3 * SECOND), Verdict::Taken(NOVEMBER + MILLI));
    assert_eq!(clock.is(3 * SECOND), ClockQuality::Synchronised);
    let to = ArrivalTime((NOVEMBER + MILLI + 3 * SECOND) / MILLI);
    let told = clock.take_jumps();
    let shift = Span((NOVEMBER + MILLI) / MILLI);
    let from = ArrivalTime(3_000);
    assert_eq!(told, [Jump { from, to, shift, source: server(), first: true }]);
    assert!(clock.take_jumps().is_empty());
}

#[test]
fn a_minute_in_2036_moves_nothing() {
    let mut clock = right();
    let in_2036 = NOVEMBER + 10 * 365 * 24 * HOUR;
    let until = 138 * SECOND;
    assert_eq!(clock.hears(in_2036, 74 * SECOND), Verdict::Doubted { until });
    assert_eq!(clock.is(75 * SECOND), ClockQuality::Suspect);
    assert_eq!(clock.doubted_shift(), Some(in_2036 - NOVEMBER));
    assert_eq!(clock.hears(in_2036, 134 * SECOND), Verdict::Doubted { until });
    assert_eq!(clock.wall_at(134 * SECOND), (NOVEMBER + 134 * SECOND) / MILLI);
    assert_eq!(clock.hears(NOVEMBER, 138 * SECOND), Verdict::Taken(0));
    assert_eq!(clock.is(138 * SECOND), ClockQuality::Synchronised);
    assert!(clock.take_jumps().is_empty());
}

#[test]
fn two_hours_are_taken_when_they_are_said_again_after_a_pause_and_not_when_others_are() {
    for hours in [2 * HOUR, -2 * HOUR] {
        let mut clock = right();
        clock.hears(NOVEMBER + hours, 74 * SECOND);
        let other = clock.hears(NOVEMBER + hours / 2, 138 * SECOND);
        assert_eq!(other, Verdict::Doubted { until: 202 * SECOND }, "another doubt begins");
        clock.hears(NOVEMBER + hours, 202 * SECOND);
        assert_eq!(clock.hears(NOVEMBER + hours, 266 * SECOND), Verdict::Taken(hours));
        let jumps = clock.take_jumps();
        assert_eq!((jumps.len(), jumps[0].first), (1, false));
        assert_eq!(jumps[0].shift, Span(hours / MILLI));
        assert_eq!(jumps[0].to - jumps[0].from, jumps[0].shift);
    }
}

#[test]
fn a_small_shift_slews_and_is_part_of_the_bound_meanwhile() {
    let mut clock = right();
    let now = 74 * SECOND;
    let before = clock.wall_at(now);
    assert_eq!(clock.hears(NOVEMBER - 2 * SECOND, now), Verdict::Taken(-2 * SECOND));
    assert_eq!(clock.wall_at(now), before);
    assert_eq!(clock.status(now).bound, Span::from_secs(3));
    assert_eq!(clock.status(now + 400 * SECOND).bound, Span::from_secs(1));
    assert!(clock.take_jumps().is_empty());
}

#[test]
fn a_leap_second_is_no_jump_and_two_and_a_bit_are() {
    assert_eq!(right().hears(NOVEMBER + 2 * SECOND, 74 * SECOND), Verdict::Taken(2 * SECOND));
    let more = right().hears(NOVEMBER + 2 * SECOND + 1, 74 * SECOND);
    assert!(matches!(more, Verdict::Doubted { .. }));
}

#[test]
fn a_time_before_the_last_good_one_is_believed_after_an_hour_only() {
    let mut clock = Discipline::new(Anchor::new(NOVEMBER, 0), Pace::default().patience());
    clock.set_floor(ArrivalTime((NOVEMBER + 24 * HOUR) / MILLI), 0);
    assert_eq!(clock.is(0), ClockQuality::Suspect);
    for minute in 0..60 {
        let verdict = clock.hears(NOVEMBER, minute * MINUTE);
        assert_eq!(verdict, Verdict::Doubted { until: HOUR }, "{minute}");
    }
    assert_eq!(clock.is(HOUR), ClockQuality::Suspect);
    assert_eq!(clock.hears(NOVEMBER, HOUR), Verdict::Taken(0));
    assert_eq!(clock.is(HOUR), ClockQuality::Synchronised);
    assert_eq!(clock.hears(NOVEMBER, HOUR + MINUTE), Verdict::Taken(0), "it is settled");
}

#[test]
fn nobody_is_believed_who_says_that_it_is_before_this_program_was_made_however_often() {
    let mut clock = unset();
    let before = EARLIEST_US * 1_000 - SECOND;
    for hour in 1..5 {
        let at = hour * HOUR;
        assert_eq!(clock.hears(before - at, at), Verdict::Ignored);
    }
    assert_ne!(clock.is(4 * HOUR), ClockQuality::Synchronised);
}

#[test]
fn a_floor_that_comes_late_withdraws_what_was_taken() {
    let mut clock = right();
    clock.set_floor(ArrivalTime((NOVEMBER - HOUR) / MILLI), 20 * SECOND);
    assert_eq!(clock.is(20 * SECOND), ClockQuality::Synchronised);
    clock.set_floor(ArrivalTime((NOVEMBER + HOUR) / MILLI), 20 * SECOND);
    assert_eq!(clock.is(20 * SECOND), ClockQuality::Suspect);
    clock.hears(NOVEMBER + 2 * HOUR, 30 * SECOND);
    clock.hears(NOVEMBER + 2 * HOUR, 32 * SECOND);
    assert_eq!(clock.is(32 * SECOND), ClockQuality::Synchronised);
}

#[test]
fn without_answers_the_clock_runs_on_and_its_bound_grows_by_a_hundred_parts_in_a_million() {
    let mut clock = right();
    for failures in 0..3 {
        assert_eq!(clock.is(MINUTE), ClockQuality::Synchronised, "after {failures}");
        clock.failed();
    }
    assert_eq!(clock.is(MINUTE), ClockQuality::Holdover);
    let (lateness, ten) = (Span::from_mins(2), 10 * SECOND);
    let bound = |clock: &Discipline, hours: i64| clock.bound(ten + hours * HOUR).unwrap();
    assert_eq!(bound(&clock, 100), 10 * MILLI + 36 * SECOND);
    assert_eq!(clock.status(ten + 100 * HOUR).bound, Span::from_secs(37));
    assert!(clock.status(ten + 160 * HOUR).is_good(lateness));
    assert!(!clock.status(ten + 167 * HOUR).is_good(lateness));
    assert_eq!(clock.hears(NOVEMBER + SECOND, 170 * HOUR), Verdict::Taken(SECOND));
    assert_eq!(clock.is(170 * HOUR), ClockQuality::Synchronised);
}

#[test]
fn the_moment_at_which_the_status_changes_by_itself_is_known_beforehand() {
    let mut clock = right();
    let mut now = 10 * SECOND;
    let mut seen = Vec::new();
    for _ in 0..70 {
        let at = clock.next_change(now).unwrap();
        assert!(at > now);
        let (before, after) = (clock.status(now), clock.status(at));
        assert_eq!(clock.status(at - 1), before);
        assert_ne!(after, before, "at {at}");
        seen.push(after);
        now = at;
    }
    assert_eq!(seen[0].quality, ClockQuality::Holdover, "nobody asked for 51 minutes");
    let bad = seen.iter().position(|status| !status.is_good(Span::from_mins(2))).unwrap();
    assert_eq!(seen[bad].bound, Span::from_secs(60));
    clock.failed();
    assert_eq!(unset().next_change(0), None);
}

#[test]
fn a_doubt_that_nobody_speaks_of_any_more_is_dropped() {
    let mut clock = right();
    clock.hears(NOVEMBER + HOUR, MINUTE);
    for _ in 0..LOST {
        assert_eq!(clock.is(MINUTE), ClockQuality::Suspect);
        clock.failed();
    }
    assert_eq!(clock.is(MINUTE), ClockQuality::Holdover);
}

#[test]
fn who_may_only_slew_never_makes_it_jump() {
    let mut clock = right();
    for minute in 1..=3 {
        let far = says(NOVEMBER + 2 * HOUR);
        let verdict = clock.offer(far, &Reference::Host, May::Slew, minute * MINUTE);
        assert_eq!(verdict, Verdict::Ignored);
    }
    assert_eq!(clock.is(3 * MINUTE), ClockQuality::Holdover);
    assert_eq!(clock.wall_at(3 * MINUTE), (NOVEMBER + 3 * MINUTE) / MILLI);
    let near = clock.offer(says(NOVEMBER + SECOND), &Reference::Host, May::Slew, 4 * MINUTE);
    assert_eq!(near, Verdict::Taken(SECOND));
}

#[test]
fn no_more_than_16_jumps_wait_to_be_told() {
    let mut clock = right();
    for jump in 1..=20 {
        let now = jump * 1_000 * SECOND;
        clock.hears(NOVEMBER + jump * HOUR, now);
        clock.hears(NOVEMBER + jump * HOUR, now + 64 * SECOND);
    }
    assert_eq!(clock.take_jumps().len(), JUMPS);
}

proptest! {
    /// Whatever is said, wall time goes back only in a jump, and each jump was said twice, a pause apart.
    #[test]
    fn wall_time_goes_back_only_by_what_was_said_twice(
        said in prop::collection::vec((0..4_usize, -20..20_i64, 1..200_i64), 1..60),
    ) {
        let mut clock = right();
        let (mut now, mut last) = (10 * SECOND, clock.wall_at(10 * SECOND));
        for (what, small, after) in said {
            now += after * SECOND;
            let shift = [0, HOUR, -HOUR, 24 * HOUR][what] + small * 50 * MILLI;
            match small {
                -20..=-18 => clock.failed(),
                _ => drop(clock.hears(NOVEMBER + shift, now)),
            }
            let (wall, jumps) = (clock.wall_at(now), clock.take_jumps());
            prop_assert!(wall >= last || !jumps.is_empty(), "{wall} after {last}");
            last = wall;
            if clock.is(now) == ClockQuality::Synchronised {
                prop_assert!(clock.bound(now).is_some());
            }
        }
        let (first, later) = (clock.wall_at(now), clock.wall_at(now + 1));
        prop_assert!(later >= first);
    }
}

#[test]
fn the_pace_says_how_patient_it_is() {
    let pace = Pace { quick: Duration::from_millis(5), ..Pace::default() };
    assert_eq!(pace.patience().first, 5 * MILLI);
    assert_eq!(pace.patience().stale, 3 * 1_024 * SECOND);
}
