//! A day without time servers, in virtual time: an engine is told what a clock says of itself that was taken from a
//! server once and left alone since.

use std::collections::BTreeMap;

use serde_json::Value;
use tidegate::clock::Clock;
use tidegate::time::{ClockQuality, Span};

use crate::gateway::{Gateway, HOUR, MINUTE, NOON, SECOND, config, defaults};
use crate::reference::{Message, Rules};
use crate::servers::Kept;
use crate::support::{Manner, TimeServer};

/// Less than a clock may be off at the end of a day.
const LATENESS: i64 = 5 * SECOND;

/// What its own messages need.
const DELAY: i64 = SECOND;

/// From its last message to its next, in hours of the day; minutes are those of the first.
const AWAY: [(&str, i64, i64); 4] =
    [("north/n3", 3, 5), ("south/s0", 6, 8), ("north/n4", 17, 19), ("south/s1", 17, 19)];

/// Five devices and two, a message each every four minutes.
fn messages() -> Vec<(i64, &'static str)> {
    let devices =
        ["north/n0", "north/n1", "north/n2", "north/n3", "north/n4", "south/s0", "south/s1"];
    let mut all = Vec::new();
    for (number, device) in (1..).zip(devices) {
        let times = (0..24 * 15).map(|turn| NOON + turn * 4 * MINUTE + number * 7_123);
        let is_away = |at: &i64| {
            let half = |hour: i64| NOON + hour * HOUR + HOUR / 2;
            AWAY.iter()
                .any(|(name, from, to)| device == *name && (half(*from)..half(*to)).contains(at))
        };
        all.extend(times.filter(|at| !is_away(at)).map(|at| (at, device)));
    }
    all.sort_unstable();
    all
}

fn message(device: &str, at: i64) -> Message {
    let (region, name) = device.split_once('/').expect("region and name");
    let time = at - DELAY;
    let payload = format!(r#"{{"dev":"{name}","ts":{time},"kind":"heartbeat","v":1}}"#);
    Message { topic: format!("m/{region}/{name}"), payload, retain: false, dup: false }
}

/// A gateway whose clock goes wrong as fast as it may, and what it told when.
struct Day<'a> {
    gateway: Gateway<'a>,
    clock: &'a Clock,
    told: Vec<(i64, String, Value)>,
    /// When the clock was no longer good.
    bad: Option<i64>,
}

impl Day<'_> {
    /// Notes what was told at this moment, which says what the clock is worth.
    fn note(&mut self) {
        let outputs = self.gateway.outputs.drain(..);
        for output in outputs {
            let line =
                tidegate::wire::encode::encode_line(&output, &crate::gateway::identity(), None);
            let body: Value = serde_json::from_str(&line).expect("JSON");
            let quality = serde_json::to_value(self.gateway.clock.quality).expect("a word");
            assert_eq!(body["clock"], quality, "{body}");
            let kind = body["type"].as_str().expect("a word").to_owned();
            self.told.push((self.gateway.now, kind, body));
        }
    }

    /// Lives until then, with a look at the clock each minute.
    fn until(&mut self, at: i64) {
        while self.gateway.now < at {
            let minute = (self.gateway.now / MINUTE + 1) * MINUTE;
            self.wake(minute.min(at));
            let since = self.gateway.now - NOON;
            self.gateway.error = -since / 10_000;
            let status = self.clock.status_in(Span(since));
            if status != self.gateway.clock {
                self.gateway.set_clock(status, self.gateway.error);
                self.note();
            }
            if !status.is_good(Span(LATENESS)) {
                self.bad.get_or_insert(self.gateway.now);
            }
        }
    }

    /// Goes to `at` by way of what is due before, each at its moment.
    fn wake(&mut self, at: i64) {
        let step = SECOND.min(at - self.gateway.now);
        while self.gateway.now < at {
            let next = (self.gateway.now + step).min(at);
            self.gateway.sleep_until(next);
            self.note();
        }
    }

    /// All messages, and a look at the last moment before each deadline.
    fn live(&mut self, messages: &[(i64, &str)], deadlines: &[(i64, String)]) {
        let messages = messages.iter().map(|(at, device)| (*at, Some(*device)));
        let deadlines = deadlines.iter().flat_map(|(at, _)| [(at - 1, None), (*at, None)]);
        let mut all: Vec<_> = messages.chain(deadlines).collect();
        all.sort_unstable();
        for (at, device) in all {
            self.until(at);
            if let Some(device) = device {
                self.gateway.hears(at, message(device, at));
                self.note();
            }
        }
    }
}

