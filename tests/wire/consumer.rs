//! The example consumer (`examples/consumer`): the right table, whatever comes twice, out of order, or again after a
//! store was rebuilt.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tidegate::config::{Config, Mode};
use tidegate::engine::Engine;
use tidegate::engine::effect::Effects;
use tidegate::engine::input::{Ingress, Input, Publish, Topic};
use tidegate::engine::settings::ClockRules;
use tidegate::ids::Generation;
use tidegate::time::{ArrivalTime, ClockStatus, MonoTime, Now};
use tidegate::wire::encode::{Identity, encode};
use tidegate::wire::fields::Fields;

/// Midnight UTC of some day.
const DAY: i64 = 1_795_910_400_000;
const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

const CONFIG: &str = r#"
gateway.id = "gw"
defaults = { revisions = "immediate", idle-timeout = "3h" }
[[source]]
name = "meters"
topic = "meters/{region}/{device}/{kind}"
time = { from = "/ts", as = "epoch_ms" }
heartbeat = { from = "topic:kind", equals = "heartbeat" }
metric = [{ name = "power", from = "/power", unit = "W", aggregates = ["sum", "min", "max", "last"] }]
"#;

/// What the meters are called. The first is no plain word in a topic, in SQL, and in JSON.
const METERS: [&str; 2] = ["o'\"\\%2F7", "m-2"];

/// A gateway whose store was created at some time.
struct Life {
    engine: Engine,
    effects: Effects,
    identity: Identity,
    now: i64,
}

impl Life {
    fn begins(created: i64) -> Self {
        let settings = Config::from_toml(CONFIG)
            .expect("no mistake")
            .settings(Mode::Replay(ClockRules::Applied));
        let generation = Generation::new(ArrivalTime(created), 7);
        let engine = Engine::new(settings, generation, ArrivalTime(created));
        let identity = Identity { gateway: "gw".into(), generation };
        let mut life = Self { engine, effects: Effects::default(), identity, now: created };
        life.handle(Input::Clock(ClockStatus::EXACT));
        for change in [Ingress::Up, Ingress::CaughtUp] {
            life.handle(Input::Ingress(change));
        }
        life
    }

    fn handle(&mut self, input: Input<'_>) {
        let now = Now { wall: ArrivalTime(self.now), mono: MonoTime(self.now) };
        self.engine.handle(input, now, &mut self.effects);
    }

