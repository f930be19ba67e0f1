//! What the specification says, worked out the slow way.
//!
//! Device scope, gauges, a clock that is good most of the time; no region where three devices write the time is without. Nothing here comes from `tidegate`. There is a ledger of what arrived, and every
//! question (the watermark of a device, the content of a window, whether a record was seen before) is answered by
//! reading all of the ledger again. The only thing that is remembered besides is what has been told.
//!
//! Topics are `m/{region}/{sender}` for devices that write the time, `p/{region}/{sender}` for those that do not. A
//! payload is one object or an array of objects: `{"dev":"a","ts":…,"v":…,"w":…,"kind":"heartbeat"}`.

mod clock;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use serde_json::value::RawValue;

use clock::Beat;

/// Region and device.
pub(crate) type Key = (String, String);

/// Parameters, in ms. A device whose name begins with `z` buffers and has its own allowed lateness.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) lateness: BTreeMap<String, i64>,
    pub(crate) idle_timeout: i64,
    pub(crate) allowed_lateness: i64,
    pub(crate) allowed_lateness_z: i64,
    pub(crate) max_hold: i64,
    pub(crate) future_tolerance: i64,
    pub(crate) past_limit: i64,
    pub(crate) not_before: i64,
    /// Wrong clocks are corrected.
    pub(crate) correct: bool,
    pub(crate) slow_tolerance: i64,
    pub(crate) revision_delay: i64,
    /// Name, size and offset of the base window.
    pub(crate) base: Window,
    /// The same of a multiple of it.
    pub(crate) multiple: Window,
    /// The multiple is the first of the two in the configuration.
    pub(crate) multiple_first: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Window {
    pub(crate) name: &'static str,
    pub(crate) size: i64,
    pub(crate) offset: i64,
}

impl Window {
    pub(crate) fn start(&self, at: i64) -> i64 {
        at - (at - self.offset).rem_euclid(self.size)
    }
}

impl Rules {
    fn allowed(&self, device: &str) -> i64 {
        if device.starts_with('z') { self.allowed_lateness_z } else { self.allowed_lateness }
    }

    fn windows(&self) -> [Window; 2] {
        if self.multiple_first { [self.multiple, self.base] } else { [self.base, self.multiple] }
    }
}

/// Something that happens at a moment of the gateway's clock.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) at: i64,
    pub(crate) what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    Message(Message),
    Tick,
    Down,
    Up,
    CaughtUp,
    /// The gateway's clock is not good from now on, and so far from the true time, which is that of the steps.
    Lost(i64),
    /// It is the true time again.
    Good,
    /// A message of a time when the gateway was on and never had the time, which was between these two.
    Left(Message, (i64, i64)),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Message {
    pub(crate) topic: String,
    pub(crate) payload: String,
    pub(crate) retain: bool,
    pub(crate) dup: bool,
}

/// The one place where a record ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// In the base window that starts there.
    Aggregated(i64),
    /// Its base window, which starts there, was final.
    Late(i64),
    Duplicate,
    Quarantined(&'static str),
    Valueless,
    RetainedIgnored,
}

/// One metric of a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Metric {
    pub(crate) count: u32,
    pub(crate) sum: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) first: f64,
    pub(crate) last: f64,
}

/// A window of a device.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Content {
    pub(crate) samples: u32,
    pub(crate) stamped: u32,
    pub(crate) corrected: u32,
    pub(crate) first_at: i64,
    pub(crate) last_at: i64,
    pub(crate) metrics: [Metric; 2],
}

/// A window of a region: samples, stamped, corrected, devices reporting, and count, sum, min, max of each metric.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RegionContent {
    pub(crate) samples: u32,
    pub(crate) stamped: u32,
    pub(crate) corrected: u32,
    pub(crate) reporting: u32,
    pub(crate) metrics: [(u32, f64, f64, f64); 2],
}

/// A window as it is told, with immediate revisions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Firing {
    pub(crate) window: &'static str,
    pub(crate) start: i64,
    pub(crate) revision: u32,
    pub(crate) cause: &'static str,
    /// `None`: the end of the input.
    pub(crate) watermark: Option<i64>,
    pub(crate) content: Content,
}

