//! What the centre was told: made of the messages that its broker delivered, and of nothing else.

use std::collections::{BTreeMap, HashSet};

use serde::Deserialize;
use xxhash_rust::xxh3::xxh3_128;

use super::ledger::{Cell, Tally, hour_of};
use crate::time::ArrivalTime;

/// The last revision of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hour {
    pub(super) revision: u32,
    pub(super) tally: Tally,
    /// Readings in it that carry their arrival time.
    pub(super) stamped: u64,
}

/// All that was received.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// Below which the topics lie, with a slash at its end.
    prefix: String,
    /// By device and begin of the hour.
    pub(super) hours: BTreeMap<(String, i64), Hour>,
    /// By region and begin of the hour.
    pub(super) regions: BTreeMap<(String, i64), Hour>,
    /// Readings whose hour was final.
    pub(super) late: BTreeMap<Cell, Tally>,
    /// Readings whose time was refused.
    pub(super) refused: BTreeMap<Cell, Tally>,
    /// The gateway's watermark.
    pub(super) watermark: Option<ArrivalTime>,
    /// The last state of each device, and since when.
    pub(super) presence: BTreeMap<String, (i64, String)>,
    /// How often each device was told to be offline.
    pub(super) offline: BTreeMap<String, u64>,
    pub(super) messages: u64,
    /// Results of a device's hour that replaced an earlier one.
    pub(super) corrections: u64,
    /// Messages that must not have come: unreadable ones, one identity with two contents.
    pub(super) wrong: Vec<String>,
    /// Messages may come again, since the link is cut while some are on their way.
    seen: HashSet<u128>,
    /// Contents of results by identity.
    identities: BTreeMap<(String, i64, u32), u128>,
}

#[derive(Deserialize)]
struct Message<'a> {
    start: i64,
    revision: u32,
    samples: u64,
    #[serde(default)]
    stamped: u64,
    #[serde(borrow)]
    metrics: BTreeMap<&'a str, Metric>,
}

#[derive(Deserialize)]
struct Metric {
    /// Left out where it is that of the samples.
    count: Option<u64>,
    sum: f64,
}

#[derive(Deserialize)]
struct Late {
    start: i64,
    record: Record,
}

#[derive(Deserialize)]
struct Refused {
    region: String,
    device: String,
    device_time: i64,
    #[serde(default)]
    withheld: u64,
    record: Record,
}

#[derive(Deserialize)]
struct Record {
    /// A heartbeat has none.
    power: Option<u64>,
}

#[derive(Deserialize)]
struct Presence {
    state: String,
    since: i64,
}

#[derive(Deserialize)]
struct Watermark {
    watermark: Option<i64>,
}

impl Observed {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: format!("{prefix}/"), ..Self::default() }
    }

    /// Takes a message as the central broker delivered it.
    pub(super) fn take(&mut self, topic: &str, payload: &[u8]) {
        self.messages += 1;
        let content = xxh3_128(&[topic.as_bytes(), b"\n", payload].concat());
        let below = topic.strip_prefix(&self.prefix).unwrap_or_default().to_owned();
        let read = match below.split('/').collect::<Vec<_>>()[..] {
            ["window", "hour", region, device] => {
                self.hour(&format!("{region}/{device}"), payload, content)
            }
            ["region", "hour", region] => self.region(region, payload),
            ["late", region, device] => self.late(&format!("{region}/{device}"), payload, content),
            ["quarantine", "future", _source] => self.refused(payload, content),
            ["watermark"] => self.watermark(payload),
            ["presence", region, device] => {
                self.presence(&format!("{region}/{device}"), payload, content)
            }
            ["watermark", _] | ["alert", _, _] | ["gateway-gap"] | ["status"] => Ok(()),
            _ => Err("nobody should have sent this".to_owned()),
        };
        if let Err(reason) = read {
            let text = String::from_utf8_lossy(payload);
            self.wrong.push(format!("{topic}: {reason}: {text}"));
        }
    }

    fn hour(&mut self, device: &str, payload: &[u8], content: u128) -> Result<(), String> {
        let (start, hour) = result(payload)?;
        let identity = (device.to_owned(), start, hour.revision);
        let known = self.identities.insert(identity, content);
        if known.is_some_and(|known| known != content) {
            return Err("one identity with two contents".into());
        }
        if known.is_none() && hour.revision > 0 {
            self.corrections += 1;
        }
        keep_last(&mut self.hours, (device.to_owned(), start), hour);
        Ok(())
    }

    fn region(&mut self, region: &str, payload: &[u8]) -> Result<(), String> {
        let (start, hour) = result(payload)?;
        keep_last(&mut self.regions, (region.to_owned(), start), hour);
        Ok(())
    }

    fn late(&mut self, device: &str, payload: &[u8], content: u128) -> Result<(), String> {
        let late: Late = read(payload)?;
        if self.seen.insert(content) {
            let cell = (device.to_owned(), Some(late.start));
            *self.late.entry(cell).or_default() += late.record.tally();
        }
        Ok(())
    }

    fn refused(&mut self, payload: &[u8], content: u128) -> Result<(), String> {
        let refused: Refused = read(payload)?;
        if refused.withheld > 0 {
            return Err("something was withheld".into());
        }
        if self.seen.insert(content) {
            let device = format!("{}/{}", refused.region, refused.device);
            let cell = (device, Some(hour_of(refused.device_time)));
            *self.refused.entry(cell).or_default() += refused.record.tally();
        }
        Ok(())
    }

    fn presence(&mut self, device: &str, payload: &[u8], content: u128) -> Result<(), String> {
        let Presence { state, since } = read(payload)?;
        if self.seen.insert(content) && state == "offline" {
            *self.offline.entry(device.to_owned()).or_default() += 1;
        }
        let last = self.presence.entry(device.to_owned()).or_insert((since, String::new()));
        if since >= last.0 {
            *last = (since, state);
        }
        Ok(())
    }

    fn watermark(&mut self, payload: &[u8]) -> Result<(), String> {
        let Watermark { watermark } = read(payload)?;
        self.watermark = self.watermark.max(watermark.map(ArrivalTime));
        Ok(())
    }
}

