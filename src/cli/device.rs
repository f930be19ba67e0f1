//! `tidegate device`: the devices that the agent knows. It is asked while it runs; else its store is read.

use std::io::{self, Write};
use std::process::ExitCode;

use chrono::DateTime;
use clap::Subcommand;

use super::{Failure, exit};
use crate::agent::devices::{answer_from_store, store_name};
use crate::agent::status_places;
use crate::clock::Clock;
use crate::config::Config;
use crate::status::asking::{AskError, ask_for};
use crate::status::health::spoken;
use crate::status::question::{self, Answer, Ask};

#[derive(Debug, Subcommand)]
pub(super) enum Device {
    /// All devices: region and name, what they are since when, when they were last seen.
    List,
    /// One device, as `REGION/NAME`.
    Show {
        /// The first slash divides them.
        device: String,
    },
    /// No longer misses a device, as `REGION/NAME`: it leaves the counts, and is told anew if it speaks again. What is
    /// known of its time stays.
    Forget {
        /// The first slash divides them.
        device: String,
    },
}

impl Device {
    fn ask(&self, config: &Config) -> Result<Ask, Failure> {
        let store = store_name(config);
        Ok(match self {
            Self::List => Ask::Devices { store, from: 0 },
            Self::Show { device } => {
                let (region, device) = parts(device)?;
                Ask::Device { store, region, device }
            }
            Self::Forget { device } => {
                let (region, device) = parts(device)?;
                Ask::Forget { store, region, device }
            }
        })
    }
}

pub(super) fn run(config: &Config, command: &Device) -> Result<ExitCode, Failure> {
    let answer = answer(config, &command.ask(config)?)?;
    match (command, answer) {
        (Device::List, Answer::Devices(page)) => {
            let mut all = page.devices;
            all.sort_by(|a, b| (&a.region, &a.device).cmp(&(&b.region, &b.device)));
            print(all.iter().map(row))
        }
        (Device::Show { device }, Answer::Devices(page)) => {
            print(described(page.devices.first().ok_or_else(|| unknown(device))?))
        }
        (Device::Forget { device }, Answer::Forgotten(true)) => {
            print([format!("{device} is forgotten")])
        }
        (Device::Forget { device }, Answer::Forgotten(false)) => Err(unknown(device)),
        (_, Answer::Refused(why)) => Err(Failure::new(exit::UNAVAILABLE, why)),
        (_, other) => Err(Failure::new(exit::UNAVAILABLE, format!("the agent says {other:?}"))),
    }
}

/// Of the agent that runs, else of its store.
fn answer(config: &Config, ask: &Ask) -> Result<Answer, Failure> {
    let places = status_places(config);
    let nobody = match super::runtime()?.block_on(ask_for(&places, ask)) {
        Ok(answer) => return Ok(answer),
        Err(nobody @ AskError::Nobody(_)) => nobody,
        Err(denied @ AskError::Denied(_)) => return Err(Failure::new(exit::NO_PERMISSION, denied)),
        Err(error) => return Err(Failure::new(exit::UNAVAILABLE, error)),
    };
    let path = config.store.path.display();
    match config.store.path.try_exists() {
        Ok(true) => {}
        Ok(false) => {
            return Err(Failure::new(exit::NO_INPUT, format!("{path}: there is no store yet")));
        }
        Err(error) => {
            let message = format!("{path}: {error} ({nobody})");
            return Err(Failure::new(exit::NO_PERMISSION, message));
        }
    }
    answer_from_store(config, Clock::start().now(), ask)
        .map_err(|error| Failure::new(exit::UNAVAILABLE, format!("{error} ({nobody})")))
}

fn parts(device: &str) -> Result<(String, String), Failure> {
    let message = || format!("{device:?} is no device: write its region and its name, north/m-17");
    let parts = device.split_once('/');
    let parts = parts.map(|(region, name)| (region.to_owned(), name.to_owned()));
    parts.ok_or_else(|| Failure::new(exit::USAGE, message()))
}

fn unknown(device: &str) -> Failure {
    Failure::new(exit::DATA_ERROR, format!("{device}: nothing was told of such a device"))
}

fn row(device: &question::Device) -> String {
    let name = format!("{}/{}", device.region, device.device);
    let (state, since) = (state(device), moment(device.since));
    format!("{name:32} {state:10} since {since:24} last seen {}", moment(device.last_seen))
}

fn described(device: &question::Device) -> Vec<String> {
    vec![
        format!("device        {}/{}", device.region, device.device),
        format!("state         {} since {}", state(device), moment(device.since)),
        format!("last seen     {}", moment(device.last_seen)),
        format!("watermark     {}", moment(device.watermark)),
        format!("open windows  {}", device.open_windows),
        format!("clock         {}", clock(device.clock_offset)),
    ]
}

fn clock(offset: Option<i64>) -> String {
    match offset {
        Some(behind) if behind > 0 => format!("{} behind", spoken(behind)),
        Some(ahead) => format!("{} ahead", spoken(ahead.saturating_neg())),
        None => "not known to be wrong".to_owned(),
    }
}

fn state(device: &question::Device) -> String {
    let word = serde_json::to_value(device.state).ok();
    word.as_ref().and_then(|word| word.as_str()).unwrap_or("unknown").to_owned()
}

fn moment(time: Option<i64>) -> String {
    let at = time.and_then(DateTime::from_timestamp_millis);
    at.map_or_else(|| "never".to_owned(), |at| at.format("%Y-%m-%d %H:%M:%S UTC").to_string())
}

fn print(lines: impl IntoIterator<Item = String>) -> Result<ExitCode, Failure> {
    let mut output = io::stdout().lock();
    for line in lines {
        // Names come from outside.
        let line: String = line.chars().filter(|c| !c.is_control()).collect();
        if writeln!(output, "{line}").is_err() {
            break; // who reads it has enough
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::clock;

    #[test]
    fn a_clock_is_said_to_be_ahead_or_behind() {
        assert_eq!(clock(Some(-599_800)), "9 min 59 s ahead");
        assert_eq!(clock(Some(3_600_000)), "1 h 0 min behind");
        assert_eq!(clock(None), "not known to be wrong");
    }
}
