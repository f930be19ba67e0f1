//! The product: event time, windows, roll-ups, counts. Synchronous, deterministic, without I/O.
//!
//! The engine reads no clock, no file, no socket and no random source: the same inputs give the same outputs, live, in
//! a replay and in a simulation. [`Engine::handle`] reads like the pipeline:
//!
//! ```text
//! clock up to the arrival → decode → per item: retained, duplicate, time, value, late → windows → watermarks
//! ```

pub mod aggregate;
pub mod books;
pub mod checkpoint;
pub mod codec;
pub mod context;
pub mod coverage;
pub mod deadline;
pub mod dedup;
pub mod device;
pub mod effect;
pub mod emission;
pub mod input;
pub mod listen;
pub mod minimum;
pub mod pane;
pub mod partition;
pub mod progress;
pub mod region;
pub mod restore;
pub mod settings;
pub mod side_output;
pub mod snapshot;
pub mod validity;
pub mod watermark;
pub mod window;

use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher as _;
use std::sync::Arc;

use hashbrown::HashTable;

use crate::engine::books::Books;
use crate::engine::context::Context;
use crate::engine::deadline::{Deadlines, Silence};
use crate::engine::dedup::{Dedup, Recogniser};
use crate::engine::device::{Activity, Added, Device, Record};
use crate::engine::effect::Effects;
use crate::engine::input::{Ingress, Input, Publish, Topic};
use crate::engine::listen::Listening;
use crate::engine::partition::{Partition, Partitions};
use crate::engine::region::Region;
use crate::engine::settings::{Aggregates, ClockRules, Combine, Policy, Scope, Settings};
use crate::engine::side_output::{Origin, RateLimit, refused};
use crate::engine::validity::{Verdict, judge};
use crate::engine::watermark::{Generator, bounded};
use crate::event::{Cause, LateRecord, Output, Reason};
use crate::ids::{DeviceId, Generation, RegionId};
use crate::time::{ArrivalTime, ClockQuality, EventTime, MonoTime, Now, Span};
use crate::wire::decode::{Decoded, Item, Scratch, Stamp};

pub use crate::engine::deadline::DeadlineReason;

/// A hash map without randomness, so that two runs are the same run. Never iterated.
type FixedMap<K, V> = HashMap<K, V, foldhash::fast::FixedState>;

/// The engine. See the module for its rules.
#[derive(Debug)]
pub struct Engine {
    settings: Settings,
    region_aggregates: Vec<Aggregates>,
    generation: Generation,
    created: ArrivalTime,
    clock: ClockQuality,
    listening: Listening,
    deadlines: Deadlines,
    recogniser: Recogniser,
    dedup: Dedup,
    /// Content without a device time up to here is in the store.
    committed: u64,
    devices: Vec<Device>,
    /// Those in use, each once.
    policies: Vec<Arc<Policy>>,
    /// Indices of devices, by the hash of region and name; the names themselves stand in the devices.
    by_name: HashTable<usize>,
    regions: Vec<Region>,
    region_by_name: FixedMap<Box<str>, usize>,
    partitions: Partitions,
    /// Region scope: devices by the combined watermark at which they are to be looked at.
    timeline: BTreeSet<(EventTime, usize)>,
    gateway_published: EventTime,
    /// When watermarks are next published.
    publish_at: Option<ArrivalTime>,
    malformed: Vec<RateLimit>,
    books: Books,
    stored_books: Books,
    /// Devices that differ from what the store has.
    dirty: Vec<usize>,
    /// Keys of the store that go with the next checkpoint.
    obsolete: Vec<Vec<u8>>,
    layout_is_new: bool,
    scratch: Scratch,
    judged: Vec<Judged>,
    touched: Vec<usize>,
}

/// An item that passed the guards.
#[derive(Clone, Copy, Debug)]
struct Judged {
    item: usize,
    device: usize,
    at: EventTime,
    /// The event time is the device's own, or its source's by design.
    seen: bool,
    heartbeat: bool,
    valued: bool,
}

/// A message in hand.
#[derive(Clone, Copy)]
struct Message<'a> {
    source: usize,
    topic: &'a str,
    publish: Publish<'a>,
    arrival: Option<ArrivalTime>,
}

impl Engine {
    /// A new engine: the beginning of a generation, at `created` of the gateway's clock.
    pub fn new(settings: Settings, generation: Generation, created: ArrivalTime) -> Self {
        let mut engine = Self::without_regions(settings, generation, created);
        for region in engine.settings.regions.clone() {
            engine.region(region.as_str());
        }
        engine
    }

