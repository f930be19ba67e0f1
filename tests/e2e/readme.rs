//! The README's first five minutes, line by line as they are typed, against a broker that nobody else uses.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::agent;
use crate::contract::CONTRACT;
use crate::support::free_port;

const README: &str = include_str!("../../README.md");
const SECTION: &str = "## Five minutes to a first aggregate";
const PROMISED: Duration = Duration::from_secs(5 * 60);
const PORT: u16 = 1883;

/// The lines to type, in order.
fn typed() -> Vec<&'static str> {
    let lines = README.lines().skip_while(|line| *line != SECTION).skip(1);
    let lines = lines.take_while(|line| !line.starts_with("## "));
    lines.filter_map(|line| line.trim_start().strip_prefix("$ ")).collect()
}

/// What a reader has: the repository's `config`, the tools, and a port that is free.
fn checkout(port: u16) -> TempDir {
    let dir = TempDir::new().expect("a directory");
    let at = |path: &str| dir.path().join(path);
    for folder in ["config", "tools", "home/.config"] {
        fs::create_dir_all(at(folder)).expect("the directory is ours");
    }
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    for file in ["minimal.toml", "tidegate.toml"] {
        fs::copy(repository.join("config").join(file), at("config").join(file)).expect("it ships");
    }
    let shipped = fs::read_to_string(repository.join("config/mosquitto.conf")).expect("it ships");
    let listener = format!("listener {PORT} ");
    assert!(shipped.contains(&listener), "the README relies on the default port");
    // As root, mosquitto would become a user who may not write here.
    let ours = shipped.replace(&listener, &format!("listener {port} ")) + "\nuser root\n";
    fs::write(at("config/mosquitto.conf"), ours).expect("the directory is ours");
    for client in ["mosquitto_pub", "mosquitto_sub"] {
        let options = format!("-p {port}\n");
        fs::write(at("home/.config").join(client), options).expect("the directory is ours");
    }
    // Installing and building are taken as done: these see that it is that and nothing else.
    tool(&at("tools/sudo"), "apt-get install -y mosquitto mosquitto-clients", "");
    let agent = agent::binary();
    let link =
        format!("mkdir -p target/release && ln -s '{}' target/release/tidegate", agent.display());
    tool(&at("tools/cargo"), "build --release", &link);
    dir
}

/// A program that takes these arguments only.
fn tool(path: &Path, arguments: &str, does: &str) {
    let script = format!("#!/bin/sh\n[ \"$*\" = '{arguments}' ] || exit 2\n{does}\n");
    fs::write(path, script).expect("the directory is ours");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("the file is ours");
}

/// A shell that lines are typed into. Everything it started ends with it.
struct Terminal {
    shell: Child,
    /// Lines that were shown.
    shown: Receiver<String>,
    seen: Vec<String>,
    deadline: Instant,
}

impl Terminal {
    fn open(dir: &Path, port: u16) -> Self {
        let tools = dir.join("tools").display().to_string();
        let home = dir.join("home");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("bash");
        command.args(["--norc", "--noprofile"]).current_dir(dir).process_group(0);
        command.env("PATH", format!("{tools}:{path}"));
        command.env("HOME", &home).env("XDG_CONFIG_HOME", home.join(".config"));
        command.env("TIDEGATE_GATEWAY__ID", "my-host").env_remove("TIDEGATE_LOG");
        for broker in ["BROKER", "UPSTREAM"] {
            command.env(format!("TIDEGATE_{broker}__PORT"), port.to_string());
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut shell = command.spawn().expect("bash is installed");
        let (line, shown) = mpsc::channel();
        read(shell.stdout.take().expect("a pipe"), line.clone());
        read(shell.stderr.take().expect("a pipe"), line);
        Self { shell, shown, seen: Vec::new(), deadline: Instant::now() + PROMISED }
    }

    /// Types a line, and waits until the shell has read it and done what is not left in the background.
    fn types(&mut self, line: &str) {
        let stdin = self.shell.stdin.as_mut().expect("a pipe");
        writeln!(stdin, "{line}\necho \"done: $?\"").expect("the shell reads");
        let done = self.shows("done: ");
        assert_eq!(done, "done: 0", "{line}\n{}", self.seen.join("\n"));
    }

    /// Waits until a line with this text is shown.
    fn shows(&mut self, text: &str) -> String {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            match self.shown.recv_timeout(left) {
                Ok(line) => self.seen.push(line.clone()),
                Err(error) => panic!("{text:?}: {error}\n{}", self.seen.join("\n")),
            }
            let last = self.seen.last().expect("it was just seen");
            if last.contains(text) {
                return last.clone();
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let group = format!("-{}", self.shell.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.shell.wait();
    }
}

fn read(stream: impl Read + Send + 'static, shown: mpsc::Sender<String>) {
    thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            if shown.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
}

/// What a reader sees before typing the next line.
fn answer(line: &str) -> Option<&'static str> {
    match line {
        line if line.starts_with("mosquitto -c") => Some("running"),
        line if line.ends_with("run &") => Some("caught up"),
        _ => None,
    }
}

#[test]
fn the_first_five_minutes_of_the_readme_end_with_an_aggregate_upstream() {
    let free = TcpListener::bind(("127.0.0.1", PORT)).is_ok();
    let port = if free { PORT } else { free_port() };
    let dir = checkout(port);
    let began = Instant::now();
    let mut terminal = Terminal::open(dir.path(), port);
    let lines = typed();
    let (end, lines) = lines.split_last().expect("lines to type");
    assert_eq!(lines.len(), 10, "{lines:?}");
    for line in lines {
        terminal.types(line);
        if let Some(answer) = answer(line) {
            terminal.shows(answer);
        }
    }
    let aggregate = terminal.shows("window/minute/north/m-1 {");
    println!("on port {port}, after {:?}: {aggregate}", began.elapsed());
    let (topic, body) = aggregate.split_once(' ').expect("a topic and a message");
    let body: Value = serde_json::from_str(body).expect("JSON");
    let below = topic.strip_prefix("tidegate/my-host/").expect("the usual prefix");
    assert_eq!(CONTRACT.check(below, &body), Ok(()));
    assert_eq!((&body["samples"], &body["cause"]), (&Value::from(1), &Value::from("heartbeat")));
    assert_eq!(body["metrics"]["power"]["mean"], 2025.75);
    assert!(began.elapsed() < PROMISED);
    terminal.types(end);
    terminal.shows("left");
}
