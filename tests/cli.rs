//! The command as a process, where no broker is needed: exit codes and what it says.

#![allow(clippy::disallowed_methods, reason = "tests have deadlines of their own")]
#![cfg(feature = "shell")]

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use tidegate::config::{Config, Mode};
use tidegate::engine::effect::Effects;
use tidegate::engine::restore::Restorer;
use tidegate::ids::Generation;
use tidegate::store::{Batch, OpenOptions, Store, recovery};
use tidegate::time::{ArrivalTime, ClockStatus, MonoTime, Now};

const CONFIG: u8 = 78;
const IO_ERROR: u8 = 74;
const NO_INPUT: u8 = 66;
const DATA_ERROR: u8 = 65;
const USAGE: u8 = 64;
const UNKNOWN: u8 = 3;

const GOOD: &str = r#"gateway.id = "gw"
clock.trust-host = true
[broker]
host = "127.0.0.1"
port = 1
[upstream]
host = "127.0.0.1"
port = 1
[store]
path = "{dir}/store"

[[source]]
name = "meters"
topic = "meters/{region}/{device}/{kind}"
time = { from = "/ts", as = "epoch_ms" }
heartbeat = { from = "topic:kind", equals = "heartbeat" }
metric = [{ name = "power", from = "/power", unit = "W" }]
"#;

/// A directory with a configuration in it.
struct Place {
    dir: TempDir,
}

/// How a process ended.
struct Ended {
    code: u8,
    output: String,
    said: String,
}

