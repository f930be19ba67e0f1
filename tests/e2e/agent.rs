//! The agent as a process of its own, and what it says.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the agent may take for anything.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Lines of standard error so far, and whether there will be no more.
type Said = Arc<(Mutex<(Vec<String>, bool)>, Condvar)>;

/// A running agent. It ends with its owner.
pub struct Agent {
    child: Child,
    said: Said,
    reading: Option<JoinHandle<()>>,
    /// Lines that [`Agent::hears`] has passed.
    heard: usize,
}

/// What an agent left behind when it ended by itself.
pub struct Left {
    pub status: ExitStatus,
    pub log: Vec<String>,
}

/// The agent: the build of this tree, or what `TIDEGATE` names, such as one for another processor.
pub fn binary() -> PathBuf {
    std::env::var_os("TIDEGATE")
        .map_or_else(|| env!("CARGO_BIN_EXE_tidegate").into(), PathBuf::from)
}

/// `tidegate COMMAND` with a configuration, at the level of detail that the tests wait for.
pub fn command(config: &Path, command: &str) -> Command {
    let mut process = Command::new(binary());
    process.arg("--config").arg(config).arg(command);
    process.env("TIDEGATE_LOG", "warn,tidegate=debug").env_remove("TIDEGATE_LONG");
    process
}

impl Agent {
    /// `tidegate run`.
    pub fn run(config: &Path) -> Self {
        Self::spawn(command(config, "run"))
    }

    /// `tidegate run`, held still at a point of its life (`src/phase.rs`).
    pub fn run_to(config: &Path, point: impl AsRef<OsStr>) -> Self {
        let mut command = command(config, "run");
        command.env("TIDEGATE_HOLD_AT", point);
        Self::spawn(command)
    }

    pub fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the agent is built");
        let lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let said = Said::default();
        let saying = said.clone();
        let reading = std::thread::spawn(move || {
            // The lock is poisoned by a test that has failed.
            for line in lines.map_while(Result::ok) {
                let Ok(mut said) = saying.0.lock() else { return };
                said.0.push(line);
                saying.1.notify_all();
            }
            if let Ok(mut said) = saying.0.lock() {
                said.1 = true;
            }
            saying.1.notify_all();
        });
        Self { child, said, reading: Some(reading), heard: 0 }
    }

    /// The next line with this text. Lines before it are passed.
    pub fn hears(&mut self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut said = self.said.0.lock().expect("no panic inside");
        loop {
            let found = said.0[self.heard..].iter().position(|line| line.contains(text));
            if let Some(at) = found {
                self.heard += at + 1;
                return said.0[self.heard - 1].clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero() && !said.1, "never said {text:?}:\n{}", last(&said.0));
            said = self.said.1.wait_timeout(said, left).expect("no panic inside").0;
        }
    }

    /// How many lines so far hold all of these texts.
    pub fn count(&self, texts: &[&str]) -> usize {
        let said = self.said.0.lock().expect("no panic inside");
        said.0.iter().filter(|line| texts.iter().all(|text| line.contains(text))).count()
    }

    /// Whether it has said a line with all of these texts, or does within this time.
    pub fn says_within(&self, time: Duration, texts: &[&str]) -> bool {
        let said = self.said.0.lock().expect("no panic inside");
        let silent = |said: &mut (Vec<String>, bool)| {
            !said.1 && !said.0.iter().any(|line| texts.iter().all(|text| line.contains(text)))
        };
        !self.said.1.wait_timeout_while(said, time, silent).expect("no panic inside").1.timed_out()
    }

    /// What it said last, for people.
    pub fn last_words(&self) -> String {
        last(&self.said.0.lock().expect("no panic inside").0)
    }

    /// As a power cut would end it.
    pub fn kill(mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("it is our child");
    }

    /// Asks it to leave.
    pub fn ask_to_end(&self) {
        self.signal("TERM");
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let signalled = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(signalled.expect("kill is installed").success());
    }

    /// Asks it to leave, which must succeed.
    pub fn stop(self) -> Left {
        self.ask_to_end();
        let left = self.end();
        assert!(left.status.success(), "{}:\n{}", left.status, last(&left.log));
        left
    }

    /// Waits for it to end by itself.
    pub fn end(mut self) -> Left {
        let deadline = Instant::now() + PATIENCE;
        let mut said = self.said.0.lock().expect("no panic inside");
        while !said.1 {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "it does not end:\n{}", last(&said.0));
            said = self.said.1.wait_timeout(said, left).expect("no panic inside").0;
        }
        drop(said);
        let status = self.child.wait().expect("it is our child");
        self.reading.take().expect("taken once").join().expect("no panic inside");
        let log = std::mem::take(&mut self.said.0.lock().expect("no panic inside").0);
        Left { status, log }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Left {
    /// The books as it left them, balanced.
    pub fn books(&self) -> Books {
        let line = self.line("left");
        let text = line.split_once("Books {").and_then(|(_, rest)| rest.split_once('}'));
        let (columns, _) = text.expect("the books are in it");
        let columns = columns.split(',').filter_map(|column| {
            let (name, count) = column.split_once(':')?;
            Some((name.trim().to_owned(), count.trim().parse().expect("a count")))
        });
        let books = Books(columns.collect());
        books.balance();
        books
    }

    /// A number of the line that it said last.
    pub fn number(&self, name: &str) -> u64 {
        let line = self.line("left");
        let text = line.split_once(&format!("{name}=")).expect("it is in the line").1;
        let digits = text.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        digits.parse().expect("a number")
    }

    fn line(&self, text: &str) -> &str {
        let found = self.log.iter().rev().find(|line| line.contains(text));
        found.unwrap_or_else(|| panic!("never said {text:?}:\n{}", last(&self.log)))
    }
}

/// Counts by column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Books(pub BTreeMap<String, u64>);

impl Books {
    pub fn of(&self, column: &str) -> u64 {
        self.0[column]
    }

    /// Every message and every record is in exactly one column.
    fn balance(&self) {
        let sum = |columns: &[&str]| columns.iter().map(|column| self.of(column)).sum::<u64>();
        let messages = ["decoded", "ignored", "unmatched", "malformed", "oversize"];
        assert_eq!(self.of("received"), sum(&messages), "{self:?}");
        let records = [
            "aggregated",
            "valueless",
            "duplicate",
            "late",
            "quarantined",
            "retained_ignored",
            "no_room",
        ];
        assert_eq!(self.of("records"), sum(&records), "{self:?}");
    }
}

fn last(lines: &[String]) -> String {
    lines[lines.len().saturating_sub(40)..].join("\n")
}