/// Region and device.
fn name(body: &Value) -> String {
    let of = |field: &str| body[field].as_str().expect("a name").to_owned();
    of("region") + "/" + &of("device")
}

#[tokio::test]
async fn a_day_without_time_servers_closes_every_hour_and_tells_who_is_offline_to_the_tick() {
    let server = TimeServer::start(Manner::ahead(0));
    let kept = Kept::by(&[&server]);
    kept.becomes(ClockQuality::Synchronised).await;
    let clock = kept.clock.clone();
    drop(kept); // nobody asks any more

    let lateness = ["north", "south"].map(|region| (region.to_owned(), LATENESS)).into();
    let rules = Rules { lateness, ..defaults() };
    let config = config(&rules, false, MINUTE);
    let gateway = Gateway::listening(&config, NOON);
    let mut day = Day { gateway, clock: &clock, told: Vec::new(), bad: None };
    let messages = messages();
    let offline = offline(&messages);
    day.live(&messages, &offline);

    let bad = (day.bad.expect("it grows too large") - NOON) / HOUR;
    assert!((10..13).contains(&bad), "4 s more at 100 parts in a million: {bad} h");
    let of = |state: &str| {
        let presence = day.told.iter().filter(|(_, kind, _)| kind == "presence");
        let of = presence.filter(|(.., body)| body["state"] == state);
        of.map(|(at, _, body)| (*at, name(body))).collect::<Vec<_>>()
    };
    assert_eq!(of("offline"), offline, "at the very tick, and nobody else");
    assert_eq!(of("online").len(), 7 + 4, "all of them once, and who comes back");
    let is_wrong = |kind: &str| kind == "late" || kind == "refused" || kind == "gateway-gap";
    assert!(!day.told.iter().any(|(_, kind, _)| is_wrong(kind)));
    hours(&day, &messages);
}

/// When whom silence makes offline.
fn offline(messages: &[(i64, &str)]) -> Vec<(i64, String)> {
    let last = |device: &str, hour: i64| {
        let before = NOON + hour * HOUR + HOUR / 2;
        let of = messages.iter().rev().find(|(at, name)| *name == device && *at < before);
        of.expect("it spoke before").0
    };
    AWAY.map(|(device, from, _)| (last(device, from) + 30 * MINUTE, device.to_owned())).into()
}

/// Each hour is told with all of its samples, and as soon as it can be.
fn hours(day: &Day<'_>, messages: &[(i64, &str)]) {
    let mut sent = BTreeMap::new();
    for (at, device) in messages {
        *sent.entry((*device, (at - DELAY).div_euclid(HOUR) * HOUR)).or_insert(0_u64) += 1;
    }
    sent.retain(|(_, start), _| *start < NOON + 23 * HOUR);
    for ((device, start), samples) in sent {
        let told = day.told.iter().filter(|(_, kind, body)| {
            kind == "window" && name(body) == device && body["start"] == start
        });
        let told: Vec<_> = told.map(|(at, _, body)| (*at - start - HOUR, body)).collect();
        let [(after, body)] = told[..] else { panic!("{device} {start}: {told:?}") };
        assert_eq!(body["samples"], samples, "{body}");
        let silent = AWAY.iter().find(|(name, from, to)| {
            *name == device && (NOON + from * HOUR..NOON + to * HOUR).contains(&start)
        });
        // By the clock, good or of the region; or by the first message that comes.
        let (cause, soon) = match silent {
            Some(("south/s1", ..)) => ("heartbeat", 3 * HOUR / 2..3 * HOUR / 2 + 5 * MINUTE),
            Some(_) => ("idle", LATENESS..LATENESS + 10 * SECOND),
            None => ("heartbeat", 0..6 * MINUTE),
        };
        assert_eq!(body["cause"], cause, "{after} {body}");
        assert!(soon.contains(&after), "{after} is not in {soon:?}: {body}");
    }
}
