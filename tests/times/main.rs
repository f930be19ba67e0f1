//! How devices write times: zones against an independent reference, days on which clocks change, changes of unit, and what
//! real devices send.

#![cfg(feature = "shell")]
#![allow(clippy::unwrap_used, reason = "a test")]

mod random;
mod reference;

use chrono::DateTime;
use serde_json::{Value, json};
use tidegate::config::Config;
use tidegate::engine::books::Books;
use tidegate::replay::{Lines, replay};
use tidegate::time::DeviceTime;
use tidegate::wire::profile::TimeFormat;
use tidegate::wire::timestamp::{Stamp, Zone, read};

use self::reference::{Change, Meaning};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const QUARTER: i64 = 15 * MINUTE;

/// Midnight UTC of the days on which Amsterdam changes its clocks, each at 01:00.
const OCTOBER: i64 = 1_792_886_400_000; // 2026-10-25
const MARCH: i64 = 1_774_742_400_000; // 2026-03-29

/// A time `ms` after the epoch as if that were local, to the second.
fn text(ms: i64) -> String {
    DateTime::from_timestamp_millis(ms).unwrap().format("%Y-%m-%dT%H:%M:%S").to_string()
}

fn stamp(meaning: &Meaning) -> Stamp {
    let time = |seconds: &i64| DeviceTime(seconds * 1_000);
    match meaning {
        Meaning::Once(at) => Stamp::At(time(at)),
        Meaning::Twice(first, second) => {
            Stamp::Repeated { earlier: time(first), later: time(second) }
        }
        Meaning::Never(at, change) => Stamp::Skipped { at: time(at), change: time(change) },
    }
}

/// Local times from before the first change of a table to after its last: every hour, and every five minutes of the days
/// around changes.
fn local_times(changes: &[Change]) -> Vec<i64> {
    const DAY: i64 = 86_400;
    let (first, last) = (changes[0].at - 2 * DAY, changes[changes.len() - 1].at + 2 * DAY);
    let hours = (first..last).step_by(3_600);
    let near = changes.iter().flat_map(|c| (c.at - DAY..c.at + DAY).step_by(300).chain([c.at - 1]));
    hours.chain(near.map(|at| at + changes[0].before)).collect()
}

#[test]
fn local_times_mean_what_the_reference_says() {
    let (mut twice, mut never) = (0, 0);
    for (name, changes) in reference::zones() {
        let format = TimeFormat::Local(Zone::named(name).unwrap());
        for local in local_times(&changes) {
            let expected = reference::meaning(&changes, local);
            let text = text(local * 1_000);
            let reading = read(&text, &format).map(|reading| reading.stamp);
            assert_eq!(reading, Some(stamp(&expected)), "{text} in {name}");
            twice += u32::from(matches!(expected, Meaning::Twice(..)));
            never += u32::from(matches!(expected, Meaning::Never(..)));
        }
    }
    assert!(twice > 300 && never > 300, "{twice} {never}");
}

#[test]
fn every_instant_is_among_what_its_local_time_means() {
    for (name, changes) in reference::zones() {
        let format = TimeFormat::Local(Zone::named(name).unwrap());
        for at in local_times(&changes) {
            let local = at + reference::offset_at(&changes, at);
            let read = read(&text(local * 1_000), &format).unwrap().stamp;
            let found = match read {
                Stamp::At(time) => [time, time],
                Stamp::Repeated { earlier, later } => [earlier, later],
                other => panic!("{at} in {name}: {other:?}"),
            };
            assert!(found.contains(&DeviceTime(at * 1_000)), "{at} in {name}: {found:?}");
        }
    }
}

/// One source; hours and days of UTC, what is told once only.
fn config_text(time: &str) -> String {
    format!(
        r#"
        gateway.id = "gw"
        broker.host = "localhost"
        upstream.host = "localhost"
        defaults.past-limit = "3650d"
        defaults.interval = "1m"

        [[source]]
        name = "meters"
        topic = "meters/{{device}}"
        time = {time}
        rollups = ["day"]
        metric = [{{ name = "energy", from = "/energy", unit = "Wh", aggregates = ["sum", "first"] }}]
        "#
    )
}

fn config(toml: &str) -> Config {
    Config::from_toml(toml).map_err(|errors| format!("{errors:?}")).unwrap()
}

/// What a replay of messages tells.
struct Told {
    lines: Vec<Value>,
    books: Books,
}