/// A record in the ledger.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) step: usize,
    pub(crate) key: Key,
    pub(crate) place: Place,
    /// As received.
    pub(crate) content: String,
    /// Event time; `None` where it has none.
    pub(crate) at: Option<i64>,
    pub(crate) stamped: bool,
    /// What was added to its device time.
    pub(crate) corrected: Option<i64>,
    /// The event time counts as seen: it is the device's own.
    seen: bool,
    /// It ends idleness.
    wakes: bool,
    /// What it raises the watermark to, and why.
    raises: Option<(i64, &'static str)>,
    values: [Option<f64>; 2],
    timed: bool,
}

/// The watermark of a region after a step: what the devices give now, and the highest that they ever gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) now: i64,
    pub(crate) ever: i64,
}

/// Where the books and the watermarks stand after a step.
#[derive(Clone, Debug, Default)]
pub(crate) struct After {
    /// Records in the ledger.
    pub(crate) entries: usize,
    pub(crate) malformed: u64,
    pub(crate) stamp: i64,
    pub(crate) duration: i64,
    pub(crate) watermarks: BTreeMap<Key, i64>,
    pub(crate) regions: BTreeMap<String, Bounds>,
}

/// A window of a device in the region's: which, and the stamp at which it was opened.
#[derive(Clone, Debug)]
pub(crate) struct Rollup {
    /// Everything of it.
    pub(crate) content: RegionContent,
    /// Some device opened its window when all others were past its lateness: the region may have been final.
    pub(crate) disputed: bool,
    /// The step in which the first record of it arrived, and the listened duration then.
    pub(crate) step: usize,
    pub(crate) opened: i64,
}

