//! What the process says about itself: log lines on standard error.
//!
//! Quiet when all is well: warnings of everything, and this program's own few lines of information. `log.level` of the
//! configuration says otherwise, also while the agent runs. `TIDEGATE_LOG` takes another filter and is stronger: a list of
//! `MODULE=LEVEL` and of levels, `TIDEGATE_LOG=warn,tidegate::ingress=debug`.

use std::fmt;
use std::io::{self, IsTerminal};

use tracing::warn;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt as lines, reload};

/// The environment variable with the filter.
pub const FILTER_VARIABLE: &str = "TIDEGATE_LOG";

/// What is logged by default: warnings of everything, and this program's own few lines of information. What the MQTT
/// library warns of is an ordinary answer (`ingress`'s fence has one with each commit), or told by us with its remedy.
pub const DEFAULT_FILTER: &str = "warn,rumqttc=error,tidegate=info";

/// Where log lines would only disturb what is shown.
pub const QUIET_FILTER: &str = "tidegate=error";

/// The level that is [`DEFAULT_FILTER`].
pub const USUAL_LEVEL: &str = "info";

/// Levels of this program's own lines, from nothing to everything.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

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

/// The log of this process.
pub struct Logging {
    /// The environment has said what is logged.
    is_fixed: bool,
    filter: reload::Handle<Targets, Registry>,
}

impl fmt::Debug for Logging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logging").field("is_fixed", &self.is_fixed).finish_non_exhaustive()
    }
}

impl Logging {
    /// From now on this is logged, a level or directives, unless the environment says what is.
    pub fn follow(&self, level: &str) {
        if self.is_fixed {
            if level != USUAL_LEVEL {
                warn!(level, "log.level is not followed: {FILTER_VARIABLE} is set, and stronger");
            }
            return;
        }
        let exchanged = directives(level).map(|filter| self.filter.reload(filter));
        if !matches!(exchanged, Ok(Ok(()))) {
            warn!(level, "log.level cannot be followed");
        }
    }
}

/// Sets logging up for the whole process, with `usual` as the filter where the environment names none. To be called
/// once, before anything that may fail.
pub fn init(format: LogFormat, usual: &str) -> Result<Logging, TelemetryError> {
    let named = written(std::env::var(FILTER_VARIABLE).ok());
    let is_fixed = named.is_some();
    let (filter, handle) = reload::Layer::new(filter(named.as_deref(), usual)?);
    let filtered = tracing_subscriber::registry().with(filter);
    let lines = lines::layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    let started = match format {
        LogFormat::Json => filtered.with(lines.json().flatten_event(true)).try_init(),
        LogFormat::Text if in_journal() => filtered.with(lines.without_time()).try_init(),
        LogFormat::Text => filtered.with(lines).try_init(),
    };
    started.map_err(|_| TelemetryError::Already)?;
    Ok(Logging { is_fixed, filter: handle })
}

fn written(value: Option<String>) -> Option<String> {
    value.filter(|value| !value.trim().is_empty())
}

fn filter(value: Option<&str>, usual: &str) -> Result<Targets, TelemetryError> {
    let text = value.unwrap_or(usual);
    text.parse().map_err(|error: ParseError| TelemetryError::Filter {
        value: text.to_owned(),
        reason: error.to_string(),
    })
}

/// The filter of a configuration: a level of this program's own lines, the others warning as ever; or directives
/// (`warn,tidegate::ingress=debug`).
///
/// # Errors
/// What is wrong, and what would be right. `Targets` takes any word for the name of a module.
pub fn directives(level: &str) -> Result<Targets, String> {
    let is_level = |word: &str| LEVELS.contains(&word);
    if is_level(level) {
        let text = DEFAULT_FILTER.replace("tidegate=info", &format!("tidegate={level}"));
        return text.parse().map_err(|error: ParseError| error.to_string());
    }
    let stray = level.split(',').map(str::trim).find(|part| !is_level(part) && !part.contains('='));
    let wrong = match stray {
        Some("") => "a part is empty".to_owned(),
        Some(stray) => format!("`{stray}` is no level"),
        None => match level.parse::<Targets>() {
            Ok(filter) => return Ok(filter),
            Err(error) => error.to_string(),
        },
    };
    let levels = LEVELS.join(", ");
    Err(format!("{wrong}; write one of {levels}, or directives: \"warn,tidegate::ingress=debug\""))
}

/// systemd sets it for services whose standard error goes to the journal.
fn in_journal() -> bool {
    std::env::var_os("JOURNAL_STREAM").is_some() && !io::stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_filter_is_none_and_a_wrong_one_says_what_would_be_right() {
        assert_eq!(written(Some(" ".into())), None);
        let error = filter(Some("tidegate=loud"), DEFAULT_FILTER).unwrap_err().to_string();
        assert!(error.contains("tidegate=loud") && error.contains("tidegate=debug"), "{error}");
    }

    #[test]
    fn a_level_is_that_of_our_own_lines_and_any_other_word_is_a_mistake() {
        let of = |level: &str| directives(level).map(|filter| filter.to_string());
        let usual = DEFAULT_FILTER.parse::<Targets>().unwrap().to_string();
        assert_eq!(of(USUAL_LEVEL), Ok(usual));
        let debug = of("debug").unwrap();
        assert!(debug.contains("tidegate=debug") && debug.contains("rumqttc=error"), "{debug}");
        assert!(of("warn,tidegate::ingress=debug").unwrap().contains("tidegate::ingress=debug"));
        for (wrong, told) in
            [("loud", "`loud`"), ("", "empty"), ("tidegate=loud", "expected one of")]
        {
            let error = of(wrong).unwrap_err();
            assert!(error.contains(told) && error.contains("off, error, warn"), "{error}");
        }
    }
}
