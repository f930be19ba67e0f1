//! Presence of a device that leaves last wills, or hangs on what leaves them, worked out from all that happened in the order in which it came.
//!
//! Imports nothing of what it judges.

use crate::reference::{Event, News, Terms, news};
use crate::world::{Message, SECOND};

const DEBOUNCE: i64 = 30 * SECOND;

#[derive(Clone, Copy, PartialEq)]
enum State {
    Unknown,
    Online,
    /// Until this listened moment, where a will was its own.
    Suspect(Option<i64>),
    Offline,
}

enum What {
    News(News),
    Will {
        last: bool,
    },
    /// Of what it hangs on.
    Parent,
    End,
}

/// What was said of it, in order.
fn occurrences(messages: &[&Message], terms: &Terms<'_>) -> Vec<(i64, What)> {
    let numbered = messages.iter().enumerate();
    let (numbers, readings): (Vec<usize>, Vec<&Message>) =
        numbered.clone().filter(|(_, it)| it.word.is_none()).map(|(at, it)| (at, *it)).unzip();
    let news = news(&readings, terms).into_iter();
    let mut all: Vec<_> = news.map(|it| (it.at, numbers[it.number], What::News(it))).collect();
    for (number, word) in numbered {
        let at = word.at;
        let what = match (word.word, word.parent.is_some()) {
            (Some(false), true) => What::Parent,
            (Some(false), false) => What::Will { last: !word.retain },
            (Some(true), false) if !word.retain => What::News(News { number, at, sent: at }),
            (Some(true) | None, _) => continue,
        };
        all.push((at, number, what));
    }
    all.push((crate::world::END, usize::MAX, What::End));
    // Many may come at once, after a gap.
    all.sort_by_key(|it| (it.0, it.1));
    all.into_iter().map(|(at, _, what)| (at, what)).collect()
}

/// Everything that is told of a device that never flaps.
pub fn reference(messages: &[&Message], terms: &Terms<'_>) -> Vec<Event> {
    let Terms { offline_after, listened, .. } = *terms;
    let (mut told, mut state) = (Vec::new(), State::Unknown);
    let (mut silent, mut last_seen) = (i64::MIN / 2, None::<i64>);
    let event =
        |state, cause, since, last_seen| Event { state, cause, since, last_seen, outage: None };
    for (at, what) in occurrences(messages, terms) {
        let now = listened.at(at);
        let will = match state {
            State::Suspect(due) => due.unwrap_or(i64::MAX),
            _ => i64::MAX,
        };
        let due = will.min(silent + offline_after);
        if matches!(state, State::Online | State::Suspect(_)) && due <= now {
            let cause = if will <= due { "will" } else { "silence" };
            told.push(event("offline", cause, listened.when(due), last_seen));
            state = State::Offline;
        }
        match what {
            What::End => {}
            What::Will { last } => {
                let due = last.then_some(now + DEBOUNCE);
                match state {
                    State::Online => {
                        told.push(event("suspect", "will", at, last_seen));
                        state = State::Suspect(due);
                    }
                    State::Suspect(was) => state = State::Suspect(was.into_iter().chain(due).min()),
                    State::Unknown | State::Offline => {}
                }
            }
            What::Parent => {
                if state == State::Online {
                    told.push(event("suspect", "parent", at, last_seen));
                    state = State::Suspect(None);
                }
            }
            What::News(it) => {
                let before = last_seen;
                last_seen = last_seen.max(Some(it.sent));
                silent = silent.max(listened.at(it.sent));
                let (age, whole) = (now - listened.at(it.sent), at - it.sent);
                if state == State::Unknown && age >= offline_after {
                    told.push(event("offline", "silence", at - (age - offline_after), last_seen));
                    state = State::Offline;
                } else if state != State::Online
                    && (state == State::Unknown || whole < offline_after)
                {
                    let outage = before.filter(|_| state == State::Offline).map(|last| at - last);
                    told.push(Event { outage, ..event("online", "news", at, last_seen) });
                    state = State::Online;
                }
            }
        }
    }
    told
}
