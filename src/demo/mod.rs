//! `tidegate demo`: the agent between two embedded brokers, a fleet in accelerated time, and an account of every reading.
//!
//! ```text
//! fleet ─► ledger, then ─► devices' broker ─► agent::run ─► uplink (cut for a while) ─► central broker ─► observer
//!             │                                                                                              │
//!             └────────────────────────► report: injected against reported ◄─────────────────────────────────┘
//! ```
//!
//! It cannot lie: the ledger is written before a message is published, and what is reported is what the central broker
//! delivered. Nothing is asked of the engine, and the agent is the one of `tidegate run`, with a store on the disk.

mod broker;
mod client;
mod fleet;
mod ledger;
mod observer;
mod report;
mod view;

use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval, sleep_until, timeout};

use self::broker::{Protocol, Uplink};
use self::client::{Centre, Delivered, Meters};
use self::fleet::{Fleet, Sending};
use self::ledger::{Ledger, hour_of};
use self::observer::Observed;
pub use self::report::Report;
use self::view::{Scene, View};
use crate::agent::{self, AgentError};
use crate::clock::Clock;
use crate::config::{Config, ConfigErrors};
use crate::notify::Notify;
use crate::time::{ArrivalTime, Span};

/// The configuration of the demonstration's gateway, without ports and directory.
pub const CONFIG: &str = include_str!("demo.toml");

/// Monday, 2 March 2026, 05:50 UTC: the fleet begins at six.
const DAWN: ArrivalTime = ArrivalTime(1_772_430_600_000);
/// From then to the fleet's first reading; the agent has to be there by then.
const LEAD: Span = Span::from_mins(10);
/// How long the fleet takes readings.
const DAY: Span = Span::from_hours(4);
/// `allowed-lateness` of the configuration: so long after its end an hour is final.
const ALLOWED_LATENESS: Span = Span::from_mins(30);
/// How long it takes until the last hour is final, heartbeats and watermarks included.
const EVENING: Span = Span::from_mins(40);
/// When, after the fleet's begin and in each such span, the link to the centre is cut. An hour ends meanwhile.
const OUTAGE: (Span, Span) = (Span::from_mins(105), Span::from_mins(130));
/// How long after the last hour what is missing is waited for.
const LAST_CALL: Span = Span::from_hours(2);

/// How long the agent may take to begin and to end.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often the view and the end are looked at.
const LOOK: Duration = Duration::from_millis(100);

/// How to run the demonstration.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the meters do.
    pub seed: u64,
    /// How long it takes, at least 10 s: the same four hours, and another for the rest, faster or slower.
    pub duration: Duration,
    /// Until it is asked to end, an hour of the fleet in a fifth of `duration`.
    pub forever: bool,
    /// Whether it is shown on standard error.
    pub show: bool,
    /// Machine time to wait for what is missing in the end, besides two hours of the fleet.
    pub patience: Duration,
    /// The first message on this topic below the prefix is lost on the way to the observer, with its repetitions: to see
    /// that the report says so.
    pub lose: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            duration: Duration::from_secs(60),
            forever: false,
            show: true,
            patience: Duration::from_secs(20),
            lose: None,
        }
    }
}

impl Options {
    /// How much faster than the machine's the fleet's time runs.
    fn factor(&self) -> u32 {
        let all = u64::try_from((LEAD + DAY + EVENING).0).unwrap_or(0);
        let millis = u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX).max(1);
        u32::try_from(all.div_ceil(millis)).unwrap_or(u32::MAX).max(1)
    }
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// A broker did not start.
    #[error("the embedded {name} does not start: {reason}")]
    Broker {
        /// Which one.
        name: &'static str,
        /// Why.
        reason: String,
    },
    /// The fleet or the observer lost its broker, so that nothing can be said.
    #[error("a connection of the demonstration itself failed")]
    OwnConnection,
    /// Its own configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The agent ended.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The agent did not begin to listen, ended by itself, or did not end.
    #[error("the agent {0}")]
    Stuck(&'static str),
    /// No directory, no socket.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// It was asked twice to end.
    #[error("left without a report")]
    Interrupted,
}

