//! Who is offline, between real brokers: a device that is killed, a broker that is away, an agent that is stopped.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rumqttc::{Client, Connection, Event, LastWill, MqttOptions, Packet, QoS};
use serde_json::Value;

use crate::agent::Agent;
use crate::central::Arrived;
use crate::fleet::{self, HOUR, Message, sample};
use crate::outages::three_hours_ago;
use crate::setup::{Options, Setup};

const DEVICES: usize = 500;

impl Arrived {
    /// What was told of presence, each once, by device.
    fn presence(&self) -> Vec<(&str, &Value)> {
        let mut all: Vec<(&str, &Value)> = Vec::new();
        for (topic, body) in &self.others {
            let device = topic.strip_prefix("presence/").and_then(|rest| rest.split('/').nth(1));
            // An acknowledgement may be lost: the same bytes come again.
            if let Some(device) = device.filter(|device| !all.contains(&(*device, body))) {
                all.push((device, body));
            }
        }
        all
    }

    fn states(&self, device: &str) -> Vec<&str> {
        let of = self.presence().into_iter().filter(|(name, _)| *name == device);
        of.map(|(_, body)| body["state"].as_str().expect("a word")).collect()
    }

    fn in_state(&self, state: &str) -> Vec<&Value> {
        let all = self.others.iter().filter(|(topic, _)| topic.starts_with("presence/"));
        all.map(|(_, body)| body).filter(|body| body["state"] == state).collect()
    }

    fn gaps(&self) -> Vec<&Value> {
        let mut gaps: Vec<&Value> = Vec::new();
        for (topic, body) in &self.others {
            if topic == "gateway-gap" && !gaps.contains(&body) {
                gaps.push(body);
            }
        }
        gaps
    }
}

/// A reading of each, all of them at this time.
fn round(time: i64) -> Vec<Message> {
    (0..DEVICES).map(|number| sample("north", &format!("m{number:03}"), time, 1.0)).collect()
}

fn number(body: &Value, field: &str) -> i64 {
    body[field].as_i64().unwrap_or_else(|| panic!("{field} of {body}"))
}

fn nothing_wrong(setup: &Setup) {
    assert_eq!(setup.central.arrived().contradictions, Vec::<String>::new());
}

/// Pain 28: the agent is stopped for three hours, by its clock; what is sent meanwhile waits at the broker.
#[test]
fn an_agent_that_was_stopped_for_three_hours_tells_one_gap_and_none_of_500_devices_offline() {
    let setup = Setup::new();
    let then = fleet::now() - 3 * HOUR;
    let mut agent = Agent::spawn(three_hours_ago(&setup));
    agent.hears("caught up");
    setup.publish(&round(then));
    setup.central.until("a fleet", |arrived| arrived.in_state("online").len() >= DEVICES);
    agent.stop();

    for quarter in 1..12 {
        setup.publish(&round(then + quarter * HOUR / 4));
    }
    let mut agent = setup.agent();
    agent.hears("session_present=true");
    agent.hears("caught up");
    setup.central.until("the gap", |arrived| !arrived.gaps().is_empty());
    setup.publish(&round(fleet::now()));
    setup.publish(&[sample("watch", "last", fleet::now(), 1.0)]);
    setup.central.until("whoever came last", |arrived| !arrived.states("last").is_empty());
    {
        let arrived = setup.central.arrived();
        assert_eq!(arrived.in_state("offline"), Vec::<&Value>::new());
        assert_eq!(arrived.in_state("online").len(), DEVICES + 1, "each once, and the last");
        let [gap] = arrived.gaps()[..] else { panic!("{:?}", arrived.gaps()) };
        assert_eq!(gap["cause"], "agent-stopped");
        let length = number(gap, "end") - number(gap, "start");
        assert!((2 * HOUR..4 * HOUR).contains(&length), "{gap}");
    }
    nothing_wrong(&setup);
    agent.stop();
}

/// Silence that makes offline in the test below, in seconds.
const SILENCE: u64 = 6;

