//! The task that keeps the clock: asks, decides by `discipline`, sleeps.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::discipline::{May, Verdict};
use super::host::boottime;
use super::refusal::Refusal;
use super::schedule::{Schedule, Standing};
use super::selection::{Choice, Estimate, choose};
use super::server::{Burst, ServerName, ask};
use super::{Clock, Reference, Shared, Source, nanos};

/// Longest sleep: timers do not count while the machine is suspended, and `CLOCK_BOOTTIME` does.
const NAP: Duration = Duration::from_secs(60);

/// Keeps a clock until it is dropped.
#[derive(Debug)]
pub struct Keeper {
    shared: Arc<Shared>,
    task: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts, in a task of the current runtime. An accelerated clock needs nobody.
    pub fn start(clock: &Clock) -> Self {
        let shared = clock.shared.clone();
        let task = (!shared.is_accelerated()).then(|| tokio::spawn(keep(shared.clone())));
        Self { shared, task }
    }

    /// Done when the status of the clock has changed, or it has jumped, since this was last done. Nothing is lost when
    /// the future is dropped.
    pub async fn changed(&self) {
        self.shared.news.notified().await;
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

async fn keep(shared: Arc<Shared>) {
    let mut asker = Asker::new(&shared);
    let mut before = shared.status();
    loop {
        let pause = asker.ask(&shared).await;
        let until = boottime().saturating_add(nanos(pause));
        loop {
            let (status, jumped, change) = shared.what_now();
            if status != before || jumped {
                before = status;
                shared.news.notify_one();
            }
            let now = boottime();
            if now >= until {
                break;
            }
            let next = change.map_or(until, |change| change.min(until));
            let wait = Duration::from_nanos(u64::try_from(next - now).unwrap_or_default());
            sleep(wait.min(NAP)).await;
        }
    }
}

/// Asks whoever there is to be asked.
struct Asker {
    servers: Vec<(ServerName, Standing)>,
    schedule: Schedule,
    /// Nobody could say, and the log knows.
    told: bool,
}

impl Asker {
    fn new(shared: &Shared) -> Self {
        let pace = shared.settings.pace;
        let servers = match shared.settings.source {
            Source::System => Vec::new(),
            Source::Auto | Source::Sntp => shared.settings.servers.clone(),
        };
        Self {
            servers: servers.into_iter().map(|name| (name, Standing::default())).collect(),
            schedule: Schedule::new(pace.shortest, pace.longest, pace.quick),
            told: false,
        }
    }

    /// Asks once, and says how long to wait then.
    async fn ask(&mut self, shared: &Shared) -> Duration {
        if self.servers.is_empty() {
            return match shared.ask_host() {
                Some(verdict @ Verdict::Doubted { .. }) => self.schedule.after(verdict, boottime()),
                Some(_) => shared.settings.pace.shortest,
                None => shared.settings.pace.host,
            };
        }
        let estimates = self.ask_servers(shared).await;
        let now = boottime();
        let choice = choose(&estimates, shared.state().witness(now));
        shared.report().disagreement = choice == Choice::Disagreement;
        match choice {
            Choice::Taken { best, minority } => {
                shared.report().host_away = None;
                shared.report().refuse(minority.iter().map(|_| Refusal::Minority));
                let reference = Reference::Server(self.servers[best.server].0.to_string().into());
                let verdict = shared.state_mut().offer(best, &reference, May::Jump, now);
                self.tell_once(None);
                debug!(?best, ?verdict, %reference, "time");
                self.schedule.after(verdict, now)
            }
            Choice::Disagreement => {
                shared.state_mut().failed();
                self.tell_once(Some("the time servers contradict each other"));
                self.schedule.after_failure()
            }
            Choice::Nobody => {
                let stands_in = shared.settings.source == Source::Auto;
                if !stands_in {
                    shared.state_mut().failed();
                }
                let taken = stands_in.then(|| shared.ask_host()).flatten().is_some();
                self.tell_once(Some(match taken {
                    true => "no time server answers; the host's clock stands in",
                    false => "no time server answers",
                }));
                self.schedule.after_failure()
            }
        }
    }

    fn tell_once(&mut self, problem: Option<&str>) {
        match problem {
            Some(problem) if !self.told => warn!("{problem}; it is tried again"),
            None if self.told => info!("the time servers answer again"),
            _ => {}
        }
        self.told = problem.is_some();
    }

    /// All at once.
    async fn ask_servers(&mut self, shared: &Shared) -> Vec<Estimate> {
        let (now, pace) = (boottime(), shared.settings.pace);
        let difference = shared.state().anchor.difference(now);
        let mut asked = JoinSet::new();
        for (at, (name, standing)) in self.servers.iter().enumerate() {
            if standing.may_be_asked(now) {
                let burst = ask(name.clone(), standing.clone(), pace, difference);
                asked.spawn(async move { (at, burst.await) });
            }
        }
        let mut estimates = Vec::new();
        while let Some(Ok((at, burst))) = asked.join_next().await {
            shared.report().refuse(burst.refused.iter().copied());
            estimates.extend(self.note(at, &burst, shared));
        }
        let banned = self.servers.iter().filter(|(_, standing)| standing.is_banned());
        shared.report().banned = banned.map(|(name, _)| name.to_string()).collect();
        estimates.sort_by_key(|estimate| estimate.server);
        estimates
    }

    fn note(&mut self, at: usize, burst: &Burst, shared: &Shared) -> Option<Estimate> {
        let (name, standing) = &mut self.servers[at];
        for refusal in &burst.refused {
            if *refusal == Refusal::KissDeny {
                warn!(server = %name, "this time server does not want to be asked; it is not, until the next start");
            }
            standing.refused(*refusal, shared.settings.pace.shortest, boottime());
        }
        let sample = burst.best?;
        standing.answered(sample.round_trip);
        Some(Estimate { server: at, difference: sample.difference, bound: sample.bound })
    }
}
