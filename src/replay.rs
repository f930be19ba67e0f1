//! `tidegate replay`: the engine of `run` over a recorded file, at full speed, deterministic.
//!
//! A recording has one message to a line, `{"topic":…,"payload":…,"retain":…,"arrival":…}`, as `tidegate record` writes
//! it; `payload_b64` takes the place of a payload that is not text. Bare payloads of one source are read as well. The
//! clock is what the recording says; where it has no arrival times there is none, and only data closes windows. The same
//! goes for a recording that begins before the recorder knew what time it was.

use std::borrow::Cow;
use std::io::{self, BufRead, Read as _, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::config::{Config, Mode};
use crate::engine::Engine;
use crate::engine::books::Books;
use crate::engine::effect::Effects;
use crate::engine::input::{Ingress, Input, Publish, Topic};
use crate::engine::settings::ClockRules;
use crate::ids::Generation;
use crate::time::{ArrivalTime, ClockQuality, ClockStatus, MonoTime, Now};
use crate::wire::encode::{Identity, encode_line};
use crate::wire::scan::Scanner;

/// One line of a recording.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Recorded<'a> {
    /// Topic it was published to.
    #[serde(borrow)]
    pub topic: Cow<'a, str>,
    /// Its payload as text.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Cow<'a, str>>,
    /// Its payload in base64, where it is not text.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub payload_b64: Option<Cow<'a, str>>,
    /// It was retained.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retain: bool,
    /// The broker may have delivered it before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dup: bool,
    /// When it arrived, in ms since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrival: Option<i64>,
    /// What the clock was worth by which it arrived, where that was not good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockQuality>,
}

impl<'a> Recorded<'a> {
    /// Reads a line as [`crate::record`] writes it, its payload into `payload`; `None` where it is written otherwise.
    fn scan(line: &'a str, payload: &'a mut String) -> Option<Self> {
        let mut scanner = Scanner::new(line);
        let (mut topic, mut arrival, mut has_payload) = (None, None, false);
        payload.clear();
        scanner.object(|scanner, key| match key {
            "payload" if !has_payload => {
                has_payload = true;
                scanner.text(payload)
            }
            "topic" if topic.is_none() => {
                topic = line.get(scanner.value()?)?.strip_prefix('"')?.strip_suffix('"');
                topic.filter(|topic| !topic.contains('\\')).map(drop)
            }
            "arrival" if arrival.is_none() => {
                let digits = line.get(scanner.value()?)?;
                arrival = digits.parse().ok().filter(|_| !digits.starts_with('-'));
                arrival.map(drop)
            }
            _ => None,
        })?;
        let payload = has_payload.then_some(payload.as_str().into());
        let rest = Self { payload, arrival, ..Self::default() };
        scanner.is_at_end().then_some(Self { topic: topic?.into(), ..rest })
    }
}

/// What the lines of the input are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lines {
    /// Recorded messages.
    Recorded,
    /// Payloads of the source of this name.
    Payloads(String),
}

/// Why a replay ended early.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The source is not configured.
    #[error("source {name:?} is not in the configuration, which has {known}")]
    UnknownSource {
        /// As asked for.
        name: String,
        /// The sources that there are.
        known: String,
    },
    /// The input cannot be read.
    #[error("cannot read the recording: {0}")]
    Read(#[source] io::Error),
    /// The output cannot be written.
    #[error("cannot write the results: {0}")]
    Write(#[source] io::Error),
}

/// A line that is no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Its number, from 1.
    pub number: u64,
    /// What is wrong with it.
    pub cause: String,
}

/// What a replay came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The books.
    pub books: Books,
    /// Lines read.
    pub lines: u64,
    /// How many of them were no messages.
    pub bad: u64,
    /// The first of these.
    pub first_bad: Option<BadLine>,
    /// Messages whose arrival nobody can vouch for: the recorder did not know what time it was.
    pub undated: u64,
}

/// Bytes of the input that go into the generation.
const GENERATION_BYTES: u64 = 64 * 1024;
/// Times of the contract are at most so many milliseconds from 1970: 100 million days.
const FARTHEST: u64 = 8_640_000_000_000_000;

