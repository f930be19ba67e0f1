//! Any single record is lost or spoilt: the rest is carried on as if nothing had happened to it.
//!
//! Two engines are restored from the store of one morning, one of them without the record, and hear the same
//! afternoon. What each kind of record may change is written down in [`affected`]; all else is compared to the byte.

use std::collections::BTreeMap;

use super::*;
use crate::engine::codec::{Reader, Writer};
use crate::engine::correction::DeviceClock;
use crate::engine::effect::Effects;
use crate::engine::input::{Ingress, Input, Publish, Topic};
use crate::engine::records::rollup_record;
use crate::engine::settings::{Combine, Policy, Revisions, Scope, SourceMetric, SourceSettings};
use crate::engine::tests::{MINUTE, NOON, item, settings};
use crate::event::{Firing, Output, PresenceState};
use crate::time::{ClockStatus, MonoTime, Now};
use crate::wire::profile::{Condition, MetricField, Profile, ProfileSpec, TimeFormat};

type Store = BTreeMap<Vec<u8>, Vec<u8>>;

fn profile(name: &str, timed: bool) -> Profile {
    let spec = ProfileSpec {
        source: name.into(),
        subscribe: Vec::new(),
        topic: name.into(),
        device: item("/dev"),
        region: item("/reg"),
        time: timed.then(|| (item("/ts"), TimeFormat::EpochMs)),
        heartbeat: Some(Condition { from: item("/kind"), equals: vec!["heartbeat".into()] }),
        idle: None,
        ignore: None,
        items: None,
        metrics: vec![MetricField { from: item("/v"), scale: 1.0 }],
    };
    Profile::new(spec).expect("a profile")
}

/// Two regions, devices with a time and without one.
fn two_sources(revisions: Revisions) -> Settings {
    let mut settings = settings();
    let source = |name: &str, timed| SourceSettings {
        profile: profile(name, timed),
        base: 0,
        multiples: vec![1],
        statuses: Vec::new(),
        expects: Vec::new(),
        metrics: vec![SourceMetric::new(0, settings.sources[0].metrics[0].aggregates)],
        live: false,
    };
    settings.sources = vec![source("meters", true), source("plain", false)];
    settings.policies.default.revisions = revisions;
    settings
}

struct Gateway {
    engine: Engine,
    outputs: Vec<Output>,
}

impl Gateway {
    /// Whose clock is good.
    fn new(engine: Engine) -> Self {
        let mut gateway = Self { engine, outputs: Vec::new() };
        gateway.handle(0, Input::Clock(ClockStatus::EXACT));
        gateway
    }

    fn handle(&mut self, minute: i64, input: Input<'_>) {
        let at = NOON + minute * MINUTE;
        let now = Now { wall: ArrivalTime(at), mono: MonoTime(at - NOON) };
        let mut effects = Effects::default();
        self.engine.handle(input, now, &mut effects);
        self.engine.books().balance();
        self.outputs.extend(effects.outputs);
    }

