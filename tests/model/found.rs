//! What the random days found, shrunk, one test each.

use tidegate::config::Config;
use tidegate::event::{Cause, Output};

use crate::gateway::{Gateway, MINUTE, NOON, SECOND, config, defaults};
use crate::reference::{Message, Rules, Step, What, Window};

fn ten_minutes() -> Config {
    let regions = defaults().lateness.into_keys();
    let rules = Rules {
        lateness: regions.map(|region| (region, 10 * MINUTE)).collect(),
        max_hold: 11 * MINUTE,
        base: Window { name: "hour", size: 10 * MINUTE, offset: 0 },
        multiple: Window { name: "day", size: 60 * MINUTE, offset: 0 },
        ..defaults()
    };
    config(&rules, true, 7 * SECOND)
}

/// A device with a lateness of ten minutes and one without are silent from noon on. A third one speaks at 12:43:57, and
/// then of 12:55, while the gateway has heard nothing since 12:49:30: until that is as far as 12:54, the first device
/// lags more than eleven minutes behind the third, and is left out.
fn a_follower_is_left_out() -> Vec<Step> {
    let at = |at: i64, what| Step { at: NOON + at, what };
    let sent = |level: &str, payload: String| {
        let topic = format!("{level}/south/x");
        What::Message(Message { topic, payload, retain: false, dup: false })
    };
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
        let firings = gateway.outputs.iter().filter_map(|output| match output {
            Output::Region(result) => Some(&result.firing),
            _ => None,
        });
        let firings: Vec<_> = firings.map(|f| (f.start.0 - NOON, f.cause, f.watermark)).collect();
        let told = tidegate::time::EventTime(NOON + 50 * MINUTE - 1);
        assert_eq!(firings, [(40 * MINUTE, Cause::Idle, Some(told))]);
    }
}