/// The broker is away for longer than a device may be silent, first with its sessions and then without; after that the
/// devices really fall silent.
#[test]
fn a_broker_that_is_away_makes_none_of_500_devices_offline_with_its_sessions_or_without() {
    let options = Options {
        tables: "[[devices]]\npattern = \"m*\"\noffline-after = \"6s\"\n[presence]\ngap-after = \"2s\"\n",
        ..Options::default()
    };
    let mut setup = Setup::with(&options);
    let mut agent = setup.agent();
    agent.hears("caught up");
    setup.publish(&round(fleet::now()));
    setup.central.until("a fleet", |arrived| arrived.in_state("online").len() >= DEVICES);
    let mut heard_at = 0;
    for (turn, forgets) in [(1, false), (2, true)] {
        setup.publish(&round(fleet::now()));
        setup.round_trip();
        if forgets {
            setup.devices.kill();
            setup.devices.forget();
        } else {
            setup.devices.stop();
        }
        agent.hears("ingress down");
        // Longer than any of them may be silent: it is the time itself that is waited for.
        assert!(!agent.says_within(Duration::from_secs(SILENCE + 1), &["panicked"]));
        setup.devices.run();
        agent.hears(&format!("connected to the devices' broker session_present={}", !forgets));
        agent.hears("caught up");
        heard_at = fleet::now();
        setup.publish(&round(fleet::now()));
        let gaps = usize::try_from(turn).expect("small");
        setup.central.until("the gap", |arrived| arrived.gaps().len() == gaps);
        let arrived = setup.central.arrived();
        assert_eq!(arrived.in_state("offline"), Vec::<&Value>::new(), "turn {turn}");
        let gap = arrived.gaps()[gaps - 1];
        assert_eq!(gap["cause"], "broker-away");
        assert!(number(gap, "end") - number(gap, "start") > 6_000, "{gap}");
    }
    setup.central.until("silence", |arrived| arrived.in_state("offline").len() >= DEVICES);
    for body in setup.central.arrived().in_state("offline") {
        assert!(number(body, "since") >= heard_at + 6_000, "too early, by {heard_at}: {body}");
    }
    nothing_wrong(&setup);
    agent.stop();
}

/// How long the agent of the test below is not there, in seconds: longer than it ever does nothing.
const ASLEEP: u64 = 17;

/// As a machine that sleeps: nobody was silent meanwhile, and what was sent is not late.
#[test]
fn an_agent_that_was_held_still_hears_first_what_came_meanwhile() {
    let options = Options {
        tables: "[[devices]]\npattern = \"m*\"\noffline-after = \"6s\"\nidle-timeout = \"4s\"\nlateness = \"1s\"\n\
                 allowed-lateness = \"2s\"\n[presence]\ngap-after = \"2s\"\n",
        ..Options::default()
    };
    let setup = Setup::with(&options);
    let mut agent = setup.agent();
    agent.hears("caught up");
    setup.publish(&round(fleet::now()));
    setup.central.until("a fleet", |arrived| arrived.in_state("online").len() >= DEVICES);
    agent.signal("STOP");
    setup.publish(&round(fleet::now()));
    // It is the time itself that is waited for.
    assert!(!agent.says_within(Duration::from_secs(ASLEEP), &["panicked"]));
    agent.signal("CONT");
    agent.hears("did not run for a while");
    agent.hears("caught up");
    setup.publish(&round(fleet::now()));
    setup.publish(&[sample("watch", "last", fleet::now(), 1.0)]);
    setup.central.until("whoever came last", |arrived| !arrived.states("last").is_empty());
    {
        let arrived = setup.central.arrived();
        assert_eq!(arrived.in_state("offline"), Vec::<&Value>::new());
        assert_eq!(arrived.late.len(), 0);
        let [gap] = arrived.gaps()[..] else { panic!("{:?}", arrived.gaps()) };
        assert_eq!(gap["cause"], "agent-stopped");
        assert!(number(gap, "end") - number(gap, "start") >= 1_000 * (ASLEEP as i64 - 2), "{gap}");
    }
    nothing_wrong(&setup);
    agent.stop();
}

/// A meter with a connection of its own, and a last will.
struct Meter {
    client: Client,
    connection: Connection,
    name: &'static str,
}

impl Meter {
    fn connects(port: u16, name: &'static str) -> Self {
        let mut options = MqttOptions::new(name, "127.0.0.1", port);
        let topic = format!("meters/north/{name}/status");
        options.set_last_will(LastWill::new(topic, "offline", QoS::AtLeastOnce, false));
        let (client, connection) = Client::new(options, 10);
        Self { client, connection, name }
    }

    /// Sends a reading; returns when the broker has it.
    fn sends(&mut self, time: i64) {
        let Message { topic, payload } = sample("north", self.name, time, 1.0);
        self.client.publish(topic, QoS::AtLeastOnce, false, payload).expect("room for one");
        for event in self.connection.iter() {
            if matches!(event.expect("the broker is there"), Event::Incoming(Packet::PubAck(_))) {
                return;
            }
        }
        panic!("the connection of {} ended", self.name);
    }
}