    fn without_regions(
        mut settings: Settings,
        generation: Generation,
        created: ArrivalTime,
    ) -> Self {
        let combine = match settings.scope {
            Scope::Region(combine) => combine,
            Scope::Device => Combine::Split,
        };
        let region_aggregates = region_aggregates(&settings);
        for metric in settings.sources.iter_mut().flat_map(|source| &mut source.metrics) {
            metric.kept = metric.aggregates.or(region_aggregates[metric.metric]);
        }
        Self {
            region_aggregates,
            generation,
            created,
            clock: ClockQuality::Unsynchronised,
            listening: Listening::default(),
            deadlines: Deadlines::default(),
            recogniser: Recogniser::new(generation),
            dedup: Dedup::new(settings.limits.max_remembered),
            committed: 0,
            devices: Vec::new(),
            policies: Vec::new(),
            by_name: HashTable::new(),
            regions: Vec::new(),
            region_by_name: FixedMap::default(),
            partitions: Partitions::new(combine),
            timeline: BTreeSet::new(),
            gateway_published: EventTime::MIN,
            publish_at: None,
            malformed: vec![RateLimit::default(); settings.sources.len()],
            books: Books::default(),
            stored_books: Books::default(),
            dirty: Vec::new(),
            obsolete: Vec::new(),
            layout_is_new: true,
            scratch: Scratch::default(),
            judged: Vec::new(),
            touched: Vec::new(),
            settings,
        }
    }

    /// Takes one input and says what is to be said.
    pub fn handle(&mut self, input: Input<'_>, now: Now, out: &mut Effects) {
        if self.has_clock() {
            self.apply_clock(now, out);
        }
        match input {
            Input::Publish(publish) => self.on_publish(publish, now, out),
            Input::Tick => {}
            Input::Ingress(change) => self.on_ingress(change, now, out),
            Input::Clock(quality) => self.clock = quality,
            Input::End => self.on_end(out),
        }
    }

    /// When the engine next wants a [`Input::Tick`], and why. `None`: not before something else happens.
    pub fn next_deadline(&self) -> Option<(MonoTime, DeadlineReason)> {
        self.deadlines.next(
            |duration| self.listening.when_duration(duration),
            |stamp| self.listening.when_stamp(stamp),
        )
    }

    /// The books.
    pub fn books(&self) -> &Books {
        &self.books
    }

    /// What the engine was told.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The life of the store that this engine continues.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Devices known.
    pub fn device_count(&self) -> usize {
        self.devices.len()
    }

    /// Devices that the next checkpoint writes.
    pub fn changed_devices(&self) -> usize {
        self.dirty.len()
    }

    /// A region's watermark; `None` before the first.
    pub fn region_watermark(&self, region: &str) -> Option<EventTime> {
        let region = *self.region_by_name.get(region)?;
        Some(self.regions[region].watermark()).filter(|w| *w != EventTime::MIN)
    }

    /// A device's watermark with the clock applied; `None` before the first.
    pub fn device_watermark(&self, region: &str, device: &str) -> Option<EventTime> {
        let device = self.find_device(region, device)?;
        let watermark = self.devices[device].watermark(self.listening.stamp());
        Some(watermark).filter(|w| *w != EventTime::MIN)
    }

    fn has_clock(&self) -> bool {
        self.settings.clock == ClockRules::Applied
    }

    fn in_device_scope(&self) -> bool {
        self.settings.scope == Scope::Device
    }

    fn on_ingress(&mut self, change: Ingress, now: Now, out: &mut Effects) {
        match change {
            Ingress::Up => {
                self.listening.deaf();
                self.dedup.reconnected();
            }
            Ingress::CaughtUp => {
                self.listening.caught_up(now);
                self.start_publishing(now);
                self.apply_clock(now, out);
            }
            Ingress::Down => self.listening.deaf(),
            Ingress::AcksSettled { through } => self.dedup.settle(through.min(self.committed)),
        }
    }

    fn on_publish(&mut self, publish: Publish<'_>, now: Now, out: &mut Effects) {
        self.books.received += 1;
        let arrival = self.has_clock().then_some(now.wall);
        let mut scratch = std::mem::take(&mut self.scratch);
        let (decoded, message) = self.decode(publish, arrival, &mut scratch);
        match decoded {
            Decoded::Unmatched => self.books.unmatched += 1,
            Decoded::Ignored => self.books.ignored += 1,
            Decoded::Malformed(reason) => self.on_malformed(reason, message, out),
            Decoded::Items => {
                self.books.decoded += 1;
                self.on_items(message, &scratch, out);
            }
        }
        self.books.unreadable += u64::from(scratch.unreadable());
        self.scratch = scratch;
    }

