//! Cases in which the engine was wrong once. `tests/model.rs` looks for more.

use std::collections::BTreeMap;

use super::*;
use crate::engine::input::{Publish, Topic};
use crate::engine::restore::Restorer;
use crate::engine::settings::{
    DeviceClass, Limits, MetricSpec, Policies, Policy, PolicyPatch, Revisions, SourceMetric,
    SourceSettings, WindowSpec,
};
use crate::event::{AlertKind, Output, TimeUnit};
use crate::wire::profile::{Condition, MetricField, Profile, ProfileSpec, Reference, TimeFormat};
use crate::wire::timestamp::Zone;

pub(super) const MINUTE: i64 = 60_000;
pub(super) const HOUR: i64 = 60 * MINUTE;
pub(super) const NOON: i64 = 1_795_953_600_000;

pub(super) fn item(pointer: &str) -> Reference {
    Reference::Item(pointer.into())
}

pub(super) fn spec() -> ProfileSpec {
    ProfileSpec {
        source: "meters".into(),
        subscribe: Vec::new(),
        topic: "meters".into(),
        device: item("/dev"),
        region: Reference::Const("north".into()),
        time: Some((item("/ts"), TimeFormat::EpochMs)),
        heartbeat: Some(Condition { from: item("/kind"), equals: vec!["heartbeat".into()] }),
        idle: None,
        ignore: None,
        items: Some("".into()),
        metrics: vec![MetricField { from: item("/v"), scale: 1.0 }],
    }
}

/// Meters in one region: hours and days, immediate revisions, the documented defaults.
pub(super) fn settings() -> Settings {
    let window = |name: &str, hours| WindowSpec {
        name: name.into(),
        size: Span::from_hours(hours),
        offset: Span::ZERO,
    };
    let sum = Aggregates { sum: true, ..Aggregates::default() };
    let policy = Policy { revisions: Revisions::Immediate, ..Policy::default() };
    Settings {
        scope: Scope::Device,
        clock: ClockRules::Applied,
        deduplicate: true,
        sources: vec![SourceSettings {
            profile: Profile::new(spec()).expect("a profile"),
            base: 0,
            multiples: vec![1],
            statuses: Vec::new(),
            expects: Vec::new(),
            metrics: vec![SourceMetric::new(0, sum)],
            live: false,
        }],
        windows: vec![window("hour", 1), window("day", 24)],
        metrics: vec![MetricSpec { name: "v".into(), unit: "".into() }],
        regions: Vec::new(),
        policies: Policies { default: policy, ..Policies::default() },
        region_rollups: true,
        watermark_interval: Span::from_mins(1),
        gap_after: Span::from_mins(1),
        gate: crate::engine::gate::GateSettings::default(),
        limits: Limits::default(),
    }
}

pub(super) struct Gateway {
    pub(super) engine: Engine,
    pub(super) store: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) outputs: Vec<Output>,
}

impl Gateway {
    /// Caught up at noon.
    pub(super) fn new(settings: Settings) -> Self {
        let engine = Engine::new(settings, Generation(7), ArrivalTime(0));
        let mut gateway = Self { engine, store: BTreeMap::new(), outputs: Vec::new() };
        gateway.handle(NOON, Input::Clock(ClockStatus::EXACT));
        gateway.handle(NOON, Input::Ingress(Ingress::CaughtUp));
        gateway
    }

    pub(super) fn handle(&mut self, at: i64, input: Input<'_>) {
        let mut effects = Effects::default();
        let now = Now { wall: ArrivalTime(at), mono: MonoTime(at - NOON) };
        self.engine.handle(input, now, &mut effects);
        self.engine.books().balance();
        self.outputs.extend(effects.outputs);
    }

    pub(super) fn send(&mut self, at: i64, payload: &str) {
        self.publish(at, payload, false);
    }

    pub(super) fn publish(&mut self, at: i64, payload: &str, retain: bool) {
        let topic = Topic::Name("meters");
        let payload = payload.as_bytes();
        self.handle(at, Input::Publish(Publish { topic, payload, retain, dup: false }));
    }

    fn tick(&mut self, at: i64) {
        self.handle(at, Input::Tick);
    }

    /// A clean end and a new start under `settings`.
    pub(super) fn restart(&mut self, at: i64, settings: Settings) {
        self.stop_and_start(settings);
        self.handle(at, Input::Clock(ClockStatus::EXACT));
        self.handle(at, Input::Ingress(Ingress::Up));
        self.handle(at, Input::Ingress(Ingress::CaughtUp));
    }

