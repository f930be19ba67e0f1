//! The retained message by which the centre knows how the gateway is.

use serde::Serialize;

use crate::status::{Level, SCHEMA, Status};
use crate::time::ClockQuality;

/// Its topic, below the prefix.
pub const TOPIC: &str = "status";

/// Topic of a large correction of the gateway's clock, below the prefix.
pub const CLOCK: &str = "clock";

/// A large correction of the gateway's clock. Times are milliseconds since the epoch, by that clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Jumped {
    /// What it showed.
    pub from: i64,
    /// What it shows since, at the same moment.
    pub to: i64,
    /// The one less the other, in milliseconds.
    pub shift: i64,
    /// Who says so: a time server, or `host`.
    pub source: String,
    /// It had never been set by anybody before.
    pub initial: bool,
}

/// The gateway's clock was set.
pub fn jumped(generation: &str, jumped: &Jumped) -> Vec<u8> {
    #[derive(Serialize)]
    struct Message<'a> {
        schema: u32,
        generation: &'a str,
        #[serde(flatten)]
        jumped: &'a Jumped,
    }
    let message = Message { schema: SCHEMA, generation, jumped };
    serde_json::to_vec(&message).expect("names and numbers only")
}

/// What is in all of them.
#[derive(Serialize)]
struct Message<'a, Rest: Serialize> {
    schema: u32,
    generation: &'a str,
    version: &'a str,
    status: &'static str,
    #[serde(flatten)]
    rest: Rest,
}

#[derive(Serialize)]
struct Online<'a> {
    at: i64,
    since: i64,
    /// When the configuration was read that it runs with.
    configured: i64,
    /// When a later one was refused.
    refused_configuration: Option<i64>,
    health: Level,
    reasons: Vec<Why<'a>>,
    clock: Option<ClockQuality>,
    /// Whom the time was last taken from.
    clock_source: Option<&'a str>,
    /// How far it is off at most, in milliseconds.
    clock_bound: Option<i64>,
    watermark: Option<i64>,
    /// Longest of the regions that are waited for.
    lag: Option<i64>,
    devices: usize,
    active: usize,
    outbox: usize,
    outbox_bytes: u64,
    received: u64,
    late: u64,
    quarantined: u64,
    malformed: u64,
    unmatched: u64,
}

#[derive(Serialize)]
struct Why<'a> {
    level: Level,
    code: &'a str,
    text: &'a str,
}

#[derive(Serialize)]
struct Offline {
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<i64>,
}

/// The agent is there, and so it is.
pub fn online(status: &Status) -> Vec<u8> {
    let reasons = status.health.reasons.iter();
    let waited_for = status.regions.iter().filter(|region| !region.idle);
    let rest = Online {
        at: status.at,
        since: status.since,
        configured: status.configuration.loaded,
        refused_configuration: status.configuration.refused_at,
        health: status.health.level,
        reasons: reasons
            .map(|reason| Why { level: reason.level, code: &reason.code, text: &reason.text })
            .collect(),
        clock: status.clock,
        clock_source: status.timekeeping.reference.as_deref(),
        clock_bound: status.timekeeping.bound,
        watermark: status.watermark,
        lag: waited_for.filter_map(|region| region.lag).max(),
        devices: status.devices.known,
        active: status.devices.active,
        outbox: status.outbox.entries,
        outbox_bytes: status.outbox.bytes,
        received: status.books.received,
        late: status.books.late,
        quarantined: status.books.quarantined,
        malformed: status.books.malformed,
        unmatched: status.books.unmatched,
    };
    encode(&status.generation, &status.version, "online", rest)
}

/// The agent was asked to end, and has ended at `at`.
pub fn stopped(generation: &str, version: &str, at: i64) -> Vec<u8> {
    encode(generation, version, "offline", Offline { reason: "stopped", since: Some(at) })
}

/// The last will: the broker no longer hears the agent. Since when, nobody can say beforehand.
pub fn lost(generation: &str, version: &str) -> Vec<u8> {
    encode(generation, version, "offline", Offline { reason: "lost", since: None })
}

