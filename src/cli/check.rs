//! `tidegate check`: what a configuration comes to, and what is unwise in it; with `--connect` also what of it works.

use std::process::ExitCode;

use super::{Failure, asked_to_end, exit, runtime};
use crate::agent;
use crate::config::{Config, Mode};
use crate::trial::{Cause, Tally, Trial};

pub(super) fn run(config: &Config, connect: bool) -> Result<ExitCode, Failure> {
    config.check(Mode::Run).map_err(|errors| Failure::new(exit::CONFIG, errors))?;
    for warning in config.warnings() {
        eprintln!("warning: {warning}");
    }
    println!("configuration is good: gateway {:?}", config.gateway);
    for line in agent::connections(config).into_iter().chain(config.understood()) {
        println!("  {line}");
    }
    if connect { try_it(config) } else { Ok(ExitCode::SUCCESS) }
}

fn try_it(config: &Config) -> Result<ExitCode, Failure> {
    let trial = Trial::of(config);
    let ended = runtime()?.block_on(async {
        let interrupted = asked_to_end();
        tokio::select! {
            tally = trial.run(|line| println!("{line}")) => Some(tally),
            () = interrupted => {
                trial.take_back().await;
                None
            }
        }
    });
    let Some(tally) = ended else {
        return Err(Failure::new(exit::INTERRUPTED, "interrupted; what was begun is taken back"));
    };
    println!("{tally}");
    Ok(ExitCode::from(code(tally)))
}

fn code(tally: Tally) -> u8 {
    match tally.cause {
        None => 0,
        Some(Cause::Unreachable) => exit::UNAVAILABLE,
        Some(Cause::Forbidden) => exit::NO_PERMISSION,
        Some(Cause::Configuration) => exit::CONFIG,
    }
}