    /// The same, and nothing is known of the clock or heard yet.
    pub(super) fn stop_and_start(&mut self, settings: Settings) {
        for (key, value) in self.engine.checkpoint().changes {
            match value {
                Some(value) => drop(self.store.insert(key, value)),
                None => drop(self.store.remove(&key)),
            }
        }
        let mut restorer = Restorer::new(settings, Generation(7), ArrivalTime(0));
        for (key, value) in &self.store {
            restorer.take(key, value).expect("it was written by this version");
        }
        self.engine = restorer.finish();
    }

    /// Window, hours after noon at which it starts, revision and samples of all that was told of the devices.
    pub(super) fn windows(&self) -> Vec<(String, i64, u32, u32)> {
        let firing = |output: &Output| match output {
            Output::Window(result) => Some(result.firing.clone()),
            _ => None,
        };
        self.outputs.iter().filter_map(firing).map(|firing| told(&firing)).collect()
    }

    /// The same of the region.
    fn rollups(&self) -> Vec<(String, i64, u32, u32)> {
        let firing = |output: &Output| match output {
            Output::Region(result) => Some(result.firing.clone()),
            _ => None,
        };
        self.outputs.iter().filter_map(firing).map(|firing| told(&firing)).collect()
    }

    fn alerts(&self) -> Vec<AlertKind> {
        let kind = |output: &Output| match output {
            Output::Alert(alert) => Some(alert.kind),
            _ => None,
        };
        self.outputs.iter().filter_map(kind).collect()
    }
}

fn told(firing: &crate::event::Firing) -> (String, i64, u32, u32) {
    let start = (firing.start.0 - NOON) / HOUR;
    (firing.window.as_str().to_owned(), start, firing.revision, firing.samples)
}

fn of(window: &str, start: i64, revision: u32, samples: u32) -> (String, i64, u32, u32) {
    (window.to_owned(), start, revision, samples)
}

fn reading(device: &str, time: i64) -> String {
    format!("{{\"dev\":\"{device}\",\"ts\":{time},\"v\":1}}")
}

fn heartbeat(device: &str, time: i64) -> String {
    format!("{{\"dev\":\"{device}\",\"ts\":{time},\"kind\":\"heartbeat\"}}")
}

#[test]
fn an_idle_device_without_a_watermark_waits_for_nothing_after_a_restart() {
    let mut gateway = Gateway::new(settings());
    gateway.send(NOON, &reading("a", NOON + HOUR));
    gateway.tick(NOON + 6 * MINUTE);
    gateway.send(NOON + 6 * MINUTE, &reading("a", NOON + 2 * HOUR));
    gateway.restart(NOON + 6 * MINUTE, settings());
    gateway.tick(NOON + 10 * MINUTE);
    assert_eq!(gateway.engine.device_watermark("north", "a"), None);
}

#[test]
fn a_retained_reading_of_a_device_without_a_watermark_is_not_late() {
    let mut gateway = Gateway::new(settings());
    gateway.send(NOON, &reading("a", NOON + HOUR));
    gateway.tick(NOON + 6 * MINUTE);
    gateway.publish(NOON + 6 * MINUTE, &reading("a", NOON - 72 * HOUR), true);
    assert_eq!((gateway.engine.books().aggregated, gateway.engine.books().late), (1, 0));
    let followed = EventTime(NOON + 4 * MINUTE - 1);
    assert_eq!(gateway.engine.device_watermark("north", "a"), Some(followed));
    assert_eq!(gateway.windows(), [of("hour", -72, 0, 1), of("day", -84, 0, 1)]);
}

#[test]
fn a_retained_reading_with_an_unset_clock_is_ignored() {
    let mut gateway = Gateway::new(settings());
    gateway.publish(NOON, &reading("a", 5_000), true);
    gateway.publish(NOON, "{\"dev\":\"a\",\"v\":1}", true);
    assert_eq!(gateway.engine.books().retained_ignored, 2);
}

#[test]
fn the_order_of_the_windows_in_the_configuration_makes_no_difference() {
    let run = |settings: Settings| {
        let mut gateway = Gateway::new(settings);
        let last_hour = NOON + 12 * HOUR - MINUTE;
        gateway.send(last_hour, &reading("a", last_hour));
        gateway.send(NOON + 12 * HOUR, &heartbeat("a", NOON + 12 * HOUR));
        gateway.send(NOON + 13 * HOUR, &reading("a", last_hour - 1));
        gateway.send(NOON + 24 * HOUR, &heartbeat("a", NOON + 24 * HOUR));
        gateway.handle(NOON + 24 * HOUR, Input::End);
        let days = |mut told: Vec<(String, i64, u32, u32)>| {
            told.retain(|(window, ..)| window == "day");
            told
        };
        (days(gateway.windows()), days(gateway.rollups()))
    };
    let mut reversed = settings();
    reversed.windows.reverse();
    (reversed.sources[0].base, reversed.sources[0].multiples) = (1, vec![0]);
    assert_eq!(run(settings()), run(reversed));
    assert_eq!(run(settings()).0, [of("day", -12, 0, 1), of("day", -12, 1, 2)]);
}

