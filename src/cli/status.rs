//! `tidegate status`: asks, shows, and ends with the health as its exit code.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::agent::status_places;
use crate::config::{self, Config};
use crate::status::asking::ask_at;
use crate::status::table::table;

/// Nothing is known of the agent: what monitoring calls unknown.
const UNKNOWN: u8 = 3;

/// Asks at `socket`, or where the configuration says that the agent listens.
pub(super) fn run(files: &[PathBuf], socket: Option<&Path>, json: bool) -> ExitCode {
    match ask(files, socket, json) {
        Ok(code) => ExitCode::from(code),
        Err(unknown) => {
            eprintln!("tidegate: {unknown}");
            ExitCode::from(UNKNOWN)
        }
    }
}

fn ask(files: &[PathBuf], socket: Option<&Path>, json: bool) -> Result<u8, String> {
    let places = match socket {
        Some(socket) => vec![socket.to_owned()],
        None => {
            let config = Config::load(files, config::environment());
            let config = config.map_err(|errors| format!("{errors}\n(or name the --socket)"))?;
            status_places(&config)
        }
    };
    if places.is_empty() {
        return Err("the configuration has status.enabled = false: nobody can be asked".into());
    }
    let runtime = super::runtime().map_err(|failure| failure.message)?;
    let (status, document) =
        runtime.block_on(ask_at(&places)).map_err(|error| error.to_string())?;
    let mut output = io::stdout().lock();
    let shown = match json {
        true => output.write_all(document.as_bytes()),
        false => {
            let colour = output.is_terminal() && std::env::var_os("NO_COLOR").is_none();
            output.write_all(table(&status, colour).as_bytes())
        }
    };
    // Who does not read it to its end still gets the code.
    let _ = shown.and_then(|()| output.flush());
    Ok(status.health.level.exit_code())
}
