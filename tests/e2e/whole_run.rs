//! A fleet's six hours, undisturbed.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::agent::{Agent, PATIENCE, command};
use crate::fleet::{self, Times};
use crate::reference::{self, Expected};
use crate::setup::{AGENT, Options, Setup, books_agree, rules};

/// Lets mosquitto write down each packet that it sends.
pub const VERBOSE: &str = "log_type all\nlog_dest file {dir}/packets.log";

#[test]
fn devices_in_hours_out() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let setup = Setup::with(&Options { mosquitto: VERBOSE, ..Options::default() });
    let times = Times::around_midnight();
    let messages = fleet::publish(seed, times);
    let expected = reference::expect(&rules(times), &messages);
    is_worth_it(&expected);

    let agent = setup.agent();
    let recording = setup.dir().join("recording.jsonl");
    let mut recorder = command(&setup.config(), "record");
    recorder.arg(&recording);
    let recorder = Agent::spawn(recorder);
    packets_have(&setup, &format!("Sending SUBACK to {AGENT}-record"), 1);
    packets_have(&setup, &format!("Sending SUBACK to {AGENT}"), 2);
    setup.publish(&messages);
    setup.arrives(&expected);

    let left = setup.leaves_empty(agent);
    let books = left.books();
    books_agree(&books, &expected);
    assert_eq!(books.of("received"), messages.len() as u64);
    assert_eq!(books.of("duplicate"), expected.duplicate);

    lines_in(&recording, messages.len());
    recorder.stop();
    replay_agrees(&setup, &expected);
}

#[test]
fn in_by_mqtt_3_1_1_and_out_by_mqtt_5_with_a_kill_in_between() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let (broker, upstream) = ("version = \"3.1.1\"", "version = 5");
    let setup = Setup::with(&Options { broker, upstream, ..Options::default() });
    let times = Times::around_midnight();
    let messages = fleet::publish(seed, times);
    let expected = reference::expect(&rules(times), &messages);
    let mut agent = setup.agent();
    agent.hears("caught up");
    setup.publish(&messages[..messages.len() / 2]);
    setup.central.until("the first results", |arrived| arrived.messages > 20);
    agent.kill();
    setup.publish(&messages[messages.len() / 2..]);
    let mut agent = setup.agent();
    agent.hears("connected to the devices' broker session_present=true");
    setup.arrives(&expected);
    books_agree(&setup.leaves_empty(agent).books(), &expected);
}

/// Nothing that the test is about may be missing from what was drawn.
pub fn is_worth_it(expected: &Expected) {
    let Expected { windows, regions, late, duplicate, revising, .. } = expected;
    println!(
        "{} windows, {} of regions, {} late, {revising} revising, {duplicate} duplicates",
        windows.len(),
        regions.len(),
        late.len()
    );
    assert!(windows.len() > 1_000 && regions.len() >= 14);
    assert!(windows.keys().any(|(topic, _)| topic.starts_with("window/day")));
    assert!(regions.keys().any(|(topic, _)| topic.starts_with("region/day")));
    assert!(late.len() > 100 && *duplicate > 100 && *revising > 100);
    assert!(expected.quarantined > 5 && expected.stamped > 5);
}

/// A recording of the run, replayed, ends with the same windows.
fn replay_agrees(setup: &Setup, expected: &Expected) {
    let mut replay = command(&setup.config(), "replay");
    let output = replay.arg(setup.dir().join("recording.jsonl")).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let mut last = BTreeMap::new();
    for line in output.stdout.lines() {
        let line: Value = serde_json::from_str(&line.expect("UTF-8")).expect("JSON");
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        if line["type"] == "window" {
            let topic = format!("window/{}/{}/{}", text("window"), text("region"), text("device"));
            last.insert((topic, line["start"].as_i64().expect("a start")), line);
        }
    }
    let arrived = setup.central.arrived();
    let live = arrived.last();
    for (topic, start) in expected.windows.keys() {
        let (live, replayed) = (live[&(topic.as_str(), *start)], &last[&(topic.clone(), *start)]);
        for field in ["end", "samples", "coverage", "gap", "first_at", "last_at", "metrics"] {
            assert_eq!(replayed[field], live[field], "{field} of {topic} {start}");
        }
    }
}

fn lines_in(file: &std::path::Path, count: usize) {
    let lines = || fs::File::open(file).map_or(0, |file| BufReader::new(file).lines().count());
    eventually(&format!("{count} recorded messages"), || lines() >= count);
}

/// Waits until mosquitto's log has a text that often.
fn packets_have(setup: &Setup, text: &str, times: usize) {
    eventually(text, || packets(setup, text) >= times);
}

/// How many lines of mosquitto's log have this text.
pub fn packets(setup: &Setup, text: &str) -> usize {
    let log = fs::read(setup.devices.dir().join("packets.log")).unwrap_or_default();
    String::from_utf8_lossy(&log).lines().filter(|line| line.contains(text)).count()
}

pub fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "not yet: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