/// Replays `input` and writes what the engine says as JSON lines. `progress` is told the bytes read so far, now and
/// then.
///
/// # Errors
/// Reading or writing fails, or the source is unknown. A line that is no message is passed over and counted.
pub fn replay(
    config: &Config,
    lines: &Lines,
    mut input: impl BufRead,
    output: impl Write,
    mut progress: impl FnMut(u64),
) -> Result<Outcome, ReplayError> {
    let mut start = Vec::new();
    input.by_ref().take(GENERATION_BYTES).read_to_end(&mut start).map_err(ReplayError::Read)?;
    let mut input = io::Cursor::new(start.clone()).chain(input);
    let mut replay = Replay::new(config, lines, &start, output)?;
    let mut line = Vec::new();
    let mut bytes = 0;
    loop {
        line.clear();
        let read = input.read_until(b'\n', &mut line).map_err(ReplayError::Read)?;
        if read == 0 {
            return replay.end();
        }
        bytes += read as u64;
        let content = line.strip_suffix(b"\n").unwrap_or(&line);
        replay.line(content.strip_suffix(b"\r").unwrap_or(content))?;
        if replay.lines.is_multiple_of(4096) {
            progress(bytes);
        }
    }
}

struct Replay<W: Write> {
    engine: Engine,
    effects: Effects,
    identity: Identity,
    /// Index of the source whose payloads the lines are.
    source: Option<usize>,
    output: W,
    /// Room for the payload of a line.
    payload: String,
    now: Now,
    lines: u64,
    bad: u64,
    first_bad: Option<BadLine>,
    undated: u64,
}

impl<W: Write> Replay<W> {
    fn new(config: &Config, lines: &Lines, start: &[u8], output: W) -> Result<Self, ReplayError> {
        let first = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let recorded = serde_json::from_slice::<Recorded<'_>>(first).ok();
        let recorded = recorded.filter(|_| *lines == Lines::Recorded);
        let (arrival, doubt) =
            recorded.map_or((None, None), |message| (message.arrival, message.clock));
        let arrival = arrival.filter(|_| doubt.is_none());
        let clock = if arrival.is_some() { ClockRules::Applied } else { ClockRules::Absent };
        let settings = config.settings(Mode::Replay(clock));
        let source = match lines {
            Lines::Recorded => None,
            Lines::Payloads(name) => Some(find_source(&settings, name)?),
        };
        let hash = xxh3_64(start) ^ xxh3_64(format!("{settings:?}").as_bytes());
        let generation = Generation::of_replay(hash);
        let now = Now { wall: ArrivalTime(arrival.unwrap_or(0)), mono: MonoTime(0) };
        let mut replay = Self {
            engine: Engine::new(settings, generation, ArrivalTime::MIN),
            effects: Effects::default(),
            identity: Identity { gateway: config.gateway.as_str().into(), generation },
            source,
            output,
            payload: String::new(),
            now,
            lines: 0,
            bad: 0,
            first_bad: None,
            undated: 0,
        };
        if clock == ClockRules::Applied {
            // What the recorder wrote down is the time of this world.
            let exact = Input::Clock(ClockStatus::EXACT);
            replay.engine.handle(exact, now, &mut replay.effects);
        }
        for change in [Ingress::Up, Ingress::CaughtUp] {
            replay.engine.handle(Input::Ingress(change), now, &mut replay.effects);
        }
        Ok(replay)
    }

    fn line(&mut self, line: &[u8]) -> Result<(), ReplayError> {
        self.lines += 1;
        if let Some(source) = self.source {
            let topic = Topic::Source(source);
            self.publish(Publish { topic, payload: line, retain: false, dup: false });
        } else if !line.trim_ascii().is_empty() {
            self.recorded(line);
        }
        self.write(Some(self.lines))
    }

    fn recorded(&mut self, line: &[u8]) {
        let mut payload = std::mem::take(&mut self.payload);
        let quick = std::str::from_utf8(line).ok();
        match quick.and_then(|line| Recorded::scan(line, &mut payload)) {
            Some(message) => self.message(&message),
            None => match serde_json::from_slice(line) {
                Ok(message) => self.message(&message),
                Err(error) => self.bad_line(error.to_string()),
            },
        }
        self.payload = payload;
    }

    fn message(&mut self, message: &Recorded<'_>) {
        let decoded = message.payload_b64.as_deref().map(|text| BASE64.decode(text)).transpose();
        let decoded = match decoded {
            Ok(decoded) => decoded,
            Err(error) => return self.bad_line(format!("payload_b64: {error}")),
        };
        let text = message.payload.as_deref().unwrap_or_default();
        if message.arrival.is_some_and(|arrival| arrival.unsigned_abs() > FARTHEST) {
            return self.bad_line("arrival: not within 100 million days of 1970".to_owned());
        }
        self.undated += u64::from(message.clock.is_some());
        if let Some(arrival) = message.arrival {
            self.advance_to(ArrivalTime(arrival));
        }
        self.publish(Publish {
            topic: Topic::Name(&message.topic),
            payload: decoded.as_deref().unwrap_or(text.as_bytes()),
            retain: message.retain,
            dup: message.dup,
        });
    }