    /// Finds the source of a message and reads it.
    fn decode<'a>(
        &self,
        publish: Publish<'a>,
        arrival: Option<ArrivalTime>,
        scratch: &mut Scratch,
    ) -> (Decoded, Message<'a>) {
        scratch.clear();
        let oversize = publish.payload.len() > self.settings.limits.max_payload;
        let read = |source: usize, topic: Option<&str>, scratch: &mut Scratch| {
            let profile = &self.settings.sources[source].profile;
            match oversize {
                true if topic.is_some_and(|topic| !profile.matches(topic)) => Decoded::Unmatched,
                true => Decoded::Malformed(Reason::Oversize),
                false => profile.decode(topic, publish.payload, scratch),
            }
        };
        let mut message = Message { source: 0, topic: "", publish, arrival };
        match publish.topic {
            Topic::Source(source) => {
                message.source = source;
                (read(source, None, scratch), message)
            }
            Topic::Name(topic) => {
                message.topic = topic;
                for source in 0..self.settings.sources.len() {
                    let decoded = read(source, Some(topic), scratch);
                    if decoded != Decoded::Unmatched {
                        message.source = source;
                        return (decoded, message);
                    }
                }
                (Decoded::Unmatched, message)
            }
        }
    }

    fn on_malformed(&mut self, reason: Reason, message: Message<'_>, out: &mut Effects) {
        match reason {
            Reason::Oversize => self.books.oversize += 1,
            _ => self.books.malformed += 1,
        }
        let per_hour = self.settings.limits.refused_per_hour;
        match self.malformed[message.source].admit(message.arrival, per_hour) {
            Some(withheld) => {
                let payload = message.publish.payload;
                let origin = self.origin(&message);
                let told = refused(reason, origin, None, None, payload, withheld);
                out.push(Output::Refused(told));
            }
            None => self.books.withheld += 1,
        }
    }

    fn origin<'a>(&'a self, message: &Message<'a>) -> Origin<'a> {
        let source = self.settings.sources[message.source].profile.source();
        Origin { source, topic: message.topic, arrival: message.arrival }
    }

    /// All records of one message are judged by the watermark before it, and added in event-time order, before any
    /// watermark that it raises (SPEC 3.1).
    fn on_items(&mut self, message: Message<'_>, scratch: &Scratch, out: &mut Effects) {
        let mut judged = std::mem::take(&mut self.judged);
        judged.clear();
        for index in 0..scratch.len() {
            self.books.records += 1;
            let item = scratch.item(index, message.publish.payload);
            judged.extend(self.judge(index, item, &message, out));
        }
        if judged.len() > 1 {
            judged.sort_by_key(|record| record.at);
        }
        for record in &judged {
            let item = scratch.item(record.item, message.publish.payload);
            self.add(record, item, &message, out);
        }
        for record in &judged {
            self.note_progress(record);
        }
        self.judged = judged;
        self.raise_touched(out);
    }

    /// Retained, duplicate, time, in this order (SPEC 11). `None`: it is in its column already.
    fn judge(
        &mut self,
        index: usize,
        item: Item<'_>,
        message: &Message<'_>,
        out: &mut Effects,
    ) -> Option<Judged> {
        if item.idle {
            self.books.valueless += 1;
            self.on_idle_marker(item.region, out);
            return None;
        }
        let Some(device) = self.device(message.source, item) else {
            self.books.no_room += 1;
            return None;
        };
        if message.publish.retain && !self.tells_news(device, item) {
            self.books.retained_ignored += 1;
            return None;
        }
        if self.settings.deduplicate && !self.is_new(item, message) {
            self.books.duplicate += 1;
            return None;
        }
        let mut verdict = judge(item.time, message.arrival, &self.devices[device].policy);
        if self.devices[device].source != message.source {
            verdict = Verdict::Quarantined(Reason::OtherSource);
        }
        let (at, seen) = match verdict {
            Verdict::Accepted(at) | Verdict::Arrival(at) => (at, true),
            Verdict::Stamped(at) => {
                self.books.stamped += 1;
                (at, false)
            }
            Verdict::Quarantined(reason) => {
                self.quarantine(reason, device, item, message, out);
                return None;
            }
        };
        if !message.publish.retain {
            self.hear(device, out);
        }
        let heartbeat = item.heartbeat && !message.publish.retain && seen;
        let valued = item.values.iter().any(Option::is_some);
        Some(Judged { item: index, device, at, seen, heartbeat, valued })
    }

    /// A retained message is history: a sample, if its own time is newer than anything seen of the device.
    fn tells_news(&self, device: usize, item: Item<'_>) -> bool {
        let newer = match item.time {
            Stamp::At(time) => time.accepted() > self.devices[device].generator.highest(),
            Stamp::Undeclared | Stamp::Unusable => false,
        };
        newer && item.values.iter().any(Option::is_some)
    }

    /// Whether a record was not seen before; remembers it.
    fn is_new(&mut self, item: Item<'_>, message: &Message<'_>) -> bool {
        let time = match item.time {
            Stamp::At(time) => Some(time),
            Stamp::Undeclared | Stamp::Unusable => None,
        };
        let fingerprint =
            self.recogniser.fingerprint(message.topic, item.device, item.content, time);
        if time.is_some() {
            return self.dedup.remember(fingerprint);
        }
        if message.publish.dup && self.dedup.is_redelivery(fingerprint) {
            return false;
        }
        self.dedup.remember_unsettled(fingerprint);
        true
    }

    fn quarantine(
        &mut self,
        reason: Reason,
        device: usize,
        item: Item<'_>,
        message: &Message<'_>,
        out: &mut Effects,
    ) {
        self.books.quarantined += 1;
        self.mark(device);
        let per_hour = self.settings.limits.refused_per_hour;
        let Some(withheld) = self.devices[device].refusals.admit(message.arrival, per_hour) else {
            self.books.withheld += 1;
            return;
        };
        let key = (self.devices[device].region_id.clone(), self.devices[device].id.clone());
        let time = match item.time {
            Stamp::At(time) => Some(time.0),
            Stamp::Undeclared | Stamp::Unusable => None,
        };
        let origin = self.origin(message);
        out.push(Output::Refused(refused(reason, origin, Some(key), time, item.content, withheld)));
    }

    /// Value, late: the record goes to its window, or to the late output.
    fn add(&mut self, record: &Judged, item: Item<'_>, message: &Message<'_>, out: &mut Effects) {
        if !record.valued {
            self.books.valueless += 1;
            return;
        }
        let w = self.closing_watermark(record.device);
        let (cx, device, region) = self.parts(record.device);
        let sample = Record { values: item.values, at: record.at, stamped: !record.seen };
        match device.add(&cx, w, sample, region, out) {
            Added::Aggregated => {
                self.books.aggregated += 1;
                self.mark(record.device);
                self.look_again_at(record.device);
            }
            Added::NoRoom => self.books.no_room += 1,
            Added::Late(start, end) => {
                self.books.late += 1;
                let late = self.late_record(record, (start, end), w, item, message);
                out.push(Output::Late(late));
            }
        }
    }

    fn late_record(
        &self,
        record: &Judged,
        (start, end): (EventTime, EventTime),
        watermark: EventTime,
        item: Item<'_>,
        message: &Message<'_>,
    ) -> LateRecord {
        let source = &self.settings.sources[message.source];
        let device = &self.devices[record.device];
        LateRecord {
            source: source.profile.source().clone(),
            region: device.region_id.clone(),
            device: device.id.clone(),
            time: record.at,
            window: self.settings.windows[source.base].name.clone(),
            start,
            end,
            watermark,
            arrival: message.arrival,
            content: item.content.to_vec(),
        }
    }

    /// What a record raises the watermark of its device (or partition) to.
    fn note_progress(&mut self, record: &Judged) {
        let device = &mut self.devices[record.device];
        let (generator, lateness) = if self.settings.scope == Scope::Device {
            if record.seen {
                device.generator.see(record.at);
            }
            (device.generator, device.policy.lateness)
        } else {
            let generator = if record.seen {
                *self.partitions.see(device.region, record.at)
            } else {
                self.partitions.get(device.region).generator
            };
            (generator, device.policy.lateness)
        };
        let trailing = bounded(record.at, lateness).max(generator.bounded(lateness));
        let (to, cause) = match record.heartbeat {
            true => (generator.punctuated(), Cause::Heartbeat),
            false if record.seen => (generator.bounded(lateness), Cause::Bounded),
            false => (trailing, Cause::Bounded),
        };
        match &mut device.raising {
            Some(raising) if to > raising.0 => *raising = (to, cause),
            Some(_) => {}
            None => {
                device.raising = Some((to, cause));
                self.touched.push(record.device);
            }
        }
        self.mark(record.device);
    }

    /// Registers a device to be looked at when its next window closes or its next revision is due.
    fn look_again_at(&mut self, device: usize) {
        if !self.in_device_scope() {
            self.register(device);
        }
        self.arm_device(device);
        self.arm_region(self.devices[device].region);
    }

    /// Notes that the store's copy of a device is out of date.
    fn mark(&mut self, device: usize) {
        if !std::mem::replace(&mut self.devices[device].dirty, true) {
            self.dirty.push(device);
        }
    }

    fn context(&self) -> Context<'_> {
        Context {
            settings: &self.settings,
            region_aggregates: &self.region_aggregates,
            clock: self.clock,
            created: self.created,
            stamp: self.listening.stamp(),
        }
    }

    /// The pieces that a step on one device needs, borrowed apart.
    fn parts(&mut self, device: usize) -> (Context<'_>, &mut Device, &mut Region) {
        let cx = Context {
            settings: &self.settings,
            region_aggregates: &self.region_aggregates,
            clock: self.clock,
            created: self.created,
            stamp: self.listening.stamp(),
        };
        let device = &mut self.devices[device];
        let region = &mut self.regions[device.region];
        (cx, device, region)
    }

    /// The device of an item, made where it is not known; `None` when there is no room for one more.
    fn device(&mut self, source: usize, item: Item<'_>) -> Option<usize> {
        if let Some(device) = self.find_device(item.region, item.device) {
            return Some(device);
        }
        if self.devices.len() >= self.settings.limits.max_devices {
            return None;
        }
        let region = self.region(item.region);
        let index = self.insert_device(source, region, item.device);
        self.watch(index);
        Some(index)
    }

    fn find_device(&self, region: &str, name: &str) -> Option<usize> {
        let is = |device: &usize| self.devices[*device].is_called(region, name);
        self.by_name.find(hash_of_names(region, name), is).copied()
    }

    /// The one copy of a policy.
    fn shared(&mut self, policy: Policy) -> Arc<Policy> {
        if let Some(known) = self.policies.iter().find(|known| ***known == policy) {
            return Arc::clone(known);
        }
        self.policies.push(Arc::new(policy));
        self.policies[self.policies.len() - 1].clone()
    }

    fn insert_device(&mut self, source: usize, region: usize, name: &str) -> usize {
        let index = self.devices.len();
        let region_id = self.regions[region].id.clone();
        let profile = &self.settings.sources[source].profile;
        let mut policy =
            self.settings.policies.resolve(region_id.as_str(), profile.source().as_str(), name);
        if !profile.declares_time() {
            policy.lateness = Span::ZERO; // processing time: nothing is ever out of order
        }
        let policy = self.shared(policy);
        let member = self.regions[region].join(index, policy.allowed_lateness);
        self.devices.push(Device {
            id: DeviceId::from(name),
            region_id,
            region,
            member,
            source,
            policy,
            generator: Generator::default(),
            heard: self.listening.duration(),
            activity: Activity::Active,
            panes: Vec::new(),
            next: EventTime::MAX,
            armed: None,
            registered: None,
            raising: None,
            refusals: RateLimit::default(),
            closed: Vec::new(),
            dirty: false,
            identity_is_stored: false,
        });
        let hash = |device: &Device| hash_of_names(device.region_id.as_str(), device.id.as_str());
        let devices = &self.devices;
        self.by_name.insert_unique(hash(&devices[index]), index, |at| hash(&devices[*at]));
        self.mark(index);
        index
    }

    /// Looks at a device when it has been silent for its idle timeout.
    fn watch(&mut self, index: usize) {
        let device = &self.devices[index];
        if self.has_clock() && self.in_device_scope() && device.activity == Activity::Active {
            let at = device.heard + device.policy.idle_timeout;
            self.deadlines.at_duration(at, Silence::Device(index));
        }
    }

    /// The region of that name, made where it is not known.
    fn region(&mut self, name: &str) -> usize {
        if let Some(region) = self.region_by_name.get(name) {
            return *region;
        }
        let index = self.regions.len();
        let policy = self.settings.policies.resolve_region(name);
        self.regions.push(Region::new(RegionId::from(name), policy.max_hold));
        self.region_by_name.insert(name.into(), index);
        self.partitions.add(Partition::default());
        index
    }
}

fn hash_of_names(region: &str, device: &str) -> u64 {
    foldhash::fast::FixedState::default().hash_one((region, device))
}

/// What a region tells of each metric: what any source asks for, without first and last.
fn region_aggregates(settings: &Settings) -> Vec<Aggregates> {
    let mut asked = vec![Aggregates::default(); settings.metrics.len()];
    for metric in settings.sources.iter().flat_map(|source| &source.metrics) {
        let told = Aggregates { first: false, last: false, ..metric.aggregates };
        asked[metric.metric] = asked[metric.metric].or(told);
    }
    asked
}
