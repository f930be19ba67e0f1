//! A gateway that does not know the time, with what it holds in a store.

use std::collections::BTreeMap;

use crate::engine::Engine;
use crate::engine::books::Books;
use crate::engine::deadline::DeadlineReason;
use crate::engine::effect::Effects;
use crate::engine::gate::GateSettings;
use crate::engine::input::{Ingress, Input, Publish, Topic};
use crate::engine::loss::Loss;
use crate::engine::restore::Restorer;
use crate::engine::settings::Settings;
use crate::engine::tests::{HOUR, MINUTE, NOON, settings};
use crate::event::{Output, Reason};
use crate::ids::Generation;
use crate::time::{ArrivalTime, ClockQuality, ClockStatus, MonoTime, Now, Span};

/// What the clock says while nobody knows the time: 13 days too little.
const WRONG: i64 = -13 * 24 * HOUR;

/// A gateway whose monotonic time is 0 at noon in its first boot. `at` is the true time everywhere.
struct Gateway {
    settings: fn() -> Settings,
    engine: Engine,
    store: BTreeMap<Vec<u8>, Vec<u8>>,
    outputs: Vec<Output>,
    boot: u128,
    booted: i64,
    /// How far its clock is from the true time.
    error: i64,
}

impl Gateway {
    /// Caught up at noon, with a wrong clock.
    fn new(settings: fn() -> Settings) -> Self {
        let engine = Engine::new(settings(), Generation(7), ArrivalTime(0));
        let (store, outputs) = (BTreeMap::new(), Vec::new());
        let (boot, booted) = (1, NOON);
        let mut gateway = Self { settings, engine, store, outputs, boot, booted, error: WRONG };
        gateway.start(NOON, ClockStatus::UNSYNCHRONISED);
        gateway
    }

    fn start(&mut self, at: i64, status: ClockStatus) {
        self.handle(at, Input::Boot(self.boot));
        self.handle(at, Input::Clock(status));
        self.handle(at, Input::Ingress(Ingress::Up));
        self.handle(at, Input::Ingress(Ingress::CaughtUp));
    }

    fn now(&self, at: i64) -> Now {
        Now { wall: ArrivalTime(at + self.error), mono: MonoTime(at - self.booted) }
    }

    fn handle(&mut self, at: i64, input: Input<'_>) {
        let mut effects = Effects::default();
        self.engine.handle(input, self.now(at), &mut effects);
        self.engine.books().balance();
        self.outputs.extend(effects.outputs);
        while let Some(wanted) = self.engine.held_wanted() {
            self.commit();
            let found = self.store.range(wanted).take(2);
            let found: Vec<_> = found.map(|(key, value)| (key.clone(), value.clone())).collect();
            let mut effects = Effects::default();
            for (key, value) in &found {
                self.engine.handle(Input::Held { key, value }, self.now(at), &mut effects);
                self.engine.books().balance();
            }
            if found.len() < 2 {
                self.engine.handle(Input::HeldEnd, self.now(at), &mut effects);
            }
            self.commit();
            self.outputs.extend(effects.outputs);
        }
    }

    fn send(&mut self, at: i64, payload: &str) {
        self.publish(at, payload, false);
    }

    fn publish(&mut self, at: i64, payload: &str, dup: bool) {
        let (topic, payload) = (Topic::Name("meters"), payload.as_bytes());
        self.handle(at, Input::Publish(Publish { topic, payload, retain: false, dup }));
    }

    /// The clock gets the time.
    fn synchronise(&mut self, at: i64) {
        self.error = 0;
        self.handle(at, Input::Clock(ClockStatus::EXACT));
    }

    fn commit(&mut self) {
        for (key, value) in self.engine.checkpoint().changes {
            match value {
                Some(value) => drop(self.store.insert(key, value)),
                None => drop(self.store.remove(&key)),
            }
        }
    }

    /// The process ends without a word and starts again from the store.
    fn restart(&mut self, at: i64, status: ClockStatus) {
        let mut restorer = Restorer::new((self.settings)(), Generation(7), ArrivalTime(0));
        for (key, value) in &self.store {
            restorer.take(key, value).expect("it was written by this version");
        }
        assert_eq!(restorer.losses(), []);
        self.engine = restorer.finish();
        self.start(at, status);
    }

    fn reboot(&mut self, at: i64) {
        (self.boot, self.booted) = (self.boot + 1, at - 7_000);
    }