fn encode(generation: &str, version: &str, status: &'static str, rest: impl Serialize) -> Vec<u8> {
    let message = Message { schema: SCHEMA, generation, version, status, rest };
    serde_json::to_vec(&message).expect("names and numbers only")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::books::Books;
    use crate::status::{
        Configuration, Devices, Example, Health, Reason, Region, Timekeeping, health,
    };

    fn json(bytes: &[u8]) -> serde_json::Value {
        serde_json::from_slice(bytes).expect("JSON")
    }

    #[test]
    fn online_tells_health_and_the_longest_lag_that_matters() {
        let region = |lag, idle| Region { lag, idle, ..Region::default() };
        let mut status = Status {
            generation: "00ff".into(),
            at: 90_000,
            since: 7,
            clock: Some(ClockQuality::Suspect),
            regions: vec![region(Some(5), false), region(None, false), region(Some(9), true)],
            ..Status::default()
        };
        status.health = health::judge(&status);
        let told = json(&online(&status));
        assert_eq!(told["status"], "online");
        assert_eq!(
            (&told["lag"], &told["since"], &told["at"]),
            (&5.into(), &7.into(), &90_000.into())
        );
        assert_eq!(told["health"], "failing", "nobody is connected");
        assert_eq!(told["reasons"][0]["code"], "broker-away");
        assert_eq!(told["clock"], "suspect");
    }

    #[test]
    fn the_contract_shows_these_messages_and_names_every_field() {
        const CONTRACT: &str = include_str!("../../docs/wire.md");
        let why = Reason {
            level: Level::Degraded,
            code: "subscription-refused".into(),
            text: "the devices' broker refused to subscribe us to meters/#".into(),
            remedy: String::new(),
        };
        let status = Status {
            generation: "9f3c0a1b2c3d4e5f".into(),
            version: "0.1.0".into(),
            at: 1_749_949_260_000,
            since: 1_749_862_860_000,
            configuration: Configuration { loaded: 1_749_862_860_000, ..Configuration::default() },
            health: Health { level: Level::Degraded, reasons: vec![why] },
            clock: Some(ClockQuality::Synchronised),
            timekeeping: Timekeeping {
                reference: Some("ntp.example.org".into()),
                bound: Some(9),
                refused: [("silent".into(), 1)].into(),
                ..Timekeeping::default()
            },
            watermark: Some(1_749_949_205_916),
            regions: vec![Region { lag: Some(54_084), ..Region::default() }],
            devices: Devices { known: 120, active: 118, ..Devices::default() },
            books: Books { received: 481_220, late: 3, ..Books::default() },
            unmatched: vec![Example::default()],
            refused: vec![Example { reason: Some("past".into()), ..Example::default() }],
            ..Status::default()
        };
        let jump = Jumped {
            from: 1_749_862_860_000,
            to: 1_749_949_260_000,
            shift: 86_400_000,
            source: "ntp.example.org".into(),
            initial: true,
        };
        let jump = jumped(&status.generation, &jump);
        for message in [online(&status), lost(&status.generation, &status.version), jump] {
            let text = String::from_utf8(message).expect("text");
            assert!(CONTRACT.contains(&format!("\n{text}\n")), "{text}");
        }
        let mut document = serde_json::to_value(&status).expect("JSON");
        let books = document.as_object_mut().and_then(|fields| fields.remove("books"));
        assert!(books.is_some(), "its columns are in the handbook");
        let mut pending = vec![document, json(&online(&status)), json(&stopped("", "", 1))];
        while let Some(value) = pending.pop() {
            match value {
                serde_json::Value::Object(fields) => {
                    for (name, value) in fields {
                        assert!(CONTRACT.contains(&format!("`{name}`")), "{name}");
                        pending.push(value);
                    }
                }
                serde_json::Value::Array(values) => pending.extend(values),
                _ => {}
            }
        }
    }

    #[test]
    fn offline_says_whether_it_was_meant() {
        let told = json(&stopped("00ff", "1.2.3", 5));
        let expected = r#"{"schema":1,"generation":"00ff","version":"1.2.3","status":"offline","reason":"stopped","since":5}"#;
        assert_eq!(told, json(expected.as_bytes()));
        let told = json(&lost("00ff", "1.2.3"));
        assert_eq!((&told["reason"], told.get("since")), (&"lost".into(), None));
    }
}
