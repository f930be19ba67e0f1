//! A small fleet that does everything that fleets do. The seed decides what; there is no other source of chance.
//!
//! A meter takes a reading a minute and sends a heartbeat every five. The fleet is asked for one minute after the other
//! and says what its meters send then.

use std::collections::VecDeque;
use std::fmt;

use fastrand::Rng;

use crate::time::{ArrivalTime, Span};

/// One reading in this span.
pub(super) const MINUTE: Span = Span::from_mins(1);
const HEARTBEAT_MINUTES: i64 = 5;
const REGIONS: [&str; 2] = ["north", "south"];

/// How long a reading that is too late is held back: more than its hour, the allowed lateness and a heartbeat.
const TOO_LATE_MINUTES: i64 = 110;

/// How a meter behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    OnTime,
    /// Now and then its network is away; then it sends at once what it has kept.
    Delayed,
    /// Sends some readings again, at once or much later.
    Repeating,
    /// Sends some readings when their hour is final.
    TooLate,
    /// Takes no readings for a while, and says nothing.
    Silent,
    /// Its clock is an hour ahead.
    Ahead,
    /// Its clock was never set: it counts from 1970.
    Unset,
}

impl Kind {
    pub(super) const ALL: [Self; 7] = [
        Self::OnTime,
        Self::Delayed,
        Self::Repeating,
        Self::TooLate,
        Self::Silent,
        Self::Ahead,
        Self::Unset,
    ];
    /// Meters of a region.
    const OF_A_REGION: [Self; 9] = [
        Self::OnTime,
        Self::OnTime,
        Self::Delayed,
        Self::Delayed,
        Self::Repeating,
        Self::TooLate,
        Self::Silent,
        Self::Ahead,
        Self::Unset,
    ];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::OnTime => "on time",
            Self::Delayed => "delayed",
            Self::Repeating => "repeating",
            Self::TooLate => "too late",
            Self::Silent => "falls silent",
            Self::Ahead => "clock 1 h ahead",
            Self::Unset => "clock at 1970",
        })
    }
}

/// A meter.
#[derive(Debug)]
pub(super) struct Device {
    /// `region/device`, as in topics.
    pub(super) name: String,
    pub(super) kind: Kind,
    /// When in a minute it takes its reading.
    phase: Span,
    usual_power: u64,
    /// Minutes in which it is away or silent; the next such time once they are past.
    spell: (i64, i64),
    /// What is sent later, and in which minute.
    kept: VecDeque<(i64, Content)>,
}

/// What a message holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// A reading, sent for the first time.
    Reading(Reading),
    /// One that was sent before, byte for byte.
    Copy(Reading),
    /// A heartbeat with this device time.
    Heartbeat(i64),
}

/// A reading as it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    /// Device time in milliseconds.
    pub(super) stamp: i64,
    /// In watts: whole ones, so that sums are exact.
    pub(super) power: u64,
}

/// A message of a meter.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) at: ArrivalTime,
    /// Its place in [`Fleet::devices`].
    pub(super) device: usize,
    pub(super) content: Content,
}

impl Sending {
    pub(super) fn payload(&self) -> String {
        match self.content {
            Content::Reading(Reading { stamp, power })
            | Content::Copy(Reading { stamp, power }) => {
                format!(r#"{{"ts":{stamp},"power":{power}}}"#)
            }
            Content::Heartbeat(stamp) => format!(r#"{{"ts":{stamp}}}"#),
        }
    }

    pub(super) fn topic(&self, device: &Device) -> String {
        let kind = if matches!(self.content, Content::Heartbeat(_)) { "heartbeat" } else { "data" };
        format!("meters/{}/{kind}", device.name)
    }
}

/// All meters, at the beginning of a minute.
#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) devices: Vec<Device>,
    rng: Rng,
    start: ArrivalTime,
    minute: i64,
}

impl Fleet {
    /// A fleet that begins at `start`.
    pub(super) fn new(seed: u64, start: ArrivalTime) -> Self {
        let mut rng = Rng::with_seed(seed);
        let kinds = || Kind::OF_A_REGION.into_iter().enumerate();
        let all = REGIONS.into_iter().flat_map(|region| kinds().map(move |at| (region, at)));
        let devices = all.map(|(region, (number, kind))| Device {
            name: format!("{region}/m-{}", number + 1),
            kind,
            phase: Span(rng.i64(1_000..20_000)),
            usual_power: rng.u64(300..3_000),
            spell: next_spell(&mut rng, 0, kind),
            kept: VecDeque::new(),
        });
        Self { devices: devices.collect(), rng, start, minute: 0 }
    }

    /// When the next minute begins.
    pub(super) fn next_minute(&self) -> ArrivalTime {
        self.start + Span(self.minute * MINUTE.0)
    }

