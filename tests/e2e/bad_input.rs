//! What devices should not send, among what they should.

use rumqttc::QoS;

use crate::fleet::{self, HOUR, MINUTE, Message, heartbeat, sample};
use crate::reference::{self, Rules};
use crate::setup::{Options, Setup, block_on, rules};
use crate::support;

const TELEMETRY: &str = "meters/north/bad/telemetry";
/// Above `max-payload`, and below what the broker is told to withhold.
const TOO_LONG: usize = 5 << 10;
/// Above both.
const MUCH_TOO_LONG: usize = 200 << 10;

fn publish_at(setup: &Setup, qos: QoS, retain: bool, messages: &[(&str, Vec<u8>)]) {
    let messages = messages.iter().map(|(topic, payload)| (*topic, payload.clone()));
    block_on(support::publish_at(qos, retain, setup.devices.port(), messages));
}

fn pair(message: &Message) -> (&str, Vec<u8>) {
    (&message.topic, message.payload.clone().into_bytes())
}

#[test]
fn bad_messages_are_counted_and_good_ones_on_both_sides_of_them_are_used() {
    let options = Options {
        broker: "max-payload = \"4 KiB\"",
        meters: "subscribe = [\"meters/#\"]",
        ..Options::default()
    };
    let setup = Setup::with(&options);
    let hour = fleet::now().div_euclid(HOUR) * HOUR - 2 * HOUR;
    let good = |minute: i64| sample("north", "good", hour + minute * MINUTE, minute as f64);

    // Retained before the agent is there: a sample is news if it is newer than all, a heartbeat never is.
    let kept = sample("north", "kept", hour + 1, 7.5);
    let kept_beat = heartbeat("north", "kept", hour + 2 * HOUR);
    let beat = heartbeat("north", "good", hour + 2 * HOUR);
    publish_at(&setup, QoS::AtLeastOnce, true, &[pair(&kept), pair(&kept_beat), pair(&beat)]);
    let mut agent = setup.agent();
    agent.hears("caught up");

    setup.publish(&[good(1)]);
    let malformed = malformed();
    publish_at(&setup, QoS::AtLeastOnce, false, &malformed);
    setup.publish(&[good(2)]);
    publish_at(&setup, QoS::AtLeastOnce, false, &unusable(hour));
    setup.publish(&[good(3)]);
    publish_at(&setup, QoS::AtLeastOnce, false, &wrong_types(hour));
    publish_at(&setup, QoS::AtMostOnce, false, &[pair(&good(4)), pair(&good(5))]);
    // To one who is subscribed it is live, whether or not the broker keeps it.
    publish_at(&setup, QoS::AtLeastOnce, true, &[pair(&good(6))]);
    // What was ignored as history is news when it is sent live.
    let beats = [beat, kept_beat, heartbeat("north", "bad", hour + 2 * HOUR)];
    setup.publish(&beats);

    let used: Vec<_> = [kept].into_iter().chain((1..=6).map(good)).chain(beats).collect();
    let expected = reference::expect(&all_rules(), &used);
    assert_eq!((expected.windows.len(), expected.regions.len()), (2, 1));
    setup.arrives(&expected);
    let refusals = malformed.len() + 1;
    setup
        .central
        .until("the refused messages", |arrived| refused(&arrived.others).len() >= refusals);

    let books = setup.leaves_empty(agent).books();
    for (column, count) in COLUMNS {
        assert_eq!(books.of(column), count, "{column} in {books:?}");
    }
    let arrived = setup.central.arrived();
    let refused = refused(&arrived.others);
    assert_eq!(refused.len(), refusals, "{refused:?}");
    let is_oversize = |(topic, _): &&&Refused| topic.starts_with("quarantine/oversize");
    let oversize: Vec<_> = refused.iter().filter(is_oversize).collect();
    assert_eq!(oversize.len(), 1);
    assert_eq!(oversize[0].1["length"], long(hour, TOO_LONG).len());
    assert!(oversize[0].1["sha256"].is_string(), "{oversize:?}");
}

/// What the books must say in the end.
const COLUMNS: [(&str, u64); 14] = [
    ("received", 26),
    ("decoded", 15),
    ("malformed", 8),
    ("unmatched", 2),
    ("oversize", 1),
    ("ignored", 0),
    ("aggregated", 8),
    ("valueless", 5),
    ("retained_ignored", 2),
    ("stamped", 1),
    ("unreadable", 5),
    ("duplicate", 0),
    ("quarantined", 0),
    ("late", 0),
];

type Sent = (&'static str, Vec<u8>);

fn malformed() -> [Sent; 8] {
    let payloads = [
        &b"{\"ts\":"[..],
        b"no JSON",
        b"",
        b"{\"ts\":1,\"power\":\"\xff\"}",
        b"[]",
        b"17",
        b"null",
        b"{\"ts\":1}{\"ts\":2}",
    ];
    payloads.map(|payload| (TELEMETRY, payload.to_vec()))
}

/// Of no source, or too long.
fn unusable(hour: i64) -> [Sent; 4] {
    [
        ("meters/north/bad", b"{}".to_vec()),
        ("meters/north/bad/telemetry/more", b"{}".to_vec()),
        (TELEMETRY, long(hour, TOO_LONG)),
        (TELEMETRY, long(hour, MUCH_TOO_LONG)),
    ]
}

fn long(hour: i64, length: usize) -> Vec<u8> {
    let pad = "x".repeat(length);
    format!(r#"{{"ts":{},"power":1,"pad":"{pad}"}}"#, hour + 5).into_bytes()
}

fn wrong_types(hour: i64) -> [Sent; 3] {
    [
        // Records without a value.
        (TELEMETRY, format!(r#"{{"ts":{},"power":{{"watts":1}}}}"#, hour + 6).into_bytes()),
        (TELEMETRY, format!(r#"{{"ts":{},"power":null}}"#, hour + 7).into_bytes()),
        // A value at no time.
        ("meters/odd/timeless/telemetry", br#"{"ts":"noon","power":1}"#.to_vec()),
    ]
}

type Refused = (String, serde_json::Value);

fn all_rules() -> Rules {
    rules(fleet::Times::around_midnight())
}

/// What was refused, once each: an output whose acknowledgement the agent did not hear before it left is sent again.
fn refused(others: &[Refused]) -> Vec<&Refused> {
    let mut once = Vec::new();
    for refused in others.iter().filter(|(topic, _)| topic.starts_with("quarantine/")) {
        if !once.contains(&refused) {
            once.push(refused);
        }
    }
    once
}