#[test]
fn silence_that_was_listened_to_counts_after_a_restart() {
    let mut gateway = Gateway::new(settings());
    gateway.send(NOON, &reading("a", NOON));
    gateway.restart(NOON, settings());
    gateway.tick(NOON + 4 * MINUTE);
    gateway.restart(NOON + 4 * MINUTE, settings());
    gateway.tick(NOON + 5 * MINUTE);
    let followed = EventTime(NOON + 3 * MINUTE - 1);
    assert_eq!(gateway.engine.device_watermark("north", "a"), Some(followed));
}

#[test]
fn devices_that_close_at_one_moment_are_all_in_their_regions_rollup() {
    let mut gateway = Gateway::new(settings());
    for device in ["a", "b", "c"] {
        gateway.send(NOON + MINUTE, &reading(device, NOON + MINUTE));
    }
    gateway.tick(NOON + 4 * HOUR);
    assert_eq!(gateway.rollups(), [of("hour", 0, 0, 3)]);
    assert_eq!(gateway.engine.books().region_missed, 0);
    let place = |output: &Output| matches!(output, Output::Region(_));
    let is_result = |output: &&Output| matches!(output, Output::Window(_) | Output::Region(_));
    let windows = gateway.outputs.iter().filter(is_result);
    assert_eq!(windows.map(place).collect::<Vec<_>>(), [false, false, false, true]);
}

#[test]
fn a_message_of_many_devices_moves_them_as_one() {
    let mut gateway = Gateway::new(settings());
    for minute in [0, 45, 90] {
        let at = NOON + minute * MINUTE;
        let items: Vec<_> = ["a", "b", "c"].iter().map(|device| heartbeat(device, at)).collect();
        gateway.send(at, &format!("[{}]", items.join(",")));
    }
    assert_eq!(gateway.alerts(), []);
    let first = [heartbeat("d", NOON + 90 * MINUTE), reading("e", NOON + 30 * MINUTE)];
    let mut gateway = Gateway::new(settings());
    gateway.send(NOON + 90 * MINUTE, &format!("[{}]", first.join(",")));
    assert_eq!(gateway.alerts(), [AlertKind::HeldOut], "one hour behind from the beginning");
}

#[test]
fn a_device_that_may_lag_further_holds_its_region_longer() {
    let mut settings = settings();
    let patch = PolicyPatch { max_hold: Some(Span::from_hours(2)), ..PolicyPatch::default() };
    settings.policies.devices.push((DeviceClass::Pattern("slow*".into()), patch));
    let mut gateway = Gateway::new(settings);
    let behind = ["slow", "e"].map(|device| heartbeat(device, NOON + 15 * MINUTE));
    let items = [heartbeat("d", NOON + 90 * MINUTE), behind.join(",")];
    gateway.send(NOON + 90 * MINUTE, &format!("[{}]", items.join(",")));
    assert_eq!(gateway.alerts(), [AlertKind::HeldOut], "only that which may not");
    let held = EventTime(NOON + 15 * MINUTE);
    assert_eq!(gateway.engine.region_watermark("north"), Some(held));
}

#[test]
fn silent_devices_leave_one_behind_that_lags() {
    let mut gateway = Gateway::new(settings());
    gateway.send(NOON, &heartbeat("a", NOON));
    gateway.send(NOON, &heartbeat("b", NOON));
    for minute in 1..60 {
        let at = NOON + minute * MINUTE;
        gateway.send(at, &heartbeat("b", NOON + minute)); // out of its buffer, slowly
    }
    assert_eq!(gateway.alerts(), [AlertKind::HeldOut]);
    let followed = EventTime(NOON + 57 * MINUTE - 1);
    assert_eq!(gateway.engine.region_watermark("north"), Some(followed));
}