/// Runs it and returns the report. The first of `interrupts` ends the fleet's day early, the second all of it.
///
/// # Errors
/// There can be no report; a report that tells of differences is none.
pub async fn run(
    options: Options,
    mut interrupts: mpsc::Receiver<()>,
) -> Result<Report, DemoError> {
    let directory = TempDir::with_prefix("tidegate-demo-")?;
    let devices = broker::start("devices' broker", Protocol::Mqtt5).await?;
    let central = broker::start("central broker", Protocol::Mqtt3).await?;
    let uplink = Uplink::start(central).await?;
    let config = configuration(directory.path(), devices, uplink.port)?;
    let prefix = config.upstream.prefix.clone();
    let centre = Centre::connect(central, format!("{prefix}/#")).await?;
    let mut meters = Meters::connect(devices, "tidegate/probe/#").await?;

    let clock = Clock::accelerated(options.factor(), DAWN);
    let mut agent = Agent::start(config, clock.clone());
    tokio::select! {
        error = agent.failed() => return Err(error),
        heard = timeout(PATIENCE, meters.probes.recv()) => {
            heard.map_err(|_| DemoError::Stuck("does not listen to its meters"))?
                .ok_or(DemoError::OwnConnection)?;
        }
    }
    let mut world = World::new(options, clock, Observed::new(&prefix), uplink);
    let lived = tokio::select! {
        error = agent.failed() => return Err(error),
        lived = world.live(centre, &meters, &mut interrupts) => lived,
    };
    world.view.close();
    agent.stop().await?;
    lived.map(|()| world.report())
}

/// The configuration as an operator would give it: a file, and a second one over it.
fn configuration(directory: &Path, devices: u16, uplink: u16) -> Result<Config, DemoError> {
    let files = [directory.join("demo.toml"), directory.join("ports.toml")];
    std::fs::write(&files[0], CONFIG)?;
    let store = directory.join("store");
    let ports = format!(
        "broker = {{ host = \"127.0.0.1\", port = {devices} }}\n\
         upstream = {{ host = \"127.0.0.1\", port = {uplink} }}\n\
         store.path = {:?}\n",
        store.display().to_string()
    );
    std::fs::write(&files[1], ports)?;
    Ok(Config::load(&files, [])?)
}

/// The agent, in a task of its own.
struct Agent {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), AgentError>>,
}

impl Agent {
    fn start(config: Config, clock: Clock) -> Self {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let asked = async {
                // Dropped is asked too.
                let _asked = stopped.await;
            };
            agent::run(&config, &clock, Notify::silent(), asked).await
        });
        Self { stop, task }
    }

    /// Why it ended by itself.
    async fn failed(&mut self) -> DemoError {
        match (&mut self.task).await {
            Ok(Ok(())) => DemoError::Stuck("left by itself"),
            Ok(Err(error)) => error.into(),
            Err(_) => DemoError::Stuck("broke down"),
        }
    }

    async fn stop(self) -> Result<(), DemoError> {
        // An agent that has ended says why below.
        let _ended = self.stop.send(());
        let ended = timeout(PATIENCE, self.task).await;
        let ended = ended.map_err(|_| DemoError::Stuck("does not end"))?;
        Ok(ended.map_err(|_| DemoError::Stuck("broke down"))??)
    }
}

/// The fleet and what is known of it, on both sides.
struct World {
    options: Options,
    clock: Clock,
    fleet: Fleet,
    ledger: Ledger,
    observed: Observed,
    uplink: Uplink,
    view: View,
    begin: ArrivalTime,
    /// When the last reading is taken; none yet when it runs until it is asked to end.
    evening: Option<ArrivalTime>,
    /// When waiting ends.
    deadline: Option<Instant>,
    /// How long the link was down, and since when it is.
    outages: Span,
    cut_at: Option<ArrivalTime>,
    /// The message that is lost, once it came.
    lost: Option<Delivered>,
}

impl World {
    fn new(options: Options, clock: Clock, observed: Observed, uplink: Uplink) -> Self {
        let minute = fleet::MINUTE.0;
        let next_minute = ArrivalTime((clock.now().wall.0 / minute + 1) * minute);
        let begin = next_minute.max(DAWN + LEAD);
        let evening = (!options.forever).then(|| ArrivalTime(hour_of(begin.0)) + DAY);
        Self {
            fleet: Fleet::new(options.seed, begin),
            view: if options.show { View::open() } else { View::Nothing },
            options,
            clock,
            ledger: Ledger::default(),
            observed,
            uplink,
            begin,
            evening,
            deadline: None,
            outages: Span::ZERO,
            cut_at: None,
            lost: None,
        }
    }

