//! What a local time means, by a table of zdump (the time zone database's own tool) and the long way: every instant that
//! has that local time is tried.

use chrono::NaiveDateTime;

/// `zdump -V -c FROM,TO ZONE`: the last second before a change and the first after it.
const TABLE: &str = include_str!("zdump.txt");

/// A change of a zone: when, and seconds east of UTC before and after.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) at: i64,
    pub(crate) before: i64,
    pub(crate) after: i64,
}

/// What a local time means, in seconds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    Once(i64),
    Twice(i64, i64),
    /// What it would be without the change, and the change.
    Never(i64, i64),
}

pub(crate) fn zones() -> Vec<(&'static str, Vec<Change>)> {
    let mut zones: Vec<(&str, Vec<Change>)> = Vec::new();
    let lines: Vec<&str> = TABLE.lines().collect();
    for pair in lines.chunks(2) {
        let zone = pair[0].split_whitespace().next().expect("a zone");
        let ((last, before), (at, after)) = (second(pair[0]), second(pair[1]));
        assert_eq!(last + 1, at, "{zone}");
        if zones.last().is_none_or(|(name, _)| *name != zone) {
            zones.push((zone, Vec::new()));
        }
        zones.last_mut().expect("one").1.push(Change { at, before, after });
    }
    zones
}

/// Instant and offset of a line.
fn second(line: &str) -> (i64, i64) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let utc = NaiveDateTime::parse_from_str(&words[1..6].join(" "), "%a %b %d %H:%M:%S %Y");
    let offset = line.split("gmtoff=").nth(1).expect("an offset");
    (utc.expect("a time").and_utc().timestamp(), offset.trim().parse().expect("seconds"))
}

pub(crate) fn offset_at(changes: &[Change], at: i64) -> i64 {
    let last = changes.iter().rev().find(|change| change.at <= at);
    last.map_or(changes[0].before, |change| change.after)
}

pub(crate) fn meaning(changes: &[Change], local: i64) -> Meaning {
    let mut offsets: Vec<i64> = changes.iter().flat_map(|c| [c.before, c.after]).collect();
    offsets.sort_unstable();
    offsets.dedup();
    let instants = offsets.iter().rev().map(|offset| local - offset);
    let found: Vec<i64> = instants.filter(|at| local - offset_at(changes, *at) == *at).collect();
    match found[..] {
        [at] => Meaning::Once(at),
        [first, second] => Meaning::Twice(first, second),
        _ => {
            assert!(found.is_empty(), "{found:?}");
            let skips = |c: &&Change| local - c.before >= c.at && local - c.after < c.at;
            let change = changes.iter().find(skips).expect("a change that leaves it out");
            Meaning::Never(local - change.before, change.at)
        }
    }
}
