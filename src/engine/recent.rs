//! The last few things of one kind, with how often they came: enough to see what is wrong, bounded whatever comes.
//!
//! Kept in memory only. It counts since the start, where the books count since the store was created.

use crate::event::Reason;
use crate::time::ArrivalTime;

/// Different ones that are remembered.
const KEPT: usize = 16;

/// Longest beginning of a topic that is kept, in bytes.
const LONGEST: usize = 256;

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Why it was refused, if it was.
    pub reason: Option<Reason>,
    /// Its topic, or the first 256 bytes of it; empty for a bare payload.
    pub topic: Box<str>,
    /// How often it came since it was remembered.
    pub count: u64,
    /// When it last came; `None` in a replay without arrival times.
    pub last: Option<ArrivalTime>,
}

/// The last 16 different topics, by reason.
#[derive(Debug, Default)]
pub struct Recent {
    /// The latest at the end.
    seen: Vec<Seen>,
}

impl Recent {
    /// It came again, or for the first time; then the one that has not come for longest makes room.
    pub fn note(&mut self, reason: Option<Reason>, topic: &str, arrival: Option<ArrivalTime>) {
        let topic = beginning(topic);
        let known = |seen: &Seen| seen.reason == reason && *seen.topic == *topic;
        match self.seen.iter().rposition(known) {
            Some(at) => self.seen[at..].rotate_left(1),
            None => {
                if self.seen.len() == KEPT {
                    self.seen.remove(0);
                }
                self.seen.push(Seen { reason, topic: topic.into(), count: 0, last: None });
            }
        }
        if let Some(latest) = self.seen.last_mut() {
            (latest.count, latest.last) = (latest.count + 1, arrival);
        }
    }

    /// All of them, the latest first.
    pub fn iter(&self) -> impl Iterator<Item = &Seen> {
        self.seen.iter().rev()
    }
}

fn beginning(topic: &str) -> &str {
    let mut end = topic.len().min(LONGEST);
    while !topic.is_char_boundary(end) {
        end -= 1;
    }
    &topic[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(recent: &Recent) -> Vec<(&str, u64)> {
        recent.iter().map(|seen| (&*seen.topic, seen.count)).collect()
    }

    #[test]
    fn the_latest_comes_first_and_each_is_counted() {
        let mut recent = Recent::default();
        for (at, topic) in (1..).zip(["a", "b", "a", "c", "b", "b"]) {
            recent.note(None, topic, Some(ArrivalTime(at)));
        }
        assert_eq!(told(&recent), [("b", 3), ("c", 1), ("a", 2)]);
        assert_eq!(recent.iter().next().and_then(|seen| seen.last), Some(ArrivalTime(6)));
        recent.note(Some(Reason::Empty), "b", None);
        assert_eq!(told(&recent)[..2], [("b", 1), ("b", 3)], "another reason is another thing");
    }

    #[test]
    fn what_has_not_come_for_longest_makes_room() {
        let mut recent = Recent::default();
        for topic in 0..KEPT {
            recent.note(None, &topic.to_string(), None);
        }
        recent.note(None, "0", None);
        recent.note(None, "new", None);
        let topics: Vec<_> = recent.iter().map(|seen| seen.topic.to_string()).collect();
        assert_eq!((topics.len(), topics.contains(&"1".into())), (KEPT, false));
        assert_eq!(topics[..2], ["new", "0"]);
    }

    #[test]
    fn a_long_topic_is_cut_between_two_characters() {
        let mut recent = Recent::default();
        recent.note(None, &("x".repeat(LONGEST - 1) + "é"), None);
        assert_eq!(recent.iter().map(|seen| seen.topic.len()).sum::<usize>(), LONGEST - 1);
    }
}
