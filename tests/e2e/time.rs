//! The agent and time, from end to end: its host is wrong and is set, a time server answers late, devices go on.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::agent::Agent;
use crate::central::Arrived;
use crate::dark::Host;
use crate::fleet::{self, DAY, HOUR, MINUTE, Message, heartbeat, sample};
use crate::setup::{Options, Setup};
use crate::status::{codes, until};
use crate::support::{Manner, TimeServer};

/// Readings without a time of their own, in windows of a second: they are told as soon as a later one comes.
const PLAIN: &str = r#"
[[window]]
name = "hour"
size = "1h"

[[window]]
name = "day"
size = "1d"

[[window]]
name = "second"
size = "1s"

[[source]]
name = "plain"
topic = "plain/{region}/{device}"
window = "second"
metric = [{ name = "power", from = "/power", unit = "W", aggregates = ["sum"] }]
"#;

fn plain(device: &str, power: u32) -> Message {
    Message { topic: format!("plain/north/{device}"), payload: format!(r#"{{"power":{power}}}"#) }
}

/// A host whose kernel is in step with nobody, and a time server.
fn host_that_asks(server: &TimeServer, options: &Options) -> Host {
    let host = Host::new(options);
    let (path, servers) = (host.setup.config(), format!("clock.servers = [\"{}\"]", server.name()));
    let text = fs::read_to_string(&path).expect("it was written");
    fs::write(path, text.replace("clock.trust-host = true", &servers)).expect("it is ours");
    host
}

impl Arrived {
    /// The corrections of the gateway's clock that were told, each once.
    fn clock_events(&self) -> Vec<&Value> {
        let mut all: Vec<&Value> = Vec::new();
        for (topic, body) in &self.others {
            if topic == "clock" && !all.contains(&body) {
                all.push(body);
            }
        }
        all
    }

    fn offline(&self) -> Vec<&Value> {
        let states = self.others.iter().filter(|(topic, _)| topic.starts_with("presence/"));
        states.map(|(_, body)| body).filter(|body| body["state"] == "offline").collect()
    }
}

fn balanced(books: &Value) {
    let sum = |columns: &[&str]| {
        columns.iter().map(|name| books[*name].as_u64().expect("a count")).sum::<u64>()
    };
    let messages = ["decoded", "ignored", "unmatched", "malformed", "oversize", "held"];
    assert_eq!(books["received"], sum(&messages), "{books:#}");
}

/// Pain 8: thirteen days behind, and nobody to ask; killed while it holds.
#[test]
fn a_gateway_thirteen_days_behind_puts_nothing_into_the_old_day() {
    let server = TimeServer::start(Manner::silent());
    let host = host_that_asks(&server, &Options { tables: PLAIN, ..Options::default() });
    let setup = &host.setup;
    let behind = || Agent::spawn(host.command_at("run", &[("FAKETIME", "-13d")]));
    let hour = fleet::now().div_euclid(HOUR) * HOUR - 3 * HOUR;
    let began = fleet::now();
    let mut agent = behind();
    agent.hears("caught up");
    let timed = (0..15).map(|at| sample("north", "m1", hour + at * MINUTE, 1.0));
    setup.publish(&timed.chain((0..10).map(|at| plain("p1", 1 << at))).collect::<Vec<_>>());
    let document = host.holds(25);
    assert!(codes(&document).contains(&"holding"), "{document:#}");
    balanced(&document["books"]);
    let shown = document["at"].as_i64().expect("a time");
    assert!((shown + 13 * DAY - fleet::now()).abs() < HOUR, "it does not know better");

    agent.kill();
    let mut agent = behind();
    agent.hears("caught up");
    let timed = (15..20).map(|at| sample("north", "m1", hour + at * MINUTE, 1.0));
    let unset = (0..5).map(|at| sample("north", "m2", 5_000 + at, 1.0));
    setup.publish(&timed.chain(unset).collect::<Vec<_>>());
    setup.publish(&(10..15).map(|at| plain("p1", 1 << at)).collect::<Vec<_>>());
    let document = host.holds(40);
    assert_eq!(document["books"]["received"], 40, "nothing came twice: {document:#}");
    assert!(setup.central.arrived().last().is_empty(), "told in the dark");
    let ended = fleet::now();

    server.set(Manner::ahead(0));
    agent.hears("the clock is good; no message is held");
    // Whoever comes later closes what was before.
    setup.publish(&[heartbeat("north", "m1", hour + HOUR), plain("p1", 1 << 15)]);
    setup.central.until("the hour", |arrived| {
        let last = arrived.last();
        last.get(&("window/hour/north/m1", hour)).is_some_and(|it| it["samples"] == 20)
    });
    let total = |arrived: &Arrived| {
        let plain = arrived.last().into_iter().filter(|((topic, _), _)| topic.contains("/p1"));
        plain.map(|(_, it)| it["metrics"]["power"]["sum"].as_f64().expect("a sum")).sum::<f64>()
    };
    setup.central.until("what had no time", |arrived| total(arrived) == f64::from((1 << 15) - 1));
    let document = until(setup, "well", |code, _| code == 0);
    assert_eq!(document["held"]["messages"], 0);
    assert!(!codes(&document).contains(&"holding"), "{document:#}");
    let books = &document["books"];
    balanced(books);
    for (column, count) in
        [("received", 42), ("aggregated", 41), ("stamped", 5), ("late", 0), ("quarantined", 0)]
    {
        assert_eq!(books[column], count, "{column} in {books:#}");
    }
    let arrived = setup.central.arrived();
    for ((topic, start), result) in arrived.last() {
        assert_eq!(result["clock"], "synchronised", "{result}");
        let of_arrival = topic.contains("/p1");
        let right = if of_arrival { began - 1_000..=ended } else { hour - DAY..=hour };
        assert!(right.contains(&start), "{topic} {start} is not in {right:?}");
    }
    let [told] = arrived.clock_events()[..] else { panic!("{:?}", arrived.clock_events()) };
    let shift = told["shift"].as_i64().expect("a span");
    assert_eq!(told["initial"], true, "{told}");
    assert!((shift - 13 * DAY).abs() < MINUTE, "{told}");
    assert!(arrived.late.is_empty() && arrived.contradictions.is_empty(), "{arrived:#?}");
    drop(arrived);
    agent.stop();
}

/// A clock that somebody sets.
struct HostClock(PathBuf);

impl HostClock {
    fn new(setup: &Setup) -> Self {
        let clock = Self(setup.dir().join("faketime"));
        clock.set("+0");
        clock
    }

    fn set(&self, offset: &str) {
        let new = self.0.with_extension("new");
        fs::write(&new, format!("{offset}\n")).expect("the directory is ours");
        fs::rename(new, &self.0).expect("the directory is ours");
    }

    /// That goes by a time server, or, where none answers, by this clock.
    fn agent(&self, host: &Host, trusted: bool) -> Agent {
        let path = self.0.display().to_string();
        let mut command = host
            .command_at("run", &[("FAKETIME_TIMESTAMP_FILE", &path), ("FAKETIME_NO_CACHE", "1")]);
        command.env("TIDEGATE_CLOCK__TRUST_HOST", trusted.to_string());
        Agent::spawn(command)
    }
}

/// Pain 15, by a time server and by a host that is trusted: it is set by two hours, forth and back.
#[test]
fn a_host_that_is_set_by_two_hours_closes_nothing_makes_nobody_offline_and_nothing_late() {
    let server = TimeServer::start(Manner::ahead(0));
    let nobody = TimeServer::start(Manner::silent());
    // What two hours would be too long for.
    let options = Options { idle_timeout: "30m", ..Options::default() };
    for trusted in [false, true] {
        let host = host_that_asks(if trusted { &nobody } else { &server }, &options);
        let (setup, clock) = (&host.setup, HostClock::new(&host.setup));
        let mut agent = clock.agent(&host, trusted);
        agent.hears("the clock is good; no message is held");
        until(setup, "listening", |_, it| it["broker"]["state"] == "connected");
        let mut sent = 0;
        for (offset, away) in [("+0", 0), ("+2h", 2 * HOUR), ("-2h", -2 * HOUR)] {
            clock.set(offset);
            if trusted && away != 0 {
                // It has looked at the host again, and leaves it at that.
                until(setup, "away", |_, it| {
                    let seen = it["timekeeping"]["host_away"].as_i64();
                    seen.is_some_and(|seen| (seen - away).abs() < MINUTE)
                });
            }
            let now = fleet::now();
            setup.publish(&["m1", "m2", "m3"].map(|name| sample("north", name, now, 1.0)));
            sent += 3;
            let document = until(setup, "heard", |_, it| it["books"]["aggregated"] == sent);
            assert_eq!(document["clock"], "synchronised", "{document:#}");
            assert_eq!(document["devices"]["active"], 3, "{document:#}");
            assert_eq!(document["devices"]["online"], 3, "{document:#}");
            let shown = document["at"].as_i64().expect("a time");
            assert!((shown - fleet::now()).abs() < MINUTE, "{offset}: {document:#}");
        }
        let books = agent.stop().books();
        assert_eq!((books.of("late"), books.of("quarantined")), (0, 0), "{books:?}");
        let arrived = setup.central.arrived();
        assert_eq!(arrived.offline(), Vec::<&Value>::new());
        assert!(arrived.last().is_empty() && arrived.late.is_empty(), "{arrived:#?}");
        assert!(arrived.clock_events().is_empty(), "{:?}", arrived.clock_events());
        assert_eq!(arrived.contradictions, Vec::<String>::new());
    }
}

/// The devices' broker goes away, with what it had to deliver, while messages are held.
#[test]
fn what_is_held_outlives_a_broker_that_is_started_again_and_nothing_of_it_comes_twice() {
    let server = TimeServer::start(Manner::silent());
    let mut host = host_that_asks(&server, &Options::default());
    let mut agent = Agent::spawn(host.command_at("run", &[("FAKETIME", "-13d")]));
    agent.hears("caught up");
    let hour = fleet::now().div_euclid(HOUR) * HOUR - 3 * HOUR;
    let of = |from: i64, to: i64| {
        (from..to).map(|at| sample("north", "m1", hour + at * MINUTE, 1.0)).collect::<Vec<_>>()
    };
    host.setup.publish(&of(0, 20));
    // Not waited for: some of it is on its way.
    host.setup.devices.stop();
    host.setup.devices.run();
    agent.hears("caught up");
    host.setup.publish(&of(20, 40));
    let document = until(&host.setup, "held", |_, it| it["held"]["messages"].as_u64() >= Some(40));
    balanced(&document["books"]);
    host.setup.devices.kill();
    host.setup.devices.run();
    agent.hears("caught up");
    server.set(Manner::ahead(0));
    agent.hears("the clock is good; no message is held");
    host.setup.publish(&[heartbeat("north", "m1", hour + HOUR)]);
    host.setup.central.until("the hour", |arrived| {
        let last = arrived.last();
        last.get(&("window/hour/north/m1", hour)).is_some_and(|it| it["samples"] == 40)
    });
    let books = agent.stop().books();
    assert_eq!((books.of("aggregated"), books.of("late")), (40, 0), "{books:?}");
    assert_eq!(books.of("records"), 41 + books.of("duplicate"), "{books:?}");
    assert!(host.setup.central.arrived().contradictions.is_empty());
}

/// The disk is full while messages are held: what was acknowledged is there when it has room again, and the rest still
/// at the broker.
#[test]
fn what_is_held_outlives_a_full_disk() {
    let server = TimeServer::start(Manner::silent());
    let host = host_that_asks(&server, &Options::default());
    let setup = &host.setup;
    let mut agent = Agent::spawn(crate::status::with_short_files(
        &host.command_at("run", &[("FAKETIME", "-13d")]),
        1_024,
    ));
    agent.hears("caught up");
    let hour = fleet::now().div_euclid(HOUR) * HOUR - 3 * HOUR;
    let mut sent = 0;
    while agent.count(&["the store failed"]) == 0 {
        assert!(sent < 60_000, "it never fails");
        let round = (sent..sent + 50).map(|at| {
            let Message { topic, payload } = sample("north", &format!("m{at}"), hour, 1.0);
            let long = format!("\"pad\":\"{}\",\"power\"", "x".repeat(2_000));
            Message { topic, payload: payload.replace("\"power\"", &long) }
        });
        setup.publish(&round.collect::<Vec<_>>());
        sent += 50;
    }
    // Started again where there is room: the pauses between its own attempts are another test's.
    agent.kill();
    let mut agent = Agent::spawn(host.command_at("run", &[("FAKETIME", "-13d")]));
    agent.hears("messages are held until it is");
    let document = until(setup, "held", |_, it| {
        it["held"]["messages"].as_i64() >= Some(sent) && it["broker"]["in_flight"] == 0
    });
    balanced(&document["books"]);
    server.set(Manner::ahead(0));
    agent.hears("the clock is good; no message is held");
    let books = agent.stop().books();
    assert_eq!(books.of("aggregated"), sent as u64, "{books:?}");
    assert_eq!((books.of("late"), books.of("quarantined")), (0, 0), "{books:?}");
    assert_eq!(setup.central.arrived().contradictions, Vec::<String>::new());
}

/// `tidegate record` in the dark, and what a replay makes of it.
#[test]
fn a_recording_has_the_arrival_times_of_a_good_clock_or_says_that_it_has_not() {
    let server = TimeServer::start(Manner::silent());
    let host = host_that_asks(&server, &Options { tables: PLAIN, ..Options::default() });
    let setup = &host.setup;
    let hour = fleet::now().div_euclid(HOUR) * HOUR - 3 * HOUR;
    let messages =
        [sample("north", "m1", hour, 1.0), plain("p1", 1), heartbeat("north", "m1", hour + HOUR)];
    let record = |timeout: &str, name: &str| {
        let mut command = host.command_at("record", &[("FAKETIME", "-13d")]);
        command.arg(setup.dir().join(name)).args(["--count", "3"]);
        command.env("TIDEGATE_CLOCK__SYNC_TIMEOUT", timeout);
        let mut recorder = Agent::spawn(command);
        recorder.hears("nobody says what time it is");
        recorder.hears("recording");
        recorder
    };
    let lines = |name: &str| {
        let text = fs::read_to_string(setup.dir().join(name)).expect("it is there");
        let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        lines.collect::<Vec<Value>>()
    };
    let arrival = |line: &Value| line["arrival"].as_i64().expect("a time");
    let replay = |name: &str| {
        let mut replay = crate::agent::command(&setup.config(), "replay");
        let output = replay.arg(setup.dir().join(name)).output().expect("it runs");
        assert!(output.status.success());
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };

    let recorder = record("1s", "dark");
    setup.publish(&messages);
    let left = recorder.end();
    let said = left.log.join("\n");
    assert!(said.contains("3 of them arrived while nobody knew what time it was"), "{said}");
    let dark = lines("dark");
    assert_eq!(dark.len(), 3);
    assert!(dark.iter().all(|line| line["clock"] == "unsynchronised"), "{dark:#?}");
    assert!(dark.iter().all(|line| arrival(line) < fleet::now() - 12 * DAY), "{dark:#?}");
    let (results, said) = replay("dark");
    assert!(said.contains("3 of 3 messages arrived while nobody knew"), "{said}");
    assert!(results.contains(&format!("\"start\":{hour}")), "{results}");
    let refused: Vec<_> = results.lines().filter(|line| line.contains("refused")).collect();
    let [refused] = refused[..] else { panic!("no clock is better than that one: {results}") };
    assert!(refused.contains("no-time") && refused.contains("\"device\":\"p1\""), "{refused}");

    let recorder = record("5m", "light");
    let began = fleet::now();
    setup.publish(&messages);
    let ended = fleet::now();
    assert_eq!(lines("light"), Vec::<Value>::new(), "it waits for the time");
    server.set(Manner::ahead(0));
    let left = recorder.end();
    let said = left.log.join("\n");
    assert!(left.status.success() && !said.contains("while nobody knew"), "{said}");
    let light = lines("light");
    assert_eq!(light.len(), 3);
    for line in &light {
        assert!(line["clock"].is_null(), "{line}");
        let slack = began - 100..=ended + 100;
        assert!(slack.contains(&arrival(line)), "{line} is not in {slack:?}");
    }
    let (results, said) = replay("light");
    assert!(!said.contains("while nobody knew"), "{said}");
    assert!(results.contains("\"clock\":\"synchronised\""), "{results}");
}