impl Place {
    fn new(config: &str) -> Self {
        let dir = TempDir::new().expect("a directory");
        let config = config.replace("{dir}", &dir.path().display().to_string());
        fs::write(dir.path().join("tidegate.toml"), config).expect("the directory is ours");
        Self { dir }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, content: &str) -> String {
        fs::write(self.path(name), content).expect("the directory is ours");
        self.path(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.arg("--config").arg(self.path("tidegate.toml")).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        end(self.command(arguments))
    }
}

fn end(mut command: Command) -> Ended {
    let ended = command.stdin(Stdio::null()).output().expect("the command is built");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = ended.status.code().and_then(|code| u8::try_from(code).ok());
    let (output, said) = (text(&ended.stdout), text(&ended.stderr));
    let code = code.unwrap_or_else(|| panic!("{}: {said}", ended.status));
    Ended { code, output, said }
}

#[track_caller]
fn fails(ended: &Ended, code: u8, texts: &[&str]) {
    assert_eq!(ended.code, code, "{}", ended.said);
    for text in texts {
        assert!(ended.said.contains(text), "{text:?} is not in {}", ended.said);
    }
}

#[test]
fn check_shows_what_the_gateway_is_called_and_how_it_connects() {
    let ended = Place::new(GOOD).run(&["check"]);
    for told in [
        "gateway \"gw\"",
        "mqtt://127.0.0.1:1 as tidegate-gw, MQTT 5",
        "as tidegate-gw-upstream, MQTT 3.1.1",
    ] {
        assert!(ended.output.contains(told), "{told} is not in {}", ended.output);
    }
    let unnamed = Place::new(&GOOD.replace("gateway.id = \"gw\"", "")).run(&["check"]);
    let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("Linux");
    let told = format!("gateway \"{}", host.trim());
    assert!(unnamed.output.contains(&told), "{told} is not in {}", unnamed.output);
    if let Ok(machine_id) = fs::read_to_string("/etc/machine-id") {
        let machine_id = machine_id.trim();
        let published = !machine_id.is_empty() && unnamed.output.contains(&machine_id[..8]);
        assert!(!published, "the machine id is confidential");
    }
}

#[test]
fn check_says_what_a_good_configuration_comes_to() {
    let ended = Place::new(GOOD).run(&["check"]);
    fails(&ended, 0, &[]);
    assert!(
        ended.output.contains("good") && ended.output.contains("meters/+/+/+"),
        "{}",
        ended.output
    );
}

#[test]
fn a_typo_is_told_with_file_line_and_the_nearest_key() {
    for command in ["check", "run"] {
        let place = Place::new(&GOOD.replace("[store]\npath", "[store]\npaht"));
        let line = format!("{}:10:", place.path("tidegate.toml"));
        fails(&place.run(&[command]), CONFIG, &[&line, "paht", "`path`"]);
    }
}

#[test]
fn every_mistake_is_told_at_once() {
    let place =
        Place::new(&GOOD.replace("port = 1\n", "port = 70000\n").replace("epoch_ms", "epoch_m"));
    let file = place.path("tidegate.toml");
    let lines = [5, 8, 15].map(|line| format!("{file}:{line}:"));
    fails(&place.run(&["check"]), CONFIG, &[&lines[0], &lines[1], &lines[2], "epoch_ms"]);
}

#[test]
fn a_configuration_that_is_not_there_is_told_by_its_name() {
    let place = Place::new(GOOD);
    fs::remove_file(place.path("tidegate.toml")).expect("it was there");
    fails(&place.run(&["check"]), CONFIG, &[&place.path("tidegate.toml"), "No such file"]);
}

#[test]
fn a_password_file_that_cannot_be_read_is_told_with_its_line() {
    for (table, line) in [("[broker]", 4), ("[upstream]", 7)] {
        let login = format!("{table}\nuser = \"u\"\npassword-file = \"{{dir}}/secret\"");
        let place = Place::new(&GOOD.replace(table, &login));
        let at = format!("{}:{}:", place.path("tidegate.toml"), line + 1);
        let path = place.path("secret");
        for command in ["check", "run"] {
            fails(&place.run(&[command]), CONFIG, &[&at, &path, "No such file"]);
        }
        fs::create_dir(&path).expect("the directory is ours");
        fails(&place.run(&["check"]), CONFIG, &[&at, &path, "Is a directory"]);
        fs::remove_dir(&path).expect("it is there");
        place.write("secret", "hush\n");
        let ended = place.run(&["check"]);
        fails(&ended, 0, &[]);
        assert!(!ended.said.contains("hush") && !ended.output.contains("hush"));
    }
}

#[test]
fn a_store_that_is_a_file_is_refused() {
    let place = Place::new(GOOD);
    let store = place.write("store", "something else");
    fails(&place.run(&["run"]), IO_ERROR, &[&store, "not a directory", "a directory of its own"]);
    assert_eq!(fs::read_to_string(store).expect("it is still there"), "something else");
}

#[test]
fn a_store_in_a_directory_that_is_not_ours_is_refused() {
    let place = Place::new(GOOD);
    let mut command = place.command(&["run"]);
    if fs::metadata("/proc/self").expect("Linux").uid() == 0 {
        // Nothing is forbidden to root: another user runs it, where he may read it.
        let binary = place.path("tidegate");
        // Copied by another process: a child that another test starts meanwhile would hold ours open for writing, and
        // what is open for writing cannot be run.
        let copied = Command::new("cp").args([env!("CARGO_BIN_EXE_tidegate"), &binary]).status();
        assert!(copied.expect("cp is there").success());
        command = Command::new(binary);
        command.arg("--config").arg(place.path("tidegate.toml")).arg("run").uid(65_534).gid(65_534);
    }
    fs::set_permissions(place.dir.path(), Permissions::from_mode(0o555)).expect("it is ours");
    let ended = end(command);
    fs::set_permissions(place.dir.path(), Permissions::from_mode(0o755)).expect("it is ours");
    fails(&ended, IO_ERROR, &[&place.path("store"), "permission denied", "writable by the agent"]);
}

#[test]
fn a_store_that_another_agent_has_open_is_refused_and_left_alone() {
    let place = Place::new(GOOD);
    let mut first = Running::start(place.command(&["run"]));
    first.hears("store open");
    fails(&place.run(&["run"]), IO_ERROR, &[&place.path("store"), "another", "tidegate"]);
    first.hears("cannot be reached");
}

#[test]
fn a_store_of_a_newer_program_is_refused_for_good_and_left_alone() {
    let place = Place::new(GOOD);
    let mut first = Running::start(place.command(&["run"]));
    first.hears("store open");
    drop(first);
    let note = place.path("store/written-by");
    let this = fs::read_to_string(&note).expect("it says who wrote it");
    assert!(this.starts_with(concat!("tidegate ", env!("CARGO_PKG_VERSION"), ", store format ")));
    let next = "tidegate 9.8.7, store format 999, records 200";
    fs::write(&note, next).expect("the directory is ours");
    let install = "install tidegate 9.8.7 again, or move the directory away";
    // What cannot be better at the next start leaves with the code that a unit does not start again.
    fails(&place.run(&["run"]), CONFIG, &[&place.path("store"), next, this.trim_end(), install]);
    let beside = fs::read_dir(place.dir.path()).expect("it is ours").count();
    assert_eq!((beside, fs::read_to_string(&note).expect("it is there")), (2, next.into()));
}

#[test]
fn asked_to_end_while_it_starts_it_leaves_cleanly() {
    let place = Place::new(GOOD);
    for _ in 0..5 {
        let mut agent = Running::start(place.command(&["run"]));
        agent.hears("store open");
        let asked = Command::new("kill").arg(agent.child.id().to_string()).status();
        assert!(asked.expect("kill is installed").success());
        agent.hears("left");
        let status = agent.child.wait().expect("it is our child");
        assert!(status.success(), "{status}");
    }
}

/// An agent that ends with its owner.
struct Running {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStderr>>,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the command is built");
        let lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        Self { child, lines }
    }

