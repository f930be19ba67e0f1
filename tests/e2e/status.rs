//! How the agent says that it is: over its socket, by an exit code, and retained at the centre.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::agent::{Agent, PATIENCE, command};
use crate::fleet::{self, HOUR, MINUTE, Message, heartbeat, sample};
use crate::setup::{AGENT, Options, Setup, block_on};
use crate::support::{Broker, Subscriber};

/// `tidegate status` with these arguments.
fn ask(setup: &Setup, arguments: &[&str]) -> Output {
    command(&setup.config(), "status").args(arguments).output().expect("the command is built")
}

/// Exit code and document; the document is null where nobody answers.
pub fn status(setup: &Setup) -> (i32, Value) {
    let ended = ask(setup, &["--json"]);
    let document = serde_json::from_slice(&ended.stdout).unwrap_or_default();
    (ended.status.code().expect("it ended by itself"), document)
}

/// Asks until the answer is as it should be.
pub fn until(setup: &Setup, what: &str, so: impl Fn(i32, &Value) -> bool) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (code, document) = status(setup);
        if so(code, &document) {
            return document;
        }
        assert!(Instant::now() < deadline, "never {what}: {code}, {document:#}");
    }
}

pub fn codes(document: &Value) -> Vec<&str> {
    let reasons = document["health"]["reasons"].as_array().into_iter().flatten();
    reasons.filter_map(|reason| reason["code"].as_str()).collect()
}

/// An agent to whom the kernel's clock is kept in step, whatever it is on this machine.
pub fn in_step(setup: &Setup) -> Agent {
    let (source, library) = (setup.dir().join("clock.c"), setup.dir().join("clock.so"));
    let text =
        "#include <sys/timex.h>\nint adjtimex(struct timex *t) { t->status = 0; return 0; }\n";
    std::fs::write(&source, text).expect("the directory is ours");
    let mut compiler = Command::new("cc");
    let compiled = compiler.args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
    assert!(compiled.expect("a C compiler, which cargo needs too").success());
    let mut command = command(&setup.config(), "run");
    command.env("LD_PRELOAD", library).env("TIDEGATE_CLOCK__TRUST_HOST", "false");
    Agent::spawn(command)
}

fn payload(topic: &str, payload: &str) -> Message {
    Message { topic: topic.to_owned(), payload: payload.to_owned() }
}

/// The status that the centre has, told live.
fn told(setup: &Setup, what: &str, so: impl Fn(&Value) -> bool) -> Value {
    let mut found = Value::Null;
    setup.central.until(what, |arrived| {
        let last = arrived.others.iter().rfind(|(topic, _)| topic == "status");
        found = last.map(|(_, body)| body.clone()).unwrap_or_default();
        so(&found)
    });
    found
}

/// The status that somebody gets who comes later.
fn retained(setup: &Setup) -> Value {
    block_on(async {
        let mut late = Subscriber::to(setup.broker.port(), "tidegate/gw/status").await;
        let message = late.next().await.expect("a retained message");
        assert!(message.retain);
        serde_json::from_slice(&message.payload).expect("JSON")
    })
}

/// What is so after the traffic of [`everything_is_true_after_known_traffic_and_the_exit_code_is_0`].
fn facts(now: i64) -> Vec<(&'static str, Value)> {
    vec![
        ("/schema", Value::from(1)),
        ("/gateway", "gw".into()),
        ("/version", env!("CARGO_PKG_VERSION").into()),
        ("/health/level", "ok".into()),
        ("/clock", "synchronised".into()),
        ("/broker/state", "connected".into()),
        ("/broker/error", Value::Null),
        ("/upstream/state", "connected".into()),
        ("/store/error", Value::Null),
        ("/outbox/bytes", 0.into()),
        ("/outbox/oldest", Value::Null),
        ("/region_count", 2.into()),
        ("/regions/0/region", "north".into()),
        ("/regions/0/watermark", now.into()),
        ("/regions/0/usual_lag", (2 * MINUTE + HOUR).into()),
        ("/regions/0/devices", 2.into()),
        ("/regions/1/region", "moor".into()),
        ("/regions/1/watermark", Value::Null),
        ("/devices/known", 2.into()),
        ("/devices/active", 1.into()),
        ("/devices/without_time", 1.into()),
        ("/books/aggregated", 1.into()),
        ("/books/duplicate", 1.into()),
        ("/books/late", 1.into()),
        ("/books/quarantined", 2.into()),
        ("/books/future", 1.into()),
        ("/books/past", 1.into()),
        ("/books/malformed", 2.into()),
        ("/books/syntax", 1.into()),
        ("/books/empty", 1.into()),
        ("/books/unmatched", 2.into()),
        ("/unmatched/0/topic", "meters/unclaimed".into()),
        ("/unmatched/0/count", 2.into()),
        ("/refused/0/reason", "empty".into()),
        ("/refused/2/reason", "past".into()),
        ("/refused/2/topic", "meters/north/m2/telemetry".into()),
    ]
}

