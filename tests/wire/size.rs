//! What results take on the wire: the bytes that the MQTT client writes, counted, and the tables of `docs/sizing.md`
//! worked out from them.

use std::collections::BTreeMap;

use bytes::BytesMut;
use rumqttc::{Publish, QoS};
use tidegate::config::{Config, Mode};
use tidegate::engine::Engine;
use tidegate::engine::effect::Effects;
use tidegate::engine::input::{Ingress, Input, Publish as Message, Topic};
use tidegate::engine::settings::ClockRules;
use tidegate::event::Output;
use tidegate::ids::Generation;
use tidegate::time::{ArrivalTime, ClockStatus, MonoTime, Now};
use tidegate::wire::encode::{Identity, encode};
use tidegate::wire::fields::Fields;

use crate::contract::CONTRACT;

const SIZING: &str = include_str!("../../docs/sizing.md");

/// A typical meter: a gauge and a register, every ten seconds.
const CONFIG: &str = r#"
gateway.id = "gateway-0017"
defaults.interval = "10s"
[[region]]
name = "north"
[[source]]
name = "meters"
topic = "meters/{region}/{device}/{kind}"
time = { from = "/ts", as = "epoch_ms" }
heartbeat = { from = "topic:kind", equals = "heartbeat" }
rollups = ["day"]
metric = [
    { name = "power", from = "/power", unit = "W" },
    { name = "energy", from = "/energy_kwh", unit = "kWh", aggregates = ["first", "last"] },
]
"#;

const DAY: i64 = 1_795_910_400_000;
const HOUR: i64 = 3_600_000;
const REGIONS: usize = 4;

/// A day of one meter, and the heartbeat that ends it.
fn day() -> Vec<Output> {
    let settings =
        Config::from_toml(CONFIG).expect("no mistake").settings(Mode::Replay(ClockRules::Applied));
    let mut engine = Engine::new(settings, identity().generation, ArrivalTime(DAY - HOUR));
    let mut effects = Effects::default();
    let mut handle = |input: Input<'_>, time: i64| {
        engine.handle(input, Now { wall: ArrivalTime(time), mono: MonoTime(time) }, &mut effects);
    };
    handle(Input::Clock(ClockStatus::EXACT), DAY);
    for change in [Ingress::Up, Ingress::CaughtUp] {
        handle(Input::Ingress(change), DAY);
    }
    let mut hears = |kind: &str, time: i64, payload: String| {
        let topic = format!("meters/north/1EMH0012345678/{kind}");
        let (topic, payload) = (Topic::Name(&topic), payload.as_bytes());
        handle(Input::Publish(Message { topic, payload, retain: false, dup: false }), time);
    };
    let mut rng = fastrand::Rng::with_seed(7);
    for number in 0..8_640 {
        let time = DAY + number * 10_000 + rng.i64(0..1_000);
        let (watts, energy) = (rng.u32(15_000..25_000), 17_950_782 + number * 5);
        let payload = format!(
            r#"{{"ts":{time},"power":{}.{},"energy_kwh":{}.{:03}}}"#,
            watts / 10,
            watts % 10,
            energy / 1000,
            energy % 1000
        );
        hears("telemetry", time, payload);
        if (number + 1) % 360 == 0 {
            let time = DAY + (number + 1) * 10_000;
            hears("heartbeat", time, format!(r#"{{"ts":{time}}}"#));
        }
    }
    effects.outputs
}

fn identity() -> Identity {
    Identity {
        gateway: "gateway-0017".into(),
        generation: Generation::new(ArrivalTime(DAY - HOUR), 7),
    }
}

/// Bytes of the packet that carries an output.
fn on_the_wire(output: &Output, fields: Fields) -> usize {
    let encoded = encode(output, &identity(), fields);
    let body = serde_json::from_slice(&encoded.payload).expect("JSON");
    assert_eq!(CONTRACT.check(&encoded.topic, &body), Ok(()));
    let topic = format!("tidegate/{}/{}", identity().gateway, encoded.topic);
    let mut publish = Publish::new(topic, QoS::AtLeastOnce, encoded.payload);
    publish.pkid = 1;
    let mut bytes = BytesMut::new();
    publish.write(&mut bytes).expect("it fits");
    bytes.len()
}

/// The packets of a day by kind: how many, and their longest and mean length.
fn packets(outputs: &[Output], fields: Fields) -> BTreeMap<String, (usize, usize, f64)> {
    let mut kinds: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for output in outputs {
        let topic = encode(output, &identity(), fields).topic;
        let levels: Vec<_> = topic.split('/').collect();
        let kind =
            if levels[0] == "watermark" { "watermark".to_owned() } else { levels[..2].join("/") };
        kinds.entry(kind).or_default().push(on_the_wire(output, fields));
    }
    let summary = |lengths: Vec<usize>| {
        let longest = *lengths.iter().max().expect("at least one");
        (lengths.len(), longest, lengths.iter().sum::<usize>() as f64 / lengths.len() as f64)
    };
    kinds.into_iter().map(|(kind, lengths)| (kind, summary(lengths))).collect()
}

#[test]
fn an_hourly_result_of_a_meter_takes_at_most_400_bytes_on_the_wire() {
    let outputs = day();
    let usual = packets(&outputs, Fields::default());
    let (count, longest, _) = usual["window/hour"];
    assert_eq!(count, 24, "{usual:?}");
    assert!(longest <= 400, "{longest} bytes");
    let all = packets(&outputs, Fields::ALL);
    let least = packets(&outputs, [].into_iter().collect());
    let rows = [("usual", &usual), ("all", &all), ("none", &least)].map(|(name, packets)| {
        let of = |kind: &str| packets[kind].1;
        format!("| {name} | {} | {} | {} |", of("window/hour"), of("window/day"), of("region/hour"))
    });
    says(&rows);
}

/// Bytes of the headers of a segment: IPv4 and TCP with time stamps.
const HEADERS: f64 = 52.0;
/// Bytes of content in a full segment.
const SEGMENT: f64 = 1_448.0;
const PUBACK: f64 = 4.0;

#[test]
fn the_documented_megabytes_a_day_are_those_of_real_packets() {
    let packets = packets(&day(), Fields::default());
    let mean = |kind: &str| packets[kind].2;
    let rows = [(1_000, "1,000"), (10_000, "10,000")].map(|(devices, name)| {
        let regions = REGIONS as f64;
        let watermarks = (regions + 1.0) * 24.0 * 60.0;
        let results = f64::from(devices) * (24.0 * mean("window/hour") + mean("window/day"))
            + regions * (24.0 * mean("region/hour") + mean("region/day"));
        let messages = (f64::from(devices) + regions) * 25.0 + watermarks;
        let progress = watermarks * mean("watermark");
        let mqtt = results + progress;
        let packed = (mqtt / SEGMENT).ceil() * HEADERS;
        // Each message in a segment of its own, and one more that acknowledges its PUBACK.
        let alone = messages * 2.0 * HEADERS;
        let down = messages * (PUBACK + HEADERS);
        let mb = |bytes: f64| format!("{:.1}", bytes / 1e6);
        format!(
            "| {name} | {},{:03} | {} | {} | {} to {} | {} |",
            messages as u32 / 1_000,
            messages as u32 % 1_000,
            mb(results),
            mb(progress),
            mb(packed),
            mb(alone),
            mb(down)
        )
    });
    says(&rows);
}

/// The rows of a table in `docs/sizing.md`.
fn says(rows: &[String]) {
    for row in rows {
        assert!(SIZING.contains(row.as_str()), "docs/sizing.md should say\n{}", rows.join("\n"));
    }
}