    fn send(&mut self, minute: i64, (topic, payload): &(&'static str, String), dup: bool) {
        let payload = payload.as_bytes();
        let topic = Topic::Name(topic);
        self.handle(minute, Input::Publish(Publish { topic, payload, retain: false, dup }));
    }

    fn commit(&mut self, store: &mut Store) {
        for (key, value) in self.engine.checkpoint().changes {
            match value {
                Some(value) => drop(store.insert(key, value)),
                None => drop(store.remove(&key)),
            }
        }
    }

    fn caught_up(&mut self, minute: i64) {
        self.handle(minute, Input::Clock(ClockStatus::EXACT));
        self.handle(minute, Input::Ingress(Ingress::Up));
        self.handle(minute, Input::Ingress(Ingress::CaughtUp));
    }
}

type Message = (&'static str, String);

fn reading(region: &str, device: &str, minute: i64) -> Message {
    let (ts, v) = (NOON + minute * MINUTE, minute % 7);
    ("meters", format!(r#"{{"reg":"{region}","dev":"{device}","ts":{ts},"v":{v}}}"#))
}

fn heartbeat(region: &str, device: &str, minute: i64) -> Message {
    let ts = NOON + minute * MINUTE;
    ("meters", format!(r#"{{"reg":"{region}","dev":"{device}","ts":{ts},"kind":"heartbeat"}}"#))
}

/// What is heard at a minute: `a` and `c` with heartbeats, `b` without, `d` falls silent, `p` has no time, `r` is alone
/// in its region. Some is late, some too late, some from the future.
fn heard(minute: i64) -> Vec<Message> {
    let mut heard = vec![reading("north", "b", minute)];
    for (region, device) in [("north", "a"), ("south", "c"), ("west", "r")] {
        heard.extend([reading(region, device, minute), heartbeat(region, device, minute)]);
    }
    if minute < 30 {
        heard.push(reading("south", "d", minute));
    }
    heard.push(("plain", format!(r#"{{"reg":"south","dev":"p","v":{}}}"#, minute % 3)));
    match minute % 60 {
        20 => heard.push(reading("north", "a", minute - 61)),
        40 => heard.push(reading("south", "c", minute - 301)),
        50 => {
            let (topic, payload) = reading("north", "b", minute + 100);
            heard.push((topic, payload.replace("}", r#","of":"the future"}"#)));
        }
        _ => {}
    }
    heard
}

/// The restart is at this minute; what begins with the next hour begins without a past.
const RESTART: i64 = 250;
const NEXT_HOUR: i64 = 300;

fn morning(settings: Settings) -> (Store, Vec<Output>) {
    let engine = Engine::new(settings, Generation(7), ArrivalTime(0));
    let mut gateway = Gateway::new(engine);
    let mut store = Store::new();
    gateway.caught_up(0);
    for minute in (0..RESTART).step_by(5) {
        for message in heard(minute) {
            gateway.send(minute, &message, false);
        }
        if minute % 25 == 0 {
            gateway.commit(&mut store);
        }
    }
    gateway.commit(&mut store);
    (store, gateway.outputs)
}

fn restore(store: &Store, settings: Settings) -> Result<(Engine, Vec<Loss>), RestoreError> {
    let mut restorer = Restorer::new(settings, Generation(7), ArrivalTime(0));
    for (key, value) in store {
        restorer.take(key, value)?;
    }
    let losses = restorer.losses();
    Ok((restorer.finish(), losses))
}

fn afternoon(engine: Engine) -> Vec<Output> {
    let mut gateway = Gateway::new(engine);
    gateway.caught_up(RESTART);
    gateway.send(RESTART, &reading("slow", "s", RESTART - 100), false);
    for minute in (RESTART..450).step_by(10) {
        for message in heard(minute) {
            gateway.send(minute, &message, false);
        }
        if minute == 310 {
            gateway.send(minute, &reading("north", "new", minute), false);
        }
        gateway.handle(minute, Input::Tick);
    }
    gateway.handle(40 * 60, Input::Tick);
    gateway.outputs
}

/// What belongs to a device or a region, apart from alerts and watermarks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Told {
    device: Option<String>,
    region: String,
    /// Minutes after noon at which the window begins and ends; of what has no window, both are those of its record.
    start: i64,
    end: i64,
    text: String,
}

fn told(outputs: &[Output]) -> Vec<Told> {
    let minutes = |at: EventTime| (at.0 - NOON).div_euclid(MINUTE);
    let of = |region: &str, device: Option<&str>, firing: &Firing, text: String| Told {
        device: device.map(str::to_owned),
        region: region.to_owned(),
        start: minutes(firing.start),
        end: minutes(firing.end),
        text,
    };
    let told = outputs.iter().filter_map(|output| {
        let text = format!("{output:?}");
        match output {
            Output::Window(it) => {
                Some(of(it.region.as_str(), Some(it.device.as_str()), &it.firing, text))
            }
            Output::Region(it) => Some(of(it.region.as_str(), None, &it.firing, text)),
            Output::Late(it) => Some(Told {
                device: Some(it.device.as_str().to_owned()),
                region: it.region.as_str().to_owned(),
                start: minutes(it.time),
                end: minutes(it.time),
                text,
            }),
            _ => None,
        }
    });
    told.collect()
}

/// What one lost record may change.
#[derive(Debug, Default)]
struct Affected {
    /// Of these devices, what begins before the next hour and ends after `from`.
    devices: Vec<(String, i64)>,
    /// Of these regions, roll-ups that begin before the next hour.
    regions: Vec<String>,
    /// Everything that begins before the next hour.
    all: bool,
}

impl Affected {
    fn is_free(&self, told: &Told) -> bool {
        let before = told.start < NEXT_HOUR;
        match &told.device {
            // A roll-up counts all devices, and the silent one does not come back.
            device if self.all => !before && (device.is_some() || told.region != "south"),
            Some(device) => {
                !self.devices.iter().any(|(it, from)| it == device && before && told.end > *from)
            }
            None => !self.regions.contains(&told.region) || (!before && !self.forgets("d")),
        }
    }

    /// The silent device no longer holds its region.
    fn forgets(&self, device: &str) -> bool {
        self.devices.iter().any(|(it, _)| it == device)
    }
}

fn affected(key: &[u8], store: &Store) -> Affected {
    let number = |at: usize| u32::from_be_bytes(key[at..at + 4].try_into().expect("a number"));
    let identity = |number: u32| {
        let record = &store[&[&[IDENTITY][..], &number.to_be_bytes()].concat()];
        let identity = read_identity(record).expect("as written");
        (identity.name.to_owned(), identity.region_name.expect("as written").to_owned())
    };
    let region = |number: u32| {
        let record = &store[&[&[REGION][..], &number.to_be_bytes()].concat()];
        read_region_record(record).expect("as written").name.to_owned()
    };
    let of_device = |(device, region): (String, String), from| Affected {
        devices: vec![(device, from)],
        regions: vec![region],
        ..Affected::default()
    };
    match key[0] {
        LAYOUT => Affected { all: true, ..Affected::default() },
        REGION => Affected { regions: vec![region(number(1))], ..Affected::default() },
        IDENTITY | DEVICE => of_device(identity(number(1)), i64::MIN),
        PANE => {
            let (_, _, start) = read_pane_key(&key[1..]).expect("as written");
            of_device(identity(number(1)), (start.0 - NOON) / MINUTE)
        }
        ROLLUP => Affected { regions: vec![region(number(1))], ..Affected::default() },
        _ => Affected::default(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Gone,
    Empty,
    Half,
}

fn damaged(store: &Store, key: &[u8], damage: Damage) -> Store {
    let mut store = store.clone();
    match damage {
        Damage::Gone => drop(store.remove(key)),
        Damage::Empty => drop(store.insert(key.to_owned(), Vec::new())),
        Damage::Half => {
            let value = store.get_mut(key).expect("it is there");
            value.truncate(value.len() / 2);
        }
    }
    store
}

/// Whether the loss shows: a record that names others, or is named by others, and any that is there and nonsense.
fn must_show(key: &[u8], damage: Damage, store: &Store) -> bool {
    match damage {
        Damage::Gone => match key[0] {
            LAYOUT | GATEWAY | REGION | IDENTITY => true,
            SEEN | UNSETTLED => store.keys().any(|other| other[0] == key[0] && **other > *key),
            _ => false,
        },
        Damage::Empty => true,
        Damage::Half => !matches!(key[0], IDENTITY | DEVICE | SEEN | UNSETTLED),
    }
}

fn every_single_record(revisions: Revisions, scope: Scope) {
    let settings = || Settings { scope, ..two_sources(revisions) };
    let (store, before) = morning(settings());
    let kinds: BTreeSet<u8> = store.keys().map(|key| key[0]).collect();
    assert_eq!(kinds, (LAYOUT..=SEED).chain([PRESENCE]).collect(), "each kind of record is there");
    let (whole, losses) = restore(&store, settings()).expect("it is whole");
    assert_eq!(losses, []);
    let expected = told(&afternoon(whole));
    for key in store.keys() {
        for damage in [Damage::Gone, Damage::Empty, Damage::Half] {
            let what = format!("{damage:?} {key:02x?}");
            let store_then = damaged(&store, key, damage);
            let (engine, losses) = restore(&store_then, settings()).expect(&what);
            assert!(!losses.is_empty() || !must_show(key, damage, &store), "{what} went unnoticed");
            assert_eq!(engine.books().lost, losses.len() as u64, "{what}: {losses:?}");
            carried_on_is_whole(engine, &store_then, settings, &what);
            let (engine, _) = restore(&store_then, settings()).expect(&what);
            let after = afternoon(engine);
            no_published_watermark_moves_back(&before, &after, &what);
            if scope == Scope::Device {
                let got = told(&after);
                let affected = affected(key, &store);
                let free = |told: &[Told]| {
                    let mut free: Vec<_> =
                        told.iter().filter(|told| affected.is_free(told)).cloned().collect();
                    free.sort();
                    free
                };
                let (got, expected) = (free(&got), free(&expected));
                assert!(!expected.is_empty());
                for (got, expected) in got.iter().zip(&expected) {
                    assert_eq!(got, expected, "{what}, {losses:?}");
                }
                assert_eq!(got.len(), expected.len(), "{what}, {losses:?}");
            }
            if damage == Damage::Gone {
                recognises_what_it_had(&store_then, key, settings, &what);
            }
        }
    }
}

fn no_published_watermark_moves_back(before: &[Output], after: &[Output], what: &str) {
    let mut published = BTreeMap::new();
    for output in before.iter().chain(after) {
        if let Output::Watermark(report) = output {
            let last = published.insert(report.region.clone(), report.watermark);
            assert!(last < Some(report.watermark), "{what}: {last:?} before {report:?}");
        }
    }
    assert_eq!(published.len(), 5, "four regions and the gateway");
}

/// The first commit leaves a store without gaps, that holds what the engine holds.
fn carried_on_is_whole(
    mut engine: Engine,
    store: &Store,
    settings: impl Fn() -> Settings,
    what: &str,
) {
    let mut store = store.clone();
    let devices = engine.device_count();
    let mut gateway = Gateway { engine, outputs: Vec::new() };
    gateway.commit(&mut store);
    engine = gateway.engine;
    engine.mark_all();
    let all: Store =
        engine.checkpoint().changes.into_iter().filter_map(|(k, v)| Some((k, v?))).collect();
    let stale: Vec<_> = store.keys().filter(|key| !all.contains_key(*key)).collect();
    assert!(stale.is_empty() || engine.books().lost == 0, "{what}: {stale:02x?}");
    let (again, losses) = restore(&store, settings()).expect(what);
    assert_eq!((again.device_count(), losses), (devices, vec![]), "{what}");
}

/// The duplicate memory does not suffer from what else is lost.
fn recognises_what_it_had(store: &Store, key: &[u8], settings: impl Fn() -> Settings, what: &str) {
    if matches!(key[0], SEEN | UNSETTLED) {
        return;
    }
    let (engine, _) = restore(store, settings()).expect(what);
    let mut gateway = Gateway::new(engine);
    gateway.handle(RESTART, Input::Ingress(Ingress::Up));
    let before = gateway.engine.books().duplicate;
    let mut sent = 0;
    for message in (0..RESTART).step_by(5).flat_map(heard) {
        gateway.send(RESTART, &message, true);
        sent += 1;
    }
    assert_eq!(gateway.engine.books().duplicate - before, sent, "{what}");
    assert_eq!(told(&gateway.outputs), [], "{what}");
}

#[test]
fn any_single_record_may_be_lost_and_the_rest_is_carried_on_as_if_nothing_had_happened() {
    every_single_record(Revisions::Immediate, Scope::Device);
}

#[test]
fn the_same_with_revisions_held_back() {
    every_single_record(Revisions::Coalesced(Span::from_secs(30)), Scope::Device);
}

#[test]
fn the_open_window_of_a_silent_device_whose_progress_is_lost_is_told() {
    let settings = || two_sources(Revisions::Immediate);
    let engine = Engine::new(settings(), Generation(7), ArrivalTime(0));
    let mut gateway = Gateway::new(engine);
    let mut store = Store::new();
    gateway.caught_up(0);
    for minute in [0, 65] {
        gateway.send(minute, &reading("north", "a", minute), false);
        gateway.commit(&mut store);
    }
    let hours: Vec<_> = store.keys().filter(|key| key[0] == PANE && key[5] == 0).cloned().collect();
    let (_, losses) = restore(&store, settings()).expect("it is whole");
    assert_eq!((hours.len(), losses), (2, vec![]));
    store.remove(&hours[0]); // told at the second reading: it had the progress with it
    let (engine, losses) = restore(&store, settings()).expect("it is carried on");
    assert_eq!(losses, [Loss::Progress("north/a".into())]);
    let mut gateway = Gateway::new(engine);
    gateway.caught_up(65);
    gateway.handle(600, Input::Tick);
    let starts: Vec<_> = told(&gateway.outputs).iter().map(|told| told.start).collect();
    assert_eq!(starts, [60, 60], "the device's hour and the region's");
}

/// The store of a gateway that heard these messages, with a commit after each.
fn hearing(messages: &[(i64, Message)], settings: Settings) -> Store {
    let engine = Engine::new(settings, Generation(7), ArrivalTime(0));
    let mut gateway = Gateway::new(engine);
    let mut store = Store::new();
    gateway.caught_up(0);
    for (minute, message) in messages {
        gateway.send(*minute, message, false);
        gateway.commit(&mut store);
    }
    store
}

/// Progress, and refusals where some were told: nothing of its clock.
#[test]
fn the_record_of_a_device_from_before_its_clock_was_in_it_is_read() {
    for refusals in [false, true] {
        let settings = || two_sources(Revisions::Immediate);
        let mut store = hearing(&[(0, reading("north", "a", 0))], settings());
        let mut w = Writer::default();
        w.u8(0).signed(0).signed(NOON + 9 * MINUTE).signed(NOON + 7 * MINUTE);
        if refusals {
            w.signed(5).unsigned(2).unsigned(1);
        }
        store.insert([&[DEVICE][..], &0_u32.to_be_bytes()].concat(), w.0);
        let (engine, losses) = restore(&store, settings()).expect("it is carried on");
        assert_eq!(losses, []);
        assert_eq!(engine.device_watermark("north", "a"), Some(EventTime(NOON + 7 * MINUTE)));
        let device = &engine.devices[0];
        assert_eq!(device.clock, DeviceClock::default());
        assert_eq!(device.refusals.withheld, u64::from(refusals));
    }
}

#[test]
fn a_roll_up_counts_what_was_corrected_and_one_from_before_that_was_counted_is_read() {
    let asked = crate::engine::settings::Aggregates::default();
    let start = EventTime(NOON);
    let mut region = crate::engine::region::Region::new("north".into(), &Policy::default());
    let mut pane = region.pane(0, start, start + Span::from_hours(1), 1).expect("open").clone();
    let read = |record: &[u8]| read_rollup_record(record, 1, Some).expect("it is whole").settled;
    let before = rollup_record(&pane, &[asked]);
    assert_eq!(read(&before), pane.settled);
    pane.settled.corrected = 300;
    let now = rollup_record(&pane, &[asked]);
    assert_eq!((&now[..before.len()], now.len()), (&before[..], before.len() + 2));
    assert_eq!(read(&now), pane.settled);
}

/// Keys of panes in hours (window 0) or days (window 1).
fn panes(store: &Store, window: u8) -> Vec<Vec<u8>> {
    store.keys().filter(|key| key[0] == PANE && key[5] == window).cloned().collect()
}

/// What is told after a restart from a store, by start in minutes and samples.
fn told_after(
    store: &Store,
    messages: &[(i64, Message)],
    settings: Settings,
) -> Vec<(Option<String>, i64, u32)> {
    let (engine, _) = restore(store, settings).expect("it is carried on");
    let mut gateway = Gateway::new(engine);
    for (index, (minute, message)) in messages.iter().enumerate() {
        gateway.send(*minute, message, false);
        if index == 0 {
            gateway.caught_up(*minute); // the first was queued
        }
        gateway.handle(*minute, Input::Tick);
    }
    let told = gateway.outputs.iter().filter_map(|output| match output {
        Output::Window(it) => Some((Some(it.device.as_str().to_owned()), &it.firing)),
        Output::Region(it) => Some((None, &it.firing)),
        _ => None,
    });
    told.map(|(device, it)| (device, (it.start.0 - NOON) / MINUTE, it.samples)).collect()
}

#[test]
fn a_told_window_is_revised_though_the_watermark_that_closed_it_is_lost() {
    let settings = || two_sources(Revisions::Immediate);
    let messages = [
        (130, reading("north", "a", 0)),
        (131, heartbeat("north", "a", 20)), // in the device's own record
        (132, reading("north", "a", 61)),
        (133, heartbeat("north", "a", 130)), // closes two hours, and is told in the record of the first
    ];
    let mut store = hearing(&messages, settings());
    store.remove(&panes(&store, 0)[0]).expect("the first hour");
    let after = [(134, reading("north", "a", 65))];
    assert_eq!(told_after(&store, &after, settings())[0], (Some("a".into()), 60, 2));
}

#[test]
fn a_lost_multiple_or_rollup_is_opened_again_for_the_windows_that_are_still_open() {
    let settings = || two_sources(Revisions::Immediate);
    let messages = [(61, reading("north", "a", 61)), (62, reading("north", "b", 62))];
    let whole = hearing(&messages, settings());
    let beats = |minute| [heartbeat("north", "a", minute), heartbeat("north", "b", minute)];
    let after: Vec<_> =
        [121, 721].into_iter().flat_map(|at| beats(at).map(|beat| (at, beat))).collect();
    let expected = told_after(&whole, &after, settings());
    assert_eq!(expected.len(), 6, "two devices and a region, an hour and a day: {expected:?}");
    let rollups = whole.keys().filter(|key| key[0] == ROLLUP).cloned();
    for key in panes(&whole, 1).into_iter().chain(rollups) {
        let store = damaged(&whole, &key, Damage::Gone);
        assert_eq!(told_after(&store, &after, settings()), expected, "without {key:02x?}");
    }
}

#[test]
fn in_region_scope_a_lost_region_that_is_silent_holds_the_others_for_its_idle_timeout_only() {
    let scope = Scope::Region(Combine::Split);
    let settings = || Settings { scope, ..two_sources(Revisions::Immediate) };
    let mut store =
        hearing(&[(0, reading("north", "a", 0)), (0, reading("south", "b", 0))], settings());
    let north = store.keys().find(|key| key[0] == REGION).expect("it is there").clone();
    store.remove(&north);
    let after = [(6, heartbeat("south", "b", 6)), (61, heartbeat("south", "b", 61))];
    let told = told_after(&store, &after, settings());
    assert!(told.contains(&(Some("b".into()), 0, 1)), "{told:?}");
}

#[test]
fn in_region_scope_any_single_record_may_be_lost_too() {
    every_single_record(Revisions::Immediate, Scope::Region(Combine::Split));
}

/// State and minute of `since` of all that was told of the presence of a device.
fn told_presence(outputs: &[Output], device: &str) -> Vec<(PresenceState, i64)> {
    let told = outputs.iter().filter_map(|output| match output {
        Output::Presence(it) if it.device.as_str() == device => Some(it),
        _ => None,
    });
    told.map(|it| (it.state, (it.since.0 - NOON) / MINUTE)).collect()
}

#[test]
fn a_device_whose_presence_is_lost_is_told_anew_and_the_others_are_not() {
    let settings = || two_sources(Revisions::Immediate);
    let messages = [
        (0, reading("north", "quiet", 0)),
        (0, reading("north", "a", 0)),
        (0, reading("north", "b", 0)),
        (40, reading("north", "a", 40)),
        (40, reading("north", "b", 40)),
    ];
    let whole = hearing(&messages, settings());
    let after = |store: &Store| {
        let (engine, losses) = restore(store, settings()).expect("it is carried on");
        let mut gateway = Gateway { engine, outputs: Vec::new() };
        gateway.caught_up(40);
        gateway.send(45, &reading("north", "a", 45), false);
        gateway.handle(200, Input::Tick);
        (["quiet", "a", "b"].map(|it| told_presence(&gateway.outputs, it)), losses)
    };
    use PresenceState::{Offline, Online};
    let ([quiet, a, b], losses) = after(&whole);
    assert_eq!((quiet, a, b, losses), (vec![], vec![(Offline, 75)], vec![(Offline, 70)], vec![]));
    let keys: Vec<_> = whole.keys().filter(|key| key[0] == PRESENCE).cloned().collect();
    assert_eq!(keys.len(), 3);
    for damage in [Damage::Gone, Damage::Empty] {
        let store = keys.iter().fold(whole.clone(), |store, key| damaged(&store, key, damage));
        let ([quiet, a, b], losses) = after(&store);
        assert_eq!(losses.is_empty(), damage == Damage::Gone, "a record that never was is no loss");
        // By the news that comes, or by the silence that it has.
        assert_eq!(quiet, [(Offline, 30)]);
        assert_eq!((a, b), (vec![(Online, 45), (Offline, 75)], vec![(Offline, 70)]));
    }
}

/// The record of a pane as a version without presence wrote it.
fn without_presence(value: &[u8]) -> Vec<u8> {
    let mut r = Reader(&value[1..]);
    let flags = r.u8().expect("flags");
    let numbers = 3 + usize::from(flags & 0x10 != 0);
    let mut w = Writer::default();
    w.u8(1).u8(flags & !0x20);
    (0..numbers).for_each(|_| {
        w.signed(r.signed().expect("progress"));
    });
    (0..2).for_each(|_| {
        r.signed().expect("presence");
    });
    w.0.extend(r.0);
    w.0
}

#[test]
fn the_store_of_a_version_without_presence_is_carried_on() {
    let settings = || two_sources(Revisions::Immediate);
    let mut store =
        hearing(&[(0, reading("north", "a", 0)), (0, reading("north", "b", 0))], settings());
    store.retain(|key, _| key[0] != PRESENCE);
    let mut rewritten = 0;
    for (key, value) in &mut store {
        if key[0] == PANE && value[0] == 1 && value[1] & 0x20 != 0 {
            *value = without_presence(value);
            rewritten += 1;
        }
    }
    assert_eq!(rewritten, 2);
    let (engine, losses) = restore(&store, settings()).expect("it is carried on");
    assert_eq!(losses, []);
    let mut gateway = Gateway { engine, outputs: Vec::new() };
    gateway.caught_up(100);
    gateway.send(110, &reading("north", "a", 110), false);
    gateway.handle(135, Input::Tick);
    use PresenceState::{Offline, Online};
    assert_eq!(told_presence(&gateway.outputs, "a"), [(Online, 110)]);
    assert_eq!(
        told_presence(&gateway.outputs, "b"),
        [(Offline, 130)],
        "its silence begins with us"
    );
}

#[test]
fn the_store_of_the_version_before_is_carried_on_and_is_of_this_one_from_the_first_commit_on() {
    let settings = || two_sources(Revisions::Immediate);
    let (mut store, _) = morning(settings());
    let (engine, losses) = restore(&store, settings()).expect("it is of this version");
    assert_eq!((losses, store[&vec![LAYOUT]][0]), (vec![], VERSION));
    let expected = afternoon(engine);
    store.get_mut(&vec![LAYOUT]).expect("a layout")[0] = OLDEST;
    let (mut engine, losses) = restore(&store, settings()).expect("it is carried on");
    assert_eq!(losses, []);
    let written = engine.checkpoint().changes;
    let layout = written.iter().find(|(key, _)| *key == [LAYOUT]).and_then(|(_, it)| it.as_ref());
    assert_eq!(layout.map(|layout| layout[0]), Some(VERSION), "an older program refuses it now");
    assert!(written.iter().all(|(key, _)| key[0] != PANE), "and nothing else is written for that");
    let (engine, _) = restore(&store, settings()).expect("it is carried on");
    assert_eq!(afternoon(engine), expected);
}

#[test]
fn the_store_of_another_version_is_refused_and_says_what_to_do() {
    let settings = || two_sources(Revisions::Immediate);
    let mut store = hearing(&[(0, reading("north", "a", 0))], settings());
    for version in [VERSION + 1, u8::MAX] {
        store.get_mut(&vec![LAYOUT]).expect("a layout")[0] = version;
        let refused = restore(&store, settings()).expect_err("it cannot be read");
        assert_eq!(refused, RestoreError::Version(version));
        assert!(refused.to_string().contains("install the version that wrote it"));
    }
}

/// Its devices would be met anew, and an hour that was told of one could be told again as if it never had been.
#[test]
fn a_source_that_is_gone_is_a_loss_though_none_of_its_windows_is_open() {
    let settings = || two_sources(Revisions::Immediate);
    let messages = [(0, reading("north", "a", 0)), (4320, heartbeat("north", "a", 4320))];
    let store = hearing(&messages, settings());
    assert_eq!(panes(&store, 0).len() + panes(&store, 1).len(), 0, "all is final");
    assert_eq!(restore(&store, settings()).expect("as it was").1, []);
    let mut without = settings();
    without.sources.remove(0);
    let (_, losses) = restore(&store, without).expect("no window needs it");
    assert_eq!(losses, [Loss::Source("meters".into())]);
}

/// A revision holds the whole window, so one without what was there would replace what was right.
#[test]
fn a_metric_that_is_gone_is_a_loss_where_a_window_that_may_be_told_again_has_values_of_it() {
    let renamed = || {
        let mut settings = two_sources(Revisions::Immediate);
        settings.metrics[0].name = "another".into();
        settings
    };
    let name = two_sources(Revisions::Immediate).metrics[0].name.to_string();
    let settings = || two_sources(Revisions::Immediate);
    let open = hearing(&[(0, reading("north", "a", 0))], settings());
    let (_, losses) = restore(&open, renamed()).expect("it is carried on");
    assert_eq!(losses, [Loss::Metric(name)]);
    let empty = hearing(&[(0, heartbeat("north", "a", 0))], settings());
    assert_eq!(restore(&empty, renamed()).expect("it is carried on").1, []);
}