#[test]
fn a_window_is_final_at_its_last_instant_and_the_allowed_lateness() {
    let final_at = NOON + 3 * HOUR - 1;
    for (watermark, late) in [(final_at - 1, 0), (final_at, 1)] {
        let mut gateway = Gateway::new(settings());
        gateway.send(watermark, &heartbeat("a", watermark));
        gateway.send(watermark, &reading("a", NOON + MINUTE));
        assert_eq!(gateway.engine.books().late, late, "{}", watermark - final_at);
    }
}

/// Devices whose name begins with `z` keep their windows open for a day.
fn with_buffers() -> Settings {
    let mut settings = settings();
    let patch =
        PolicyPatch { allowed_lateness: Some(Span::from_hours(24)), ..PolicyPatch::default() };
    settings.policies.devices.push((DeviceClass::Pattern("z*".into()), patch));
    settings
}

#[test]
fn a_rollup_that_was_final_is_not_begun_again_for_a_device_that_joins() {
    let mut gateway = Gateway::new(with_buffers());
    gateway.send(NOON + MINUTE, &reading("a", NOON + MINUTE));
    gateway.send(NOON + 4 * HOUR, &heartbeat("a", NOON + 4 * HOUR));
    gateway.send(NOON + 4 * HOUR, &reading("z", NOON + MINUTE));
    gateway.tick(NOON + 7 * HOUR);
    assert_eq!(gateway.rollups(), [of("hour", 0, 0, 1)]);
    assert_eq!(gateway.windows(), [of("hour", 0, 0, 1), of("hour", 0, 0, 1)]);
}

#[test]
fn a_window_that_was_final_is_not_begun_again_under_a_longer_allowed_lateness() {
    let mut gateway = Gateway::new(settings());
    gateway.send(NOON + MINUTE, &reading("a", NOON + MINUTE));
    gateway.send(NOON + 4 * HOUR, &heartbeat("a", NOON + 4 * HOUR));
    let mut longer = settings();
    longer.policies.default.allowed_lateness = Span::from_hours(24);
    gateway.restart(NOON + 4 * HOUR, longer);
    gateway.send(NOON + 4 * HOUR, &reading("a", NOON + 2 * MINUTE));
    gateway.send(NOON + 4 * HOUR, &reading("a", NOON + 61 * MINUTE));
    assert_eq!(gateway.engine.books().late, 1, "what was never told may still be");
    assert_eq!(gateway.windows(), [of("hour", 0, 0, 1), of("hour", 1, 0, 1)]);
}

#[test]
fn a_clock_that_gets_its_time_does_not_tell_decades_of_watermarks() {
    let mut gateway = Gateway::new(settings());
    gateway.send(NOON, &reading("a", NOON));
    gateway.tick(NOON + 6 * MINUTE);
    gateway.tick(NOON + 400_000 * HOUR);
    let reports = gateway.outputs.iter().filter(|output| matches!(output, Output::Watermark(_)));
    assert!(reports.count() < 20);
    gateway.tick(i64::MAX);
}

#[test]
fn the_views_tell_devices_by_state_and_regions_at_any_moment() {
    let mut gateway = Gateway::new(settings());
    for (device, time) in [("a", NOON), ("b", NOON), ("c", NOON + HOUR)] {
        gateway.send(NOON, &reading(device, time));
    }
    gateway.tick(NOON + 6 * MINUTE);
    gateway.send(NOON + 6 * MINUTE, &heartbeat("a", NOON + 6 * MINUTE));
    let counts = gateway.engine.device_counts();
    let of = (counts.active, counts.idle, counts.following, counts.without_time);
    assert_eq!(of, (1, 0, 1, 1), "a is heard, b follows the clock, c never had a time");

    let later = NOON + 8 * MINUTE - 1;
    let now = Now { wall: ArrivalTime(later), mono: MonoTime(later - NOON) };
    let view = gateway.engine.region_views(now).next().expect("a region");
    let follows = EventTime(later - 2 * MINUTE - 1);
    assert_eq!((view.watermark, view.devices), (Some(follows), 3), "the clock is applied");
    assert_eq!(view.usual_lag, Span::from_mins(7), "lateness and idle timeout");
    assert!(gateway.engine.region_watermark("north") < Some(follows), "and nothing has moved");

    gateway.send(NOON + 8 * MINUTE, "{");
    let seen: Vec<_> = gateway.engine.refused().iter().map(|seen| seen.reason).collect();
    assert_eq!(seen, [Some(crate::event::Reason::Syntax), Some(crate::event::Reason::Future)]);
    gateway.restart(NOON + 9 * MINUTE, settings());
    let books = gateway.engine.books();
    assert_eq!((books.future, books.syntax, books.by_reason()), (1, 1, (1, 1)));
}

