//! The command line: what is asked, and how it ended.

mod check;
mod device;
mod progress;
mod status;

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use self::progress::Progress;
use crate::agent::{self, Reloads};
use crate::clock::Clock;
use crate::config::{self, Config, ConfigErrors, Mode};
#[cfg(feature = "demo")]
use crate::demo;
use crate::engine::settings::ClockRules;
use crate::heap;
use crate::notify::Notify;
use crate::record::{Recording, record};
use crate::replay::{Lines, Outcome, replay};
use crate::telemetry::{self, LogFormat, Logging};

/// Exit codes of `sysexits.h`. Those of `status` are others.
mod exit {
    pub(super) const USAGE: u8 = 64;
    pub(super) const DATA_ERROR: u8 = 65;
    pub(super) const NO_INPUT: u8 = 66;
    pub(super) const UNAVAILABLE: u8 = 69;
    pub(super) const IO_ERROR: u8 = 74;
    pub(super) const NO_PERMISSION: u8 = 77;
    pub(super) const CONFIG: u8 = 78;
    /// What a shell makes of Ctrl-C.
    pub(super) const INTERRUPTED: u8 = 130;
}

/// Device topics in, right hours out, nothing lost on the way.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, about, max_term_width = 100)]
struct Cli {
    /// Configuration files; later ones lie over earlier ones, `TIDEGATE_…` variables over all. Without any it is the
    /// file that `TIDEGATE_CONFIG` names, else /etc/tidegate/tidegate.toml.
    #[arg(short, long = "config", value_name = "FILE", global = true)]
    config: Vec<PathBuf>,
    /// How log lines on standard error look.
    #[arg(long, value_enum, global = true, default_value_t = Log::Text)]
    log: Log,
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Log {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the agent.
    Run,
    /// Reads the configuration and says what is wrong or unwise.
    Check {
        /// Also tries what it names, while the agent runs or not: brokers, time servers, files, the store. Nothing of it
        /// stays behind. Leaves with 69 when something is out of reach, 77 when it is not allowed.
        #[arg(long)]
        connect: bool,
    },
    /// Runs the engine over a recorded file; results go to standard output as JSON lines, the books to standard error.
    Replay {
        /// A recording, as `record` writes it; `-` is standard input.
        file: PathBuf,
        /// The lines are bare payloads of this source, without topic and arrival time.
        #[arg(long, value_name = "NAME")]
        source: Option<String>,
    },
    /// Asks the agent how it is. The exit code is its health: 0 ok, 1 degraded, 2 failing, 3 unknown.
    Status {
        /// The whole of it, as one JSON document.
        #[arg(long)]
        json: bool,
        /// Where to ask, instead of where the configuration says; then no configuration is read.
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
    },
    /// Shows the devices that the agent knows, or forgets one. It is asked while it runs; else its store is read.
    #[command(subcommand)]
    Device(device::Device),
    /// Writes the devices' messages to a file that `replay` reads.
    Record {
        /// Where to write; `-` is standard output.
        #[arg(default_value = "-")]
        file: PathBuf,
        /// Ends after so many messages.
        #[arg(long, value_name = "N")]
        count: Option<u64>,
        /// MQTT filters to record instead of those of the configured sources.
        #[arg(long = "filter", value_name = "FILTER")]
        filters: Vec<String>,
    },
    /// Shows the agent at work, with nothing installed: brokers, a fleet in accelerated time and an outage in this
    /// process, and in the end what was injected against what was reported. Leaves with 1 when the two differ.
    #[cfg(feature = "demo")]
    Demo(Demo),
}

#[cfg(feature = "demo")]
#[derive(Debug, clap::Args)]
struct Demo {
    /// What the meters do.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How long it takes, 10 to 3600: the same hours of the fleet, faster or slower.
    #[arg(long, value_name = "N", default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(10..=3600))]
    seconds: u64,
    /// Goes on until Ctrl-C; then the report follows. A second Ctrl-C leaves at once.
    #[arg(long)]
    forever: bool,
    /// Prints the configuration of its agent, and nothing else.
    #[arg(long)]
    show_config: bool,
}

/// The configuration where nothing names another.
const USUAL_CONFIG: &str = "/etc/tidegate/tidegate.toml";

impl Cli {
    /// The configuration files: as asked, as the environment says, or the usual one.
    fn files(&self) -> Vec<PathBuf> {
        if !self.config.is_empty() {
            return self.config.clone();
        }
        let named = std::env::var_os(config::FILE_VARIABLE).filter(|name| !name.is_empty());
        vec![named.map_or_else(|| USUAL_CONFIG.into(), PathBuf::from)]
    }
}

/// Why a command failed: what to say, and the code to leave with.
struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    fn new(code: u8, message: impl std::fmt::Display) -> Self {
        let message = message.to_string();
        Self { message, code }
    }
}

