//! What others were hurt by, one test each, on hours and days with the documented defaults.

use std::collections::BTreeMap;

use tidegate::config::Config;
use tidegate::event::{Cause, Firing, Output, Reason, WindowResult};
use tidegate::replay::{Lines, replay};

use crate::gateway::{Gateway, HOUR, Hearing, MINUTE, NOON, SECOND, config, defaults};
use crate::reference::{Message, Step, What};

fn immediate() -> Config {
    config(&defaults(), true, MINUTE)
}

fn message(device: &str, body: &str) -> Message {
    let payload = format!("{{\"dev\":\"{device}\",{body}}}");
    Message { topic: format!("m/north/{device}"), payload, retain: false, dup: false }
}

fn reading(device: &str, time: i64, value: i64) -> Message {
    message(device, &format!("\"ts\":{time},\"v\":{value}"))
}

fn heartbeat(device: &str, time: i64) -> Message {
    message(device, &format!("\"ts\":{time},\"kind\":\"heartbeat\""))
}

impl Gateway<'_> {
    fn receive(&mut self, at: i64, message: Message) {
        self.sleep_until(at);
        self.step(&Step { at, what: What::Message(message) });
    }

    fn windows(&self) -> Vec<&WindowResult> {
        let windows = self.outputs.iter();
        windows
            .filter_map(|output| match output {
                Output::Window(result) => Some(result),
                _ => None,
            })
            .collect()
    }

    fn rollups(&self) -> Vec<&Firing> {
        let rollups = self.outputs.iter();
        rollups
            .filter_map(|output| match output {
                Output::Region(result) => Some(&result.firing),
                _ => None,
            })
            .collect()
    }

    fn alerts(&self) -> usize {
        self.outputs.iter().filter(|output| matches!(output, Output::Alert(_))).count()
    }
}

/// Device, start in hours after noon, revision, samples.
fn brief(result: &WindowResult) -> (&str, i64, u32, u32) {
    let firing = &result.firing;
    (result.device.as_str(), (firing.start.0 - NOON) / HOUR, firing.revision, firing.samples)
}

/// Pain 1: one device a day ahead among twenty.
#[test]
fn one_device_a_day_ahead_makes_nobody_late() {
    let run = |ahead: bool| {
        let config = immediate();
        let mut gateway = Gateway::listening(&config, NOON);
        for minute in 0..180 {
            let at = NOON + minute * MINUTE;
            for number in 0..20 {
                let is_wrong = ahead && number == 7 && minute == 30;
                let time = if is_wrong { at + 24 * HOUR } else { at - number * SECOND };
                gateway.receive(at, reading(&format!("d{number:02}"), time, 1));
            }
        }
        let watermarks: Vec<_> = (0..20)
            .filter(|number| *number != 7)
            .map(|number| gateway.device_watermark("north", &format!("d{number:02}")))
            .collect();
        let refused = gateway.outputs.iter().filter_map(|output| match output {
            Output::Refused(refused) => Some(refused.reason),
            _ => None,
        });
        let refused: Vec<_> = refused.collect();
        (watermarks, gateway.engine.region_watermark("north"), gateway.engine.books().late, refused)
    };
    let (watermarks, region, late, refused) = run(true);
    assert_eq!(refused, [Reason::Future]);
    assert_eq!(late, 0);
    let (honest, honest_region, ..) = run(false);
    assert_eq!((watermarks, region), (honest, honest_region));
}

