//! What the process says about itself: log lines on standard error.
//!
//! Quiet when all is well: warnings of everything, and this program's own few lines of information.
//! `TIDEGATE_LOG` takes another filter, in the syntax of `tracing-subscriber`'s `EnvFilter`:
//! `TIDEGATE_LOG=tidegate::ingress=debug`.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::SubscriberBuilder;
use tracing_subscriber::fmt::format::{DefaultFields, Format};
use tracing_subscriber::util::SubscriberInitExt;

/// The environment variable with the filter.
pub const FILTER_VARIABLE: &str = "TIDEGATE_LOG";

/// What is logged by default: warnings of everything, and this program's own few lines of information. What the MQTT
/// library warns of is an ordinary answer (`ingress`'s fence has one with each commit), or told by us with its remedy.
pub const DEFAULT_FILTER: &str = "warn,rumqttc=error,tidegate=info";

/// Where log lines would only disturb what is shown.
pub const QUIET_FILTER: &str = "tidegate=error";

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people: in colour on a terminal, without a time where the journal adds its own.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter in the environment cannot be read.
    #[error(
        "{FILTER_VARIABLE}={value:?}: {reason}; write for example \"info\" or \"warn,tidegate=debug\""
    )]
    Filter {
        /// What was found there.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Something else in the process already logs.
    #[error("logging is already set up")]
    Already,
}

/// Sets logging up for the whole process, with `usual` as the filter where the environment names none. To be called
/// once, before anything that may fail.
pub fn init(format: LogFormat, usual: &str) -> Result<(), TelemetryError> {
    let filter = filter(std::env::var(FILTER_VARIABLE).ok(), usual)?;
    let started = match format {
        LogFormat::Json => lines(filter).json().flatten_event(true).finish().try_init(),
        LogFormat::Text if in_journal() => lines(filter).without_time().finish().try_init(),
        LogFormat::Text => lines(filter).finish().try_init(),
    };
    started.map_err(|_| TelemetryError::Already)
}

fn filter(value: Option<String>, usual: &str) -> Result<EnvFilter, TelemetryError> {
    let value = value.filter(|value| !value.trim().is_empty());
    let text = value.as_deref().unwrap_or(usual);
    EnvFilter::try_new(text).map_err(|error| TelemetryError::Filter {
        value: text.to_owned(),
        reason: error.to_string(),
    })
}

type Lines = SubscriberBuilder<DefaultFields, Format, EnvFilter, fn() -> io::Stderr>;

fn lines(filter: EnvFilter) -> Lines {
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr as fn() -> io::Stderr)
        .with_ansi(io::stderr().is_terminal())
}

/// systemd sets it for services whose standard error goes to the journal.
fn in_journal() -> bool {
    std::env::var_os("JOURNAL_STREAM").is_some() && !io::stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_filter_is_the_default_and_a_wrong_one_says_what_would_be_right() {
        assert_eq!(
            filter(Some(" ".into()), DEFAULT_FILTER).unwrap().to_string(),
            filter(None, DEFAULT_FILTER).unwrap().to_string()
        );
        let error = filter(Some("tidegate=loud".into()), DEFAULT_FILTER).unwrap_err().to_string();
        assert!(error.contains("tidegate=loud") && error.contains("tidegate=debug"), "{error}");
    }
}
