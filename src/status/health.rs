//! Whether all is well, from what a [`Status`] says: pure rules, each with its words and its remedy.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::engine::books::Books;
use crate::status::table::size;
use crate::status::{Configuration, Held, Link, LinkState, Outbox, Region, Status, Timekeeping};
use crate::time::ClockQuality;

const SECOND: i64 = 1_000;

/// So long after a start it is no wonder that the time is not known yet: somebody is being asked.
pub const ASKED_FOR: i64 = 10 * SECOND;

/// What to do about a time that is not known.
pub const TIME_IS_NOT_KNOWN: &str = "let the agent reach a time server (clock.servers), or the host's clock be kept (chrony, ntpd, systemd-timesyncd); where \
     the host's clock is right and the kernel does not say so, set clock.trust-host = true";
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

/// Longest absence of the devices' broker that is only a warning: it is restarted, or we are.
const RECONNECTING: i64 = 10 * SECOND;

/// Longest time of catching up that needs no word.
const CATCHING_UP: i64 = 10 * MINUTE;

/// Lag of a watermark above the usual that warns, and that is critical (SPEC 10).
const LAG: (i64, i64) = (5 * MINUTE, 10 * MINUTE);

/// How full the outbox is when it warns, in percent.
const FULL: u64 = 80;

/// How long something that happened once is spoken of.
const REMEMBERED: i64 = HOUR;

/// How it is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// All is well.
    #[default]
    Ok,
    /// It works, and somebody should look at it.
    Degraded,
    /// It does not do its work, or loses results.
    Failing,
}

impl Level {
    /// The exit code of `tidegate status`, as monitoring has it: 0 ok, 1 warning, 2 critical.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Degraded => 1,
            Self::Failing => 2,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Failing => "failing",
        })
    }
}

/// How it is, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// That of the worst reason.
    pub level: Level,
    /// What is not well, the worst first.
    pub reasons: Vec<Reason>,
}

/// One thing that is not well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// How bad it is.
    pub level: Level,
    /// A word for scripts; it never changes its meaning.
    pub code: String,
    /// What is wrong.
    pub text: String,
    /// What to do about it.
    pub remedy: String,
}

impl Reason {
    fn new(level: Level, code: &str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level, code: code.into(), text: text.into(), remedy: remedy.into() }
    }
}

/// Judges a status; what it says of its health so far is not looked at.
pub fn judge(status: &Status) -> Health {
    let mut reasons: Vec<Reason> = [
        store(status.store.error.as_deref()),
        devices_broker(status),
        refused(&status.refused_filters),
        central_broker(&status.upstream),
        outbox_lost(&status.outbox, status.at),
        outbox_full(&status.outbox),
        lag(status),
        no_room(&status.books, status.no_room_at, status.at),
        holding(&status.held, status.at),
        clock(status),
        configuration(&status.configuration, status.at),
    ]
    .into_iter()
    .flatten()
    .collect();
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.level));
    let level = reasons.first().map(|worst| worst.level).unwrap_or_default();
    Health { level, reasons }
}

fn store(error: Option<&str>) -> Option<Reason> {
    let text = format!("the store cannot be used: {}", error?);
    let remedy =
        "make room on the disk, or see what the log says of it; it is tried again by itself";
    Some(Reason::new(Level::Failing, "store", text, remedy))
}

fn devices_broker(status: &Status) -> Option<Reason> {
    let Link { address, state, since, .. } = &status.broker;
    let lasted = status.at - since;
    match state {
        LinkState::Connected => None,
        // While the store is away we stay away ourselves.
        LinkState::Away if status.store.error.is_some() => None,
        LinkState::Away => {
            let level = if lasted > RECONNECTING { Level::Failing } else { Level::Degraded };
            let text =
                format!("not connected to the devices' broker, {address}{}", why(&status.broker));
            Some(Reason::new(level, "broker-away", text, remedy(&status.broker)))
        }
        LinkState::CatchingUp if lasted > CATCHING_UP => {
            let text = format!(
                "still hearing what the devices' broker had queued, for {} now",
                spoken(lasted)
            );
            let remedy = "it comes faster than it is handled, or never ends: see `received` in the books, and the \
                          processor's load";
            Some(Reason::new(Level::Degraded, "catching-up", text, remedy))
        }
        LinkState::CatchingUp => None,
    }
}