    /// The whole day, until all is final and equal, or waiting is in vain.
    async fn live(
        &mut self,
        mut centre: Centre,
        meters: &Meters,
        interrupts: &mut mpsc::Receiver<()>,
    ) -> Result<(), DemoError> {
        let mut looks = interval(LOOK);
        let mut due: std::vec::IntoIter<Sending> = Vec::new().into_iter();
        loop {
            let next_at = due.as_slice().first().map_or(self.fleet.next_minute(), |next| next.at);
            tokio::select! {
                biased;
                Some(()) = interrupts.recv() => self.interrupted()?,
                message = centre.messages.recv() => {
                    self.on_message(&message.ok_or(DemoError::OwnConnection)?);
                }
                _ = looks.tick() => {
                    self.look();
                    if self.is_over() {
                        return Ok(());
                    }
                }
                () = sleep_until(self.at(next_at)) => match due.next() {
                    Some(sending) => self.send(&sending, meters).await?,
                    None => due = self.fleet.minute(self.is_closing()).into_iter(),
                },
            }
        }
    }

    /// The machine's time at which the fleet's is `at`.
    fn at(&self, at: ArrivalTime) -> Instant {
        Instant::now() + self.clock.machine_time(at - self.clock.now().wall)
    }

    /// Whether the fleet has taken its last reading.
    fn is_closing(&self) -> bool {
        self.evening.is_some_and(|evening| self.fleet.next_minute() >= evening)
    }

    async fn send(&mut self, sending: &Sending, meters: &Meters) -> Result<(), DemoError> {
        let device = &self.fleet.devices[sending.device];
        self.ledger.write(device, sending.content);
        meters.publish(sending.topic(device), sending.payload()).await
    }

    fn on_message(&mut self, message: &Delivered) {
        let wanted = self.options.lose.as_ref();
        let is_it = wanted.is_some_and(|topic| message.0.ends_with(topic.as_str()));
        if is_it && self.lost.get_or_insert_with(|| message.clone()) == message {
            return;
        }
        self.observed.take(&message.0, &message.1);
    }

    fn interrupted(&mut self) -> Result<(), DemoError> {
        if self.is_closing() {
            return Err(DemoError::Interrupted);
        }
        self.evening = Some(self.fleet.next_minute());
        Ok(())
    }

    fn look(&mut self) {
        let now = self.clock.now().wall;
        let into = Span((now - self.begin).0.rem_euclid(DAY.0));
        let cut = now > self.begin && (OUTAGE.0..OUTAGE.1).contains(&into) && !self.is_closing();
        if cut != self.cut_at.is_some() {
            self.outages = self.outages + self.cut_at.map_or(Span::ZERO, |since| now - since);
            self.cut_at = cut.then_some(now);
        }
        self.uplink.set_open(!cut);
        let doing = if self.is_closing() { "the last hours become final" } else { "meters send" };
        self.view.show(&Scene {
            now,
            doing,
            link_open: self.uplink.is_open(),
            devices: &self.fleet.devices,
            ledger: &self.ledger,
            observed: &self.observed,
        });
    }

    /// When the gateway's watermark has made the last hour final, all that was to be told came before it.
    fn is_over(&mut self) -> bool {
        let Some(evening) = self.evening.filter(|_| self.is_closing()) else { return false };
        let waiting = self.clock.machine_time(LAST_CALL) + self.options.patience;
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + waiting);
        let last = ArrivalTime(hour_of(evening.0 - 1)) + Span::from_hours(1) + ALLOWED_LATENESS;
        let is_final = self.observed.watermark.is_some_and(|watermark| watermark >= last);
        Instant::now() > deadline || (is_final && self.report().is_equal())
    }

    fn report(&self) -> Report {
        let outage = self.clock.machine_time(self.outages);
        let Self { options, fleet, ledger, observed, .. } = self;
        Report::new(options.seed, outage, &fleet.devices, ledger, observed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_good_and_final_when_the_demonstration_thinks_so() {
        let directory = tempfile::tempdir().unwrap();
        let config = configuration(directory.path(), 1, 2).unwrap();
        assert_eq!((config.broker.link.port, config.upstream.link.port), (1, 2));
        assert!(config.check(crate::config::Mode::Run).is_ok());
        let minutes = ALLOWED_LATENESS.0 / 60_000;
        assert!(CONFIG.contains(&format!("\nallowed-lateness = \"{minutes}m\"\n")));
    }

    #[test]
    fn a_minute_holds_the_whole_day() {
        assert_eq!(Options::default().factor(), 290);
        let brief = Options { duration: Duration::from_secs(10), ..Options::default() };
        assert_eq!(brief.factor(), 1_740);
    }
}