impl Told {
    fn of(time: &str, messages: &[(&str, Value, i64)]) -> Self {
        let line = |(device, payload, arrival): &(&str, Value, i64)| {
            let topic = format!("meters/{device}");
            json!({ "topic": topic, "payload": payload.to_string(), "arrival": arrival })
                .to_string()
        };
        let recording: Vec<String> = messages.iter().map(line).collect();
        Self::replayed(&config(&config_text(time)), &Lines::Recorded, &recording.join("\n"))
    }

    fn replayed(config: &Config, lines: &Lines, recording: &str) -> Self {
        let mut output = Vec::new();
        let outcome = replay(config, lines, recording.as_bytes(), &mut output, |_| {}).unwrap();
        outcome.books.balance();
        let output = String::from_utf8(output).unwrap();
        let lines = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        Self { lines, books: outcome.books }
    }

    /// Start and sum of the last revision of each window of a device.
    fn sums(&self, device: &str, window: &str) -> Vec<(i64, f64)> {
        let mut sums = std::collections::BTreeMap::new();
        for line in &self.lines {
            if line["type"] == "window" && line["device"] == device && line["window"] == window {
                let sum = line["metrics"]["energy"]["sum"].as_f64().unwrap();
                sums.insert(line["start"].as_i64().unwrap(), sum);
            }
        }
        sums.into_iter().collect()
    }

    fn alerts(&self, kind: &str) -> Vec<&Value> {
        let is = |line: &&Value| line["type"] == "alert" && line["kind"] == kind;
        self.lines.iter().filter(is).collect()
    }
}

const AMSTERDAM: &str = r#"{ from = "/time", as = "local", zone = "Europe/Amsterdam" }"#;

/// A reading each quarter of an hour of a day of UTC, by a clock that is changed an hour after its beginning. Each says how
/// late it is, and has its number as its value.
fn day(
    start: i64,
    offsets: [i64; 2],
    delay: impl Fn(i64) -> i64,
) -> Vec<(&'static str, Value, i64)> {
    let reading = |number: i64| {
        let at = start + number * QUARTER;
        let offset = offsets[usize::from(at >= start + HOUR)];
        let payload = json!({ "time": text(at + offset * HOUR), "energy": number });
        ("m1", payload, at + delay(number))
    };
    (0..96).map(reading).collect()
}

fn assert_exact(told: &Told, start: i64) {
    let hour = |hour: i64| (start + hour * HOUR, (16 * hour + 6) as f64);
    assert_eq!(told.sums("m1", "hour"), (0..24).map(hour).collect::<Vec<_>>());
    assert_eq!(told.sums("m1", "day"), [(start, 4_560.0)]);
    let Books { records, aggregated, late, quarantined, stamped, .. } = told.books;
    assert_eq!((records, aggregated, late, quarantined, stamped), (96, 96, 0, 0, 0));
}

#[test]
fn the_long_day_is_whole_whether_the_arrival_or_the_order_decides() {
    let live = day(OCTOBER, [2, 1], |_| 400);
    let told = Told::of(AMSTERDAM, &live);
    assert_exact(&told, OCTOBER);
    assert_eq!(told.books.skipped_hour, 0);
    // A buffer that is emptied in the evening.
    assert_exact(&Told::of(AMSTERDAM, &day(OCTOBER, [2, 1], |n| 24 * HOUR - n * QUARTER)), OCTOBER);
    // The payloads alone, without any arrival.
    let payload = |(_, payload, _): &(&str, Value, i64)| payload.to_string();
    let payloads: Vec<String> = live.iter().map(payload).collect();
    let one = config_text(AMSTERDAM).replace("meters/{device}\"", "m\"\ndevice = \"const:m1\"");
    let lines = Lines::Payloads("meters".into());
    let told = Told::replayed(&config(&one), &lines, &payloads.join("\n"));
    assert_exact(&told, OCTOBER);
}

#[test]
fn equal_readings_at_half_past_two_and_half_past_two_are_two() {
    let half_past = |hour: i64| {
        let payload = json!({ "time": "2026-10-25T02:30:00", "energy": 1 });
        ("m1", payload, OCTOBER + hour * HOUR + 30 * MINUTE + 400)
    };
    let told = Told::of(AMSTERDAM, &[half_past(0), half_past(1), half_past(1)]);
    assert_eq!(told.sums("m1", "hour"), [(OCTOBER, 1.0), (OCTOBER + HOUR, 1.0)]);
    assert_eq!((told.books.aggregated, told.books.duplicate), (2, 1));
}