    /// What is sent in the next minute, in the order in which it is due. With `closing` there are no more readings:
    /// what a network has kept comes, and the heartbeats go on.
    pub(super) fn minute(&mut self, closing: bool) -> Vec<Sending> {
        let (now, begin) = (self.minute, self.next_minute());
        let mut sendings = Vec::new();
        for (index, device) in self.devices.iter_mut().enumerate() {
            let due = begin + device.phase;
            let contents = device.contents(now, due, due - self.start, closing, &mut self.rng);
            let at = |order: usize| due + Span(i64::try_from(order).unwrap_or(0) * 10);
            let numbered = contents.into_iter().enumerate();
            sendings.extend(numbered.map(|(order, content)| Sending {
                at: at(order),
                device: index,
                content,
            }));
        }
        self.minute += 1;
        sendings.sort_by_key(|sending| sending.at);
        sendings
    }
}

impl Device {
    /// What it sends in a minute, at `due`, in this order.
    fn contents(
        &mut self,
        now: i64,
        due: ArrivalTime,
        uptime: Span,
        closing: bool,
        rng: &mut Rng,
    ) -> Vec<Content> {
        let away = (self.spell.0..self.spell.1).contains(&now);
        if now >= self.spell.1 {
            self.spell = next_spell(rng, now, self.kind);
        }
        let stamp = match self.kind {
            Kind::Ahead => due.0 + Span::from_hours(1).0,
            Kind::Unset => uptime.0,
            _ => due.0,
        };
        let mut contents = Vec::new();
        if !closing {
            let power = self.usual_power + rng.u64(0..400);
            self.take(now, away, Reading { stamp, power }, &mut contents, rng);
        } else if self.kind != Kind::Delayed {
            self.kept.clear();
        }
        if away && !closing {
            return contents;
        }
        let (due_now, later) = self.kept.drain(..).partition(|(at, _)| closing || *at <= now);
        self.kept = later;
        let released: VecDeque<_> = due_now;
        let beats = now % HEARTBEAT_MINUTES == 0 || !released.is_empty();
        // A reading that is to be too late comes behind a heartbeat which says so; one that the network has kept before.
        if beats && self.kind != Kind::Delayed {
            contents.push(Content::Heartbeat(stamp));
        }
        contents.extend(released.into_iter().map(|(_, content)| content));
        if beats && self.kind == Kind::Delayed {
            contents.push(Content::Heartbeat(stamp));
        }
        contents
    }

    /// Takes a reading, and sends it or not.
    fn take(
        &mut self,
        now: i64,
        away: bool,
        reading: Reading,
        contents: &mut Vec<Content>,
        rng: &mut Rng,
    ) {
        match self.kind {
            Kind::Silent if away => {}
            Kind::Delayed if away => {
                self.kept.push_back((self.spell.1, Content::Reading(reading)));
            }
            // What the network has kept comes in the order in which it was taken.
            Kind::Delayed if !self.kept.is_empty() => {
                self.kept.push_back((now, Content::Reading(reading)));
            }
            Kind::TooLate if rng.u8(0..10) == 0 => {
                self.kept.push_back((now + TOO_LATE_MINUTES, Content::Reading(reading)));
            }
            Kind::Repeating => {
                contents.push(Content::Reading(reading));
                match rng.u8(0..6) {
                    0 => contents.push(Content::Copy(reading)),
                    1 => self.kept.push_back((now + rng.i64(1..100), Content::Copy(reading))),
                    _ => {}
                }
            }
            _ => contents.push(Content::Reading(reading)),
        }
    }
}

/// The next minutes in which a meter of this kind is away.
fn next_spell(rng: &mut Rng, now: i64, kind: Kind) -> (i64, i64) {
    let (pause, length) = match kind {
        Kind::Delayed => (rng.i64(3..15), rng.i64(18..28)),
        Kind::Silent => (rng.i64(40..90), rng.i64(20..50)),
        _ => (i64::MAX / 2, 0),
    };
    (now + pause, now + pause + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(seed: u64) -> Vec<(String, Sending)> {
        let mut fleet = Fleet::new(seed, ArrivalTime(0));
        let mut sent = Vec::new();
        for minute in 0..300 {
            for sending in fleet.minute(minute >= 240) {
                sent.push((fleet.devices[sending.device].name.clone(), sending));
            }
        }
        sent
    }

    #[test]
    fn the_seed_decides_everything() {
        let text = |seed| format!("{:?}", day(seed));
        assert_eq!(text(1), text(1));
        assert_ne!(text(1), text(2));
    }

    #[test]
    fn no_two_readings_of_a_meter_have_one_time_and_a_copy_has_been_sent_before() {
        let (mut readings, mut copies) = (std::collections::BTreeSet::new(), 0);
        for (name, sending) in day(7) {
            match sending.content {
                Content::Reading(Reading { stamp, .. }) => {
                    assert!(readings.insert((name, stamp)), "twice");
                }
                Content::Copy(Reading { stamp, .. }) => {
                    assert!(readings.contains(&(name, stamp)), "not sent before");
                    copies += 1;
                }
                Content::Heartbeat(_) => {}
            }
        }
        assert!(readings.len() > 3_000 && copies > 50, "{} {copies}", readings.len());
    }

    #[test]
    fn what_is_meant_to_be_too_late_comes_behind_a_heartbeat_that_made_its_hour_final() {
        let (mut heard, mut too_late) = (std::collections::BTreeMap::new(), 0);
        let hour = Span::from_hours(1).0;
        for (name, sending) in day(3).into_iter().filter(|(name, _)| name.ends_with("m-6")) {
            match sending.content {
                Content::Heartbeat(stamp) => {
                    heard.insert(name, stamp);
                }
                Content::Reading(Reading { stamp, .. }) if sending.at.0 - stamp > hour => {
                    let end = (stamp / hour + 1) * hour;
                    assert!(heard[&name] >= end + Span::from_mins(30).0);
                    too_late += 1;
                }
                _ => {}
            }
        }
        assert!(too_late > 5, "{too_late}");
    }
}
