//! Presence of one device, worked out the slow way from all that happened.
//!
//! It knows all messages and all gaps beforehand, and asks each question of the whole list. Imports nothing of what it
//! judges.

use std::collections::BTreeSet;

use crate::Rules;
use crate::clock::{Beat, offsets};
use crate::world::{Listened, MINUTE, Message, SECOND};

const DAY: i64 = 24 * 60 * MINUTE;
/// The defaults.
const RULES: Rules = Rules {
    not_before: 1_577_836_800_000,
    future_tolerance: 30 * SECOND,
    slow_tolerance: 5 * MINUTE,
};
const FLAPS: usize = 4;
const FLAP_WINDOW: i64 = 60 * MINUTE;

/// What holds for a device.
pub struct Terms<'a> {
    pub offline_after: i64,
    /// A wrong clock is corrected.
    pub correct: bool,
    pub listened: &'a Listened,
}

/// What is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub state: &'static str,
    pub cause: &'static str,
    pub since: i64,
    pub last_seen: Option<i64>,
    pub outage: Option<i64>,
}

/// A message that says that its device lives.
pub struct News {
    /// Its place among the messages.
    pub number: usize,
    pub at: i64,
    /// When it was sent.
    pub sent: i64,
}

/// The device goes or comes, at a moment and with the messages so far.
struct Change {
    at: i64,
    online: bool,
    news: usize,
}

/// The time that each message is taken to be of, by the clock of its device; none is of an unset clock.
fn times(messages: &[&Message], terms: &Terms<'_>) -> Vec<Option<i64>> {
    let heard: Vec<&&Message> =
        messages.iter().filter(|it| terms.correct && terms.listened.is_caught_up(it.at)).collect();
    let beats: Vec<Beat> = heard
        .iter()
        .map(|it| Beat { raw: it.ts, at: it.at, session: terms.listened.session(it.at) })
        .collect();
    let offsets = offsets(&RULES, &beats).0;
    let offset = |at: i64| {
        heard.partition_point(|it| it.at <= at).checked_sub(1).and_then(|last| offsets[last])
    };
    let time = |message: &&Message| {
        let offset = offset(message.at)
            .filter(|offset| message.ts + offset <= message.at + RULES.future_tolerance);
        (message.ts >= RULES.not_before).then(|| message.ts + offset.unwrap_or(0))
    };
    messages.iter().map(time).collect()
}

pub fn news(messages: &[&Message], terms: &Terms<'_>) -> Vec<News> {
    let mut seen = BTreeSet::new();
    let used = messages.iter().enumerate();
    let used = used
        .filter(|(_, message)| !message.retain && seen.insert(message.ts))
        .map(|(at, it)| (at, *it));
    let (numbers, used): (Vec<usize>, Vec<&Message>) = used.unzip();
    let (mut all, mut highest) = (Vec::new(), i64::MIN);
    for ((message, number), time) in used.iter().zip(numbers).zip(times(&used, terms)) {
        let ages = -RULES.future_tolerance..=30 * DAY;
        let time = time.filter(|time| ages.contains(&(message.at - time)));
        if time.is_some_and(|time| time < highest) {
            continue;
        }
        highest = time.unwrap_or(highest);
        let sent = time.map_or(message.at, |time| time.min(message.at));
        all.push(News { number, at: message.at, sent });
    }
    all
}