/// Pain 3: two devices stop at 10:58 and 10:59, in either order of going idle.
#[test]
fn two_devices_that_stop_close_their_hour_by_idleness_in_either_order() {
    let run = |stops: [(&str, i64); 2]| {
        let config = immediate();
        let ten = NOON - 2 * HOUR;
        let mut gateway = Gateway::listening(&config, ten);
        for minute in 0..60 {
            for (device, stop) in stops {
                if minute <= stop {
                    let at = ten + minute * MINUTE;
                    gateway.receive(at, reading(device, at, minute));
                }
            }
        }
        gateway.sleep_until(ten + 2 * HOUR);
        let told: Vec<_> = gateway
            .windows()
            .iter()
            .map(|result| (brief(result).0.to_owned(), result.firing.clone()))
            .collect();
        let rollups: Vec<Firing> = gateway.rollups().into_iter().cloned().collect();
        (told, rollups)
    };
    let eleven = NOON - HOUR;
    for order in [[("a", 58), ("b", 59)], [("b", 58), ("a", 59)]] {
        let (told, rollups) = run(order);
        let [(first, last), (second, then)] = told.as_slice() else {
            panic!("once each: {told:?}")
        };
        assert_eq!((first.as_str(), second.as_str()), (order[0].0, order[1].0));
        for (firing, stop, samples) in [(last, 58, 59), (then, 59, 60)] {
            assert_eq!((firing.cause, firing.revision, firing.samples), (Cause::Idle, 0, samples));
            // Idle five minutes after its last message, which is later than the hour's end and the lateness.
            let idle = eleven - HOUR + (stop + 5) * MINUTE;
            assert_eq!(firing.watermark.map(|w| w.0), Some(idle - 2 * MINUTE - 1));
        }
        let [rollup] = rollups.as_slice() else { panic!("once: {rollups:?}") };
        assert_eq!((rollup.cause, rollup.revision, rollup.samples), (Cause::Idle, 0, 119));
    }
    let told = |order| run(order).1;
    assert_eq!(told([("a", 58), ("b", 59)]), told([("b", 58), ("a", 59)]));
}

/// Pain 4: what is declared and never speaks holds nobody.
#[test]
fn a_region_and_a_device_that_never_speak_hold_nobody() {
    let config = immediate(); // declares three regions; only the north speaks, and one of ten not usably
    let mut gateway = Gateway::listening(&config, NOON);
    gateway.receive(NOON, reading("d9", NOON + 2 * HOUR, 1));
    for minute in 0..=62 {
        let at = NOON + minute * MINUTE;
        for number in 0..9 {
            gateway.receive(at, heartbeat(&format!("d{number}"), at));
            gateway.receive(at, reading(&format!("d{number}"), at, 1));
        }
    }
    let on_time = |result: &&WindowResult| result.firing.cause == Cause::Heartbeat;
    assert_eq!(gateway.windows().iter().filter(|result| on_time(result)).count(), 9);
    assert_eq!(gateway.device_watermark("north", "d9"), None);
    assert_eq!(gateway.rollups().len(), 1);
    let gateways =
        |output: &&Output| matches!(output, Output::Watermark(report) if report.region.is_none());
    assert!(gateway.outputs.iter().any(|output| gateways(&output)), "the gateway's moves too");
}

/// Pain 6: one on time, one late but allowed, one too late.
#[test]
fn a_late_reading_revises_and_a_later_one_is_told_whole() {
    let config = config(&defaults(), false, MINUTE);
    let mut gateway = Gateway::listening(&config, NOON);
    gateway.receive(NOON + MINUTE, reading("a", NOON + MINUTE, 1));
    gateway.receive(NOON + HOUR, heartbeat("a", NOON + HOUR));
    gateway.receive(NOON + HOUR + MINUTE, reading("a", NOON + 2 * MINUTE, 2));
    gateway.receive(NOON + 3 * HOUR, heartbeat("a", NOON + 3 * HOUR));
    gateway.receive(NOON + 3 * HOUR + MINUTE, reading("a", NOON + 3 * MINUTE, 4));
    let told: Vec<_> = gateway.windows().into_iter().map(brief).collect();
    assert_eq!(told, [("a", 0, 0, 1), ("a", 0, 1, 2)]);
    let late: Vec<_> = gateway
        .outputs
        .iter()
        .filter_map(|output| match output {
            Output::Late(late) => Some(late),
            _ => None,
        })
        .collect();
    let [late] = late.as_slice() else { panic!("one: {late:?}") };
    assert_eq!((late.time.0, late.watermark.0), (NOON + 3 * MINUTE, NOON + 3 * HOUR));
    assert_eq!(late.arrival.map(|at| at.0), Some(NOON + 3 * HOUR + MINUTE));
    assert_eq!(late.content, reading("a", NOON + 3 * MINUTE, 4).payload.into_bytes());
    let books = gateway.engine.books();
    assert_eq!((books.records, books.aggregated, books.late, books.valueless), (5, 2, 1, 2));
}

