//! The product: event time, windows, roll-ups, counts. Synchronous, deterministic, without I/O.
//!
//! The engine reads no clock, no file, no socket and no random source: the same inputs give the same outputs, live, in
//! a replay and in a simulation. [`Engine::handle`] reads like the pipeline:
//!
//! ```text
//! clock up to the arrival → decode → per item: retained, duplicate, time, value, late → windows → watermarks
//! ```

mod admission;
pub mod aggregate;
mod attendance;
pub mod books;
mod carry;
pub mod checkpoint;
mod clocks;
pub mod codec;
pub mod context;
pub mod correction;
pub mod coverage;
pub mod deadline;
pub mod dedup;
pub mod device;
mod directory;
pub mod effect;
pub mod emission;
pub mod fleet;
pub mod gate;
pub mod habit;
pub mod held;
pub mod input;
mod intake;
pub mod listen;
pub mod loss;
pub mod minimum;
pub mod overview;
pub mod pane;
pub mod partition;
pub mod presence;
pub mod progress;
mod publish;
pub mod recent;
mod records;
mod reference;
pub mod region;
pub mod restore;
mod rollup;
pub mod settings;
mod settle;
pub mod side_output;
pub mod snapshot;
pub mod uptime;
pub mod validity;
mod wake;
pub mod watermark;
pub mod window;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use hashbrown::HashTable;

use crate::engine::admission::Admitted;
use crate::engine::books::Books;
use crate::engine::context::Context;
use crate::engine::deadline::{Deadlines, SpanDeadline};
use crate::engine::dedup::{Dedup, Recogniser};
use crate::engine::device::{Activity, Device};
use crate::engine::effect::Effects;
use crate::engine::gate::Gate;
use crate::engine::input::{Ingress, Input};
use crate::engine::intake::Judged;
use crate::engine::listen::Listening;
use crate::engine::partition::Partitions;
use crate::engine::recent::Recent;
use crate::engine::region::Region;
use crate::engine::settings::{Aggregates, ClockRules, Combine, Policy, Scope, Settings};
use crate::engine::side_output::RateLimit;
use crate::event::{Cause, GapCause};
use crate::ids::Generation;
use crate::time::{ArrivalTime, ClockStatus, EventTime, MonoTime, Now, Span};
use crate::wire::decode::Scratch;

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
    clock: ClockStatus,
    /// The least lateness of anybody, by which the clock in holdover is judged.
    least_lateness: Span,
    gate: Gate,
    /// The broker has nothing more.
    caught_up: bool,
    listening: Listening,
    /// Counts the times in which the broker's messages are heard without a break: times of two are not compared.
    session: u32,
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
    /// Listened duration at which watermarks are next published.
    publish_at: Option<Span>,
    malformed: Vec<RateLimit>,
    books: Books,
    /// Topics of messages that no source claimed.
    unmatched: Recent,
    /// What was refused.
    refused: Recent,
    /// The gateway's record as the store has it.
    stored_gateway: Vec<u8>,
    /// Devices that differ from what the store has.
    dirty: Vec<usize>,
    /// Keys of the store that go with the next checkpoint.
    obsolete: Vec<Vec<u8>>,
    layout_is_new: bool,
    scratch: Scratch,
    admitted: Vec<Admitted>,
    judged: Vec<Judged>,
    touched: Vec<usize>,
    touched_regions: Vec<(usize, Cause)>,
}