impl Record {
    fn tally(&self) -> Tally {
        self.power.map_or_else(Tally::default, |watts| Tally { readings: 1, watts })
    }
}

fn read<'a, T: Deserialize<'a>>(payload: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(payload).map_err(|error| error.to_string())
}

fn result(payload: &[u8]) -> Result<(i64, Hour), String> {
    let result: Message<'_> = read(payload)?;
    let power = result.metrics.get("power").ok_or("without power")?;
    if power.count.is_some_and(|count| count != result.samples) {
        return Err("readings without power".into());
    }
    // Sums of whole watts, far below 2⁵³.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "compared with what it was made of"
    )]
    let watts = power.sum as u64;
    #[expect(clippy::cast_precision_loss, clippy::float_cmp, reason = "whole numbers")]
    if watts as f64 != power.sum {
        return Err("a sum of whole watts that is none".into());
    }
    let tally = Tally { readings: result.samples, watts };
    Ok((result.start, Hour { revision: result.revision, tally, stamped: result.stamped }))
}

/// A higher revision replaces a lower one, in whichever order they come.
fn keep_last(hours: &mut BTreeMap<(String, i64), Hour>, key: (String, i64), hour: Hour) {
    let kept = hours.entry(key).or_insert(hour);
    if hour.revision >= kept.revision {
        *kept = hour;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(messages: &[(&str, &str)]) -> Observed {
        let mut observed = Observed::new("t/gw");
        for (topic, payload) in messages {
            observed.take(&format!("t/gw/{topic}"), payload.as_bytes());
        }
        observed
    }

    fn window(revision: u32, samples: u64, sum: &str) -> String {
        format!(
            r#"{{"start":0,"revision":{revision},"samples":{samples},"metrics":{{"power":{{"sum":{sum}}}}}}}"#
        )
    }

    #[test]
    fn the_last_revision_counts_and_one_identity_has_one_content() {
        let (first, second) = (window(0, 2, "5"), window(1, 3, "9.0"));
        let topic = "window/hour/north/m";
        let seen = observed(&[(topic, &second), (topic, &first), (topic, &second)]);
        let key = ("north/m".to_owned(), 0);
        assert_eq!(seen.hours[&key].tally, Tally { readings: 3, watts: 9 });
        assert_eq!((seen.corrections, seen.wrong.len()), (1, 0));
        let seen = observed(&[(topic, &first), (topic, &window(0, 2, "6"))]);
        assert_eq!(seen.wrong.len(), 1, "{:?}", seen.wrong);
    }

    #[test]
    fn a_late_record_counts_once_however_often_it_comes() {
        let late = r#"{"start":0,"record":{"ts":1,"power":7}}"#;
        let seen = observed(&[("late/north/m", late), ("late/north/m", late)]);
        let cell = ("north/m".to_owned(), Some(0));
        assert_eq!(seen.late[&cell], Tally { readings: 1, watts: 7 });
    }

    #[test]
    fn what_cannot_be_read_is_wrong_and_not_passed_over() {
        let seen = observed(&[
            ("window/hour/north/m", "{"),
            ("window/hour/north/m", &window(0, 1, "1.5")),
            ("window/hour/north/m", &window(0, 2, "5").replace("{\"sum", "{\"count\":1,\"sum")),
            ("quarantine/syntax/meters", "{}"),
            ("presence/north/m", "{}"),
        ]);
        assert_eq!(seen.wrong.len(), 5, "{:?}", seen.wrong);
    }
}
