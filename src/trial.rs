//! `tidegate check --connect`: whether what a configuration names is there and works, found out before it matters.
//!
//! Everything is tried under names of its own and taken back: the agent may be running, and its sessions, its store and
//! its results are not touched. Nothing that is retained is published. Each step has a time limit of seconds.
//!
//! | section | what is tried |
//! |---|---|
//! | `time` | each time server, and whether they agree |
//! | `files` | passwords, keys and certificates: who may read them, until when they are good |
//! | `store` | the directory, by whom it can be written, and its room |
//! | `status` | the socket of `tidegate status` |
//! | `devices` | the devices' broker: connection, login, what it grants, subscriptions, and the burst |
//! | `central` | the central broker: the same, and a publish |
//!
//! The burst is a few minutes of messages for a session that is away: a broker that keeps fewer than it acknowledged loses
//! them without a word, and there is no other way to find that out.

mod burst;
mod central;
mod certificate;
mod devices;
mod files;
mod greeting;
mod session;
mod store;
mod time;
mod user;

use std::fmt;

use crate::clock::Clock;
use crate::config::Config;
use crate::mqtt::{Dated, LinkError};
use crate::time::{ArrivalTime, Span};

use self::user::Service;

/// Why something does not work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// It is not there, or does not answer.
    Unreachable,
    /// It is not allowed.
    Forbidden,
    /// Something else has to be written in the configuration, or in a file that it names.
    Configuration,
}

/// How something was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As it should be.
    Good,
    /// It works, and will be regretted.
    Unwise,
    /// It does not work.
    Bad(Cause),
}

/// What was tried, and what came of it, with the remedy where there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What it belongs to.
    pub section: &'static str,
    /// How it was found.
    pub outcome: Outcome,
    /// In words.
    pub text: String,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = match self.outcome {
            Outcome::Good => "ok",
            Outcome::Unwise => "warning",
            Outcome::Bad(_) => "failure",
        };
        write!(f, "{:<8} {outcome:<8} {}", self.section, self.text)
    }
}

/// The lines of one section, as they come about.
#[derive(Debug)]
struct Section {
    name: &'static str,
    lines: Vec<Line>,
}

impl Section {
    fn new(name: &'static str) -> Self {
        Self { name, lines: Vec::new() }
    }

    fn add(&mut self, outcome: Outcome, text: impl Into<String>) {
        self.lines.push(Line { section: self.name, outcome, text: text.into() });
    }

    fn good(&mut self, text: impl Into<String>) {
        self.add(Outcome::Good, text);
    }

    fn unwise(&mut self, text: impl Into<String>) {
        self.add(Outcome::Unwise, text);
    }

    fn bad(&mut self, cause: Cause, text: impl Into<String>) {
        self.add(Outcome::Bad(cause), text);
    }

    /// Why there is no connection, with the remedy.
    fn broken(&mut self, what: &str, error: &LinkError) {
        let remedy = error.remedy().map(|remedy| format!("; {remedy}")).unwrap_or_default();
        self.bad(cause(error), format!("{what}: {error}{remedy}"));
    }
}

fn cause(error: &LinkError) -> Cause {
    match error {
        LinkError::NotAuthorised
        | LinkError::ClientCertificate { .. }
        | LinkError::MayNotPublish(_)
        | LinkError::PublishRefused(_) => Cause::Forbidden,
        LinkError::Version(_)
        | LinkError::File { .. }
        | LinkError::NoSystemRoots
        | LinkError::NotTls
        | LinkError::UnknownIssuer
        | LinkError::WrongName(_)
        | LinkError::Certificate(_)
        | LinkError::ClosedEarly
        | LinkError::Protocol(_) => Cause::Configuration,
        _ => Cause::Unreachable,
    }
}

/// How many lines of each kind there were, and the worst cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// As they should be.
    pub good: usize,
    /// Regrettable.
    pub unwise: usize,
    /// Not working.
    pub bad: usize,
    /// Of those, what is to be mended first.
    pub cause: Option<Cause>,
}

impl Tally {
    fn count(&mut self, line: &Line) {
        match line.outcome {
            Outcome::Good => self.good += 1,
            Outcome::Unwise => self.unwise += 1,
            Outcome::Bad(cause) => {
                self.bad += 1;
                self.cause = self.cause.max(Some(cause));
            }
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { good, unwise, bad, .. } = self;
        let s = |count: &usize| if *count == 1 { "" } else { "s" };
        write!(f, "{good} ok, {unwise} warning{}, {bad} failure{}", s(unwise), s(bad))
    }
}

/// A configuration that is to be tried, once.
#[derive(Debug)]
pub struct Trial<'a> {
    config: &'a Config,
    /// Ends the client ids of this trial: those of no other, and not the agent's.
    tag: String,
}

impl<'a> Trial<'a> {
    /// Nothing is tried yet.
    pub fn of(config: &'a Config) -> Self {
        Self { config, tag: format!("-check-{:04x}", fastrand::u16(..)) }
    }

    /// Tries everything, and tells each section when it is done with it.
    pub async fn run(&self, mut tell: impl FnMut(&Line)) -> Tally {
        let config = self.config;
        let mut tally = Tally::default();
        let mut done = |section: Section| {
            for line in &section.lines {
                tally.count(line);
                tell(line);
            }
        };
        let service = Service::find(&config.store.path);
        let (time, shift) = time::section(&config.clock).await;
        done(time);
        let time = dated(shift);
        done(files::section(config, &service, &time));
        done(store::section(config, &service));
        done(store::status_section(config).await);
        let (devices, central) = tokio::join!(self.devices(&time), self.central(&time));
        done(devices);
        done(central);
        tally
    }

    /// Has the devices' broker forget what an interrupted trial left there.
    pub async fn take_back(&self) {
        let mut broker = self.devices_broker();
        broker.client_id += &self.tag;
        devices::forget(&broker).await;
    }
}

/// What the time is, so far as the time servers said: what they say more than the host.
fn dated(shift: Shift) -> Time {
    Time { clock: Clock::start(), shift }
}

/// The time by which certificates are judged.
#[derive(Clone, Debug)]
struct Time {
    clock: Clock,
    shift: Shift,
}

impl Time {
    fn now(&self) -> ArrivalTime {
        self.clock.now().wall + self.shift.by
    }

    /// So much later than now.
    fn after(&self, span: Span) -> Dated {
        let time = self.clone();
        Dated::by(move || (time.now() + span, time.shift.known))
    }
}

/// How far the time is from that of the host.
#[derive(Clone, Copy, Debug)]
struct Shift {
    by: Span,
    /// Somebody says so: without, it is the host's clock, which nothing keeps.
    known: bool,
}

/// As people write large numbers.
fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn bytes(size: u64) -> String {
    bytesize::ByteSize::b(size).display().iec().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_told_in_groups() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(thousands(number), text);
        }
    }

    #[test]
    fn the_worst_cause_is_told_and_warnings_are_none() {
        let mut tally = Tally::default();
        let mut section = Section::new("store");
        section.unwise("a");
        section.bad(Cause::Forbidden, "b");
        section.bad(Cause::Unreachable, "c");
        section.good("d");
        section.lines.iter().for_each(|line| tally.count(line));
        assert_eq!(tally.cause, Some(Cause::Forbidden));
        assert_eq!(tally.to_string(), "1 ok, 1 warning, 2 failures");
        assert_eq!(section.lines[1].to_string(), "store    failure  b");
    }
}