    fn books(&self) -> &Books {
        self.engine.books()
    }

    /// Device times in minutes after noon, reason and arrival of what was refused.
    fn refused(&self) -> Vec<(Option<i64>, Reason, Option<i64>)> {
        let minutes = |time: i64| (time - NOON) / MINUTE;
        let refused = self.outputs.iter().filter_map(|output| match output {
            Output::Refused(refused) => Some((
                refused.device_time.map(minutes),
                refused.reason,
                refused.arrival.map(|at| minutes(at.0)),
            )),
            _ => None,
        });
        refused.collect()
    }

    /// Start in hours after noon, samples, stamped ones and clock of all that was told of devices' hours.
    fn hours(&self) -> Vec<(i64, u32, u32, ClockQuality)> {
        let hours = self.outputs.iter().filter_map(|output| match output {
            Output::Window(result) if result.firing.window.as_str() == "hour" => {
                Some(&result.firing)
            }
            _ => None,
        });
        hours.map(|f| ((f.start.0 - NOON) / HOUR, f.samples, f.stamped, f.clock)).collect()
    }
}

fn reading(device: &str, time: i64) -> String {
    format!(r#"{{"dev":"{device}","ts":{time},"v":1}}"#)
}

fn heartbeat(device: &str, time: i64) -> String {
    format!(r#"{{"dev":"{device}","ts":{time},"kind":"heartbeat"}}"#)
}

const TIMELESS: &str = r#"{"dev":"t","v":1}"#;

#[test]
fn pain_8_what_came_before_the_time_was_known_is_in_the_right_hour() {
    let mut gateway = Gateway::new(settings);
    for minute in 0..40 {
        let at = NOON + minute * 4_000;
        gateway.send(at, &format!(r#"{{"dev":"t","v":{minute}}}"#));
    }
    assert_eq!((gateway.books().received, gateway.books().held), (40, 40));
    assert!(gateway.outputs.is_empty(), "{:?}", gateway.outputs);
    gateway.synchronise(NOON + 4 * MINUTE);
    assert_eq!((gateway.books().held, gateway.books().stamped), (0, 40));
    gateway.send(NOON + HOUR + 3 * MINUTE, &reading("t", NOON + HOUR + 3 * MINUTE));
    assert_eq!(gateway.hours(), [(0, 40, 40, ClockQuality::Synchronised)]);
}

#[test]
fn a_good_clock_at_the_start_holds_nothing() {
    let mut gateway = Gateway::new(settings);
    gateway.synchronise(NOON);
    gateway.send(NOON, &reading("a", NOON));
    assert_eq!((gateway.books().held, gateway.books().aggregated), (0, 1));
    assert!(gateway.engine.holding(gateway.now(NOON)).waiting.is_none());
}

#[test]
fn after_the_timeout_records_with_a_time_are_processed_and_marked_and_the_others_stay() {
    let mut gateway = Gateway::new(settings);
    let mixed = format!("[{},{TIMELESS}]", reading("b", NOON));
    for payload in [reading("a", NOON), TIMELESS.into(), mixed, reading("a", 5_000)] {
        gateway.send(NOON + MINUTE, &payload);
    }
    assert_eq!(gateway.engine.next_deadline().map(|it| it.0), Some(MonoTime(5 * MINUTE)));
    gateway.handle(NOON + 5 * MINUTE - 1, Input::Tick);
    assert_eq!(gateway.books().held, 4);
    gateway.handle(NOON + 5 * MINUTE, Input::Tick);
    assert_eq!((gateway.books().held, gateway.books().aggregated), (3, 1));
    gateway.send(NOON + 6 * MINUTE, &reading("a", NOON + 6 * MINUTE));
    gateway.send(NOON + 6 * MINUTE, TIMELESS);
    assert_eq!((gateway.books().held, gateway.books().aggregated), (4, 2));
    gateway.send(NOON + 63 * MINUTE, &reading("a", NOON + 63 * MINUTE));
    assert_eq!(gateway.hours(), [(0, 2, 0, ClockQuality::Unsynchronised)]);
    gateway.synchronise(NOON + 64 * MINUTE);
    // Stamped with when it came, and its hour told again; what is of two hours ago is not late, but of device b.
    let books = *gateway.books();
    assert_eq!((books.held, books.aggregated, books.stamped, books.quarantined), (0, 8, 4, 0));
}

#[test]
fn what_is_held_survives_a_restart_of_the_process_and_keeps_its_arrival() {
    let mut gateway = Gateway::new(settings);
    gateway.send(NOON + MINUTE, TIMELESS);
    gateway.commit();
    gateway.send(NOON + 2 * MINUTE, TIMELESS); // never acknowledged
    gateway.restart(NOON + 3 * MINUTE, ClockStatus::UNSYNCHRONISED);
    assert_eq!((gateway.books().received, gateway.books().held), (1, 1));
    gateway.publish(NOON + 3 * MINUTE, TIMELESS, true);
    gateway.commit();
    gateway.error = 0;
    gateway.restart(NOON + 70 * MINUTE, ClockStatus::EXACT);
    gateway.handle(NOON + 200 * MINUTE, Input::Tick);
    assert_eq!(gateway.hours(), [(0, 1, 1, ClockQuality::Synchronised)], "one was a redelivery");
    assert_eq!(gateway.books().duplicate, 1);
}

#[test]
fn a_redelivery_of_what_is_held_is_one_whenever_it_is_processed() {
    let mut gateway = Gateway::new(settings);
    gateway.send(NOON, TIMELESS);
    gateway.send(NOON, TIMELESS); // two readings
    gateway.send(NOON, &reading("a", NOON));
    gateway.handle(NOON + 1, Input::Ingress(Ingress::Up));
    for payload in [TIMELESS, TIMELESS, TIMELESS, &reading("a", NOON)] {
        gateway.publish(NOON + 1, payload, true); // one more than was delivered
    }
    gateway.synchronise(NOON + 2);
    assert_eq!((gateway.books().aggregated, gateway.books().duplicate), (4, 3));
    gateway.handle(NOON + 3, Input::Ingress(Ingress::Up));
    gateway.publish(NOON + 3, TIMELESS, true);
    assert_eq!((gateway.books().aggregated, gateway.books().duplicate), (4, 4));
}

#[test]
fn of_a_boot_without_the_time_a_device_time_is_kept_where_it_can_be() {
    let mut gateway = Gateway::new(settings);
    gateway.synchronise(NOON); // the last good time
    gateway.handle(NOON + MINUTE, Input::Tick);
    gateway.commit();
    gateway.error = WRONG;
    gateway.reboot(NOON + 10 * MINUTE);
    gateway.restart(NOON + 10 * MINUTE, ClockStatus::UNSYNCHRONISED);
    assert_eq!(gateway.engine.last_good(), Some(ArrivalTime(NOON + MINUTE)));
    for minute in [0, 11, 40] {
        gateway.send(NOON + 11 * MINUTE, &reading("a", NOON + minute * MINUTE));
    }
    gateway.send(NOON + 11 * MINUTE, TIMELESS);
    gateway.commit();
    gateway.reboot(NOON + 20 * MINUTE);
    gateway.restart(NOON + 20 * MINUTE, ClockStatus::UNSYNCHRONISED);
    gateway.send(NOON + 21 * MINUTE, TIMELESS);
    assert_eq!((gateway.books().held, gateway.outputs.len()), (5, 0));
    gateway.synchronise(NOON + 22 * MINUTE);
    let no_time = |time| (time, Reason::NoTime, None);
    assert_eq!(gateway.refused(), [no_time(Some(0)), no_time(Some(40)), no_time(None)]);
    assert_eq!((gateway.books().aggregated, gateway.books().stamped), (2, 1));
}

fn small_quota() -> Settings {
    let gate = GateSettings { quota: 1_000, ..GateSettings::default() };
    Settings { gate, ..settings() }
}

#[test]
fn beyond_the_quota_the_oldest_go_and_are_told() {
    let mut gateway = Gateway::new(small_quota);
    gateway.send(NOON, &reading("a", NOON));
    for second in 0..40 {
        gateway.send(NOON + second * 1_000, TIMELESS);
        assert!(gateway.engine.holding(gateway.now(NOON)).bytes <= 1_000);
    }
    let books = *gateway.books();
    assert_eq!(books.aggregated, 1, "it has a time of its own");
    assert!(books.no_time >= 20 && books.no_time + books.held == 40, "{books:?}");
    assert_eq!(gateway.refused().len() as u64, books.no_time);
    let held = gateway.store.keys().filter(|key| key[0] == super::HELD).count() as u64;
    gateway.synchronise(NOON + 50_000);
    assert!(held > 0 && gateway.books().stamped == books.held, "{:?}", gateway.books());
}

/// Synchronised at noon; three devices report each minute.
fn three_devices(devices: &[&str]) -> Gateway {
    let mut gateway = Gateway::new(settings);
    gateway.synchronise(NOON);
    for minute in 0..10 {
        report(&mut gateway, minute, devices);
    }
    gateway
}

fn report(gateway: &mut Gateway, minute: i64, devices: &[&str]) {
    let at = NOON + minute * MINUTE;
    for device in devices {
        let at = at + i64::from(device.as_bytes()[0]);
        gateway.send(at, &reading(device, at));
        gateway.send(at, &heartbeat(device, at));
    }
}

const BAD: ClockStatus =
    ClockStatus { quality: ClockQuality::Holdover, bound: Span::from_mins(10) };

#[test]
fn without_a_good_clock_the_median_of_three_devices_closes_the_hour_of_a_silent_one() {
    for (devices, closes) in [(&["a", "b", "c"][..], true), (&["a", "b"][..], false)] {
        let mut gateway = three_devices(devices);
        gateway.send(NOON + 9 * MINUTE + 200, &reading("s", NOON + 9 * MINUTE));
        gateway.handle(NOON + 10 * MINUTE, Input::Clock(BAD));
        gateway.error = 20 * HOUR; // whatever it says
        for minute in 10..24 * 60 {
            report(&mut gateway, minute, devices);
        }
        assert_eq!(gateway.engine.last_good(), Some(ArrivalTime(NOON + 10 * MINUTE)));
        let of = |device: &str| {
            let hours = gateway.outputs.iter().filter_map(|output| match output {
                Output::Window(it)
                    if it.device.as_str() == device && it.firing.window.as_str() == "hour" =>
                {
                    Some((it.firing.watermark.map(|w| w.0), it.firing.clock))
                }
                _ => None,
            });
            hours.collect::<Vec<_>>()
        };
        let silent = of("s");
        let reporting = of("a");
        assert!(reporting.len() == 23 && reporting.iter().all(|it| it.1 == ClockQuality::Holdover));
        let told = [(Some(NOON + HOUR - 1), ClockQuality::Holdover)];
        assert_eq!(silent, if closes { &told[..] } else { &[] }, "{devices:?}");
        assert_eq!((gateway.books().late, gateway.books().quarantined), (0, 0));
    }
}

#[test]
fn the_guards_go_by_the_median_and_by_nothing_where_there_is_none() {
    for (devices, refused) in [(&["a", "b", "c"][..], 1), (&["a", "b"][..], 0)] {
        let mut gateway = three_devices(devices);
        gateway.handle(NOON + 10 * MINUTE, Input::Clock(ClockStatus::UNSYNCHRONISED));
        gateway.error = -2 * HOUR;
        report(&mut gateway, 11, devices);
        assert_eq!(gateway.books().quarantined, 0, "a wrong clock refuses nothing");
        let at = NOON + 12 * MINUTE;
        gateway.send(at, &reading("x", at + 20_000));
        gateway.send(at, &reading("y", at + HOUR));
        assert_eq!(gateway.books().future, refused, "{devices:?}");
    }
}

#[test]
fn pain_15_a_clock_that_is_set_to_and_fro_closes_nothing_early() {
    let mut gateway = three_devices(&["a", "b", "c"]);
    for minute in 10..130 {
        let at = NOON + minute * MINUTE;
        if minute % 7 == 0 {
            gateway.error = [2 * HOUR, -2 * HOUR, 0][usize::try_from(minute).unwrap() % 3];
            let suspect = ClockStatus { quality: ClockQuality::Suspect, bound: Span::MAX };
            let status = if gateway.error == 0 { ClockStatus::EXACT } else { suspect };
            gateway.handle(at, Input::Clock(status));
        }
        report(&mut gateway, minute, &["a", "b", "c"]);
        let told = gateway.hours();
        let early = told.iter().filter(|hour| NOON + (hour.0 + 1) * HOUR > at + MINUTE);
        assert_eq!(early.count(), 0, "minute {minute}: {told:?}");
    }
    let books = *gateway.books();
    assert_eq!((books.late, books.quarantined, gateway.hours().len()), (0, 0, 6));
    assert_eq!(gateway.engine.device_counts().active, 3);
}

#[test]
fn a_stand_in_never_moves_back_and_outlives_a_restart() {
    let mut gateway = three_devices(&["a", "b", "c"]);
    gateway.send(NOON + 9 * MINUTE + 200, &reading("s", NOON + 9 * MINUTE));
    gateway.handle(NOON + 10 * MINUTE, Input::Clock(BAD));
    for minute in 10..40 {
        report(&mut gateway, minute, &["a", "b", "c"]);
    }
    let before = gateway.engine.device_watermark("north", "s");
    assert_eq!(before.map(|w| w.0), Some(NOON + 37 * MINUTE + 98));
    gateway.commit();
    gateway.restart(NOON + 41 * MINUTE, BAD);
    assert_eq!(gateway.engine.device_watermark("north", "s"), before);
    gateway.synchronise(NOON + 42 * MINUTE);
    let after = gateway.engine.device_watermark("north", "s");
    assert_eq!(after.map(|w| w.0), Some(NOON + 40 * MINUTE - 1));
}

#[test]
fn a_clock_that_is_set_with_the_news_that_it_is_not_good_moves_nothing() {
    let mut gateway = three_devices(&["a", "b", "c"]);
    gateway.error = 20 * HOUR;
    gateway.handle(NOON + 10 * MINUTE, Input::Clock(BAD));
    assert_eq!(gateway.engine.last_good(), Some(ArrivalTime(NOON + 10 * MINUTE)));
}

#[test]
fn a_third_device_that_reports_without_a_good_clock_wakes_the_engine_for_those_that_are_silent() {
    let mut gateway = three_devices(&["a", "b"]);
    gateway.handle(NOON + 10 * MINUTE, Input::Clock(BAD));
    gateway.handle(NOON + 30 * MINUTE, Input::Tick);
    // Nothing but what time it is: no window of it has to be closed.
    gateway.send(NOON + 59 * MINUTE, &heartbeat("c", NOON + 59 * MINUTE));
    let closes = |gateway: &Gateway| {
        let clock = gateway.engine.next_deadline();
        clock.filter(|(_, reason)| *reason != DeadlineReason::Publish).map(|(at, _)| at.0 / MINUTE)
    };
    for minute in 60..70 {
        if gateway.hours().is_empty() {
            assert!(closes(&gateway).is_none_or(|at| at >= minute - 1), "woken for nothing");
        }
        gateway.handle(NOON + minute * MINUTE, Input::Tick);
    }
    assert_eq!(gateway.hours().len(), 2, "all of noon: {:?}", gateway.hours());
    let told = gateway.outputs.iter().filter_map(|output| match output {
        Output::Window(result) => Some(result.firing.watermark.map(|w| (w.0 - NOON) / MINUTE)),
        _ => None,
    });
    assert!(told.eq([Some(59); 2]), "as soon as it is over");
}

#[test]
fn what_a_damaged_store_has_lost_of_what_was_held_is_said_and_the_rest_is_used() {
    let mut gateway = Gateway::new(settings);
    for second in 0..3 {
        gateway.send(NOON + second, TIMELESS);
    }
    gateway.commit();
    assert!(gateway.store.remove(&super::key(super::HELD, &1_u64.to_be_bytes())).is_some());
    let mut restorer = Restorer::new(settings(), Generation(7), ArrivalTime(0));
    for (key, value) in &gateway.store {
        restorer.take(key, value).expect("it was written by this version");
    }
    assert_eq!(restorer.losses(), [Loss::Held(1)]);
    gateway.engine = restorer.finish();
    gateway.start(NOON + MINUTE, ClockStatus::UNSYNCHRONISED);
    gateway.synchronise(NOON + MINUTE);
    let books = *gateway.books();
    assert_eq!((books.received, books.held, books.aggregated, books.lost), (2, 0, 2, 1));
}

#[test]
fn a_smaller_quota_holds_from_the_next_start_on() {
    let mut gateway = Gateway::new(settings);
    for number in 0..20 {
        gateway.send(NOON + number, TIMELESS);
    }
    gateway.commit();
    gateway.settings = || {
        let mut settings = settings();
        settings.gate.quota = 600;
        settings
    };
    gateway.restart(NOON + MINUTE, ClockStatus::UNSYNCHRONISED);
    let Books { received, held, quarantined, .. } = *gateway.books();
    assert_eq!((received, held + quarantined), (20, 20));
    assert!((1..15).contains(&held), "{held}");
    assert!(gateway.engine.holding(gateway.now(NOON + MINUTE)).bytes <= 600);
}
mod presence;