/// What the specification says.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) ledger: Vec<Entry>,
    pub(crate) after: Vec<After>,
    pub(crate) windows: BTreeMap<(Key, &'static str, i64), Content>,
    pub(crate) rollups: BTreeMap<(String, &'static str, i64), Rollup>,
    pub(crate) firings: BTreeMap<Key, Vec<Firing>>,
    /// What was told of each clock: an offset, or `None` where it was right again.
    pub(crate) clocks: BTreeMap<Key, Vec<Option<i64>>>,
}

/// What the specification says about `steps`, at the end of which everything fires.
pub(crate) fn answer(rules: &Rules, steps: &[Step]) -> Answer {
    let mut run = Run {
        rules,
        steps,
        answer: Answer::default(),
        used: Vec::new(),
        beats: BTreeMap::new(),
        disputed: BTreeSet::new(),
        heard: (0..steps.len())
            .map(|index| [false, true].map(|after| listened(steps, index, after)))
            .collect(),
    };
    let mut malformed = 0;
    let mut ever = BTreeMap::new();
    for (index, step) in steps.iter().enumerate() {
        let before = index.checked_sub(1).map_or(i64::MIN, |last| run.answer.after[last].stamp);
        let (stamp, duration) = run.listened(index, false);
        // While the clock is not good, the stamp stands still as in an outage.
        let stands = index > 0 && run.error(index - 1).is_some();
        run.apply_clock((before, stamp), stands, duration, &mut ever);
        match &step.what {
            What::Message(message) | What::Left(message, _) => {
                malformed += u64::from(!run.message(index, message, &ever));
                // Something retained may have given a silent device its first watermark.
                run.apply_clock((stamp, stamp), true, duration, &mut ever);
            }
            What::CaughtUp | What::Good => {
                let after = run.listened(index, true).0;
                run.apply_clock((stamp, after), true, duration, &mut ever);
            }
            What::Tick | What::Up | What::Down | What::Lost(_) => {}
        }
        let (stamp, duration) = run.listened(index, true);
        run.note_regions(stamp, duration, &mut ever);
        let after = run.after(stamp, duration, malformed, &ever);
        run.answer.after.push(after);
    }
    run.end();
    run.collect();
    for (key, beats) in &run.beats {
        run.answer.clocks.insert(key.clone(), clock::offsets(rules, beats).1);
    }
    run.answer
}

struct Run<'a> {
    rules: &'a Rules,
    steps: &'a [Step],
    answer: Answer,
    /// What was used: topic, device, content, raw time, and the step.
    used: Vec<(Identity, usize)>,
    /// What may tell of a device's clock.
    beats: BTreeMap<Key, Vec<Beat>>,
    disputed: BTreeSet<(String, &'static str, i64)>,
    /// Listened stamp and duration before and after what happens in each step.
    heard: Vec<[(i64, i64); 2]>,
}

type Identity = (String, String, String, Option<i64>);

/// An item of a payload.
struct Item {
    device: String,
    content: String,
    raw: Option<i64>,
    heartbeat: bool,
    values: [Option<f64>; 2],
}

/// Listened stamp and duration with the clock applied up to a step, before or after what happens in it.
fn listened(steps: &[Step], index: usize, after: bool) -> (i64, i64) {
    let (mut stamp, mut duration, mut since, mut good) = (i64::MIN, 0, None, true);
    for (number, step) in steps[..=index].iter().enumerate() {
        if let Some(from) = since {
            duration += step.at - from;
            stamp = if good { stamp.max(step.at) } else { stamp };
            since = Some(step.at);
        }
        if number == index && !after {
            break;
        }
        match &step.what {
            What::CaughtUp => since = Some(step.at),
            What::Up | What::Down => since = None,
            What::Lost(_) => good = false,
            What::Good => good = true,
            What::Message(_) | What::Left(..) | What::Tick => {}
        }
        if good && since.is_some() {
            stamp = stamp.max(step.at);
        }
    }
    (stamp, duration)
}

impl Run<'_> {
    /// The same, of this day.
    fn listened(&self, index: usize, after: bool) -> (i64, i64) {
        self.heard[index][usize::from(after)]
    }

    fn connection(&self, index: usize) -> usize {
        self.steps[..=index].iter().filter(|step| matches!(step.what, What::Up)).count()
    }

    fn keys(&self) -> BTreeSet<Key> {
        self.answer.ledger.iter().map(|entry| entry.key.clone()).collect()
    }

    fn of<'s>(&'s self, key: &'s Key) -> impl Iterator<Item = &'s Entry> {
        self.answer.ledger.iter().filter(move |entry| entry.key == *key)
    }

    fn is_timed(&self, key: &Key) -> Option<bool> {
        self.of(key).next().map(|entry| entry.timed)
    }

    fn lateness(&self, key: &Key) -> i64 {
        match self.is_timed(key) {
            Some(false) => 0,
            _ => self.rules.lateness[&key.0],
        }
    }

    /// The listened duration at which a device that sends nothing more is idle, by the first `entries` of its own.
    fn idle_from(&self, key: &Key, entries: usize) -> i64 {
        let mine: Vec<_> = self.of(key).take(entries).collect();
        let last =
            mine.iter().rev().find(|entry| entry.wakes).or(mine.first()).expect("it is known");
        self.listened(last.step, false).1 + self.rules.idle_timeout
    }

    /// The watermark of a device (SPEC 3.1); `None` before the first.
    fn watermark(&self, key: &Key, stamp: i64, duration: i64) -> Option<i64> {
        let mine: Vec<_> = self.of(key).collect();
        let mut watermark = None;
        for (number, entry) in mine.iter().enumerate() {
            if watermark.is_some() && entry.wakes {
                let (stamp, duration) = self.listened(entry.step, false);
                watermark = watermark.max(self.by_clock(key, number, stamp, duration));
            }
            watermark = watermark.max(entry.raises.map(|(to, _)| to));
        }
        watermark?;
        watermark.max(self.by_clock(key, mine.len(), stamp, duration))
    }

    fn by_clock(&self, key: &Key, entries: usize, stamp: i64, duration: i64) -> Option<i64> {
        let idle = duration >= self.idle_from(key, entries);
        idle.then(|| stamp.saturating_sub(self.lateness(key) + 1))
    }

    /// The minimum over the devices of a region that have spoken and do not lag (SPEC 3.2).
    fn region_watermark(&self, region: &str, stamp: i64, duration: i64) -> Option<i64> {
        let all = self.watermarks(region, stamp, duration);
        let highest = *all.iter().max()?;
        all.into_iter().filter(|w| highest.saturating_sub(*w) <= self.rules.max_hold).min()
    }

    /// The watermark of the slowest.
    fn complete(&self, region: &str, stamp: i64, duration: i64) -> Option<i64> {
        self.watermarks(region, stamp, duration).into_iter().min()
    }

    fn watermarks(&self, region: &str, stamp: i64, duration: i64) -> Vec<i64> {
        let keys = self.keys();
        let mine = keys.iter().filter(|key| key.0 == region);
        mine.filter_map(|key| self.watermark(key, stamp, duration)).collect()
    }

    /// Silence and clock between two stamps: windows of idle devices close in the order of their moments.
    fn apply_clock(
        &mut self,
        (from, to): (i64, i64),
        leaps: bool,
        duration: i64,
        ever: &mut BTreeMap<String, (i64, i64)>,
    ) {
        for key in self.keys() {
            let (idle_from, lateness) = (self.idle_from(&key, usize::MAX), self.lateness(&key));
            if duration < idle_from || self.watermark(&key, to, duration).is_none() {
                continue;
            }
            // The stamp leaps after an outage, to which no duration belongs.
            let idle_at = if leaps { from } else { to.saturating_sub(duration - idle_from) };
            // What a region waits for may change when the device goes idle, and when it no longer lags.
            let own = |key: &Key| self.watermark(key, i64::MIN, i64::MIN);
            let highest = self.keys().iter().filter(|other| other.0 == key.0).filter_map(own).max();
            let back =
                highest.map_or(idle_at, |w| (w - self.rules.max_hold + lateness + 1).max(idle_at));
            for stamp in [idle_at.saturating_sub(1), idle_at, back.saturating_sub(1), back] {
                if stamp > from && stamp <= to {
                    let since = if leaps { 0 } else { to - stamp };
                    self.note_regions(stamp, duration - since, ever);
                }
            }
            for (window, start) in self.waiting(&key) {
                let closes = (start + window.size + lateness).max(idle_at).max(from);
                if closes <= to {
                    let own = self.watermark(&key, i64::MIN, i64::MIN).unwrap_or(i64::MIN);
                    let watermark = own.max(closes - lateness - 1);
                    self.fire(&key, window, start, "idle", Some(watermark));
                }
            }
        }
        self.note_regions(to, duration, ever);
    }

    fn note_regions(&self, stamp: i64, duration: i64, ever: &mut BTreeMap<String, (i64, i64)>) {
        let regions: BTreeSet<String> = self.keys().into_iter().map(|key| key.0).collect();
        for region in regions {
            let Some(watermark) = self.region_watermark(&region, stamp, duration) else { continue };
            let complete = self.complete(&region, stamp, duration).unwrap_or(i64::MIN);
            let known = ever.entry(region).or_insert((i64::MIN, i64::MIN));
            *known = (known.0.max(watermark), known.1.max(complete));
        }
    }

    fn after(
        &self,
        stamp: i64,
        duration: i64,
        malformed: u64,
        ever: &BTreeMap<String, (i64, i64)>,
    ) -> After {
        let keys = self.keys();
        let watermark = |key: &Key| Some((key.clone(), self.watermark(key, stamp, duration)?));
        let bounds = |(region, (ever, _)): (&String, &(i64, i64))| {
            let now = self.region_watermark(region, stamp, duration).unwrap_or(i64::MIN);
            (region.clone(), Bounds { now, ever: *ever })
        };
        After {
            entries: self.answer.ledger.len(),
            malformed,
            stamp,
            duration,
            watermarks: keys.iter().filter_map(watermark).collect(),
            regions: ever.iter().map(bounds).collect(),
        }
    }

    /// Windows of a device that hold something and were never told, by end, then in the order of the configuration.
    fn waiting(&self, key: &Key) -> Vec<(Window, i64)> {
        let mut waiting = BTreeSet::new();
        for entry in self.of(key) {
            let Place::Aggregated(_) = entry.place else { continue };
            for (number, window) in self.rules.windows().into_iter().enumerate() {
                let start = window.start(entry.at.expect("aggregated"));
                if self.told(key, window, start) == 0 {
                    waiting.insert((start + window.size, number, start));
                }
            }
        }
        waiting
            .into_iter()
            .map(|(_, number, start)| (self.rules.windows()[number], start))
            .collect()
    }

    fn told(&self, key: &Key, window: Window, start: i64) -> usize {
        let of = |firing: &&Firing| firing.window == window.name && firing.start == start;
        self.answer.firings.get(key).map_or(0, |firings| firings.iter().filter(of).count())
    }

    fn fire(
        &mut self,
        key: &Key,
        window: Window,
        start: i64,
        cause: &'static str,
        watermark: Option<i64>,
    ) {
        let content = self.content(key, window, start).expect("it holds something");
        let revision = u32::try_from(self.told(key, window, start)).expect("few");
        let firing = Firing { window: window.name, start, revision, cause, watermark, content };
        self.answer.firings.entry(key.clone()).or_default().push(firing);
    }

    /// What a window of a device holds.
    fn content(&self, key: &Key, window: Window, start: i64) -> Option<Content> {
        let inside = |entry: &&Entry| {
            matches!(entry.place, Place::Aggregated(_))
                && window.start(entry.at.expect("aggregated")) == start
        };
        let mine: Vec<_> = self.of(key).filter(inside).collect();
        let times = || mine.iter().filter_map(|entry| entry.at);
        Some(Content {
            samples: u32::try_from(mine.len()).ok()?,
            stamped: u32::try_from(mine.iter().filter(|entry| entry.stamped).count()).ok()?,
            corrected: u32::try_from(mine.iter().filter(|e| e.corrected.is_some()).count()).ok()?,
            first_at: times().min()?,
            last_at: times().max()?,
            metrics: [0, 1].map(|metric| {
                let values =
                    mine.iter().filter_map(|entry| Some((entry.at?, entry.values[metric]?)));
                metric_of(&values.collect::<Vec<_>>())
            }),
        })
    }

    /// Takes a message; `false` when nothing of it can be read.
    fn message(
        &mut self,
        index: usize,
        message: &Message,
        ever: &BTreeMap<String, (i64, i64)>,
    ) -> bool {
        let Some(items) = items(&message.payload) else { return false };
        let (stamp, duration) = self.listened(index, false);
        let levels: Vec<&str> = message.topic.split('/').collect();
        let (timed, region) = (levels[0] == "m", levels[1].to_owned());
        let before: BTreeMap<Key, Option<i64>> = self
            .keys()
            .into_iter()
            .map(|key| (key.clone(), self.watermark(&key, stamp, duration)))
            .collect();
        let known = self.answer.ledger.len();
        let mut admitted = Vec::new();
        for item in items {
            let key = (region.clone(), item.device.clone());
            let mine = self.is_timed(&key).unwrap_or(timed) == timed;
            let (heartbeat, raw) = (item.heartbeat, item.raw.filter(|_| timed));
            let entry = self.admit(index, message, &item, (key, timed), known);
            match entry.place {
                Place::Valueless => admitted.push((entry, mine, heartbeat, raw)),
                _ => self.answer.ledger.push(entry),
            }
        }
        let is_good = self.error(index).is_none();
        if !message.retain && !message.dup && is_good && self.is_caught_up(index) {
            let mut newest: BTreeMap<Key, i64> = BTreeMap::new();
            for (entry, mine, heartbeat, raw) in &admitted {
                if let Some(raw) = raw.filter(|_| *mine && *heartbeat) {
                    let known = newest.entry(entry.key.clone()).or_insert(raw);
                    *known = raw.max(*known);
                }
            }
            let (at, session) = (self.steps[index].at, self.session(index));
            for (key, raw) in newest.into_iter().filter(|_| self.rules.correct) {
                self.beats.entry(key).or_default().push(Beat { raw, at, session });
            }
        }
        let mut passed = Vec::new();
        for (mut entry, mine, heartbeat, raw) in admitted {
            self.judge(&mut entry, (message.retain, heartbeat), mine, raw);
            if entry.at.is_some() { passed.push(entry) } else { self.answer.ledger.push(entry) }
        }
        passed.sort_by_key(|entry| entry.at);
        let mut raised = BTreeMap::new();
        for mut entry in passed {
            let key = entry.key.clone();
            let watermark = before.get(&key).copied().flatten();
            self.place(&mut entry, watermark);
            self.raise(&mut entry);
            let raise: &mut (i64, &str) = raised.entry(key).or_insert((i64::MIN, ""));
            if let Some(to) = entry.raises.filter(|(to, _)| *to > raise.0) {
                *raise = to;
            }
            let is_new = matches!(entry.place, Place::Aggregated(_));
            self.answer.ledger.push(entry);
            if is_new {
                self.revise(watermark);
                self.dispute(ever);
            }
        }
        for (key, (to, cause)) in raised {
            let by_clock = before.get(&key).copied().flatten();
            for (window, start) in self.waiting(&key) {
                if start + window.size - 1 <= to && by_clock.is_none_or(|w| to > w) {
                    self.fire(&key, window, start, cause, Some(to));
                }
            }
        }
        true
    }

    /// Retained, duplicate (SPEC 11). What passes is valueless so far.
    fn admit(
        &mut self,
        index: usize,
        message: &Message,
        item: &Item,
        (key, timed): (Key, bool),
        known: usize,
    ) -> Entry {
        let raw = item.raw.filter(|_| timed);
        let usable = raw.filter(|raw| *raw >= self.rules.not_before);
        let mut entry = Entry {
            step: index,
            key,
            place: Place::RetainedIgnored,
            content: item.content.clone(),
            at: None,
            stamped: timed && usable.is_none(),
            corrected: None,
            seen: !timed || usable.is_some(),
            wakes: false,
            raises: None,
            values: item.values,
            timed,
        };
        let seen = self.answer.ledger[..known]
            .iter()
            .filter(|e| e.key == entry.key && e.seen && e.wakes_or_used());
        let newest = seen.filter_map(|e| e.at).max();
        let has_value = item.values.iter().any(Option::is_some);
        let corrects = self.error(index).is_none();
        let corrected = |raw| self.corrected(&entry.key, raw, self.steps[index].at).0;
        let time = usable.map(|raw| if corrects { corrected(raw) } else { raw });
        if message.retain && !(time.is_some() && time > newest && has_value) {
            return entry;
        }
        entry.place = Place::Duplicate;
        let identity = (message.topic.clone(), item.device.clone(), item.content.clone(), raw);
        if self.is_duplicate(index, message.dup, &identity) {
            return entry;
        }
        self.used.push((identity, index));
        entry.place = Place::Valueless;
        entry
    }

    /// Time. What passes has an event time.
    fn judge(
        &self,
        entry: &mut Entry,
        (retain, heartbeat): (bool, bool),
        mine: bool,
        raw: Option<i64>,
    ) {
        let error = self.error(entry.step);
        let arrival = self.steps[entry.step].at + error.unwrap_or(0);
        let between = match &self.steps[entry.step].what {
            What::Left(_, between) => Some(*between),
            _ => None,
        };
        let usable = raw.filter(|raw| *raw >= self.rules.not_before);
        let held_against = usable.is_some() && error.is_none(); // what is not good refuses nothing
        let (time, corrected) = match usable {
            Some(raw) if held_against => self.corrected(&entry.key, raw, arrival),
            Some(raw) => (raw, None),
            None => (arrival, None),
        };
        let refuse = |reason| Place::Quarantined(reason);
        if !mine {
            entry.place = refuse("other-source");
        } else if raw.is_some_and(|raw| raw > CALENDAR) {
            entry.place = refuse("future");
        } else if let Some((from, to)) = between {
            match usable.filter(|time| (from..=to).contains(time)) {
                Some(time) => pass(entry, time, retain, heartbeat),
                None => entry.place = refuse("no-time"),
            }
        } else if held_against && time > arrival + self.rules.future_tolerance {
            entry.place = refuse("future");
        } else if held_against && time < arrival - self.rules.past_limit {
            entry.place = refuse("past");
        } else {
            entry.corrected = corrected;
            pass(entry, time, retain, heartbeat);
        }
    }

    /// A device time with the offset of its clock, as far as that can be, and the offset.
    fn corrected(&self, key: &Key, raw: i64, now: i64) -> (i64, Option<i64>) {
        let beats = self.beats.get(key).map_or(&[][..], |beats| beats);
        let tolerance = self.rules.future_tolerance;
        match clock::offsets(self.rules, beats).0.last().copied().flatten() {
            Some(offset) if raw.saturating_add(offset) <= now + tolerance.max(2_000) => {
                (raw.saturating_add(offset).min(now + tolerance), Some(offset))
            }
            _ => (raw, None),
        }
    }

    /// How often the connection changed up to a step.
    fn session(&self, index: usize) -> usize {
        let turns = |step: &&Step| matches!(step.what, What::Up | What::Down);
        self.steps[..=index].iter().filter(turns).count()
    }

    fn is_caught_up(&self, index: usize) -> bool {
        let mut turns = self.steps[..=index].iter().rev().map(|step| &step.what);
        matches!(
            turns.find(|what| matches!(what, What::Up | What::Down | What::CaughtUp)),
            Some(What::CaughtUp)
        )
    }

    /// How far the clock is from the true time at a step, while it is not good.
    fn error(&self, index: usize) -> Option<i64> {
        let last = self.steps[..=index].iter().rev().find_map(|step| match step.what {
            What::Lost(error) => Some(Some(error)),
            What::Good => Some(None),
            _ => None,
        });
        last.flatten()
    }

    /// With a device time: whatever was used before. Without: one redelivery on this connection for each delivery on
    /// those before.
    fn is_duplicate(&self, index: usize, dup: bool, identity: &Identity) -> bool {
        let before = |(used, _): &&(Identity, usize)| used == identity;
        if identity.3.is_some() {
            return self.used.iter().any(|used| before(&used));
        }
        let here = self.connection(index);
        let earlier = self
            .used
            .iter()
            .filter(before)
            .filter(|(_, step)| self.connection(*step) < here)
            .count();
        let taken = self.answer.ledger.iter().filter(|entry| {
            entry.place == Place::Duplicate
                && (entry.key.1 == identity.1 && entry.content == identity.2)
                && self.topic(entry.step) == identity.0
                && self.connection(entry.step) == here
        });
        dup && taken.count() < earlier
    }

    fn topic(&self, step: usize) -> &str {
        match &self.steps[step].what {
            What::Message(message) | What::Left(message, _) => &message.topic,
            _ => "",
        }
    }

    fn place(&self, entry: &mut Entry, watermark: Option<i64>) {
        if entry.values.iter().all(Option::is_none) {
            return;
        }
        let start = self.rules.base.start(entry.at.expect("it passed"));
        let is_final = start + self.rules.base.size - 1 + self.rules.allowed(&entry.key.1);
        let late = watermark.is_some_and(|w| is_final <= w);
        entry.place = if late { Place::Late(start) } else { Place::Aggregated(start) };
    }

    fn raise(&self, entry: &mut Entry) {
        let Some((_, cause)) = entry.raises else { return };
        let at = entry.at.expect("it passed");
        let seen = self.of(&entry.key).filter(|e| e.seen).filter_map(|e| e.at).max();
        let highest = seen.map_or(at, |seen| seen.max(at));
        let lateness = if entry.timed { self.rules.lateness[&entry.key.0] } else { 0 };
        entry.raises = match cause {
            "heartbeat" => Some((highest, cause)),
            _ => Some((highest - lateness - 1, cause)),
        };
    }

    /// The last record of the ledger went into a window that may have been told.
    fn revise(&mut self, watermark: Option<i64>) {
        let entry = self.answer.ledger.last().expect("just added").clone();
        let mut windows: Vec<_> = self
            .rules
            .windows()
            .into_iter()
            .map(|window| (window, window.start(entry.at.expect("aggregated"))))
            .collect();
        windows.sort_by_key(|(window, start)| start + window.size);
        for (window, start) in windows {
            if watermark.is_some_and(|w| start + window.size - 1 <= w) {
                self.fire(&entry.key, window, start, "element", watermark);
            }
        }
    }

    /// Whether the last record of the ledger opened a window of a device that its region is done with.
    fn dispute(&mut self, ever: &BTreeMap<String, (i64, i64)>) {
        let entry = self.answer.ledger.last().expect("just added").clone();
        let Some((_, complete)) = ever.get(&entry.key.0) else { return };
        for window in self.rules.windows() {
            let start = window.start(entry.at.expect("aggregated"));
            // Shortest lateness: the region's is that of the devices that it knows so far.
            let lateness = self.rules.allowed_lateness.min(self.rules.allowed_lateness_z);
            if start + window.size - 1 + lateness <= *complete {
                self.disputed.insert((entry.key.0.clone(), window.name, start));
            }
        }
    }

    fn end(&mut self) {
        for key in self.keys() {
            for (window, start) in self.waiting(&key) {
                self.fire(&key, window, start, "end", None);
            }
        }
    }

    fn collect(&mut self) {
        for entry in self.answer.ledger.clone() {
            let Place::Aggregated(_) = entry.place else { continue };
            for window in self.rules.windows() {
                let start = window.start(entry.at.expect("aggregated"));
                let content = self.content(&entry.key, window, start).expect("it holds something");
                self.answer.windows.insert((entry.key.clone(), window.name, start), content);
                let key = (entry.key.0.clone(), window.name, start);
                let rollup = Rollup {
                    content: self.rollup(&entry.key.0, window, start),
                    disputed: self.disputed.contains(&key),
                    step: entry.step,
                    opened: self.listened(entry.step, true).1,
                };
                self.answer.rollups.entry(key).or_insert(rollup);
            }
        }
    }

    fn rollup(&self, region: &str, window: Window, start: i64) -> RegionContent {
        let keys = self.keys();
        let mine = keys.iter().filter(|key| key.0 == region);
        let parts: Vec<Content> = mine.filter_map(|key| self.content(key, window, start)).collect();
        RegionContent {
            samples: parts.iter().map(|part| part.samples).sum(),
            stamped: parts.iter().map(|part| part.stamped).sum(),
            corrected: parts.iter().map(|part| part.corrected).sum(),
            reporting: u32::try_from(parts.len()).expect("few"),
            metrics: [0, 1].map(|metric| {
                let metrics: Vec<_> = parts
                    .iter()
                    .map(|part| &part.metrics[metric])
                    .filter(|m| m.count > 0)
                    .collect();
                (
                    metrics.iter().map(|m| m.count).sum(),
                    metrics.iter().map(|m| m.sum).sum(),
                    metrics.iter().map(|m| m.min).fold(f64::INFINITY, f64::min),
                    metrics.iter().map(|m| m.max).fold(f64::NEG_INFINITY, f64::max),
                )
            }),
        }
    }
}

