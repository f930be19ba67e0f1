//! Another configuration while the agent runs.

use std::fs;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::agent::{Agent, command};
use crate::central::Central;
use crate::fleet::{self, HOUR, MINUTE, Message, Times, heartbeat, sample};
use crate::reference;
use crate::setup::{Options, Setup, block_on, rules};
use crate::status::{codes, status, until, with_short_files};
use crate::support::{self, Broker, free_port};
use crate::whole_run::eventually;

const LOADED: &str = "the configuration is loaded anew";
const REFUSED: &str = "the configuration is refused";

/// An agent that hears everybody.
fn listening(setup: &Setup) -> Agent {
    let agent = setup.agent();
    for line in ["connected to the central broker", "caught up"] {
        eventually(line, || agent.count(&[line]) > 0);
    }
    agent
}

fn text(setup: &Setup) -> String {
    fs::read_to_string(setup.config()).expect("written by us")
}

fn write(setup: &Setup, text: &str) {
    fs::write(setup.config(), text).expect("the directory is ours");
}

/// Replaces what stands there once, or more often.
fn edit(setup: &Setup, from: &str, to: &str) {
    let text = text(setup);
    assert!(text.contains(from), "{from:?} is not in\n{text}");
    write(setup, &text.replace(from, to));
}

fn reload(agent: &mut Agent) {
    agent.signal("HUP");
    println!("{}", agent.hears(LOADED));
}

fn last_hour() -> i64 {
    fleet::now().div_euclid(HOUR) * HOUR - 2 * HOUR
}

fn hour_of(device: &str) -> Vec<Message> {
    let hour = last_hour();
    vec![sample("north", device, hour, 1.5), heartbeat("north", device, hour + HOUR)]
}

fn expected(messages: &[Message]) -> reference::Expected {
    reference::expect(&rules(Times::around_midnight()), messages)
}

#[test]
fn a_shorter_lateness_closes_the_hours_of_devices_that_are_there() {
    let setup = Setup::new();
    let mut agent = listening(&setup);
    let hour = last_hour();
    setup.publish(&[
        sample("moor", "m1", hour, 1.0),
        sample("moor", "m1", hour + HOUR + 5 * MINUTE, 2.0),
    ]);
    until(&setup, "heard", |_, document| document["books"]["aggregated"] == 2);
    edit(&setup, "lateness = \"10m\"", "lateness = \"2m\"");
    reload(&mut agent);
    assert_eq!(agent.count(&["connected to the devices' broker"]), 1, "it is as good as before");
    assert_eq!(agent.count(&["connected to the central broker"]), 1, "it is as good as before");
    // Ten minutes of lateness would not let it close.
    setup.publish(&[sample("moor", "m1", hour + HOUR + 6 * MINUTE, 3.0)]);
    let key = ("window/hour/moor/m1", hour);
    setup.central.until("the hour", |arrived| {
        arrived.last().get(&key).is_some_and(|it| it["samples"] == 1 && it["cause"] == "bounded")
    });
    let gaps = setup.central.arrived().others.iter().filter(|it| it.0 == "gateway-gap").count();
    assert_eq!(gaps, 0, "a reload is no gap");
    let left = agent.stop();
    assert_eq!((left.books().of("aggregated"), left.books().of("duplicate")), (3, 0));
}