/// Pain 24: the broker's flag says nothing.
#[test]
fn a_reading_counts_once_with_dup_0_before_and_after_a_crash_and_equal_values_count_twice() {
    let config = immediate();
    let mut gateway = Gateway::listening(&config, NOON);
    let one = reading("a", NOON + MINUTE, 5);
    gateway.receive(NOON + MINUTE, one.clone());
    gateway.receive(NOON + MINUTE, one.clone());
    gateway.receive(NOON + 2 * MINUTE, reading("a", NOON + 2 * MINUTE, 5));
    gateway.commit();
    gateway.restart(|gateway| gateway.publish(&one, false));
    gateway.receive(NOON + HOUR, heartbeat("a", NOON + HOUR));
    let told: Vec<_> = gateway.windows().into_iter().map(brief).collect();
    assert_eq!(told, [("a", 0, 0, 2)]);
    assert_eq!(gateway.engine.books().duplicate, 2);
}

/// bytewax#578: deadlines made from event time keep an engine busy whose events lag.
#[test]
fn events_two_hours_old_wake_nobody() {
    let config = immediate();
    let mut gateway = Gateway::listening(&config, NOON);
    let mut woken = 0;
    for minute in 0..60 {
        let at = NOON + minute * MINUTE;
        woken += gateway.sleep_until(at);
        for number in 0..10 {
            gateway.receive(at, reading(&format!("d{number}"), at - 2 * HOUR, 1));
            let next = gateway.engine.next_deadline().expect("watermarks are published").0;
            assert!(next.0 > at - (NOON - 500), "a deadline in the past at minute {minute}");
        }
    }
    // Once a minute for the watermarks, and once per device and idle timeout.
    assert!(woken <= 60 + 10 * 12, "{woken}");
}

/// The same of devices that have gone silent and of a region that waits for one that lags.
#[test]
fn a_silent_fleet_wakes_nobody_but_for_its_watermark() {
    let config = immediate();
    let mut gateway = Gateway::listening(&config, NOON);
    for number in 0..10 {
        let time = NOON - number * 20 * MINUTE;
        gateway.receive(NOON, reading(&format!("d{number}"), time, 1));
    }
    gateway.sleep_until(NOON + 6 * MINUTE);
    let woken = gateway.sleep_until(NOON + 66 * MINUTE);
    assert!(woken <= 60 + 40, "{woken}");
}

/// FLINK-40503: idleness that is up to three ticks late.
#[test]
fn idleness_comes_at_five_minutes_and_no_later_than_the_next_tick() {
    let config = immediate();
    let mut gateway = Gateway::listening(&config, NOON);
    let last = NOON + 59 * MINUTE + 17;
    gateway.receive(last, reading("a", last, 1));
    let idle = last + 5 * MINUTE;
    for tick in 1.. {
        let at = last + tick * 700;
        gateway.step(&Step { at, what: What::Tick });
        assert_eq!(gateway.windows().is_empty(), at < idle, "{}", at - idle);
        if at >= idle {
            break;
        }
    }
    let firing = &gateway.windows()[0].firing;
    assert_eq!(
        firing.watermark.map(|w| w.0),
        Some(idle - 2 * MINUTE - 1),
        "as if it had been on time"
    );
    let (mono, _) = {
        let mut gateway = Gateway::listening(&config, NOON);
        gateway.step(&Step { at: NOON, what: What::Message(reading("a", NOON, 1)) });
        gateway.sleep_until(NOON + 4 * MINUTE + 1);
        gateway.engine.next_deadline().expect("it is watched")
    };
    assert_eq!(mono.0, 500 + 5 * MINUTE);
}