fn refused(filters: &[String]) -> Option<Reason> {
    let first = filters.first()?;
    let others = match filters.len() {
        1 => String::new(),
        all => format!(" and {} others", all - 1),
    };
    let text = format!("the devices' broker refused to subscribe us to {first}{others}");
    let remedy = "allow this client to read it in the broker's access list, and restart the broker or the agent";
    Some(Reason::new(Level::Degraded, "subscription-refused", text, remedy))
}

fn central_broker(link: &Link) -> Option<Reason> {
    (link.state == LinkState::Away).then(|| {
        let text = format!("not connected to the central broker, {}{}", link.address, why(link));
        Reason::new(Level::Degraded, "upstream-away", text, remedy(link))
    })
}

fn why(link: &Link) -> String {
    link.error.as_ref().map_or_else(String::new, |error| format!(": {error}"))
}

fn remedy(link: &Link) -> &str {
    link.remedy.as_deref().unwrap_or("it is tried again by itself")
}

fn outbox_lost(outbox: &Outbox, at: i64) -> Option<Reason> {
    let ago = at - outbox.lost_at.filter(|lost| at - lost < REMEMBERED)?;
    let text = format!("the outbox was full {} ago, and results had to go", spoken(ago));
    let remedy = "bring the central broker back, or make store.outbox-quota larger";
    Some(Reason::new(Level::Failing, "outbox-lost", text, remedy))
}

fn outbox_full(outbox: &Outbox) -> Option<Reason> {
    let percent = outbox.bytes.saturating_mul(100) / outbox.quota.max(1);
    (percent >= FULL).then(|| {
        let text = format!("the outbox is {percent} % full; beyond 100 % the least valuable goes");
        let remedy = "bring the central broker back, or make store.outbox-quota larger";
        Reason::new(Level::Degraded, "outbox-full", text, remedy)
    })
}

/// While we do not listen, or hear what was queued, watermarks stand still by design; and after that a device that is
/// silent still has its idle timeout, in which it holds its region where it was before.
fn lag(status: &Status) -> Option<Reason> {
    if status.broker.state != LinkState::Connected {
        return None;
    }
    let listened = status.at - status.broker.since;
    let judged = || status.regions.iter().filter(|region| listened >= region.usual_lag);
    let above = |limit| move |region: &&Region| region.excess().is_some_and(|ms| ms > limit);
    let worst = judged().max_by_key(|region| region.excess())?;
    let level = match worst.excess()? {
        excess if excess > LAG.1 => Level::Failing,
        excess if excess > LAG.0 => Level::Degraded,
        _ => return None,
    };
    let regions = judged().filter(above(LAG.0)).count();
    let others =
        if regions > 1 { format!("; {} more lag too", regions - 1) } else { String::new() };
    let text = format!(
        "region {} is {} behind, where up to {} is usual{others}",
        worst.region,
        spoken(worst.lag.unwrap_or_default()),
        spoken(worst.usual_lag)
    );
    let remedy = "a device of it sends old times: see alert/held-out, late/ and quarantine/; if it always lags, give \
                  the region or the device its own lateness";
    Some(Reason::new(level, "lag", text, remedy))
}

fn no_room(books: &Books, last: Option<i64>, at: i64) -> Option<Reason> {
    let ago = at - last.filter(|last| at - last < REMEMBERED)?;
    let text =
        format!("records find no room, the last {} ago; {} in all", spoken(ago), books.no_room);
    let remedy =
        "raise limits.max-devices or limits.max-open-windows, or find out who sends so many names";
    Some(Reason::new(Level::Degraded, "no-room", text, remedy))
}

fn configuration(configuration: &Configuration, at: i64) -> Option<Reason> {
    let (refused_at, why) = (configuration.refused_at?, configuration.refused.as_deref()?);
    let ago = spoken(at - refused_at);
    let text = format!("a changed configuration was refused {ago} ago: {why}");
    let remedy = "mend it and reload again; until then the agent runs with the one before, and might not start anew";
    Some(Reason::new(Level::Degraded, "configuration-refused", text, remedy))
}