    /// Reads on to a line with this text.
    fn hears(&mut self, text: &str) {
        let found = self.lines.by_ref().map_while(Result::ok).any(|line| line.contains(text));
        assert!(found, "it ended without saying {text:?}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn recorded(kind: &str, payload: &str, arrival: i64) -> String {
    let topic = format!("meters/north/m1/{kind}");
    serde_json::json!({ "topic": topic, "payload": payload, "arrival": arrival }).to_string() + "\n"
}

#[test]
fn replay_writes_results_to_stdout_and_the_books_to_stderr() {
    const NOON: i64 = 1_749_988_800_000;
    let place = Place::new(GOOD);
    let sample = |time: i64, power| {
        recorded("telemetry", &format!(r#"{{"ts":{time},"power":{power}}}"#), time + 5)
    };
    let hour_later = NOON + 3_600_000;
    let beat = recorded("heartbeat", &format!(r#"{{"ts":{hour_later}}}"#), hour_later + 1);
    let file = place.write("recording", &(sample(NOON, 3) + &sample(NOON + 1, 4) + &beat));
    let ended = place.run(&["replay", &file]);
    fails(&ended, 0, &["books", "aggregated       2"]);
    let lines = ended.output.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let windows: Vec<Value> = lines.filter(|line: &Value| line["type"] == "window").collect();
    assert_eq!(windows.len(), 1, "{}", ended.output);
    assert_eq!(windows[0]["metrics"]["power"]["mean"], 3.5);
    let again = place.run(&["replay", &file]);
    assert_eq!(again.output, ended.output, "the same file gives the same bytes");
}

/// No clock: two hours without a network, and the queue is emptied when it is there again.
#[test]
fn replay_puts_readings_with_an_uptime_into_the_hours_in_which_they_were_taken() {
    const NOON: i64 = 1_749_988_800_000;
    const MINUTE: i64 = 60_000;
    let config = GOOD.replace(r#"as = "epoch_ms""#, r#"as = "uptime_s""#);
    let place = Place::new(&config);
    let sample = |minute: i64, arrival: i64| {
        let payload = format!(r#"{{"ts":{},"power":{minute}}}"#, minute * 60);
        recorded("telemetry", &payload, NOON + arrival)
    };
    let mut lines: String = (1..=30).map(|minute| sample(minute, minute * MINUTE + 80)).collect();
    lines.extend((31..=150).map(|minute| sample(minute, 150 * MINUTE + minute)));
    let ended = place.run(&["replay", &place.write("recording", &lines)]);
    fails(&ended, 0, &["aggregated       150", "corrected        150", "stamped          0"]);
    let lines = ended.output.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let told = |line: Value| (line["type"] == "window").then_some(line);
    let mut hours = std::collections::BTreeMap::new();
    for window in lines.filter_map(told) {
        let hour = (window["start"].as_i64().expect("a time") - NOON) / (60 * MINUTE);
        let metric = &window["metrics"]["power"];
        hours.insert(
            hour,
            [&window["corrected"], &metric["min"], &metric["max"]].map(Value::as_f64),
        );
    }
    let hour = |samples: f64, least: f64, greatest: f64| [samples, least, greatest].map(Some);
    let expected = [hour(59.0, 1.0, 59.0), hour(60.0, 60.0, 119.0), hour(31.0, 120.0, 150.0)];
    assert_eq!(hours.into_values().collect::<Vec<_>>(), expected, "{}", ended.output);
}

#[test]
fn replay_passes_over_lines_that_are_no_messages_and_says_so() {
    let place = Place::new(GOOD);
    let good = recorded("telemetry", r#"{"ts":1749988800000,"power":2}"#, 1_749_988_800_001);
    let file = place.write("recording", &format!("{good}nonsense\n{good}"));
    let ended = place.run(&["replay", &file]);
    fails(&ended, DATA_ERROR, &["1 of 3 lines", "line 2", "received         2"]);
}

#[test]
fn replay_takes_what_json_takes_and_times_that_the_contract_knows() {
    let place = Place::new(GOOD);
    let far = recorded("telemetry", r#"{"ts":1749988800000,"power":1}"#, i64::MAX);
    let file = place.write("far", &far);
    fails(&place.run(&["replay", &file]), DATA_ERROR, &["line 1", "arrival", "1970"]);
    // A form feed is no blank of JSON.
    let file = place.write("payloads", "{\"ts\":1749988800000,\"power\":1}\x0c\r\n");
    let ended = place.run(&["replay", &file, "--source", "meters"]);
    fails(&ended, 0, &["malformed        1"]);
}

#[test]
fn replay_of_a_file_that_is_not_there_or_of_an_unknown_source_says_what_is_there() {
    let place = Place::new(GOOD);
    fails(&place.run(&["replay", "nowhere.jsonl"]), NO_INPUT, &["nowhere.jsonl"]);
    let file = place.write("payloads", "{}\n");
    fails(&place.run(&["replay", &file, "--source", "metres"]), CONFIG, &["metres", "meters"]);
}

#[cfg(feature = "demo")]
#[test]
fn the_demo_shows_its_configuration_and_heeds_no_other() {
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.arg("demo").args(arguments);
        end(command)
    };
    let ended = run(&["--show-config"]);
    fails(&ended, 0, &[]);
    assert!(Config::from_toml(&ended.output).is_ok(), "{}", ended.output);
    fails(&run(&["--seconds", "9"]), USAGE, &["10..=3600"]);
    fails(&run(&["-c", "my.toml"]), USAGE, &["--show-config"]);
}

#[test]
fn a_wrong_log_filter_is_told() {
    let place = Place::new(GOOD);
    let mut command = place.command(&["check"]);
    command.env("TIDEGATE_LOG", "tidegate=loud");
    fails(&end(command), CONFIG, &["TIDEGATE_LOG", "tidegate=loud"]);
}

#[test]
fn a_variable_of_the_environment_that_is_no_key_is_told() {
    let place = Place::new(GOOD);
    let mut command = place.command(&["check"]);
    command.env("TIDEGATE_BROKER__PROT", "1883");
    fails(&end(command), CONFIG, &["TIDEGATE_BROKER__PROT", "port"]);
}

#[test]
fn the_configuration_can_be_named_by_a_variable_and_the_option_wins() {
    let place = Place::new(GOOD);
    let checked = |variable: &str, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.env("TIDEGATE_CONFIG", variable).arg("check").args(arguments);
        end(command)
    };
    let file = place.path("tidegate.toml");
    let ended = checked(&file, &[]);
    fails(&ended, 0, &[]);
    assert!(ended.output.contains("meters"), "{}", ended.output);
    fails(&checked("/nowhere/else.toml", &[]), CONFIG, &["/nowhere/else.toml", "No such file"]);
    fails(&checked("/nowhere/else.toml", &["-c", &file]), 0, &[]);
    fails(&checked("", &[]), CONFIG, &["/etc/tidegate/tidegate.toml", "No such file"]);
}

/// A store that was made under the configuration of `place`, with a window still open.
fn store_with_an_open_window(place: &Place) {
    use tidegate::engine::input::{Ingress, Input, Publish, Topic};
    let toml = fs::read_to_string(place.path("tidegate.toml")).expect("it was written");
    let settings = Config::from_toml(&toml).expect("it is good").settings(Mode::Run);
    let wall = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_millis() as i64;
    let now = Now { wall: ArrivalTime(wall), mono: MonoTime(1) };
    let options = OpenOptions { new_generation: Generation(1), now: now.wall };
    let path = place.path("store");
    let mut store = recovery::open(path.as_ref(), options).expect("room for it").store;
    let mut engine = Restorer::new(settings, store.generation(), store.created()).finish();
    let mut effects = Effects::default();
    let payload = format!(r#"{{"ts":{wall},"power":3}}"#);
    let publish = Publish {
        topic: Topic::Name("meters/north/m1/telemetry"),
        payload: payload.as_bytes(),
        retain: false,
        dup: false,
    };
    for input in
        [Input::Clock(ClockStatus::EXACT), Input::Ingress(Ingress::Up), Input::Publish(publish)]
    {
        engine.handle(input, now, &mut effects);
    }
    assert_eq!(
        engine.books().columns().find(|(name, _)| *name == "aggregated"),
        Some(("aggregated", 1))
    );
    let batch = Batch { state: engine.checkpoint(), ..Batch::default() };
    drop(store.commit(&batch).expect("room for it"));
}

#[test]
fn a_configuration_that_lacks_what_the_store_has_open_is_a_mistake_of_the_configuration() {
    let place = Place::new(GOOD);
    store_with_an_open_window(&place);
    place.write(
        "tidegate.toml",
        &fs::read_to_string(place.path("tidegate.toml"))
            .expect("ours")
            .replace("\"meters\"", "\"metres\""),
    );
    fails(
        &place.run(&["run"]),
        CONFIG,
        &[&place.path("store"), "open windows of", "removed source (hour)"],
    );
}

#[test]
fn a_status_that_cannot_be_had_is_unknown_and_says_why() {
    let socket = "[store]\npath = \"{dir}/store\"\n[status]\nsocket = \"{dir}/here.sock\"\n";
    let place = Place::new(&GOOD.replace("[store]\npath = \"{dir}/store\"\n", socket));
    fails(&place.run(&["status"]), UNKNOWN, &["cannot be reached", &place.path("here.sock")]);
    let elsewhere = place.path("there.sock");
    let ended = place.run(&["status", "--json", "--socket", &elsewhere]);
    fails(&ended, UNKNOWN, &["cannot be reached", &elsewhere]);
    assert_eq!(ended.output, "");

    let place = Place::new(&GOOD.replace("[store]", "[status]\nenabled = false\n[store]"));
    fails(&place.run(&["status"]), UNKNOWN, &["status.enabled = false"]);
    let place = Place::new("colour = 1");
    fails(&place.run(&["status"]), UNKNOWN, &["colour", "--socket"]);
    fails(&place.run(&["check"]), CONFIG, &["colour"]);
}

#[test]
fn a_command_line_that_makes_no_sense_is_not_taken_for_a_failing_agent() {
    let place = Place::new(GOOD);
    fails(&place.run(&["status", "--jsn"]), USAGE, &["--jsn", "--json"]);
    fails(&place.run(&["statsu"]), USAGE, &["statsu", "status"]);
    assert!(place.run(&["status", "--help"]).output.contains("2 failing"));
}
