//! Everything that can be published, once: each kind of message and each reason to refuse, as the contract has them.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::central::Arrived;
use crate::contract::{CONTRACT, REPLAY_LINE};
use crate::fleet::{self, DAY, HOUR, MINUTE, Message, heartbeat, sample};
use crate::setup::{Options, Setup};

#[test]
fn every_kind_of_message_and_every_reason_comes_as_the_contract_has_it() {
    let options = Options {
        broker: "max-payload = \"4 KiB\"",
        tables: "[watermarks]\npublish-interval = \"0s\"\n[presence]\ngap-after = \"0s\"",
        ..Options::default()
    };
    let mut setup = Setup::with(&options);
    let mut agent = setup.agent();
    agent.hears("caught up");
    setup.devices.stop();
    setup.devices.run();
    agent.hears("caught up"); // and tells the gap
    let now = fleet::now();
    // Whole windows of the day before yesterday.
    let start = now.div_euclid(DAY) * DAY - 2 * DAY;
    setup.publish(&good(start, now));
    setup.publish(&refused(now));
    setup.publish(&[late(start), sample("moor", "m", now, 1.0)]);

    setup.central.agrees(|arrived| {
        let missing = wanted().difference(&seen(arrived)).next().cloned();
        missing.map_or(Ok(()), |missing| Err(format!("{missing} has not come")))
    });
    setup.leaves_empty(agent);
    assert_eq!(setup.central.arrived().contradictions, Vec::<String>::new());
}

/// First levels of topics, with the reason where there is one. Live nothing is without a time, and nobody sets this clock:
/// `tests/clock` has what is told then.
fn wanted() -> BTreeSet<String> {
    let kinds = CONTRACT.schemas().map(|(kind, _)| kind);
    let kinds = kinds
        .filter(|kind| !["quarantine", "clock", REPLAY_LINE].contains(kind))
        .map(str::to_owned);
    let reasons = CONTRACT.reasons().filter(|reason| *reason != "no-time");
    let more =
        ["window/day", "region/day", "watermark/north", "watermark alone"].map(str::to_owned);
    kinds.chain(reasons.map(|reason| format!("quarantine/{reason}"))).chain(more).collect()
}

fn seen(arrived: &Arrived) -> BTreeSet<String> {
    let results = arrived.results.keys().map(|(topic, ..)| topic);
    let late = arrived.late.iter().map(|(topic, ..)| topic);
    let others = arrived.others.iter().map(|(topic, _): &(String, Value)| topic);
    let parts = results.chain(late).chain(others).flat_map(|topic| {
        let mut levels = topic.splitn(3, '/');
        let first = levels.next().unwrap_or_default().to_owned();
        let two = match levels.next() {
            Some(second) => format!("{first}/{second}"),
            None => format!("{first} alone"),
        };
        [first, two]
    });
    parts.collect()
}

/// Two meters with an hour and a day each; one lags behind the other for longer than `max-hold`, then is there again.
fn good(start: i64, now: i64) -> Vec<Message> {
    let mut messages = Vec::new();
    for device in ["ahead", "behind"] {
        messages.extend((0..4).map(|at| sample("north", device, start + at * 20 * MINUTE, 5.5)));
    }
    messages.push(heartbeat("north", "ahead", now - 2 * HOUR));
    messages.push(heartbeat("north", "behind", now - HOUR));
    messages
}

/// Its window has been final for a day.
fn late(start: i64) -> Message {
    sample("north", "ahead", start + 5 * MINUTE, 7.25)
}

fn refused(now: i64) -> Vec<Message> {
    let raw = |payload: &str| Message {
        topic: "meters/north/ahead/telemetry".into(),
        payload: payload.into(),
    };
    let array = Message {
        topic: "arrays/north/ahead".into(),
        payload: format!(r#"{{"samples":[{{"ts":{now},"power":1}}]}}"#),
    };
    let long = format!(r#"{{"ts":{now},"pad":"{}"}}"#, "x".repeat(5 << 10));
    vec![
        sample("north", "ahead", now + DAY, 1.0),
        sample("north", "ahead", now - 60 * DAY, 1.0),
        raw("{\"ts\":"),
        raw(""),
        raw("17"),
        raw(&long),
        array,
    ]
}
