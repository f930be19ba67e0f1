//! How many events a second of CPU time `replay` takes in, against a bare loop over the same lines.
//!
//! The bare loop parses with serde_json into a borrowed struct and adds to a hash map: no time, no windows, no order.
//! What the engine does on top of that is to cost no more than the same again: goal ≥ 0.5.
//!
//! `EVENTS` (2,000,000), `DEVICES` (10,000) and `RUNS` (5) in the environment; `--quick` for a short form.

#![allow(
    clippy::disallowed_methods,
    reason = "a bench measures real time and waits for real processes"
)]

mod common;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::meters::{self, Fleet, SOURCE};
use fastrand::Rng;
use serde::Deserialize;

/// 2025-06-15 00:00 UTC.
const START: i64 = 1_749_945_600_000;

#[derive(Deserialize)]
#[expect(dead_code, reason = "parsed, as the engine's fields are")]
struct Event<'a> {
    device: &'a str,
    region: &'a str,
    ts: i64,
    kind: &'a str,
    power: f64,
    voltage: f64,
    current: f64,
    energy_kwh: f64,
}

struct Stats {
    count: u64,
    sum: f64,
    min: f64,
    max: f64,
}

fn bare_loop(file: &Path) -> usize {
    let mut input = BufReader::with_capacity(1 << 17, File::open(file).expect("just written"));
    let mut devices: HashMap<String, Stats> = HashMap::new();
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line).expect("readable") > 0 {
        let event: Event<'_> = serde_json::from_slice(&line).expect("an event");
        if let Some(stats) = devices.get_mut(event.device) {
            stats.count += 1;
            stats.sum += event.power;
            stats.min = stats.min.min(event.power);
            stats.max = stats.max.max(event.power);
        } else {
            let (sum, min, max) = (event.power, event.power, event.power);
            devices.insert(event.device.to_owned(), Stats { count: 1, sum, min, max });
        }
        line.clear();
    }
    devices.len()
}

/// Writes the events bare and recorded; returns both files and the bytes of a bare line.
fn generate(directory: &Path, events: u64, devices: usize) -> (PathBuf, PathBuf, f64) {
    let files = [directory.join("bare.jsonl"), directory.join("recorded.jsonl")];
    let [mut bare, mut recorded] =
        files.clone().map(|file| BufWriter::new(File::create(file).expect("writable")));
    let (mut rng, mut text, mut bytes) = (Rng::with_seed(1), String::new(), 0);
    for (arrival, event) in Fleet::new(devices, START).take(events as usize) {
        text.clear();
        meters::payload(&event, &mut rng, &mut text);
        writeln!(bare, "{text}").expect("room");
        bytes += text.len();
        let topic = format!("meters/{}/{}/telemetry", event.region, meters::name(event.device));
        let payload = serde_json::to_string(&text).expect("text");
        writeln!(recorded, r#"{{"topic":"{topic}","payload":{payload},"arrival":{arrival}}}"#)
            .expect("room");
    }
    bare.flush().expect("room");
    recorded.flush().expect("room");
    let [bare, recorded] = files;
    (bare, recorded, bytes as f64 / events as f64)
}

/// CPU seconds of one `tidegate replay`.
fn replay(config: &Path, file: &Path, source: bool) -> f64 {
    let before = common::waited_cpu();
    let mut command = Command::new(common::binary());
    command.arg("--config").arg(config).arg("replay").arg(file);
    if source {
        command.args(["--source", "meters"]);
    }
    let ended = command.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("starts");
    assert!(ended.success(), "{ended}");
    common::waited_cpu() - before
}

fn config(directory: &Path, name: &str, head: &str) -> PathBuf {
    let mut text = String::new();
    writeln!(text, "{head}\n{SOURCE}").expect("text grows");
    let path = directory.join(name);
    fs::write(&path, text).expect("writable");
    path
}

fn main() {
    let events = common::size("EVENTS", 2_000_000, 300_000);
    let devices = common::size("DEVICES", 10_000, 10_000) as usize;
    let runs = common::size("RUNS", 5, 3);
    let directory = common::directory();
    let directory = directory.path();
    let (bare, recorded, bytes) = generate(directory, events, devices);
    println!(
        "{events} events of {devices} devices, {bytes:.0} bytes a line, medians of {runs} runs"
    );

    let window = "[[window]]\nname = \"hour\"\nsize = \"1h\"";
    let flink = "compat = \"flink\"\nwatermarks.scope = \"device\"";
    let no_rollups = "rollups.regions = false";
    let rows = [
        ("payloads", config(directory, "full.toml", window), true),
        (
            "  without region roll-ups",
            config(directory, "a.toml", &format!("{no_rollups}\n{window}")),
            true,
        ),
        (
            "  without duplicate detection",
            config(directory, "b.toml", &format!("{flink}\n{window}")),
            true,
        ),
        (
            "  without both",
            config(directory, "c.toml", &format!("{flink}\n{no_rollups}\n{window}")),
            true,
        ),
        ("recorded {topic,payload,arrival}", config(directory, "d.toml", window), false),
    ];
    let mut loops = Vec::new();
    let mut seconds = vec![Vec::new(); rows.len()];
    for _ in 0..runs {
        let before = common::own_cpu();
        assert_eq!(bare_loop(&bare), devices.min(events as usize));
        loops.push(common::own_cpu() - before);
        for ((_, config, source), seconds) in rows.iter().zip(&mut seconds) {
            seconds.push(replay(config, if *source { &bare } else { &recorded }, *source));
        }
    }
    let bare = common::median(loops);
    let million = events as f64 / 1e6;
    println!("{:<36}{:>16}{:>8}{:>8}", "", "M events/CPU-s", "ratio", "goal");
    println!("{:<36}{:>16.2}{:>8}", "bare loop", million / bare, "1");
    for ((name, ..), seconds) in rows.iter().zip(seconds) {
        let seconds = common::median(seconds);
        println!("{name:<36}{:>16.2}{:>8.2}{:>8}", million / seconds, bare / seconds, "≥ 0.5");
    }
}