impl Engine {
    /// A new engine: the beginning of a generation, at `created` of the gateway's clock.
    pub fn new(settings: Settings, generation: Generation, created: ArrivalTime) -> Self {
        let mut engine = Self::without_regions(settings, generation, created);
        for region in engine.settings.regions.clone() {
            engine.region(region.as_str());
        }
        engine.expect_devices();
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
            clock: ClockStatus::UNSYNCHRONISED,
            least_lateness: settings.policies.least_lateness(),
            gate: Gate::new(settings.gate),
            caught_up: false,
            listening: Listening::default(),
            session: 0,
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
            unmatched: Recent::default(),
            refused: Recent::default(),
            stored_gateway: Vec::new(),
            dirty: Vec::new(),
            obsolete: Vec::new(),
            layout_is_new: true,
            scratch: Scratch::default(),
            admitted: Vec::new(),
            judged: Vec::new(),
            touched: Vec::new(),
            touched_regions: Vec::new(),
            settings,
        }
    }

    /// Takes one input and says what is to be said.
    pub fn handle(&mut self, input: Input<'_>, now: Now, out: &mut Effects) {
        if self.has_clock() {
            // A clock that is no longer good may have been set with the news that it is not.
            let until = match input {
                Input::Clock(status) if !self.is_good(status) => self.listening.carried(now),
                _ => now,
            };
            self.apply_clock(until, out);
            self.wait_no_longer(now, out);
        }
        match input {
            Input::Publish(publish) => self.on_publish(publish, now, out),
            Input::Tick => {}
            Input::Ingress(change) => self.on_ingress(change, now, out),
            Input::Clock(status) => self.on_clock_status(status, now, out),
            Input::Boot(boot) => self.gate.set_boot(boot),
            Input::Held { key, value } => self.on_held(key, value, now, out),
            Input::HeldEnd => self.on_held_end(now, out),
            Input::Forget { region, device } => self.on_forget(region, device, now, out),
            Input::End => self.on_end(out),
        }
    }

    /// Up to this, everything that arrived has been processed; [`ArrivalTime::MIN`] before the first time.
    pub fn listened(&self) -> ArrivalTime {
        self.listening.stamp()
    }

    /// When the engine next wants a [`Input::Tick`], and why. `None`: not before something else happens.
    pub fn next_deadline(&self) -> Option<(MonoTime, DeadlineReason)> {
        let next = self.deadlines.next(
            |duration| self.listening.when_duration(duration),
            |stamp| self.listening.when_stamp(stamp),
        );
        let ends = self.gate.ends().filter(|_| self.has_clock());
        next.into_iter().chain(ends.map(|at| (at, DeadlineReason::Held))).min()
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
        let watermark = self.devices[device].watermark(self.stamp_of(self.devices[device].region));
        Some(watermark).filter(|w| *w != EventTime::MIN)
    }

    fn has_clock(&self) -> bool {
        self.settings.clock == ClockRules::Applied
    }

    fn in_device_scope(&self) -> bool {
        self.settings.scope == Scope::Device
    }

    fn on_ingress(&mut self, change: Ingress, now: Now, out: &mut Effects) {
        if matches!(change, Ingress::Up | Ingress::Down | Ingress::Absent) {
            self.session = self.session.wrapping_add(1);
        }
        match change {
            Ingress::Up => {
                self.fall_deaf(GapCause::BrokerAway);
                self.dedup.reconnected();
            }
            Ingress::CaughtUp => {
                self.caught_up = true;
                self.listen_again(now, out);
            }
            Ingress::Down => self.fall_deaf(GapCause::BrokerAway),
            Ingress::Absent => self.fall_deaf(GapCause::AgentStopped),
            Ingress::AcksSettled { through } => self.dedup.settle(through.min(self.committed)),
        }
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

    fn context(&self, region: usize) -> Context<'_> {
        Context {
            settings: &self.settings,
            region_aggregates: &self.region_aggregates,
            clock: self.clock.quality,
            created: self.created,
            stamp: self.stamp_of(region),
            duration: self.listening.duration(),
        }
    }

    /// The pieces that a step on one device needs, borrowed apart.
    fn parts(&mut self, device: usize) -> (Context<'_>, &mut Device, &mut Region) {
        let stamp = self.stamp_of(self.devices[device].region);
        let cx = Context {
            settings: &self.settings,
            region_aggregates: &self.region_aggregates,
            clock: self.clock.quality,
            created: self.created,
            stamp,
            duration: self.listening.duration(),
        };
        let device = &mut self.devices[device];
        let region = &mut self.regions[device.region];
        (cx, device, region)
    }

    /// Looks at a device when it has been silent for its idle timeout.
    fn watch(&mut self, index: usize) {
        let device = &self.devices[index];
        if self.has_clock() && self.in_device_scope() && device.activity == Activity::Active {
            let at = device.heard + device.policy.idle_timeout;
            self.deadlines.at_duration(at, SpanDeadline::Device(index));
        }
    }
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

#[cfg(test)]
mod tests;