/// A device whose power fails takes no leave: the broker tells its will.
#[test]
fn a_device_that_is_killed_is_suspect_at_once_and_offline_if_it_does_not_come_back() {
    let options = Options {
        meters: "status = [{ topic = \"meters/{region}/{device}/status\" }]\nwill-debounce = \"2s\"",
        ..Options::default()
    };
    let setup = Setup::with(&options);
    let port = setup.devices.port();
    let mut agent = setup.agent();
    agent.hears("caught up");
    let dies = |name| {
        Meter::connects(port, name).sends(fleet::now()); // and it is gone, without a word
        setup.central.until("its will", |arrived| arrived.states(name) == ["online", "suspect"]);
    };
    dies("back");
    let mut back = Meter::connects(port, "back");
    back.sends(fleet::now());
    for name in ["gone", "after"] {
        dies(name);
        setup.central.until("that it is offline", |arrived| {
            arrived.states(name) == ["online", "suspect", "offline"]
        });
    }
    {
        let arrived = setup.central.arrived();
        assert_eq!(arrived.states("back"), ["online", "suspect", "online"], "its debounce is over");
        let of = |name| arrived.presence().into_iter().filter(move |(device, _)| *device == name);
        let [_, suspect, offline] = of("gone").map(|(_, body)| body).collect::<Vec<_>>()[..] else {
            panic!("three");
        };
        assert_eq!((&suspect["cause"], &offline["cause"]), (&"will".into(), &"will".into()));
        assert_eq!(number(offline, "since") - number(suspect, "since"), 2_000, "exactly");
    }
    nothing_wrong(&setup);
    agent.stop();
}

fn device(setup: &Setup, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = crate::agent::command(&setup.config(), "device");
    let output = command.args(arguments).output().expect("it is built");
    (output.status.code(), String::from_utf8(output.stdout).expect("UTF-8"))
}

/// What is listed, by lines; the agent runs, or does not.
fn listed(setup: &Setup) -> Vec<String> {
    let (code, list) = device(setup, &["list"]);
    assert_eq!(code, Some(0), "{list}");
    list.lines().map(str::to_owned).collect()
}

/// More devices than one answer of the agent has.
const LARGE: usize = 2_345;

#[test]
fn a_device_is_listed_shown_and_forgotten_whether_the_agent_runs_or_not() {
    let setup = Setup::new();
    assert_eq!(device(&setup, &["list"]).0, Some(66), "there is no store yet");
    let mut agent = setup.agent();
    agent.hears("caught up");
    let now = fleet::now();
    let fleet = (0..LARGE).map(|number| sample("north", &format!("m{number:04}"), now, 1.0));
    setup.publish(&fleet.chain([sample("moor", "b", now, 1.0)]).collect::<Vec<_>>());
    setup.central.until("all", |arrived| arrived.in_state("online").len() == LARGE + 1);

    let running = listed(&setup);
    assert_eq!(running.len(), LARGE + 1);
    assert!(running[0].starts_with("moor/b ") && running[0].contains(" online "), "{}", running[0]);
    let (_, shown_running) = device(&setup, &["show", "north/m0042"]);
    assert!(shown_running.contains("\nwatermark     20"), "{shown_running}");
    refuses(&setup);
    assert_eq!(device(&setup, &["forget", "north/m0003"]).0, Some(0));
    assert_eq!(device(&setup, &["forget", "north/m0003"]).0, Some(65), "it is forgotten already");
    setup.central.until("that", |arrived| arrived.states("m0003") == ["online", "forgotten"]);
    assert_eq!(device(&setup, &["forget", "north/m0001"]).0, Some(0));
    agent.kill(); // what it says is on the disk

    let stopped = listed(&setup);
    let differing: Vec<_> = running.iter().zip(&stopped).filter(|(a, b)| a != b).collect();
    let [(before, after), (third, _)] = differing[..] else { panic!("{differing:?}") };
    assert!(before.starts_with("north/m0001 ") && after.contains(" forgotten "), "{after}");
    assert!(third.starts_with("north/m0003 "), "{third}");
    assert_eq!(device(&setup, &["show", "north/m0042"]).1, shown_running);
    refuses(&setup);
    assert_eq!(device(&setup, &["forget", "north/m0002"]).0, Some(0));
    assert_eq!(device(&setup, &["forget", "north/m0002"]).0, Some(65), "it is forgotten already");

    let mut agent = setup.agent();
    agent.hears("caught up");
    setup.central.until("both", |arrived| {
        ["m0001", "m0002"].iter().all(|name| arrived.states(name) == ["online", "forgotten"])
    });
    setup.publish(&["m0001", "m0002"].map(|name| sample("north", name, now + 1, 1.0)));
    setup.central.until("them again", |arrived| {
        ["m0001", "m0002"].iter().all(|name| arrived.states(name).len() == 3)
    });
    nothing_wrong(&setup);
    agent.stop();
}

