//! `tidegate device`: the devices that the store knows, while the agent is stopped.

use std::io::{self, Write};
use std::process::ExitCode;

use chrono::DateTime;
use clap::Subcommand;

use super::{Failure, exit};
use crate::agent::devices;
use crate::clock::Clock;
use crate::config::Config;
use crate::engine::overview::DeviceView;

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

pub(super) fn run(config: &Config, command: &Device) -> Result<ExitCode, Failure> {
    if !config.store.path.exists() {
        let path = config.store.path.display();
        return Err(Failure::new(exit::NO_INPUT, format!("{path}: there is no store yet")));
    }
    match command {
        Device::List => {
            let all = all(config)?;
            print(all.iter().map(row))
        }
        Device::Show { device } => {
            let (region, name) = parts(device)?;
            let all = all(config)?;
            let is_it =
                |it: &&DeviceView| it.region.as_str() == region && it.device.as_str() == name;
            let found = all.iter().find(is_it).ok_or_else(|| unknown(device))?;
            print(described(found))
        }
        Device::Forget { device } => {
            let (region, name) = parts(device)?;
            let forgotten = devices::forget(config, Clock::start().now(), region, name);
            match forgotten.map_err(|error| Failure::new(exit::UNAVAILABLE, error))? {
                true => print([format!("{device} is forgotten")]),
                false => Err(unknown(device)),
            }
        }
    }
}

fn all(config: &Config) -> Result<Vec<DeviceView>, Failure> {
    let mut all = devices::list(config, Clock::start().now())
        .map_err(|error| Failure::new(exit::UNAVAILABLE, error))?;
    all.sort_by(|a, b| (&a.region, &a.device).cmp(&(&b.region, &b.device)));
    Ok(all)
}

fn parts(device: &str) -> Result<(&str, &str), Failure> {
    let message = || format!("{device:?} is no device: write its region and its name, north/m-17");
    device.split_once('/').ok_or_else(|| Failure::new(exit::USAGE, message()))
}

fn unknown(device: &str) -> Failure {
    Failure::new(exit::DATA_ERROR, format!("{device}: nothing was told of such a device"))
}

fn row(device: &DeviceView) -> String {
    let name = format!("{}/{}", device.region, device.device);
    let (state, since) = state(device);
    format!(
        "{name:32} {state:10} since {since:24} last seen {}",
        moment(device.last_seen.map(|at| at.0))
    )
}

fn described(device: &DeviceView) -> Vec<String> {
    let (state, since) = state(device);
    vec![
        format!("device        {}/{}", device.region, device.device),
        format!("state         {state} since {since}"),
        format!("last seen     {}", moment(device.last_seen.map(|at| at.0))),
        format!("watermark     {}", moment(device.watermark.map(|at| at.0))),
        format!("open windows  {}", device.open_windows),
    ]
}

fn state(device: &DeviceView) -> (String, String) {
    let word = |state| serde_json::to_value(state).ok()?.as_str().map(str::to_owned);
    let state = device.state.and_then(|(state, _)| word(state));
    let since = moment(device.state.map(|(_, since)| since.0));
    (state.unwrap_or_else(|| "unknown".to_owned()), since)
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