#[test]
fn nothing_is_lost_and_nothing_counted_twice_while_publishing_goes_on_during_reloads() {
    const DEVICES: usize = 20;
    let setup = Setup::new();
    let mut agent = listening(&setup);
    let first = last_hour() - 20 * HOUR;
    let devices: Vec<String> = (0..DEVICES).map(|number| format!("m{number:02}")).collect();
    let at_step = |step: i64| -> Vec<Message> {
        // Now and then one is late, and sometimes too late.
        let behind = if step % 37 == 0 { step * 7 % 900 } else { 0 };
        let at = first + (step - behind) * MINUTE / 6 + behind;
        devices.iter().map(|device| sample("north", device, at, 1.0)).collect()
    };
    let changes = [
        ("lateness = \"2m\"", "lateness = \"4m\""),
        ("allowed-lateness = \"30m\"", "allowed-lateness = \"45m\""),
        ("in-flight = 200", "in-flight = 150"),
        ("fields = [\"all\"]", "fields = [\"all\"]\nin-flight = 50"),
        ("rollups = [\"day\"]", "rollups = []"),
    ];
    let (reloaded, samples) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        let publishing = scope.spawn(|| {
            for step in 1..20 * 360 {
                let part = at_step(step);
                setup.publish(&part);
                samples.lock().expect("no panic inside").extend(part);
                if step > 1_200 && reloaded.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        for (number, (from, to)) in changes.into_iter().enumerate() {
            let some = (number + 1) * 40 * DEVICES;
            eventually("some more", || samples.lock().expect("no panic inside").len() >= some);
            edit(&setup, from, to);
            reload(&mut agent);
        }
        assert!(!publishing.is_finished(), "it has to go on for longer");
        reloaded.store(true, Ordering::Relaxed);
    });
    let samples = samples.into_inner().expect("no panic inside");
    let ends: Vec<_> =
        devices.iter().map(|device| heartbeat("north", device, last_hour() + HOUR)).collect();
    setup.publish(&ends);
    setup.central.agrees(|arrived| {
        let told = arrived.last();
        let hours = told.iter().filter(|((topic, _), _)| topic.starts_with("window/hour/north/"));
        let counted: u64 = hours.filter_map(|(_, body)| body["samples"].as_u64()).sum();
        let (late, all) = (arrived.late.len() as u64, samples.len() as u64);
        match counted + late == all && told.len() >= 3 * DEVICES {
            true => Ok(()),
            false => Err(format!("{counted} in hours and {late} late, of {all}")),
        }
    });
    assert_eq!(setup.central.arrived().contradictions, Vec::<String>::new());
    assert!(!setup.central.arrived().late.is_empty(), "some are too late");
    let books = setup.leaves_empty(agent).books();
    assert_eq!(books.of("aggregated") + books.of("late"), samples.len() as u64, "{books:?}");
}

#[test]
fn a_new_source_is_heard_and_one_that_is_gone_is_not() {
    let setup = Setup::new();
    let whole = text(&setup);
    let (meters, arrays) = whole.rsplit_once("[[source]]").expect("two sources");
    write(&setup, meters);
    let mut agent = listening(&setup);
    let array = |device: &str| Message {
        topic: format!("arrays/north/{device}"),
        payload: format!("{{\"beat\":true,\"ts\":{},\"samples\":[]}}", last_hour()),
    };
    let (one, two, three) = (hour_of("m1"), hour_of("m2"), hour_of("m3"));
    setup.publish(&[array("unheard")]);
    setup.publish(&one);
    setup.arrives(&expected(&one));

    write(&setup, &format!("{meters}[[source]]{arrays}"));
    reload(&mut agent);
    agent.hears("caught up");
    setup.publish(&[array("heard")]);
    setup.publish(&two);
    let so_far: Vec<_> = one.iter().chain(&two).cloned().collect();
    setup.arrives(&expected(&so_far));

    write(&setup, meters);
    reload(&mut agent);
    agent.hears("caught up");
    setup.publish(&[array("unheard")]);
    setup.publish(&three);
    let so_far: Vec<_> = so_far.iter().chain(&three).cloned().collect();
    setup.arrives(&expected(&so_far));
    let left = agent.stop();
    assert_eq!((left.books().of("received"), left.books().of("unmatched")), (7, 0));

    // Nor does the broker keep anything for it.
    setup.publish(&[array("unheard")]);
    let mut agent = setup.agent();
    agent.hears("caught up");
    assert_eq!(agent.stop().books().of("received"), 7);
}

#[test]
fn a_mistake_is_told_with_its_line_and_that_of_before_goes_on() {
    let setup = Setup::new();
    let mut agent = listening(&setup);
    let loaded = status(&setup).1["configuration"]["loaded"].as_i64().expect("a time");
    edit(&setup, "idle-timeout = \"1h\"", "idle-timeout = \"1 our\"");
    agent.signal("HUP");
    let line = agent.hears("1 our");
    assert!(line.contains("tidegate.toml:27") && line.contains("1 our"), "{line}");
    agent.hears(REFUSED);
    // Who asks by this configuration does not learn where; who names the socket does.
    let socket = setup.dir().join("status.sock");
    let mut document = serde_json::Value::Null;
    eventually("told", || {
        let mut asks = command(&setup.config(), "status");
        let asked = asks.args(["--json", "--socket"]).arg(&socket).output().expect("it is built");
        document = serde_json::from_slice(&asked.stdout).unwrap_or_default();
        asked.status.code() == Some(1) && codes(&document).contains(&"configuration-refused")
    });
    assert_eq!(document["configuration"]["loaded"], loaded);
    let why = document["configuration"]["refused"].as_str().expect("a reason");
    assert!(why.contains("tidegate.toml:27"), "{why}");
    let one = hour_of("m1");
    setup.publish(&one);
    setup.arrives(&expected(&one));

    edit(&setup, "idle-timeout = \"1 our\"", "idle-timeout = \"2h\"");
    reload(&mut agent);
    let document = until(&setup, "well", |code, _| code == 0);
    assert!(document["configuration"]["loaded"].as_i64() > Some(loaded), "{document:#}");
    agent.stop();
}

#[test]
fn what_cannot_change_is_refused_by_name_and_nothing_else_of_it_is_taken() {
    let setup = Setup::new();
    let mut agent = listening(&setup);
    let before = text(&setup);
    let changed = before.replace("gateway.id = \"gw\"", "gateway.id = \"another\"");
    write(&setup, &changed.replace("lateness = \"2m\"", "lateness = \"9m\""));
    agent.signal("HUP");
    let line = agent.hears("gateway.id");
    let words = ["\"another\"", "\"gw\"", "restart it"];
    assert!(words.iter().all(|word| line.contains(word)), "{line}");
    agent.hears(REFUSED);

    // Open windows need their source.
    let hour = last_hour();
    setup.publish(&[sample("north", "m1", hour, 1.5)]);
    until(&setup, "heard", |_, document| document["books"]["aggregated"] == 1);
    write(&setup, &before.replace("name = \"meters\"", "name = \"renamed\""));
    agent.signal("HUP");
    assert!(agent.hears("open windows of").contains("renamed or removed source"));
    agent.hears(REFUSED);
    setup.publish(&[heartbeat("north", "m1", hour + HOUR)]);
    setup.arrives(&expected(&hour_of("m1")));
    let left = setup.leaves_empty(agent);
    assert_eq!(left.books().of("received"), 2);
}

#[test]
fn what_waits_goes_to_the_broker_to_which_the_centre_has_moved() {
    let setup = Setup::new();
    setup.configure(&Options::default(), free_port());
    let mut agent = setup.agent();
    agent.hears("egress down");
    eventually("caught up", || agent.count(&["caught up"]) > 0);
    let one = hour_of("m1");
    setup.publish(&one);
    until(&setup, "told", |_, document| document["outbox"]["entries"].as_u64() > Some(0));
    setup.configure(&Options::default(), setup.broker.port());
    reload(&mut agent);
    setup.arrives(&expected(&one));
    assert_eq!(agent.count(&["connected to the devices' broker"]), 1, "it is as good as before");

    // From one that is there to another: the first is told that we leave, and all is acknowledged.
    let second = Broker::start();
    let elsewhere = Central::at(second.port());
    setup.configure(&Options::default(), second.port());
    reload(&mut agent);
    let is_gone =
        |body: &serde_json::Value| body["status"] == "offline" && body["reason"] == "stopped";
    setup.central.until("a farewell", |arrived| {
        arrived.others.iter().rfind(|it| it.0 == "status").is_some_and(|it| is_gone(&it.1))
    });
    elsewhere.until("a greeting", |arrived| {
        arrived.others.iter().any(|it| it.0 == "status" && it.1["status"] == "online")
    });
    let two = hour_of("m2");
    setup.publish(&two);
    let key = ("window/hour/north/m2", last_hour());
    elsewhere.until("the hour", |arrived| arrived.last().contains_key(&key));
    assert!(!elsewhere.arrived().last().contains_key(&("window/hour/north/m1", last_hour())));
    setup.leaves_empty(agent);
}

#[test]
fn devices_that_move_to_another_broker_are_heard_there_and_what_they_said_before_counts() {
    let setup = Setup::new();
    let mut agent = listening(&setup);
    let second = Broker::start();
    let (one, two) = (hour_of("m1"), hour_of("m2"));
    setup.publish(&one);
    setup.round_trip();
    let port = setup.devices.port();
    edit(&setup, &format!("port = {port}"), &format!("port = {}", second.port()));
    reload(&mut agent);
    let pairs = two.iter().map(|it| (it.topic.as_str(), it.payload.as_str()));
    eventually("connected there", || agent.count(&["caught up"]) >= 2);
    agent.hears("connected to the devices' broker");
    block_on(support::publish(second.port(), pairs));
    let both: Vec<_> = one.iter().chain(&two).cloned().collect();
    setup.arrives(&expected(&both));
    assert_eq!(agent.count(&["no longer had our session"]), 0, "it never had it");
    assert_eq!(setup.leaves_empty(agent).books().of("received"), 4);
}

#[test]
fn the_log_tells_more_when_it_is_asked_to_and_quick_signals_are_no_end() {
    let setup = Setup::new();
    let mut process = command(&setup.config(), "run");
    process.env_remove("TIDEGATE_LOG");
    let mut agent = Agent::spawn(process);
    eventually("caught up", || agent.count(&["caught up"]) > 0);
    let before = text(&setup);
    let one = hour_of("m1");
    setup.publish(&one);
    setup.arrives(&expected(&one));
    assert_eq!(agent.count(&["DEBUG"]), 0, "{}", agent.last_words());
    write(&setup, &format!("{before}\n[log]\nlevel = \"debug\"\n"));
    for _ in 0..20 {
        agent.signal("HUP");
    }
    agent.hears(LOADED);
    let two = hour_of("m2");
    setup.publish(&two);
    agent.hears("DEBUG");
    let both: Vec<_> = one.iter().chain(&two).cloned().collect();
    setup.arrives(&expected(&both));
    agent.ask_to_end();
    agent.signal("HUP");
    let left = agent.end();
    assert!(left.status.success());
    assert_eq!(left.books().of("received"), 4);
}

#[test]
fn a_signal_while_the_store_is_away_is_heeded_when_it_is_open_again() {
    let setup = Setup::new();
    let mut agent = Agent::spawn(with_short_files(&command(&setup.config(), "run"), 1_024));
    agent.hears("caught up");
    let hour = last_hour();
    for round in 0.. {
        let device = |at: i64| format!("m{}", round * 1_000 + at);
        let messages: Vec<_> =
            (0..1_000).map(|at| sample("north", &device(at), hour + at, 1.5)).collect();
        setup.publish(&messages);
        if agent.count(&["the store failed"]) > 0 {
            break;
        }
        assert!(round < 500, "it never fails");
    }
    edit(&setup, "idle-timeout = \"1h\"", "idle-timeout = \"2h\"");
    agent.signal("HUP");
    agent.hears("the store failed");
    let pid = agent.id().to_string();
    let raised = Command::new("prlimit").args(["--fsize=unlimited:", "--pid", &pid]).status();
    assert!(raised.expect("util-linux is installed").success());
    agent.hears("the store is open again");
    agent.hears(LOADED);
    agent.stop();
}