fn refuses(setup: &Setup) {
    assert_eq!(device(setup, &["show", "north/c"]).0, Some(65));
    assert_eq!(device(setup, &["forget", "north/c"]).0, Some(65));
    assert_eq!(device(setup, &["forget", "nobody"]).0, Some(64));
}

/// Names of devices are alike everywhere: an agent that was not meant leaves its own alone.
#[test]
fn at_the_socket_of_another_agent_nothing_is_forgotten() {
    let (setup, other) = (Setup::new(), Setup::new());
    let mut agents = [setup.agent(), other.agent()];
    agents.iter_mut().for_each(|agent| drop(agent.hears("caught up")));
    setup.publish(&[sample("north", "a", fleet::now(), 1.0)]);
    setup.central.until("it", |arrived| arrived.in_state("online").len() == 1);
    let socket = other.dir().join("status.sock");
    let mut command = crate::agent::command(&setup.config(), "device");
    command.env("TIDEGATE_STATUS__SOCKET", &socket).args(["forget", "north/a"]);
    let output = command.output().expect("it is built");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "its own agent has the store: {said}");
    assert!(said.contains("the agent there has the store"), "{said}");
    assert!(listed(&setup)[0].contains(" online "));
    agents.into_iter().for_each(|agent| drop(agent.stop()));
}

/// As many as a store has room for by default.
const MOST: usize = 50_000;

/// The program as another user, who has no rights.
fn as_nobody(setup: &Setup, arguments: &[&str]) -> (Option<i32>, String) {
    let binary = setup.dir().join("tidegate");
    std::fs::copy(env!("CARGO_BIN_EXE_tidegate"), &binary).expect("there is room");
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(setup.dir(), readable).expect("it is ours");
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(&binary);
    command.arg("--config").arg(setup.config()).args(arguments);
    let output = command.output().expect("util-linux");
    (output.status.code(), String::from_utf8(output.stderr).expect("UTF-8"))
}

#[test]
fn fifty_thousand_devices_are_listed_and_not_for_everybody() {
    let tables = "[[devices]]\nsource = \"meters\"\nnames-file = \"{dir}/meters.txt\"\n";
    let setup = Setup::new();
    let names: String = (0..MOST).map(|number| format!("north/m{number:05}\n")).collect();
    std::fs::write(setup.dir().join("meters.txt"), names).expect("the directory is ours");
    setup.configure(&Options { tables, ..Options::default() }, setup.broker.port());
    let mut agent = setup.agent();
    agent.hears("caught up");
    let running = listed(&setup);
    assert_eq!(running.len(), MOST);
    assert!(running[MOST - 1].starts_with("north/m49999 "), "{}", running[MOST - 1]);
    if std::fs::metadata("/proc/self").expect("procfs").uid() == 0 {
        for arguments in [&["device", "list"][..], &["device", "forget", "north/m00001"]] {
            let (code, said) = as_nobody(&setup, arguments);
            assert_eq!(code, Some(77), "{said}");
            assert!(said.contains("only root, and the user and group of the agent"), "{said}");
        }
        assert_eq!(as_nobody(&setup, &["status"]).0, Some(3));
    } else {
        println!("skipped: asking as another user, which needs root");
    }
    agent.stop();
    assert_eq!(listed(&setup), running);
}

#[test]
fn what_root_reads_of_a_stopped_agent_stays_that_of_its_user() {
    if std::fs::metadata("/proc/self").expect("procfs").uid() != 0 {
        println!("skipped: reading as root, by somebody who is not");
        return;
    }
    let setup = Setup::new();
    let mut agent = setup.agent();
    agent.hears("caught up");
    agent.stop();
    let store = setup.dir().join("store");
    let files = || {
        let below = |dir| std::fs::read_dir(dir).expect("it is a directory");
        let all = below(&store).chain(below(&store.join("blobs")));
        all.map(|entry| entry.expect("it is there").path()).chain([store.clone()])
    };
    files().for_each(|path| {
        std::os::unix::fs::chown(path, Some(65_534), Some(65_534)).expect("root may");
    });
    assert_eq!(device(&setup, &["list"]), (Some(0), String::new()));
    for path in files() {
        let owner = std::fs::metadata(&path).expect("it is there").uid();
        assert_eq!(owner, 65_534, "{}", path.display());
    }
}
