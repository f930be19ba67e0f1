//! The real agent, as a process of its own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::broker::Broker;
use super::meters::SOURCE;

/// One durable commit, as the agent's log tells it.
#[derive(Clone, Copy, Debug)]
pub struct Commit {
    /// Messages that it made durable.
    pub messages: u64,
    /// How long it took.
    pub millis: f64,
}

/// Runs until it is dropped.
pub struct Agent {
    process: Child,
    log: Receiver<Value>,
    /// Commits so far.
    pub commits: Vec<Commit>,
}

impl Agent {
    /// Starts the agent between two brokers, with its store at `store`, and waits until it listens. `more` goes to the
    /// front of its configuration.
    pub fn start(
        directory: &Path,
        store: &Path,
        devices: &Broker,
        central: &Broker,
        more: &str,
    ) -> Self {
        let config = directory.join("tidegate.toml");
        let (devices, central) = (devices.port, central.port);
        let store = store.display();
        let text = format!(
            "gateway.id = \"bench\"\nclock.trust-host = true\nbroker.host = \"127.0.0.1\"\nbroker.port = {devices}\nupstream.host = \"127.0.0.1\"\n\
             upstream.port = {central}\nstore.path = \"{store}\"\n{more}\n{SOURCE}"
        );
        fs::write(&config, text).expect("writable");
        let mut process = Command::new(super::binary())
            .args(["--log", "json", "--config"])
            .arg(&config)
            .arg("run")
            .env("TIDEGATE_LOG", "warn,tidegate=info,tidegate::commit=debug")
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let lines = BufReader::new(process.stderr.take().expect("piped")).lines();
        let (tell, log) = mpsc::channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                match serde_json::from_str(&line) {
                    Ok(line) => drop(tell.send(line)),
                    Err(_) => eprintln!("agent: {line}"),
                }
            }
        });
        let mut agent = Self { process, log, commits: Vec::new() };
        agent.wait_for(|line| {
            line["message"].as_str().is_some_and(|text| text.starts_with("caught up"))
        });
        agent
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Messages that are durable.
    pub fn committed(&self) -> u64 {
        self.commits.iter().map(|commit| commit.messages).sum()
    }

    /// Reads the log until so many messages are durable.
    pub fn wait_until_committed(&mut self, messages: u64) {
        while self.committed() < messages {
            self.wait_for(|line| line["messages"].is_u64());
        }
    }

    fn wait_for(&mut self, wanted: impl Fn(&Value) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(900);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.log.recv_timeout(left).expect("the agent says what it is waited for");
            if let Some("WARN" | "ERROR") = line["level"].as_str() {
                eprintln!("agent: {line}");
            }
            if let (Some(messages), Some(micros)) =
                (line["messages"].as_u64(), line["micros"].as_u64())
            {
                self.commits.push(Commit { messages, millis: micros as f64 / 1e3 });
            }
            if wanted(&line) {
                return;
            }
        }
    }

    /// Median and 99th percentile of the commits from the `from`th on, in ms.
    pub fn commit_times(&self, from: usize) -> (f64, f64) {
        let mut times: Vec<f64> = self.commits[from..].iter().map(|commit| commit.millis).collect();
        (super::quantile(&mut times, 0.5), super::quantile(&mut times, 0.99))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _gone = self.process.wait();
    }
}