impl Entry {
    fn wakes_or_used(&self) -> bool {
        self.at.is_some()
    }
}

/// Values in the order of their arrival.
fn metric_of(values: &[(i64, f64)]) -> Metric {
    let Some(lowest) = values.iter().map(|(at, _)| *at).min() else { return Metric::default() };
    let highest = values.iter().map(|(at, _)| *at).max().unwrap_or(lowest);
    let all = || values.iter().map(|(_, value)| *value);
    Metric {
        count: u32::try_from(values.len()).expect("few"),
        sum: all().sum(),
        min: all().fold(f64::INFINITY, f64::min),
        max: all().fold(f64::NEG_INFINITY, f64::max),
        first: values.iter().find(|(at, _)| *at == lowest).map_or(0.0, |(_, value)| *value),
        last: values.iter().rfind(|(at, _)| *at == highest).map_or(0.0, |(_, value)| *value),
    }
}

/// The items of a payload that name a device; `None` when nothing can be read, or nothing is there.
fn items(payload: &str) -> Option<Vec<Item>> {
    let parts: Vec<String> = if payload.trim_start().starts_with('[') {
        let parts: Vec<Box<RawValue>> = serde_json::from_str(payload).ok()?;
        parts.iter().map(|part| part.get().to_owned()).collect()
    } else {
        vec![payload.to_owned()]
    };
    let items: Vec<Item> = parts.into_iter().filter_map(item).collect();
    (!items.is_empty()).then_some(items)
}

fn item(content: String) -> Option<Item> {
    let value: Value = serde_json::from_str(&content).ok()?;
    let number = |field: &str| match &value[field] {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    Some(Item {
        device: value["dev"].as_str()?.to_owned(),
        raw: value["ts"].as_i64(),
        heartbeat: value["kind"] == "heartbeat",
        values: [number("v"), number("w")].map(|value| value.filter(|v| v.is_finite())),
        content,
    })
}

/// The last moment that the wire contract knows, 100 million days after the epoch.
const CALENDAR: i64 = 8_640_000_000_000_000;

/// An entry passes the guards at `at`.
fn pass(entry: &mut Entry, at: i64, retain: bool, heartbeat: bool) {
    entry.at = Some(at);
    entry.wakes = !retain;
    entry.place = Place::Valueless;
    let heartbeat = heartbeat && !retain && entry.seen;
    entry.raises = Some((0, if heartbeat { "heartbeat" } else { "bounded" }));
}
