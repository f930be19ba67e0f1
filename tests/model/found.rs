//! What the random days found, shrunk, one test each.

use tidegate::config::Config;
use tidegate::event::{Cause, Output};

use crate::gateway::{Gateway, MINUTE, NOON, SECOND, config, defaults};
use crate::reference::{Message, Rules, Step, What, Window};

/// Windows of ten minutes. A device whose name begins with `z` may be late, the others not.
fn ten_minutes() -> Config {
    let regions = defaults().lateness.into_keys();
    let rules = Rules {
        lateness: regions.map(|region| (region, 10 * MINUTE)).collect(),
        allowed_lateness: 0,
        allowed_lateness_z: 5 * MINUTE,
        max_hold: 11 * MINUTE,
        base: Window { name: "hour", size: 10 * MINUTE, offset: 0 },
        multiple: Window { name: "day", size: 60 * MINUTE, offset: 0 },
        ..defaults()
    };
    config(&rules, true, 7 * SECOND)
}

fn sent(level: &str, payload: String) -> Message {
    Message { topic: format!("{level}/south/x"), payload, retain: false, dup: false }
}

fn reading(device: &str, time: i64) -> String {
    format!(r#"{{"dev":"{device}","ts":{},"v":1}}"#, NOON + time)
}

/// Start, cause and watermark of the roll-ups that were told, by noon.
fn rollups(gateway: &Gateway<'_>) -> Vec<(i64, Cause, Option<i64>)> {
    let firings = gateway.outputs.iter().filter_map(|output| match output {
        Output::Region(result) => Some(&result.firing),
        _ => None,
    });
    firings.map(|f| (f.start.0 - NOON, f.cause, f.watermark.map(|w| w.0 - NOON))).collect()
}

/// A device with a lateness of ten minutes and one without are silent from noon on. A third one speaks at 12:43:57, and
/// then of 12:55, while the gateway has heard nothing since 12:49:30: until that is as far as 12:54, the first device
/// lags more than eleven minutes behind the third, and is left out.
fn a_follower_is_left_out() -> Vec<Step> {
    let at = |at: i64, what| Step { at: NOON + at, what };
    let sent = |level, payload| What::Message(sent(level, payload));
    let beat = |time: i64| {
        let time = NOON + time;
        sent("m", format!(r#"{{"dev":"fast","ts":{time},"kind":"heartbeat","v":1}}"#))
    };
    let (last, back) = (43 * MINUTE + 57 * SECOND, 55 * MINUTE);
    vec![
        at(0, What::Up),
        at(0, What::CaughtUp),
        at(0, sent("m", format!(r#"{{"dev":"slow","ts":{NOON}}}"#))),
        at(0, sent("p", r#"{"dev":"plain"}"#.into())),
        at(last, beat(last)),
        at(49 * MINUTE + 30 * SECOND, What::Down),
        at(back, What::Up),
        at(back, beat(back)),
        at(back, What::CaughtUp),
        at(back + MINUTE, What::Tick), // watermarks are told
    ]
}

/// The same day twice: in one life, and with a restart after each step.
fn two_lives<'a>(config: &'a Config, steps: &[Step]) -> [Gateway<'a>; 2] {
    let mut restarted = Gateway::new(config, steps[0].at);
    for step in steps {
        restarted.step(step);
        restarted.commit();
        restarted.restart(|_| {});
    }
    let mut steady = Gateway::new(config, steps[0].at);
    steps.iter().for_each(|step| steady.step(step));
    [steady, restarted]
}

/// It was told as it was when somebody last looked, which a restart changed.
#[test]
fn a_region_is_told_as_far_as_it_was_before_a_follower_came_back() {
    let config = ten_minutes();
    for gateway in two_lives(&config, &a_follower_is_left_out()) {
        let mut reports = gateway.outputs.iter().filter_map(|output| match output {
            Output::Watermark(report) if report.region.is_some() => report.watermark,
            _ => None,
        });
        assert_eq!(reports.next_back().map(|w| w.0 - NOON), Some(54 * MINUTE - 1));
    }
}

/// It was told when it would have been with the lateness of whom nobody waits for.
#[test]
fn a_roll_up_does_not_wait_for_a_follower_that_is_left_out() {
    let config = ten_minutes();
    for gateway in two_lives(&config, &a_follower_is_left_out()) {
        let told = (40 * MINUTE, Cause::Idle, Some(50 * MINUTE - 1));
        assert_eq!(rollups(&gateway), [told]);
    }
}

/// Two devices in the south are idle; of the first, nobody has a usable time.
fn two_idle<'a>(config: &'a Config, second: &str) -> Gateway<'a> {
    let mut gateway = Gateway::listening(config, NOON);
    gateway.publish(&sent("m", reading("idle", 24 * 60 * MINUTE)), false);
    gateway.publish(&sent("m", second.into()), false);
    gateway.sleep_until(NOON + 6 * MINUTE);
    gateway
}

fn retained(items: &[String]) -> Message {
    Message { retain: true, ..sent("m", format!("[{}]", items.join(","))) }
}

/// The first of them had the region for itself.
#[test]
fn a_region_moves_once_all_devices_of_a_message_have_moved() {
    let config = ten_minutes();
    let mut gateway = two_idle(&config, &reading("other", 24 * 60 * MINUTE));
    let items = [("idle", 1), ("new", 5), ("idle", 6)];
    let items = items.map(|(device, minute)| reading(device, minute * MINUTE));
    gateway.publish(&retained(&items), false);
    let told = gateway.engine.region_watermark("south").map(|w| w.0 - NOON);
    assert_eq!(told, Some(-5 * MINUTE - 1));
}

/// It was told with the next message, whatever and whenever that was.
#[test]
fn a_roll_up_is_told_with_the_message_that_completes_it() {
    let config = ten_minutes();
    let mut gateway = two_idle(&config, &reading("other", 0));
    gateway.step(&Step { at: gateway.now, what: What::Down });
    gateway.step(&Step { at: NOON + 60 * MINUTE, what: What::Up });
    let told = gateway.outputs.len();
    let other = [1, 31, 60].map(|minute| reading("other", minute * MINUTE));
    gateway.publish(&retained(&[&other[..], &[reading("idle", 3 * MINUTE)]].concat()), false);
    gateway.outputs.drain(..told);
    let by = |start: i64| (start * MINUTE, Cause::Bounded, Some(50 * MINUTE - 1));
    assert_eq!(rollups(&gateway), [by(0), by(30)]);
}

/// A duplicate made it final, and without one a device with a longer lateness opened it again.
#[test]
fn a_roll_up_that_is_final_when_a_device_joins_stays_final() {
    let config = ten_minutes();
    for duplicates in [0, 1] {
        let mut gateway = Gateway::listening(&config, NOON);
        let first = sent("m", reading("a", 0));
        gateway.publish(&first, false);
        gateway.sleep_until(NOON + 34 * MINUTE);
        (0..duplicates).for_each(|_| gateway.publish(&first, true));
        gateway.publish(&sent("m", reading("z", 15 * MINUTE)), false);
        gateway.end();
        let hours = rollups(&gateway)
            .into_iter()
            .filter(|(start, cause, _)| *start != 0 || *cause != Cause::End);
        assert_eq!(hours.collect::<Vec<_>>(), [(0, Cause::Idle, Some(10 * MINUTE - 1))]);
        assert_eq!(gateway.engine.books().region_missed, 1);
    }
}
