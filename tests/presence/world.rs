//! A week of a fleet, known beforehand.

use fastrand::Rng;

pub const SECOND: i64 = 1_000;
pub const MINUTE: i64 = 60 * SECOND;
pub const HOUR: i64 = 60 * MINUTE;
pub const DAY: i64 = 24 * HOUR;
pub const START: i64 = 1_795_953_600_000;
pub const END: i64 = START + 7 * DAY;
const QUARTER: i64 = 15 * MINUTE;
const REGIONS: [&str; 2] = ["east", "west"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A report every quarter of an hour.
    Mains,
    /// One every day.
    Sleepy,
    /// A radio that is away for longer than it is allowed, again and again.
    Flapping,
    /// A clock that is hours ahead.
    Ahead,
    /// A clock that was never set.
    Unset,
    /// What it sends is always 40 minutes old.
    Delayed,
    /// It keeps what it cannot send, and sends it afterwards.
    Buffering,
    /// It leaves last wills, and some of its words are retained.
    Willed,
    /// It hangs on a hub, and that on a bridge; both leave last wills.
    Bridged,
}

pub struct Device {
    pub name: String,
    pub region: &'static str,
    pub class: Class,
    /// From its last report to its next.
    pub outages: Vec<(i64, i64)>,
}

pub struct Message {
    pub at: i64,
    pub device: usize,
    /// As the device wrote it.
    pub ts: i64,
    pub retain: bool,
    /// It is no reading and says that its device is there, or gone.
    pub word: Option<bool>,
    /// The word is not of the device but of all that hang on this.
    pub parent: Option<Parent>,
}

/// What devices hang on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parent {
    /// One for each region.
    Hub(&'static str),
    /// That of the whole source.
    Bridge,
}

impl Parent {
    pub fn has(self, device: &Device) -> bool {
        let is_behind = |region: &str| region == device.region;
        device.class == Class::Bridged && !matches!(self, Self::Hub(region) if !is_behind(region))
    }
}

/// A time in which the gateway heard nothing.
pub struct Gap {
    pub start: i64,
    pub end: i64,
    pub caught_up: i64,
    /// The agent was; else the broker was away.
    pub stopped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    Down,
    Restart,
    Up,
    Message(usize),
    CaughtUp,
    Tick,
}

pub struct Step {
    pub at: i64,
    pub what: What,
}

/// The gaps, as lengths of listening.
pub struct Listened(Vec<(i64, i64)>);

impl Listened {
    /// Everything that the broker had is processed.
    pub fn is_caught_up(&self, at: i64) -> bool {
        !self.0.iter().any(|(from, to)| (*from..=*to).contains(&at))
    }

    /// How often was listened anew.
    pub fn session(&self, at: i64) -> usize {
        self.0.iter().filter(|(_, to)| *to < at).count()
    }

    /// How long was listened up to `at`, since the start.
    pub fn at(&self, at: i64) -> i64 {
        let deaf: i64 = self.0.iter().map(|(from, to)| (at.min(*to) - from).max(0)).sum();
        at - START - deaf
    }

    /// The first moment at which so much was listened.
    pub fn when(&self, listened: i64) -> i64 {
        let mut at = START + listened;
        for (from, to) in &self.0 {
            if at > *from {
                at += to - from;
            }
        }
        at
    }
}

pub struct World {
    pub devices: Vec<Device>,
    pub messages: Vec<Message>,
    pub gaps: Vec<Gap>,
    pub listened: Listened,
    pub steps: Vec<Step>,
}

impl World {
    pub fn new(seed: u64, devices: usize) -> Self {
        let mut rng = Rng::with_seed(seed);
        let gaps = gaps(&mut rng);
        let mut messages = Vec::new();
        let devices: Vec<_> = (0..devices)
            .map(|number| {
                let class = class(number);
                let outages = outages(&mut rng, class);
                let name = format!("{class:?}-{number}").to_lowercase();
                let behind = class == Class::Bridged;
                let region = if behind { REGIONS[number / 20 % REGIONS.len()] } else { "r" };
                let mut device = Device { name, region, class, outages: Vec::new() };
                live(&mut rng, number, &mut device, &outages, &mut messages);
                device
            })
            .collect();
        parents(&mut rng, &mut messages);
        messages.sort_by_key(|message: &Message| message.at);
        messages.retain(|message| message.at < END);
        hold_back(&mut rng, &gaps, &mut messages);
        messages.sort_by_key(|message: &Message| message.at);
        let listened = Listened(gaps.iter().map(|gap| (gap.start, gap.caught_up)).collect());
        let steps = steps(&gaps, &messages);
        Self { devices, messages, gaps, listened, steps }
    }
}