/// The command line: for manual pages and the completions of shells.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the command of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { exit::USAGE } else { 0 };
            // Nobody is there to be told that nobody reads it.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let format = match cli.log {
        Log::Text => LogFormat::Text,
        Log::Json => LogFormat::Json,
    };
    let filter = match &cli.command {
        #[cfg(feature = "demo")]
        Command::Demo(_) => telemetry::QUIET_FILTER,
        _ => telemetry::DEFAULT_FILTER,
    };
    let ended = telemetry::init(format, filter)
        .map_err(|error| Failure::new(exit::CONFIG, error))
        .and_then(|logging| run(&cli, logging));
    match ended {
        Ok(code) => code,
        Err(Failure { message, code }) => {
            eprintln!("tidegate: {message}");
            ExitCode::from(code)
        }
    }
}

fn run(cli: &Cli, logging: Logging) -> Result<ExitCode, Failure> {
    let config = || {
        let config = load(&cli.files()).map_err(|errors| Failure::new(exit::CONFIG, errors))?;
        logging.follow(&config.log.level);
        Ok(config)
    };
    match &cli.command {
        Command::Run => run_agent(cli.files(), logging),
        Command::Check { connect } => check::run(&config()?, *connect),
        Command::Replay { file, source } => run_replay(&config()?, file, source.as_deref()),
        Command::Record { file, count, filters } => run_record(&config()?, file, *count, filters),
        Command::Device(command) => device::run(&config()?, command),
        Command::Status { json, socket } => Ok(status::run(&cli.files(), socket.as_deref(), *json)),
        #[cfg(feature = "demo")]
        Command::Demo(_) if !cli.config.is_empty() => Err(Failure::new(
            exit::USAGE,
            "demo has a configuration of its own (--show-config); leave -c out",
        )),
        #[cfg(feature = "demo")]
        Command::Demo(wanted) => run_demo(wanted),
    }
}

fn load(files: &[PathBuf]) -> Result<Config, ConfigErrors> {
    Config::load(files, config::environment())
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(exit::UNAVAILABLE, error))
}