#[test]
fn everything_is_true_after_known_traffic_and_the_exit_code_is_0() {
    let meters = "subscribe = [\"meters/#\"]";
    let setup = Setup::with(&Options { meters, ..Options::default() });
    let agent = in_step(&setup);
    until(&setup, "connected", |code, _| code == 0);
    let now = fleet::now();
    setup.publish(&[
        sample("north", "m1", now - MINUTE, 1.5),
        heartbeat("north", "m1", now),
        sample("north", "m1", now - 5 * HOUR, 2.5),
        sample("north", "m2", now + 2 * HOUR, 2.5),
        sample("north", "m2", now - 40 * 24 * HOUR, 2.5),
        sample("north", "m1", now - MINUTE, 1.5),
        payload("meters/north/m1/telemetry", "{"),
        payload("meters/north/m1/telemetry", ""),
        payload("meters/unclaimed", "{}"),
        payload("meters/unclaimed", "{}"),
    ]);
    let document = until(&setup, "all of it committed and sent", |_, document| {
        document["books"]["received"] == 10
            && document["broker"]["in_flight"] == 0
            && document["outbox"]["entries"] == 0
    });

    assert_eq!(codes(&document), Vec::<&str>::new());
    let text = |pointer: &str| document.pointer(pointer).unwrap_or(&Value::Null).clone();
    let number = |pointer: &str| text(pointer).as_i64().unwrap_or_else(|| panic!("{pointer}"));
    for (pointer, expected) in facts(now) {
        assert_eq!(text(pointer), expected, "{pointer} of {document:#}");
    }
    assert_eq!(text("/generation").as_str().map(str::len), Some(16));
    assert!(text("/broker/address").as_str().is_some_and(|address| address.ends_with(AGENT)));
    let at = number("/at");
    assert_eq!(number("/regions/0/lag"), at - now);
    assert!((now..=at).contains(&number("/store/last_commit")), "{document:#}");
    assert!((number("/since")..=at).contains(&number("/broker/since")), "{document:#}");

    let table = ask(&setup, &[]);
    let shown = String::from_utf8(table.stdout).expect("text");
    assert_eq!(table.status.code(), Some(0));
    for expected in ["health      ok", "2: 1 future, 1 past", "meters/unclaimed  2 times", "moor "]
    {
        assert!(shown.contains(expected), "{expected:?} is not in\n{shown}");
    }
    assert!(!shown.contains('\u{1b}'), "colour, and nobody looks:\n{shown}");
    agent.stop();
}

#[test]
fn the_exit_code_tells_a_broker_that_is_away_from_an_agent_that_is() {
    let mut setup = Setup::new();
    assert_eq!(status(&setup).0, 3, "no agent yet");
    let agent = in_step(&setup);
    until(&setup, "connected", |code, _| code == 0);

    setup.broker.stop();
    let document = until(&setup, "degraded", |code, _| code == 1);
    assert_eq!(codes(&document), ["upstream-away"]);
    let why = &document["health"]["reasons"][0];
    assert!(why["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{why}");
    setup.broker.run();
    until(&setup, "ok again", |code, _| code == 0);

    setup.devices.stop();
    let document = until(&setup, "failing", |code, _| code == 2);
    assert_eq!(codes(&document), ["broker-away"]);
    let failing = told(&setup, "that we fail", |told| told["health"] == "failing");
    assert_eq!(failing["reasons"][0]["code"], "broker-away");

    agent.kill();
    let ended = ask(&setup, &["--json"]);
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(3), "{said}");
    assert!(said.contains("status.sock") && ended.stdout.is_empty(), "{said}");
    // What a kill leaves is no obstacle.
    let agent = in_step(&setup);
    until(&setup, "there again", |code, _| code != 3);
    agent.stop();
    assert!(!PathBuf::from(setup.dir()).join("status.sock").exists(), "it went with the agent");
}

