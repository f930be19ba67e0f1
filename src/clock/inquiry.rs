//! Asking the time servers once, for people: no clock is moved by it.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::refusal::Refusal;
use super::schedule::Standing;
use super::selection::{Choice, Estimate, choose};
use super::server::{Burst, ask};
use super::{Pace, Settings, Source, host};

/// How long one server may take in all, its name and several addresses included.
const PATIENCE: Duration = Duration::from_secs(8);

/// Fewer questions than the agent has: somebody waits.
const QUESTIONS: usize = 2;
const SPACING: Duration = Duration::from_millis(200);

/// What time servers said.
#[derive(Clone, Debug)]
pub struct Inquiry {
    /// Each of them, in the order of the settings; nobody where they are not to be asked.
    pub heard: Vec<Heard>,
    /// What follows from all of it.
    pub agreement: Agreement,
    /// How far the host's clock is off at most by the account of its kernel, in microseconds; `None`: nothing keeps it.
    pub host_bound_us: Option<i64>,
}

/// One time server.
#[derive(Clone, Debug)]
pub struct Heard {
    /// Its name, as it is configured.
    pub server: String,
    /// What it said, or why that, or its silence, is no answer: the last reason.
    pub said: Result<Said, Refusal>,
}

/// A good answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// Its time less the host's, in microseconds.
    pub ahead_us: i64,
    /// How far that is from the truth at most, if it is right, in microseconds.
    pub bound_us: i64,
    /// On the way, both ways, in microseconds.
    pub round_trip_us: i64,
    /// How far it is from a clock, in servers: 1 to 15.
    pub stratum: u8,
}

/// Whom the agent would believe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// Nobody answered, or nobody was asked.
    Nobody,
    /// They contradict each other, and there is no majority.
    Disagreement,
    /// A majority.
    Majority {
        /// Its time less the host's, in microseconds.
        ahead_us: i64,
        /// Those that say otherwise, by their place in the settings.
        others: Vec<usize>,
    },
}

/// Asks all of them at once, each for eight seconds at the most.
pub async fn inquire(settings: &Settings) -> Inquiry {
    let servers = match settings.source {
        Source::System => &[],
        Source::Auto | Source::Sntp => settings.servers.as_slice(),
    };
    let difference = host::difference();
    let pace = Pace { burst: QUESTIONS, spacing: SPACING, ..settings.pace };
    let mut asking = JoinSet::new();
    for (at, server) in servers.iter().cloned().enumerate() {
        asking.spawn(async move {
            let burst = ask(server, Standing::default(), pace, difference);
            (at, timeout(PATIENCE, burst).await.unwrap_or_default())
        });
    }
    let mut bursts = asking.join_all().await;
    bursts.sort_by_key(|(at, _)| *at);
    let estimates: Vec<_> = bursts.iter().filter_map(|(at, burst)| estimate(*at, burst)).collect();
    let own = host::estimate(settings.trust_host).filter(|_| settings.source != Source::Sntp);
    let heard = bursts.iter().map(|(at, burst)| Heard {
        server: servers[*at].to_string(),
        said: said(burst, difference),
    });
    Inquiry {
        heard: heard.collect(),
        agreement: agreement(choose(&estimates, own), difference),
        host_bound_us: host::estimate(false).map(|estimate| estimate.bound / 1_000),
    }
}

fn estimate(server: usize, burst: &Burst) -> Option<Estimate> {
    let sample = burst.best?;
    Some(Estimate { server, difference: sample.difference, bound: sample.bound })
}

fn said(burst: &Burst, difference: i64) -> Result<Said, Refusal> {
    let Some(sample) = burst.best else {
        return Err(burst.refused.last().copied().unwrap_or(Refusal::Silent));
    };
    Ok(Said {
        ahead_us: (sample.difference - difference) / 1_000,
        bound_us: sample.bound / 1_000,
        round_trip_us: sample.round_trip / 1_000,
        stratum: sample.stratum,
    })
}

fn agreement(choice: Choice, difference: i64) -> Agreement {
    match choice {
        Choice::Nobody => Agreement::Nobody,
        Choice::Disagreement => Agreement::Disagreement,
        Choice::Taken { best, minority } => Agreement::Majority {
            ahead_us: (best.difference - difference) / 1_000,
            others: minority,
        },
    }
}