fn holding(held: &Held, at: i64) -> Option<Reason> {
    let lasted = at.saturating_sub(held.since?);
    if lasted < ASKED_FOR && held.messages == 0 {
        return None;
    }
    let lasted = spoken(lasted);
    let Held { messages, bytes, .. } = held;
    let what = if held.waived { "what has no time of its own is" } else { "messages are" };
    let text = format!(
        "the clock has not been good for {lasted}, since the start: {what} held, {messages} so far, {}",
        size(*bytes)
    );
    Some(Reason::new(Level::Degraded, "holding", text, TIME_IS_NOT_KNOWN))
}

fn clock(status: &Status) -> Option<Reason> {
    let time = &status.timekeeping;
    let (text, remedy) = match status.clock? {
        ClockQuality::Synchronised => return None,
        ClockQuality::Holdover if is_well(time) => return None,
        ClockQuality::Holdover => holdover(time),
        ClockQuality::Suspect => suspect(time),
        ClockQuality::Unsynchronised if status.at - status.since < ASKED_FOR => return None,
        ClockQuality::Unsynchronised => unsynchronised(time),
    };
    Some(Reason::new(Level::Degraded, "clock", text, remedy))
}

/// A clock that runs on is good for days: that needs no word while it is off by less than a second, and for no reason
/// that somebody could mend.
fn is_well(time: &Timekeeping) -> bool {
    let exact = time.bound.is_none_or(|bound| bound < SECOND);
    exact && !time.disagreement && time.host_away.is_none()
}

fn holdover(time: &Timekeeping) -> (String, &'static str) {
    if let Some(away) = time.host_away {
        let text = format!(
            "the host's clock was set, and is {} away from the agent's, which goes on as it was",
            spoken(away)
        );
        return (text, "restart the agent if the host's clock is the one that is right");
    }
    let bound = time.bound.map_or_else(|| "an unknown time".to_owned(), spoken);
    let text = match time.disagreement {
        true => format!(
            "the time servers contradict each other; the clock runs on, off by up to {bound}"
        ),
        false => format!("nobody says what time it is; the clock runs on, off by up to {bound}"),
    };
    (text, reach(time))
}

fn suspect(time: &Timekeeping) -> (String, &'static str) {
    let text = match time.doubted {
        Some(shift) => format!(
            "{} says that it is {} {}; that is not believed until it is said again",
            time.reference.as_deref().unwrap_or("what keeps the time"),
            spoken(shift.saturating_abs()),
            if shift < 0 { "earlier" } else { "later" }
        ),
        None => "the gateway's clock shows a time before the last good one".to_owned(),
    };
    (
        text,
        "see that the time servers, or the host's clock, are right; a time before the last good one is believed \
           after an hour",
    )
}

fn unsynchronised(time: &Timekeeping) -> (String, &'static str) {
    let text = match (time.disagreement, time.servers.is_empty()) {
        (true, _) => "the time servers contradict each other, and nobody is believed",
        (false, false) => "no time server answers, and nothing keeps the host's clock in step",
        (false, true) => "nothing keeps the gateway's clock in step",
    };
    (text.to_owned(), reach(time))
}

fn reach(time: &Timekeeping) -> &'static str {
    if time.disagreement {
        "name a third server in clock.servers, or leave the wrong one out"
    } else if time.servers.is_empty() {
        "name time servers in clock.servers, or let chrony, ntpd or systemd-timesyncd keep the host's time; where it is \
         right anyway, as in a container, set clock.trust-host = true"
    } else {
        "see that UDP port 123 of clock.servers can be reached; `refused` in `tidegate status --json` says what came"
    }
}

/// A span for people, in its two largest units.
pub fn spoken(ms: i64) -> String {
    let (sign, ms) = if ms < 0 { ("-", ms.saturating_neg()) } else { ("", ms) };
    let seconds = ms / SECOND;
    let text = match seconds {
        0 => format!("{ms} ms"),
        1..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    };
    format!("{sign}{text}")
}

#[cfg(test)]
mod tests;