impl World {
    /// When what was sent at this time is heard at the latest, to the minute.
    pub fn heard(&self, sent: i64) -> i64 {
        let gap = self.gaps.iter().find(|gap| (gap.start..=gap.end).contains(&sent));
        gap.map_or(sent, |gap| gap.end)
    }
}

fn class(number: usize) -> Class {
    match number % 20 {
        0..=7 => Class::Mains,
        8 | 9 => Class::Willed,
        10..=12 => Class::Sleepy,
        13 | 14 => Class::Flapping,
        15 => Class::Ahead,
        16 => Class::Unset,
        17 => Class::Delayed,
        18 => Class::Bridged,
        _ => Class::Buffering,
    }
}

/// Alternating, hours apart: what a device sends late is from before one of them at most.
fn gaps(rng: &mut Rng) -> Vec<Gap> {
    let mut gaps = Vec::new();
    let mut start = START + rng.i64(2 * HOUR..10 * HOUR);
    while start < END - 6 * HOUR {
        let length = [3 * MINUTE, 40 * MINUTE, 2 * HOUR, 3 * HOUR][rng.usize(..4)];
        let end = start + length + rng.i64(0..MINUTE);
        let stopped = rng.bool();
        gaps.push(Gap { start, end, caught_up: end + rng.i64(5..60) * SECOND, stopped });
        start = end + rng.i64(8 * HOUR..30 * HOUR);
    }
    gaps
}

/// When a device sends nothing.
fn outages(rng: &mut Rng, class: Class) -> Vec<(i64, i64)> {
    let mut all = Vec::new();
    if class == Class::Flapping {
        let mut at = START + rng.i64(HOUR..4 * DAY);
        for _ in 0..rng.usize(3..12) {
            let length = rng.i64(9..17) * MINUTE;
            all.push((at, at + length));
            at += length + rng.i64(1..22) * MINUTE;
        }
        return all;
    }
    let mut at = START + rng.i64(HOUR..2 * DAY);
    while at < END {
        let length = match class {
            Class::Sleepy => rng.i64(DAY..3 * DAY),
            _ => [20 * MINUTE, HOUR, 5 * HOUR, 30 * HOUR][rng.usize(..4)] + rng.i64(0..HOUR),
        };
        all.push((at, at + length));
        at += length + rng.i64(HOUR..4 * DAY);
    }
    all
}

fn live(
    rng: &mut Rng,
    number: usize,
    device: &mut Device,
    outages: &[(i64, i64)],
    messages: &mut Vec<Message>,
) {
    let interval = match device.class {
        Class::Sleepy => DAY,
        Class::Flapping => 5 * MINUTE,
        _ => QUARTER,
    };
    let mut time = START + rng.i64(0..interval);
    let (mut last, mut kept) = (None, Vec::new());
    while time < END {
        let is_out = outages.iter().any(|(from, to)| (from..to).contains(&&time));
        if is_out {
            if let Some(at) = last.filter(|_| kept.is_empty() && device.class == Class::Willed) {
                messages.push(word(number, at + rng.i64(30..200) * SECOND, false, false));
            }
            kept.push(time);
        } else {
            let first = messages.len();
            let at = time + rng.i64(0..3 * SECOND);
            if device.class == Class::Buffering {
                let kept = kept.drain(..).enumerate();
                messages.extend(
                    kept.map(|(n, ts)| reading(number, at - 500 + i64::try_from(n).unwrap(), ts)),
                );
            }
            let ts = stamp(device.class, time);
            messages.push(reading(number, at, ts));
            if rng.u8(..) < 3 {
                messages.push(reading(number, at + rng.i64(1..20) * SECOND, ts));
            }
            if rng.u8(..) < 2 {
                let kept = reading(number, at + 7 * MINUTE, ts + MINUTE);
                messages.push(Message { retain: true, ..kept });
            }
            if device.class == Class::Willed {
                words(rng, number, (time, at), messages);
            }
            kept.clear();
            note_outage(device, last, time, interval, messages[first].at);
            last = Some(at);
        }
        time += interval;
    }
    if let Some(last) = last.filter(|last| END - last > interval + MINUTE) {
        device.outages.push((last, END + DAY));
    }
}

fn word(device: usize, at: i64, online: bool, retain: bool) -> Message {
    Message { retain, word: Some(online), ..reading(device, at, at) }
}