/// Done when the process is asked to end. From the call on, not from the first poll, it is not ended by the signal.
fn asked_to_end() -> impl Future<Output = ()> {
    let signals = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
    async {
        let [Ok(mut terminate), Ok(mut interrupt)] = signals else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
}

fn run_agent(files: Vec<PathBuf>, logging: Logging) -> Result<ExitCode, Failure> {
    let runtime = runtime()?;
    // Before anything takes time: from here on the signal does not end the process.
    let hangups = runtime.block_on(async { signal(SignalKind::hangup()) });
    let hangups = hangups.map_err(|error| Failure::new(exit::UNAVAILABLE, error))?;
    let config = load(&files).map_err(|errors| Failure::new(exit::CONFIG, errors))?;
    logging.follow(&config.log.level);
    config.check(Mode::Run).map_err(|errors| Failure::new(exit::CONFIG, errors))?;
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    heap::keep_little();
    let clock = Clock::start_with(config.clock.clone());
    let reloads = Reloads::at(hangups, logging, move || load(&files));
    let life =
        async { agent::run(config, &clock, Notify::from_env(), asked_to_end(), reloads).await };
    runtime.block_on(life).map_err(|error| {
        let code = if error.is_lasting() { exit::CONFIG } else { exit::IO_ERROR };
        Failure::new(code, error)
    })?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(feature = "demo")]
fn run_demo(wanted: &Demo) -> Result<ExitCode, Failure> {
    if wanted.show_config {
        print!("{}", demo::CONFIG);
        return Ok(ExitCode::SUCCESS);
    }
    let options = demo::Options {
        seed: wanted.seed,
        duration: std::time::Duration::from_secs(wanted.seconds),
        forever: wanted.forever,
        ..demo::Options::default()
    };
    let report = runtime()?.block_on(async {
        let (interrupt, interrupts) = tokio::sync::mpsc::channel(2);
        tokio::spawn(async move {
            loop {
                asked_to_end().await;
                if interrupt.send(()).await.is_err() {
                    return;
                }
            }
        });
        demo::run(options, interrupts).await
    });
    match report {
        Ok(report) => {
            println!("{report}");
            Ok(ExitCode::from(report.exit_code()))
        }
        Err(error @ demo::DemoError::Interrupted) => Err(Failure::new(exit::INTERRUPTED, error)),
        Err(error) => Err(Failure::new(exit::UNAVAILABLE, error)),
    }
}

fn run_replay(config: &Config, file: &Path, source: Option<&str>) -> Result<ExitCode, Failure> {
    config
        .check(Mode::Replay(ClockRules::Absent))
        .map_err(|errors| Failure::new(exit::CONFIG, errors))?;
    let lines = source.map_or(Lines::Recorded, |name| Lines::Payloads(name.to_owned()));
    let (input, size) = open(file)?;
    let progress = Progress::begin(size);
    let output = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let outcome = replay(config, &lines, input, output, |bytes| progress.reach(bytes));
    progress.end();
    match outcome {
        Ok(outcome) => Ok(tell_outcome(&outcome)),
        Err(crate::replay::ReplayError::Write(error))
            if error.kind() == io::ErrorKind::BrokenPipe =>
        {
            Ok(ExitCode::SUCCESS)
        }
        Err(error @ crate::replay::ReplayError::UnknownSource { .. }) => {
            Err(Failure::new(exit::CONFIG, error))
        }
        Err(error) => Err(Failure::new(exit::IO_ERROR, error)),
    }
}

fn open(file: &Path) -> Result<(Box<dyn BufRead>, Option<u64>), Failure> {
    if file == Path::new("-") {
        return Ok((Box::new(BufReader::new(io::stdin().lock())), None));
    }
    let opened = File::open(file).map_err(|error| {
        Failure::new(exit::NO_INPUT, format!("cannot open {}: {error}", file.display()))
    })?;
    let size = opened.metadata().ok().map(|metadata| metadata.len());
    Ok((Box::new(BufReader::with_capacity(1 << 17, opened)), size))
}

/// What is wrong with such messages of a recording.
const UNDATED: &str =
    "arrived while nobody knew what time it was: their arrival times are those of a wrong clock";

/// The books, for people; a line that was no message makes the exit code that of bad data.
fn tell_outcome(outcome: &Outcome) -> ExitCode {
    let mut text = String::from("books\n");
    for (name, count) in outcome.books.columns() {
        text += &format!("  {name:<17}{count}\n");
    }
    eprint!("{text}");
    if outcome.undated > 0 {
        eprintln!("tidegate: {} of {} messages {UNDATED}", outcome.undated, outcome.lines);
    }
    match &outcome.first_bad {
        None => ExitCode::SUCCESS,
        Some(first) => {
            let crate::replay::BadLine { number, cause } = first;
            eprintln!(
                "tidegate: {} of {} lines are no messages; the first is line {number}: {cause}",
                outcome.bad, outcome.lines
            );
            ExitCode::from(exit::DATA_ERROR)
        }
    }
}

fn run_record(
    config: &Config,
    file: &Path,
    count: Option<u64>,
    filters: &[String],
) -> Result<ExitCode, Failure> {
    let mut ingress = agent::ingress_config(config, &config.settings(Mode::Run));
    ingress.broker.client_id += "-record";
    ingress.session_expiry = std::time::Duration::ZERO;
    if let Some(filter) = filters.iter().find(|filter| !rumqttc::valid_filter(filter)) {
        let message = format!(
            "--filter \"{filter}\": no MQTT filter; `+` stands for a whole level, and `#` for all that follow"
        );
        return Err(Failure::new(exit::USAGE, message));
    }
    if !filters.is_empty() {
        ingress.filters = filters.to_vec();
    }
    let output: Box<dyn Write> = if file == Path::new("-") {
        Box::new(io::stdout().lock())
    } else {
        Box::new(BufWriter::new(File::create(file).map_err(|error| {
            Failure::new(exit::IO_ERROR, format!("cannot create {}: {error}", file.display()))
        })?))
    };
    let (clock, gate) = (Clock::start_with(config.clock.clone()), config.gate);
    let Recording { messages, undated } = runtime()?
        .block_on(async { record(ingress, &clock, gate, output, count, asked_to_end()).await })
        .map_err(|error| {
            Failure::new(exit::IO_ERROR, format!("cannot write the recording: {error}"))
        })?;
    eprintln!("{messages} messages");
    if undated > 0 {
        eprintln!("tidegate: {undated} of them {UNDATED}");
    }
    Ok(ExitCode::SUCCESS)
}
