//! What must come out, computed the plain way: one pass in the order of publication, everything in memory, all windows
//! grouped at the end. It knows the sources of `setup` and nothing of the agent.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::fleet::Message;

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;
/// Before 2020 no clock was right.
const NOT_BEFORE: i64 = 1_577_836_800_000;

/// What holds in a run.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Lateness by region, in ms.
    pub lateness: BTreeMap<&'static str, i64>,
    /// In ms.
    pub allowed_lateness: i64,
    /// Device times after this are of a wrong clock, in ms since the epoch.
    pub latest: i64,
}

/// Statistics of one metric in one window.
#[derive(Clone, Debug, PartialEq)]
pub struct Stats {
    pub count: u64,
    pub sum: f64,
    pub min: f64,
    pub max: f64,
    pub first: f64,
    pub last: f64,
    times: (i64, i64),
}

impl Stats {
    fn add(stats: Option<Self>, time: i64, value: f64) -> Self {
        let Some(mut stats) = stats else {
            let (count, times) = (1, (time, time));
            return Self {
                count,
                sum: value,
                min: value,
                max: value,
                first: value,
                last: value,
                times,
            };
        };
        stats.count += 1;
        stats.sum += value;
        stats.min = stats.min.min(value);
        stats.max = stats.max.max(value);
        if time < stats.times.0 {
            (stats.times.0, stats.first) = (time, value);
        }
        if time >= stats.times.1 {
            (stats.times.1, stats.last) = (time, value);
        }
        stats
    }
}

/// What a region's roll-up must say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RegionStats {
    pub count: u64,
    pub sum: f64,
    pub min: f64,
    pub max: f64,
    pub sum_of_means: f64,
    pub reporting: u64,
    pub devices: u64,
}

/// What must come out of a run.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// By topic below the prefix and start.
    pub windows: BTreeMap<(String, i64), Stats>,
    /// By topic below the prefix and start.
    pub regions: BTreeMap<(String, i64), RegionStats>,
    /// Topic below the prefix, time, content.
    pub late: BTreeSet<(String, i64, String)>,
    pub aggregated: u64,
    pub valueless: u64,
    pub duplicate: u64,
    pub quarantined: u64,
    pub stamped: u64,
    /// Records that came after the end of their window, and were still allowed.
    pub revising: u64,
}

#[derive(Default)]
struct Device {
    highest: Option<i64>,
    watermark: Option<i64>,
    /// By window size and start.
    windows: BTreeMap<(i64, i64), Stats>,
}

struct Record<'a> {
    time: i64,
    value: Option<f64>,
    heartbeat: bool,
    content: &'a Value,
}

/// Runs over the messages in the order of publication. Windows that no watermark closed are left out.
pub fn expect<'a>(rules: &Rules, messages: impl IntoIterator<Item = &'a Message>) -> Expected {
    let mut expected = Expected::default();
    let mut devices: BTreeMap<(String, String), Device> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for message in messages {
        let payload: Value = serde_json::from_str(&message.payload).expect("JSON");
        let levels: Vec<&str> = message.topic.split('/').collect();
        let (region, name) = (levels[1], levels[2]);
        let device = devices.entry((region.to_owned(), name.to_owned())).or_default();
        let mut records = Vec::new();
        for record in records_of(&levels, &payload) {
            if !seen.insert((message.topic.clone(), record.content.to_string())) {
                expected.duplicate += 1;
            } else if record.time > rules.latest {
                expected.quarantined += 1;
            } else if record.time < NOT_BEFORE {
                expected.stamped += 1;
                expected.aggregated += 1;
            } else {
                records.push(record);
            }
        }
        records.sort_by_key(|record| record.time);
        device.take(&records, rules, (region, name), &mut expected);
    }
    group(&devices, &mut expected);
    expected
}

fn records_of<'a>(levels: &[&str], payload: &'a Value) -> Vec<Record<'a>> {
    let record = |content: &'a Value, heartbeat| Record {
        time: content["ts"].as_i64().expect("a time"),
        value: content["power"].as_f64(),
        heartbeat,
        content,
    };
    match levels[0] {
        "meters" => vec![record(payload, levels[3] == "heartbeat")],
        "arrays" => {
            let heartbeat = payload["beat"] == true;
            let samples = payload["samples"].as_array().expect("an array");
            samples.iter().map(|sample| record(sample, heartbeat)).collect()
        }
        other => panic!("no source for {other}"),
    }
}

impl Device {
    fn take(
        &mut self,
        records: &[Record<'_>],
        rules: &Rules,
        (region, name): (&str, &str),
        expected: &mut Expected,
    ) {
        for record in records {
            let Some(value) = record.value else {
                expected.valueless += 1;
                continue;
            };
            let start = record.time.div_euclid(HOUR) * HOUR;
            let passed = |end: i64| self.watermark.is_some_and(|watermark| end - 1 <= watermark);
            if passed(start + HOUR + rules.allowed_lateness) {
                let topic = format!("late/{region}/{name}");
                expected.late.insert((topic, record.time, record.content.to_string()));
                continue;
            }
            expected.revising += u64::from(passed(start + HOUR));
            expected.aggregated += 1;
            for size in [HOUR, DAY] {
                let key = (size, record.time.div_euclid(size) * size);
                let stats = Stats::add(self.windows.remove(&key), record.time, value);
                self.windows.insert(key, stats);
            }
        }
        for record in records {
            let highest = self.highest.map_or(record.time, |highest| highest.max(record.time));
            self.highest = Some(highest);
            let behind = if record.heartbeat { 0 } else { rules.lateness[region] + 1 };
            self.watermark = self.watermark.max(Some(highest - behind));
        }
    }
}

fn group(devices: &BTreeMap<(String, String), Device>, expected: &mut Expected) {
    let names = BTreeMap::from([(HOUR, "hour"), (DAY, "day")]);
    let mut members: BTreeMap<&str, Vec<&Device>> = BTreeMap::new();
    for ((region, name), device) in devices {
        members.entry(region).or_default().push(device);
        for ((size, start), stats) in &device.windows {
            if device.watermark.is_some_and(|watermark| start + size - 1 <= watermark) {
                let topic = format!("window/{}/{region}/{name}", names[size]);
                expected.windows.insert((topic, *start), stats.clone());
            }
        }
    }
    for (region, members) in members {
        let spoken = members.iter().filter_map(|device| device.watermark);
        let Some(watermark) = spoken.min() else { continue };
        let keys: BTreeSet<_> = members.iter().flat_map(|device| device.windows.keys()).collect();
        for key @ (size, start) in keys {
            if start + size - 1 <= watermark {
                let topic = format!("region/{}/{region}", names[size]);
                let parts = members.iter().filter_map(|device| device.windows.get(key));
                expected.regions.insert((topic, *start), roll_up(parts, members.len()));
            }
        }
    }
}

fn roll_up<'a>(parts: impl Iterator<Item = &'a Stats>, devices: usize) -> RegionStats {
    let (min, max) = (f64::INFINITY, f64::NEG_INFINITY);
    let mut all = RegionStats { min, max, devices: devices as u64, ..RegionStats::default() };
    for part in parts {
        all.count += part.count;
        all.sum += part.sum;
        all.min = all.min.min(part.min);
        all.max = all.max.max(part.max);
        all.sum_of_means += part.sum / part.count as f64;
        all.reporting += 1;
    }
    all
}