#[test]
fn the_short_day_is_whole_and_a_clock_that_is_not_changed_is_told_once() {
    let told = Told::of(AMSTERDAM, &day(MARCH, [1, 2], |_| 400));
    assert_exact(&told, MARCH);
    assert_eq!((told.books.skipped_hour, told.alerts("skipped-hour").len()), (0, 0));
    // It is changed an hour late: 02:00, 02:15, 02:30 and 02:45 are there.
    let mut late = day(MARCH, [1, 1], |_| 400);
    late.splice(8.., day(MARCH, [2, 2], |_| 400).split_off(8));
    let told = Told::of(AMSTERDAM, &late);
    assert_exact(&told, MARCH);
    assert_eq!(told.books.skipped_hour, 4);
    let alerts = told.alerts("skipped-hour");
    assert_eq!(alerts.len(), 1);
    assert_eq!((&alerts[0]["device"], &alerts[0]["time"]), (&json!("m1"), &json!(MARCH + HOUR)));
}

#[test]
fn the_flag_of_a_meter_decides_whenever_it_arrives() {
    let evening = OCTOBER + 20 * HOUR;
    let reading = |flag, energy| json!({ "time": format!("261025023000{flag}"), "energy": energy });
    let messages = [("m1", reading('W', 2), evening), ("m1", reading('S', 1), evening + 1)];
    let told = Told::of(AMSTERDAM, &messages);
    assert_eq!(told.sums("m1", "hour"), [(OCTOBER, 1.0), (OCTOBER + HOUR, 2.0)]);
}

const AUTO: &str = r#"{ from = "/time", as = "auto", zone = "Europe/Amsterdam" }"#;

/// One instant, however it may be written.
fn written(at: i64) -> Vec<(&'static str, Value)> {
    let seconds = at / 1_000;
    vec![
        ("s", json!(seconds)),
        ("s-text", json!(seconds.to_string())),
        ("s.fff", json!(format!("{seconds}.000"))),
        ("ms", json!(at)),
        ("us", json!(at * 1_000)),
        ("ns", json!(at * 1_000_000)),
        ("iso-utc", json!(text(at) + "Z")),
        ("iso-offset", json!(text(at + 2 * HOUR) + "+02:00")),
        ("iso-local", json!(text(at + 2 * HOUR))),
    ]
}

#[test]
fn one_instant_in_nine_ways_is_one_instant() {
    let at = OCTOBER - 12 * HOUR;
    let message = |(device, time)| (device, json!({ "time": time, "energy": 1 }), at + 400);
    let told = Told::of(AUTO, &written(at).into_iter().map(message).collect::<Vec<_>>());
    for (device, _) in written(at) {
        let window = told.lines.iter().find(|l| l["type"] == "window" && l["device"] == device);
        let window = window.unwrap_or_else(|| panic!("{device}"));
        assert_eq!((&window["first_at"], &window["last_at"]), (&json!(at), &json!(at)), "{device}");
    }
    assert_eq!((told.books.aggregated, told.books.unreadable), (9, 0));
    assert_eq!(told.alerts("unit-changed").len(), 0, "each device has one unit");
}

#[test]
fn a_change_of_unit_is_told_once_and_no_value_is_lost() {
    let start = OCTOBER - 12 * HOUR;
    let times = |number: i64| match number {
        0..30 => json!((start + number * MINUTE) / 1_000),
        // A clock that lost its time tells no unit.
        30 => json!(5),
        _ => json!(start + number * MINUTE),
    };
    let message =
        |n: i64| ("m1", json!({ "time": times(n), "energy": 1 }), start + n * MINUTE + 400);
    let told = Told::of(AUTO, &(0..60).map(message).collect::<Vec<_>>());
    let alerts = told.alerts("unit-changed");
    assert_eq!(alerts.len(), 1);
    let units = (&alerts[0]["unit_before"], &alerts[0]["unit"], &alerts[0]["line"]);
    assert_eq!(units, (&json!("seconds"), &json!("milliseconds"), &json!(32)));
    assert_eq!(told.sums("m1", "hour"), [(start, 60.0)]);
    assert_eq!(told.books.stamped, 1);
}