    fn hears(&mut self, kind: &str, time: i64) {
        self.now = self.now.max(time);
        for meter in METERS {
            let topic = format!("meters/north/{meter}/{kind}");
            let payload = match kind {
                "heartbeat" => format!(r#"{{"ts":{time}}}"#),
                _ => format!(r#"{{"ts":{time},"power":{}}}"#, (time - DAY) / MINUTE),
            };
            let (topic, payload) = (Topic::Name(&topic), payload.as_bytes());
            self.handle(Input::Publish(Publish { topic, payload, retain: false, dup: false }));
        }
    }

    /// A sample every ten minutes, and a heartbeat at the end.
    fn hears_all(&mut self, from: i64, to: i64) {
        for time in (from..to).step_by(10 * MINUTE as usize) {
            self.hears("telemetry", time);
        }
        self.hears("heartbeat", to);
    }

    /// What it has published: topic and payload.
    fn published(mut self) -> Vec<(String, String)> {
        let encoded = self
            .effects
            .outputs
            .drain(..)
            .map(|output| encode(&output, &self.identity, Fields::default()));
        let text = |payload| String::from_utf8(payload).expect("UTF-8");
        encoded.map(|it| (format!("tidegate/gw/{}", it.topic), text(it.payload))).collect()
    }
}

/// Three lives of one gateway: the store is lost at half past ten, and again at twenty past eleven.
fn three_lives() -> Vec<(String, String)> {
    let at = |hour: i64, minute: i64| DAY + hour * HOUR + minute * MINUTE;
    let mut first = Life::begins(DAY);
    first.hears_all(at(8, 0), at(9, 0));
    // Too few messages for eight o'clock and for nine: one comes later, and revises its hour.
    first.hears("telemetry", at(8, 5));
    first.hears_all(at(9, 0), at(10, 30));
    let mut second = Life::begins(at(10, 30));
    second.hears_all(at(10, 30), at(11, 20));
    // For the second life the hour of nine holds this and nothing else; that of three is long final.
    second.hears("telemetry", at(9, 15));
    second.hears("telemetry", at(3, 0));
    let mut third = Life::begins(at(11, 20));
    third.hears_all(at(11, 20), at(12, 0));
    // The second life knows more of the hour of ten.
    third.hears("telemetry", at(10, 55));
    third.hears_all(at(12, 0), at(13, 0));
    [first, second, third].into_iter().flat_map(Life::published).collect()
}

/// Samples of each meter, their least and greatest minute of the day, and whether something is missing.
fn truth() -> BTreeMap<i64, (i64, i64, i64, bool)> {
    BTreeMap::from([
        (8, (7, 480, 530, false)),
        (9, (6, 540, 590, false)),
        (10, (3, 630, 650, true)),
        (11, (4, 680, 710, true)),
        (12, (6, 720, 770, false)),
    ])
}

/// What is in the tables of the example after these messages.
fn consumed(messages: &[(String, String)], query: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/consumer");
    let read = |file: &str| format!(".read \"{}\"\n", folder.join(file).display());
    let mut script = format!(".bail on\n{}.parameter init\nBEGIN;\n", read("tables.sql"));
    for (topic, payload) in messages {
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
        script += &format!(
            "REPLACE INTO temp.sqlite_parameters VALUES (':topic', {}), (':payload', {});\n",
            quoted(topic),
            quoted(payload)
        );
        script += &["window.sql", "region.sql", "late.sql"].map(read).concat();
    }
    script += &format!("COMMIT;\n{query};\n");
    let mut sqlite = Command::new("sqlite3")
        .arg(":memory:")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("sqlite3 is installed");
    sqlite.stdin.take().expect("a pipe").write_all(script.as_bytes()).expect("it reads");
    let output = sqlite.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Somewhere else each, and some of them more than once.
fn mixed(messages: &[(String, String)], rng: &mut fastrand::Rng) -> Vec<(String, String)> {
    let mut mixed: Vec<_> =
        messages.iter().flat_map(|message| vec![message.clone(); rng.usize(1..=3)]).collect();
    rng.shuffle(&mut mixed);
    mixed
}

#[test]
fn the_example_ends_with_the_right_table_after_duplicates_revisions_and_rebuilt_stores() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let messages = three_lives();
    let count = |part: &str| messages.iter().filter(|(_, payload)| payload.contains(part)).count();
    assert!(count("\"revision\":1") >= 2 && count("\"partial\":true") >= 6, "{messages:#?}");

    let devices = "SELECT json_array(gateway, device, (start - 1795910400000) / 3600000, count, CAST(min AS INTEGER), \
                   CAST(max AS INTEGER), CAST(last AS INTEGER), partial) \
                   FROM device_metric WHERE window_name = 'hour' AND metric = 'power' ORDER BY device, start";
    let regions = "SELECT json_array((start - 1795910400000) / 3600000, samples, reporting, partial) \
                   FROM region_result WHERE window_name = 'hour' ORDER BY start";
    let of = |device: &'static str| {
        truth().into_iter().map(move |(hour, (samples, min, max, partial))| {
            json!(["gw", device, hour, samples, min, max, max, i64::from(partial)])
        })
    };
    let expected: Vec<Value> = of("m-2").chain(of("o'\"\\%252F7")).collect();
    for round in 0..6 {
        let messages = if round == 0 { messages.clone() } else { mixed(&messages, &mut rng) };
        assert_eq!(consumed(&messages, devices), expected, "round {round}");
        let late = consumed(&messages, "SELECT count(*) FROM late_record");
        assert_eq!(late, [json!(2)], "one for each meter, round {round}");
        let of_regions = consumed(&messages, regions);
        for row in &of_regions {
            let (samples, _, _, partial) = truth()[&row[0].as_i64().expect("an hour")];
            assert_eq!(*row, json!([row[0], 2 * samples, 2, i64::from(partial)]), "round {round}");
        }
        assert!(of_regions.len() >= 3, "{of_regions:?}");
    }
}

#[test]
fn of_two_whole_results_the_newer_generation_counts() {
    let result = |generation: &str, revision: u32, samples: u32| {
        let payload = json!({
            "schema": 1, "generation": generation, "start": DAY, "revision": revision, "samples": samples,
            "metrics": { "power": { "mean": 1.5 } },
        });
        ("tidegate/gw/window/hour/north/m".to_owned(), payload.to_string())
    };
    let mut all = [
        result("00f0000000000001", 9, 1),
        result("01a2272d26000007", 4, 2),
        result("01a2272d26010000", 0, 3),
    ];
    for _ in 0..2 {
        let rows =
            consumed(&all, "SELECT json_array(generation, revision, samples) FROM device_result");
        assert_eq!(rows, [json!(["01a2272d26010000", 0, 3])]);
        all.reverse();
    }
}