    /// The recorder's clock may have been set back; monotonic time is never.
    fn advance_to(&mut self, arrival: ArrivalTime) {
        let elapsed = (arrival - self.now.wall).0.max(0);
        self.now = Now { wall: arrival, mono: MonoTime(self.now.mono.0.saturating_add(elapsed)) };
    }

    fn publish(&mut self, publish: Publish<'_>) {
        self.engine.handle(Input::Publish(publish), self.now, &mut self.effects);
    }

    fn bad_line(&mut self, cause: String) {
        self.bad += 1;
        self.first_bad.get_or_insert(BadLine { number: self.lines, cause });
    }

    fn write(&mut self, line: Option<u64>) -> Result<(), ReplayError> {
        for output in self.effects.outputs.drain(..) {
            let mut text = encode_line(&output, &self.identity, line);
            text.push('\n');
            self.output.write_all(text.as_bytes()).map_err(ReplayError::Write)?;
        }
        Ok(())
    }

    fn end(mut self) -> Result<Outcome, ReplayError> {
        self.engine.handle(Input::End, self.now, &mut self.effects);
        self.write(None)?;
        self.output.flush().map_err(ReplayError::Write)?;
        self.engine.books().balance();
        Ok(Outcome {
            books: *self.engine.books(),
            lines: self.lines,
            bad: self.bad,
            first_bad: self.first_bad,
            undated: self.undated,
        })
    }
}

fn find_source(
    settings: &crate::engine::settings::Settings,
    name: &str,
) -> Result<usize, ReplayError> {
    let names = || settings.sources.iter().map(|source| source.profile.source().as_str());
    names().position(|source| source == name).ok_or_else(|| ReplayError::UnknownSource {
        name: name.to_owned(),
        known: names().collect::<Vec<_>>().join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scanned(line: &str) -> Option<String> {
        let mut payload = "of the last line".to_owned();
        Recorded::scan(line, &mut payload).map(|message| format!("{message:?}"))
    }

    #[test]
    fn a_recording_that_begins_in_the_dark_is_replayed_without_a_clock() {
        let config = Config::from_toml(
            "gateway.id = \"gw\"\n[[source]]\nname = \"m\"\ntopic = \"m/{device}\"\nregion = \"const:here\"\n\
             time = { from = \"/ts\", as = \"epoch_s\" }\nmetric = [{ name = \"v\", from = \"/v\" }]\n",
        );
        let config = config.unwrap();
        let at = |clock: &str| {
            let payload = r#""payload":"{\"ts\":1796000000,\"v\":1}""#;
            let dark = format!(r#"{{"topic":"m/a",{payload},"arrival":1794876800000{clock}}}"#);
            let lines = dark.clone() + "\n" + &dark.replace("m/a", "m/b");
            replay(&config, &Lines::Recorded, lines.as_bytes(), io::sink(), |_| {}).unwrap()
        };
        let (trusted, dark) = (at(""), at(r#","clock":"unsynchronised""#));
        assert_eq!((trusted.undated, trusted.books.future), (0, 2), "thirteen days ahead");
        assert_eq!((dark.undated, dark.books.aggregated), (2, 2), "nobody knows");
    }

    #[test]
    fn a_line_as_record_writes_it_is_read_the_quick_way() {
        let line = r#"{"topic":"a/é","payload":"{\"device\":\"m\\n\"}","arrival":17}"#;
        assert!(scanned(line).is_some());
    }

    proptest! {
        #[test]
        fn both_ways_to_read_a_line_agree(
            topic in "\"[a/é]{0,3}(\\\\n)?\"",
            payload in "\"[aé:]{0,3}(\\\\[\"\\\\/bfnrtu])?[aé:0]{0,5}\"",
            arrival in "-?[0-9]{1,3}(\\.0)?",
            more in "(,\"(retain|arrival|x)\":true)?",
        ) {
            let line = format!(
                "{{\"topic\":{topic},\"payload\":{payload},\"arrival\":{arrival}{more}}}"
            );
            if let Some(scanned) = scanned(&line) {
                let parsed = serde_json::from_str::<Recorded<'_>>(&line);
                prop_assert_eq!(Some(scanned), parsed.ok().map(|message| format!("{message:?}")), "{}", line);
            }
        }
    }
}