fn reading(device: usize, at: i64, ts: i64) -> Message {
    Message { at, device, ts, retain: false, word: None, parent: None }
}

/// Hubs and the bridge go and come, and some of their words are retained and heard again.
fn parents(rng: &mut Rng, messages: &mut Vec<Message>) {
    let hubs = REGIONS.iter().map(|region| Parent::Hub(region));
    for parent in hubs.chain([Parent::Bridge]) {
        let mut at = START + rng.i64(HOUR..12 * HOUR);
        while at < END {
            let retain = rng.u8(..) < 64;
            messages.push(Message { parent: Some(parent), ..word(usize::MAX, at, false, retain) });
            let back = at + rng.i64(SECOND..2 * HOUR);
            messages.push(Message { parent: Some(parent), ..word(usize::MAX, back, true, false) });
            at = back + rng.i64(HOUR..12 * HOUR);
        }
    }
}

/// Now and then it connects anew, and its will races what it sends; or a word of it is retained and heard again. Not more
/// than once in an hour.
fn words(rng: &mut Rng, device: usize, (time, at): (i64, i64), messages: &mut Vec<Message>) {
    if (time - START) / QUARTER % 4 != 0 {
        return;
    }
    match rng.u8(..20) {
        0 => {
            messages.push(word(device, at + rng.i64(1..20 * SECOND), false, false));
            let (at, ts) = (at + rng.i64(1..70 * SECOND), time + rng.i64(1..500));
            messages.push(reading(device, at, ts));
        }
        1 => messages.push(word(device, at + rng.i64(1..14 * MINUTE), false, true)),
        2 => messages.push(word(device, at + rng.i64(1..14 * MINUTE), true, true)),
        3 => messages.push(word(device, at + rng.i64(1..14 * MINUTE), true, false)),
        _ => {}
    }
}

/// A pause that is longer than usual.
fn note_outage(device: &mut Device, last: Option<i64>, time: i64, interval: i64, back: i64) {
    if let Some(last) = last.filter(|last| time - last > interval + MINUTE) {
        device.outages.push((last, back));
    }
}

fn stamp(class: Class, time: i64) -> i64 {
    match class {
        Class::Ahead => time + 5 * HOUR,
        Class::Unset => time - START + 1,
        Class::Delayed => time - 40 * MINUTE,
        _ => time,
    }
}

/// While the agent is stopped the broker keeps everything; while the broker is away devices keep the last, and connect
/// again within a minute.
fn hold_back(rng: &mut Rng, gaps: &[Gap], messages: &mut Vec<Message>) {
    for gap in gaps {
        let from = messages.partition_point(|message| message.at < gap.start);
        let to = messages.partition_point(|message| message.at < gap.end);
        if gap.stopped {
            let count = i64::try_from(to - from).unwrap().max(1);
            for (number, message) in messages[from..to].iter_mut().enumerate() {
                message.at = gap.end + 1 + 4 * SECOND * i64::try_from(number).unwrap() / count;
            }
        } else {
            let mut held: Vec<Message> = messages.drain(from..to).collect();
            held.retain(|message| !message.retain && message.word.is_none());
            held.reverse();
            let mut seen = std::collections::BTreeSet::new();
            held.retain(|message| seen.insert(message.device));
            for message in &mut held {
                message.at = gap.end + 1 + rng.i64(0..50 * SECOND);
            }
            messages.extend(held);
        }
        messages.sort_by_key(|message| message.at);
    }
}

fn steps(gaps: &[Gap], messages: &[Message]) -> Vec<Step> {
    let mut steps: Vec<Step> = messages
        .iter()
        .enumerate()
        .map(|(index, message)| Step { at: message.at, what: What::Message(index) })
        .collect();
    for gap in gaps {
        let ends = if gap.stopped { What::Restart } else { What::Up };
        // The agent ends as it lived: what was due is done, and committed with its end.
        let begins = if gap.stopped { What::Tick } else { What::Down };
        steps.push(Step { at: gap.start, what: begins });
        steps.push(Step { at: gap.end, what: ends });
        steps.push(Step { at: gap.caught_up, what: What::CaughtUp });
    }
    let runs = |at: &i64| !gaps.iter().any(|gap| gap.stopped && gap.start <= *at && *at <= gap.end);
    let ticks = (0..=(END - START) / MINUTE).map(|minute| START + minute * MINUTE).filter(runs);
    steps.extend(ticks.map(|at| Step { at, what: What::Tick }));
    steps.sort_by_key(|step| (step.at, step.what));
    steps
}