#[test]
fn the_centre_is_told_that_the_agent_is_there_was_lost_or_was_stopped() {
    let setup = Setup::new();
    let agent = setup.agent();
    let online = told(&setup, "that it is there", |told| told["status"] == "online");
    assert_eq!((&online["schema"], online["lag"].as_i64()), (&1.into(), None));
    assert_eq!(online["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(retained(&setup)["status"], "online");

    agent.kill();
    told(&setup, "that it was lost", |told| told["reason"] == "lost");
    let lost = retained(&setup);
    assert_eq!((&lost["status"], &lost["reason"]), (&"offline".into(), &"lost".into()));
    assert_eq!(lost["generation"], online["generation"]);

    let agent = setup.agent();
    told(&setup, "that it is there again", |told| told["status"] == "online");
    let before = fleet::now();
    agent.stop();
    told(&setup, "that it was stopped", |told| told["reason"] == "stopped");
    let stopped = retained(&setup);
    assert_eq!((&stopped["status"], &stopped["reason"]), (&"offline".into(), &"stopped".into()));
    let since = stopped["since"].as_i64().expect("a time");
    assert!((before..=fleet::now()).contains(&since), "{stopped}");
}

/// mosquitto's `acl_file` lets everybody subscribe to everything; its plugin refuses.
const NO_METERS: &str = r#"{
    "defaultACLAccess": { "publishClientSend": true, "publishClientReceive": true,
                          "subscribe": true, "unsubscribe": true },
    "anonymousGroup": "all", "clients": [],
    "groups": [{ "groupname": "all", "roles": [{ "rolename": "all" }] }],
    "roles": [{ "rolename": "all", "acls": [
        { "acltype": "subscribePattern", "topic": "meters/#", "priority": 1, "allow": false } ] }]
}"#;

#[test]
fn a_refused_subscription_is_degraded_although_the_agent_is_connected() {
    let libraries = std::fs::read_dir("/usr/lib").expect("there is one");
    let mut places = libraries.map(|entry| {
        entry.expect("readable").path().join("mosquitto_dynamic_security.so").display().to_string()
    });
    let Some(plugin) = places.find(|place| std::path::Path::new(place).exists()) else {
        println!("skipped: mosquitto's dynamic security plugin is not installed");
        return;
    };
    let lines = format!("plugin {plugin}\nplugin_opt_config_file {{dir}}/security.json");
    let mut devices = Broker::absent_with(&lines);
    let rules = devices.dir().join("security.json");
    std::fs::write(rules, NO_METERS).expect("the directory is ours");
    devices.run();
    let setup = Setup::absent(devices, &Options::default());
    let agent = in_step(&setup);
    let document = until(&setup, "connected", |_, document| {
        document["broker"]["state"] == "connected" && document["upstream"]["state"] == "connected"
    });
    assert_eq!(codes(&document), ["subscription-refused"]);
    assert_eq!(document["refused_filters"], serde_json::json!(["meters/+/+/+"]));
    assert_eq!(status(&setup).0, 1);
    agent.stop();
}

/// Files of this process hold so many KiB at most; what would be longer fails as on a full disk.
pub fn with_short_files(command: &Command, kib: u32) -> Command {
    let mut limited = Command::new("bash");
    limited.arg("-c").arg(format!("trap '' XFSZ; ulimit -S -f {kib}; exec \"$0\" \"$@\""));
    limited.arg(command.get_program()).args(command.get_args());
    let set = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    limited.envs(set);
    limited
}

#[test]
fn an_agent_without_its_store_still_says_so() {
    let setup = Setup::new();
    let mut agent = Agent::spawn(with_short_files(&command(&setup.config(), "run"), 1_024));
    agent.hears("caught up");
    let hour = fleet::now().div_euclid(HOUR) * HOUR - 2 * HOUR;
    let deadline = Instant::now() + Duration::from_secs(60);
    for number in 0.. {
        let device = |at: i64| format!("m{}", number * 1_000 + at);
        let messages: Vec<_> =
            (0..1_000).map(|at| sample("north", &device(at), hour + at, 1.5)).collect();
        setup.publish(&messages);
        if agent.count(&["the store failed"]) > 0 {
            break;
        }
        assert!(Instant::now() < deadline, "it never fails");
    }
    let document =
        until(&setup, "failing", |code, document| code == 2 && codes(document).contains(&"store"));
    assert!(document["store"]["error"].is_string(), "{document:#}");
    let told = told(&setup, "that we fail", |told| told["health"] == "failing");
    assert_eq!(told["reasons"][0]["code"], "store");
    agent.ask_to_end();
    agent.end();
}