/// Everything that is told of a device, up to the end of the last tick.
pub fn reference(messages: &[&Message], terms: &Terms<'_>) -> Vec<Event> {
    let Terms { offline_after, listened, .. } = *terms;
    let news = news(messages, terms);
    let mut told = Vec::new();
    let changes = changes(&news, offline_after, listened);
    let last_seen = |count: usize| news[..count].iter().map(|it| it.sent).max();
    let mut flapping_since: Option<usize> = None;
    for (number, change) in changes.iter().enumerate() {
        let at = |change: &Change| listened.at(change.at);
        // Calm comes first, where it comes before this.
        if flapping_since.is_some() && at(change) - at(&changes[number - 1]) >= FLAP_WINDOW {
            let calm = listened.when(at(&changes[number - 1]) + FLAP_WINDOW);
            told.push(calmed(&changes[number - 1], calm, &news));
            flapping_since = None;
        }
        if flapping_since.is_some() {
            continue;
        }
        // The first of all is no change.
        let began = told.iter().rposition(|it: &Event| it.cause == "calm").map(|_| ());
        let first = if began.is_some() { first_after_calm(&changes, number, listened) } else { 1 };
        let recent = changes[first.max(1).min(number)..=number]
            .iter()
            .skip(usize::from(number == 0))
            .filter(|other| at(change) - at(other) < FLAP_WINDOW)
            .count();
        if recent > FLAPS {
            flapping_since = Some(number);
            told.push(Event {
                state: "flapping",
                cause: "changes",
                since: change.at,
                last_seen: last_seen(change.news),
                outage: None,
            });
            continue;
        }
        let recovers = change.online && number > 0;
        told.push(Event {
            state: if change.online { "online" } else { "offline" },
            cause: if change.online { "news" } else { "silence" },
            since: change.at,
            last_seen: last_seen(change.news),
            outage: recovers.then(|| change.at - last_seen(change.news - 1).unwrap()),
        });
        told.extend(delayed(&news, &changes, number, offline_after, listened));
    }
    if flapping_since.is_some() {
        let last = changes.last().unwrap();
        let calm = listened.at(last.at) + FLAP_WINDOW;
        if calm <= listened.at(crate::world::END) {
            told.push(calmed(last, listened.when(calm), &news));
        }
    }
    told
}

/// After calm nothing of before counts: the first change that does.
fn first_after_calm(changes: &[Change], number: usize, listened: &Listened) -> usize {
    let at = |index: usize| listened.at(changes[index].at);
    (1..=number).rev().find(|index| at(*index) - at(index - 1) >= FLAP_WINDOW).unwrap_or(1)
}

fn calmed(last: &Change, calm: i64, news: &[News]) -> Event {
    Event {
        state: if last.online { "online" } else { "offline" },
        cause: "calm",
        since: last.at,
        last_seen: news.iter().filter(|it| it.at < calm).map(|it| it.sent).max(),
        outage: None,
    }
}

/// When it went and when it came. The first one is what it was first.
fn changes(news: &[News], offline_after: i64, listened: &Listened) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    let mut latest = i64::MIN;
    for (number, message) in news.iter().enumerate() {
        let now = listened.at(message.at);
        // What was due before it.
        let silent = latest;
        latest = latest.max(listened.at(message.sent));
        let was_online = changes.last().is_some_and(|last| last.online);
        if was_online && silent + offline_after <= now {
            let at = listened.when(silent + offline_after);
            changes.push(Change { at, online: false, news: number });
        }
        let age = now - listened.at(message.sent);
        let online = match changes.last() {
            None if age >= offline_after => {
                let at = message.at - (age - offline_after);
                changes.push(Change { at, online: false, news: 1 });
                continue;
            }
            None => false,
            Some(last) => last.online,
        };
        if !online && (changes.is_empty() || message.at - message.sent < offline_after) {
            changes.push(Change { at: message.at, online: true, news: number + 1 });
        }
    }
    let is_online = changes.last().is_some_and(|last| last.online);
    if is_online && latest + offline_after <= listened.at(crate::world::END) {
        let at = listened.when(latest + offline_after);
        changes.push(Change { at, online: false, news: news.len() });
    }
    changes
}

/// While it is offline, nothing came but what is too old, for as long as it may be silent.
fn delayed(
    news: &[News],
    changes: &[Change],
    number: usize,
    offline_after: i64,
    listened: &Listened,
) -> Option<Event> {
    let change = &changes[number];
    let until = changes.get(number + 1).map_or(i64::MAX, |next| next.at);
    let first = if number == 0 { 0 } else { change.news };
    let old = |it: &&News| listened.at(it.at) - listened.at(it.sent) >= offline_after;
    let all: Vec<&News> = news[first..].iter().filter(|it| it.at < until).filter(old).collect();
    let begin = all.first().filter(|_| !change.online)?.at;
    let long = all.iter().find(|it| listened.at(it.at) - listened.at(begin) >= offline_after)?;
    Some(Event {
        state: "offline",
        cause: "delayed",
        since: change.at,
        last_seen: news.iter().filter(|it| it.at <= long.at).map(|it| it.sent).max(),
        outage: None,
    })
}