/// The same meters, with times as `format` says.
pub(super) fn settings_with_times(format: TimeFormat) -> Settings {
    let mut settings = settings();
    let spec = ProfileSpec { time: Some((item("/ts"), format)), ..spec() };
    settings.sources[0].profile = Profile::new(spec).expect("a profile");
    settings
}

#[test]
fn the_unit_of_a_device_is_known_after_a_restart() {
    let settings = || settings_with_times(TimeFormat::Auto(None));
    let mut gateway = Gateway::new(settings());
    let seconds = |at: i64| reading("a", at / 1_000);
    let change = |before, unit| AlertKind::UnitChanged { before, unit };
    let (there, back) = (
        change(TimeUnit::Seconds, TimeUnit::Milliseconds),
        change(TimeUnit::Milliseconds, TimeUnit::Seconds),
    );
    gateway.send(NOON, &seconds(NOON));
    gateway.restart(NOON + MINUTE, settings());
    gateway.send(NOON + 2 * MINUTE, &reading("a", NOON + 2 * MINUTE));
    assert_eq!(gateway.alerts(), [there]);
    // A snapshot that stands alone has it too, and another configuration makes one.
    let mut other = settings();
    other.windows.reverse();
    (other.sources[0].base, other.sources[0].multiples) = (1, vec![0]);
    gateway.restart(NOON + 3 * MINUTE, other);
    gateway.restart(NOON + 4 * MINUTE, settings());
    gateway.send(NOON + 5 * MINUTE, &reading("a", NOON + 5 * MINUTE));
    gateway.send(NOON + 6 * MINUTE, &seconds(NOON + 6 * MINUTE));
    gateway.restart(NOON + 7 * MINUTE, settings());
    gateway.send(NOON + 8 * MINUTE, &reading("a", NOON + 8 * MINUTE));
    assert_eq!(gateway.alerts(), [there, back], "each once, whatever is restarted");
}

#[test]
fn a_times_unit_counts_where_it_is_live_and_accepted() {
    let mut gateway = Gateway::new(settings_with_times(TimeFormat::Auto(None)));
    gateway.send(NOON, &reading("a", NOON));
    gateway.send(NOON + 1, &reading("a", 5)); // an unset clock, in seconds by its magnitude
    gateway.send(NOON + 2, &reading("a", NOON / 1_000 + 3_600)); // ahead: quarantined
    gateway.publish(NOON + 3, &reading("a", NOON / 1_000 + 1), true); // retained
    assert_eq!(gateway.alerts(), []);
}

/// When Amsterdam has its 02:00 for the first time on the day of 2026 that has two.
const REPEATED: i64 = 1_792_886_400_000;

fn amsterdam() -> Settings {
    let zone = Zone::named("Europe/Amsterdam").expect("a zone");
    settings_with_times(TimeFormat::Local(zone))
}

/// A reading at so many minutes after 02:00.
fn at_two(minutes: i64) -> String {
    format!(r#"{{"dev":"a","ts":"2026-10-25T02:{minutes:02}:00","v":1}}"#)
}

#[test]
fn a_buffer_in_one_message_goes_through_both_hours_in_order() {
    let mut gateway = Gateway::new(amsterdam());
    let minutes = [0, 20, 40, 0, 20, 40].map(at_two);
    gateway.send(REPEATED + 12 * HOUR, &format!("[{}]", minutes.join(",")));
    gateway.handle(REPEATED + 12 * HOUR, Input::End);
    let mut hours = gateway.windows();
    hours.retain(|(window, ..)| window == "hour");
    let samples: Vec<_> = hours.iter().map(|(_, hour, _, samples)| (hour, *samples)).collect();
    let first = (REPEATED - NOON).div_euclid(HOUR);
    assert_eq!(samples, [(&first, 3), (&(first + 1), 3)]);
}

#[test]
fn a_redelivery_in_the_second_hour_is_still_of_the_first() {
    let mut gateway = Gateway::new(amsterdam());
    gateway.send(REPEATED + 30 * MINUTE, &at_two(30));
    let again = |gateway: &mut Gateway, dup| {
        let (topic, payload) = (Topic::Name("meters"), at_two(30));
        let publish = Publish { topic, payload: payload.as_bytes(), retain: false, dup };
        gateway.handle(REPEATED + 90 * MINUTE, Input::Publish(publish));
        (gateway.engine.books().duplicate, gateway.engine.books().aggregated)
    };
    assert_eq!(again(&mut gateway, true), (1, 1));
    assert_eq!(again(&mut gateway, false), (1, 2), "the second hour's own");
}