/// The end of a recording fires everything.
#[test]
fn the_end_of_a_replay_tells_all_that_is_open() {
    let config = config(&defaults(), false, MINUTE);
    let mut recording = String::new();
    for minute in 0..300 {
        let arrival = NOON + minute * MINUTE;
        for (device, delay) in [("a", 0), ("b", 90 * MINUTE * (minute % 2))] {
            let Message { topic, payload, .. } = reading(device, arrival - delay, 1);
            let line =
                serde_json::json!({ "topic": topic, "payload": payload, "arrival": arrival });
            recording += &format!("{line}\n");
        }
    }
    let mut output = Vec::new();
    let outcome = replay(&config, &Lines::Recorded, recording.as_bytes(), &mut output, |_| {})
        .expect("replays");
    let mut last = BTreeMap::new();
    let mut ends = 0;
    for line in String::from_utf8(output).expect("UTF-8").lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let kind = line["type"].as_str().expect("a type").to_owned();
        if kind == "window" || kind == "region" {
            ends += u32::from(line["cause"] == "end");
            let key = (
                kind,
                line["window"].to_string(),
                line["device"].to_string(),
                line["start"].to_string(),
            );
            last.insert(key, line["samples"].as_u64().expect("a count"));
        }
    }
    assert!(ends > 0);
    assert_eq!((outcome.books.records, outcome.books.aggregated), (600, 600));
    for (kind, window) in [
        ("window", "\"hour\""),
        ("window", "\"day\""),
        ("region", "\"hour\""),
        ("region", "\"day\""),
    ] {
        let samples = last
            .iter()
            .filter(|((k, w, ..), _)| k == kind && w == window)
            .map(|(_, samples)| samples);
        assert_eq!(samples.sum::<u64>(), 600, "{kind} {window}");
    }
}

/// Three hours without the broker, then all that it kept.
#[test]
fn an_outage_of_three_hours_makes_nothing_late_and_nobody_idle() {
    let config = immediate();
    let mut gateway = Gateway::listening(&config, NOON);
    let names: Vec<String> = (0..5).map(|number| format!("d{number}")).collect();
    let send = |gateway: &mut Gateway<'_>, at: i64, minute: i64, device: &str| {
        let time = NOON + minute * MINUTE;
        let message =
            if minute % 15 == 0 { heartbeat(device, time) } else { reading(device, time, 1) };
        gateway.receive(at, message);
    };
    for minute in 0..30 {
        names.iter().for_each(|device| send(&mut gateway, NOON + minute * MINUTE, minute, device));
    }
    let back = NOON + 210 * MINUTE;
    gateway.step(&Step { at: NOON + 30 * MINUTE, what: What::Down });
    gateway.sleep_until(back);
    assert_eq!(gateway.hearing, Hearing::Down);
    gateway.step(&Step { at: back, what: What::Up });
    // One device after the other, the last one two seconds after the first. `d4` says nothing more.
    for (number, device) in names[..4].iter().enumerate() {
        let at = back + i64::try_from(number).expect("few") * 500;
        (30..210).for_each(|minute| send(&mut gateway, at, minute, device));
    }
    let told = gateway.outputs.len();
    gateway.step(&Step { at: back + 2 * SECOND, what: What::CaughtUp });
    assert_eq!(gateway.engine.books().late, 0);
    let idle = |result: &&&WindowResult| result.firing.cause == Cause::Idle;
    assert_eq!(gateway.windows().iter().filter(idle).count(), 0);
    let windows = |output: &Output| matches!(output, Output::Window(_));
    assert!(!gateway.outputs[told..].iter().any(windows), "nobody's silence grew");
    let on_time = gateway.windows().iter().filter(|result| result.firing.revision == 0).count();
    assert_eq!(on_time, 4 * 3, "noon, one and two o'clock of four devices");
    // It was silent for one minute when the broker went away, and is idle after four more of hearing.
    gateway.sleep_until(back + 2 * SECOND + 4 * MINUTE - 1);
    assert_eq!(gateway.device_watermark("north", "d4"), Some(NOON + 27 * MINUTE - 1));
    gateway.sleep_until(back + 2 * SECOND + 4 * MINUTE);
    let followed = back + 2 * SECOND + 2 * MINUTE - 1;
    assert_eq!(gateway.device_watermark("north", "d4"), Some(followed));
    assert_eq!(gateway.windows().iter().filter(idle).count(), 1);
    assert!(gateway.alerts() <= 10, "{}", gateway.alerts());
}