/// What real devices send as time, with the instant that it is. `None`: it is no time.
const SENT: &[(&str, &str, &str, Option<i64>)] = &[
    ("tasmota", "local Europe/Berlin", r#""2026-11-29T18:00:00""#, Some(1_795_971_600_000)),
    ("tasmota", "local Europe/Berlin", r#""2026-11-29T18:05:00+01:00""#, Some(1_795_971_900_000)),
    ("tasmota", "auto Europe/Berlin", "1795972500", Some(1_795_972_500_000)),
    ("tasmota", "auto Europe/Berlin", r#""2026-11-29T18:20:00.417""#, Some(1_795_972_800_417)),
    ("shelly_gen2", "epoch_s", "1795971610.17", Some(1_795_971_610_170)),
    ("zigbee2mqtt", "auto", "1795971631402", Some(1_795_971_631_402)),
    ("zigbee2mqtt", "auto", r#""2026-11-29T18:00:21+01:00""#, Some(1_795_971_621_000)),
    ("esphome", "local Europe/Amsterdam", r#""261129180010W""#, Some(1_795_971_610_000)),
    ("p1_dongle", "local Europe/Amsterdam", r#""261025023000S""#, Some(1_792_888_200_000)),
    ("p1_dongle", "local Europe/Amsterdam", r#""261025023000W""#, Some(1_792_891_800_000)),
    ("chirpstack_v4", "rfc3339", r#""2026-11-29T17:00:07.775023+00:00""#, Some(1_795_971_607_775)),
    ("rtl_433", "local Europe/Berlin", r#""2026-11-29 18:00:04""#, Some(1_795_971_604_000)),
    ("rtl_433", "local Europe/Berlin", r#""2026-11-29T18:00:20+0100""#, Some(1_795_971_620_000)),
    ("rtl_433", "auto", r#""1795971640.481932""#, Some(1_795_971_640_481)),
    ("telegraf", "auto", "1795971620481", Some(1_795_971_620_481)),
    ("telegraf", "auto", "1795971630481932117", Some(1_795_971_630_481)),
    ("telegraf", "epoch_ns", "1795971630481932117", Some(1_795_971_630_481)),
    ("neuron", "local Asia/Shanghai", r#""2026-11-29 18:00:06""#, Some(1_795_946_406_000)),
    (
        "modbus_gateway",
        "local_dmy Europe/Berlin",
        r#""29/11/2026 18:01:10""#,
        Some(1_795_971_670_000),
    ),
    ("wmbusmeters", "local Europe/Berlin", r#""2026-11-29 17:58""#, Some(1_795_971_480_000)),
    ("thingsboard", "auto", r#""1795971630000""#, Some(1_795_971_630_000)),
    ("thin_edge", "auto", "1795971620.25", Some(1_795_971_620_250)),
    ("amsreader", "auto", r#""2026-11-29T17:00:10Z""#, Some(1_795_971_610_000)),
    ("openmqttgateway", "uptime_s", "81022", None),
    ("tasmota", "uptime_s", r#""3T04:12:09""#, None),
    ("p1_dongle", "uptime_s", r#""0:13:37""#, None),
    ("rtl_433", "uptime_s", r#""@2.184210s""#, None),
    ("tasmota", "local Europe/Berlin", r#""1970-01-01T00:00:06""#, None),
    ("shelly_gen2", "epoch_s", "14.62", None),
    ("amsreader", "epoch_s", "0", None),
    ("amsreader", "epoch_s", r#""""#, None),
    ("dsmr_reader", "rfc3339", "null", None),
    ("vzlogger", "epoch_ms", "481", None),
];

#[test]
fn what_real_devices_send_is_read_or_the_arrival_takes_its_place() {
    const ARRIVAL: i64 = 1_795_975_500_123;
    for (device, format, time, expected) in SENT {
        let time_of = match format.split_once(' ') {
            Some((format, zone)) => {
                format!(r#"{{ from = "/time", as = "{format}", zone = "{zone}" }}"#)
            }
            None => format!(r#"{{ from = "/time", as = "{format}" }}"#),
        };
        let time: Value = serde_json::from_str(time).unwrap();
        let payload = json!({ "time": time, "energy": 1 });
        let told = Told::of(&time_of, &[(device, payload, ARRIVAL)]);
        let window = told.lines.iter().find(|line| line["type"] == "window").unwrap();
        let at = expected.unwrap_or(ARRIVAL);
        assert_eq!(window["first_at"], at, "{device} {format} {time}");
        // The first uptime is that of now.
        let started = format.starts_with("uptime");
        let stamped = expected.is_none() && !started;
        let (is_stamped, is_corrected) = (window["stamped"] == 1, window["corrected"] == 1);
        assert_eq!((is_stamped, is_corrected), (stamped, started), "{device} {format} {time}");
        assert_eq!(told.books.unreadable, 0, "{device} {format} {time}");
    }
}
