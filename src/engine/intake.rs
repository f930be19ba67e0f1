//! A message on its way in: decode → per item: retained, duplicate, time, value, late → windows → watermarks.

use crate::engine::Engine;
use crate::engine::admission::Admitted;
use crate::engine::correction::Corrected;
use crate::engine::device::{Added, Device, Record};
use crate::engine::effect::Effects;
use crate::engine::input::{Publish, Topic};
use crate::engine::settings::Scope;
use crate::engine::side_output::{self, refused};
use crate::engine::validity::{Basis, Verdict};
use crate::engine::watermark::bounded;
use crate::event::{Cause, LateRecord, Method, Moved, Output, Reason};
use crate::time::{ArrivalTime, EventTime, MonoTime, Now, Span};
use crate::wire::decode::{Decoded, Item, Scratch};

/// An item that passed the guards.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    item: usize,
    device: usize,
    at: EventTime,
    /// How the event time was made, where it is not the device's own, or its source's by design.
    moved: Option<Moved>,
    heartbeat: bool,
    valued: bool,
}

/// How a message comes to be processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// It has just come.
    Received,
    /// It was held, and it is its turn.
    Held,
    /// It was held, and there is no more room for it.
    Evicted,
}

/// A message in hand.
#[derive(Clone, Copy)]
pub(super) struct Message<'a> {
    pub(super) source: usize,
    pub(super) topic: &'a str,
    pub(super) publish: Publish<'a>,
    /// `None`: there is no clock, or it came in another boot.
    pub(super) arrival: Option<ArrivalTime>,
    /// The moment by which it is counted how much is told.
    pub(super) told_at: Option<ArrivalTime>,
    /// When it came; of another boot it means nothing.
    pub(super) mono: MonoTime,
    pub(super) origin: Origin,
    /// Of a held message, a bit for each item: it has no device time, and was a redelivery.
    pub(super) redelivered: &'a [u8],
}

impl Judged {
    /// Whether its time counts as seen: it is the device's, corrected or not, or its source's by design.
    fn seen(&self) -> bool {
        self.moved.is_none_or(|moved| moved.method != Method::Arrival)
    }
}

impl Message<'_> {
    pub(super) fn was_redelivered(&self, item: usize) -> bool {
        self.redelivered.get(item / 8).is_some_and(|bits| bits >> (item % 8) & 1 == 1)
    }
}

impl Engine {
    pub(super) fn on_publish(&mut self, publish: Publish<'_>, now: Now, out: &mut Effects) {
        self.books.received += 1;
        let arrival = self.has_clock().then_some(now.wall);
        let (origin, mono) = (Origin::Received, now.mono);
        let message = Message {
            source: 0,
            topic: if let Topic::Name(topic) = publish.topic { topic } else { "" },
            publish,
            arrival,
            told_at: arrival,
            mono,
            origin,
            redelivered: &[],
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        if let Some(status) = self.read_status(publish) {
            if status.online.is_some() && self.is_to_be_held(&message, &scratch) {
                self.hold(&message, &scratch);
            } else {
                self.on_status(&status, message, out);
            }
            self.scratch = scratch;
            return;
        }
        let (decoded, message) = self.decode(message, &mut scratch);
        if decoded == Decoded::Items && self.is_to_be_held(&message, &scratch) {
            self.hold(&message, &scratch);
        } else {
            self.process(decoded, message, &scratch, out);
        }
        self.scratch = scratch;
    }

    pub(super) fn process(
        &mut self,
        decoded: Decoded,
        message: Message<'_>,
        scratch: &Scratch,
        out: &mut Effects,
    ) {
        match decoded {
            Decoded::Unmatched => {
                self.books.unmatched += 1;
                self.unmatched.note(None, message.topic, message.arrival);
            }
            Decoded::Ignored => self.books.ignored += 1,
            Decoded::Malformed(reason) => self.on_malformed(reason, message, out),
            Decoded::Items => {
                self.books.decoded += 1;
                self.on_items(message, scratch, out);
            }
        }
        self.books.unreadable += u64::from(scratch.unreadable());
    }

    /// Finds the source of a message and reads it.
    pub(super) fn decode<'a>(
        &self,
        mut message: Message<'a>,
        scratch: &mut Scratch,
    ) -> (Decoded, Message<'a>) {
        scratch.clear();
        let publish = message.publish;
        let oversize = publish.payload.len() > self.settings.limits.max_payload;
        let read = |source: usize, topic: Option<&str>, scratch: &mut Scratch| {
            let profile = &self.settings.sources[source].profile;
            match oversize {
                true if topic.is_some_and(|topic| !profile.matches(topic)) => Decoded::Unmatched,
                true => Decoded::Malformed(Reason::Oversize),
                false => profile.decode(topic, publish.payload, scratch),
            }
        };
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
        self.books.refuse(reason);
        self.refused.note(Some(reason), message.topic, message.arrival);
        let per_hour = self.settings.limits.refused_per_hour;
        match self.malformed[message.source].admit(message.told_at, per_hour) {
            Some(withheld) => {
                let payload = message.publish.payload;
                let origin = self.origin(&message);
                let told = refused(reason, origin, None, (None, None), payload, withheld);
                out.push(Output::Refused(told));
            }
            None => self.books.withheld += 1,
        }
    }

    fn origin<'a>(&'a self, message: &Message<'a>) -> side_output::Origin<'a> {
        let source = self.settings.sources[message.source].profile.source();
        let Message { topic, arrival, .. } = *message;
        side_output::Origin { source, topic, arrival, clock: self.clock.quality }
    }

    /// All records of one message are judged by the watermark before it, and added in event-time order, before any
    /// watermark that it raises (SPEC 3.1).
    fn on_items(&mut self, message: Message<'_>, scratch: &Scratch, out: &mut Effects) {
        let mut admitted = std::mem::take(&mut self.admitted);
        let mut judged = std::mem::take(&mut self.judged);
        admitted.clear();
        judged.clear();
        for index in 0..scratch.len() {
            self.books.records += 1;
            let item = scratch.item(index, message.publish.payload);
            admitted.extend(self.admit(index, item, &message, out));
        }
        self.hear_clocks(&admitted, &message, scratch, out);
        for at in &admitted {
            let item = scratch.item(at.item, message.publish.payload);
            judged.extend(self.judge(*at, item, &message, out));
        }
        self.admitted = admitted;
        if judged.len() > 1 {
            judged.sort_by_key(|record| record.at);
        }
        for record in &judged {
            let item = scratch.item(record.item, message.publish.payload);
            self.add(record, item, &message, out);
        }
        for record in &judged {
            self.note_progress(record);
            self.note_clock_of(record, &message);
        }
        self.judged = judged;
        self.raise_touched(out);
    }

    /// Time. `None`: it is quarantined.
    fn judge(
        &mut self,
        at: Admitted,
        item: Item<'_>,
        message: &Message<'_>,
        out: &mut Effects,
    ) -> Option<Judged> {
        let Admitted { item: index, device, time } = at;
        let (raw, item) = (item, Item { time, ..item });
        let basis = self.basis(self.devices[device].region, message);
        let Device { policy, clock, source, .. } = &self.devices[device];
        let mut verdict = basis.judge(item.time, policy, clock);
        if *source != message.source {
            verdict = Verdict::Quarantined(Reason::OtherSource, None);
        }
        if !message.publish.retain {
            self.on_news(device, verdict, message.arrival, out);
        }
        let device_time = item.time.time().map(|time| time.0);
        let moved = |method, offset| Some(Moved { device_time, offset, method });
        let (at, moved) = match verdict {
            Verdict::Accepted(at) | Verdict::Arrival(at) => (at, None),
            Verdict::Corrected(Corrected { at, offset }) => {
                self.books.corrected += 1;
                (at, moved(Method::Offset, Some(offset)))
            }
            Verdict::Stamped(at) => {
                self.books.stamped += 1;
                (at, moved(Method::Arrival, None))
            }
            Verdict::Quarantined(reason, offset) => {
                self.quarantine((reason, offset), device, item, message, out);
                return None;
            }
        };
        if !message.publish.retain && message.origin != Origin::Evicted {
            self.hear(device);
        }
        let (heartbeat, valued) = (item.heartbeat && !message.publish.retain, item.has_value());
        let mut judged = Judged { item: index, device, at, moved, heartbeat, valued };
        judged.heartbeat &= judged.seen();
        if judged.seen() && !message.publish.retain {
            self.note_habit(device, raw, at, out);
        }
        Some(judged)
    }

    /// What the device times of a message are held against (SPEC 2.2).
    fn basis(&self, region: usize, message: &Message<'_>) -> Basis {
        if !self.has_clock() {
            return Basis::NoClock;
        }
        let Some(arrival) = message.arrival else {
            let until = self.gate.opened().unwrap_or(ArrivalTime::MAX);
            return Basis::Between(self.listening.stamp(), until);
        };
        match self.reference(region, message.arrival, message.mono) {
            _ if message.origin == Origin::Evicted => Basis::OwnTime,
            Some(reference) => Basis::Clock(reference),
            None => Basis::Unsure(arrival),
        }
    }

    /// The clock of a device that is heard as it speaks may have to stand in for the gateway's.
    fn note_clock_of(&mut self, record: &Judged, message: &Message<'_>) {
        let device = &self.devices[record.device];
        let profile = &self.settings.sources[device.source].profile;
        let is_live = message.origin == Origin::Received
            && !message.publish.retain
            && self.listening.live_at().is_some();
        // Where there are heartbeats, what else comes may be old.
        let is_now = match profile.declares_heartbeat() {
            true => record.heartbeat,
            false => record.at >= device.generator.highest(),
        };
        if is_live && is_now && record.seen() && profile.declares_time() && self.has_clock() {
            self.note_clock(record.device, record.at, message.mono);
        }
    }

    fn quarantine(
        &mut self,
        (reason, offset): (Reason, Option<Span>),
        device: usize,
        item: Item<'_>,
        message: &Message<'_>,
        out: &mut Effects,
    ) {
        self.books.refuse(reason);
        self.refused.note(Some(reason), message.topic, message.arrival);
        self.mark(device);
        let per_hour = self.settings.limits.refused_per_hour;
        let Some(withheld) = self.devices[device].refusals.admit(message.told_at, per_hour) else {
            self.books.withheld += 1;
            return;
        };
        let key = (self.devices[device].region_id.clone(), self.devices[device].id.clone());
        let time = item.time.time().map(|time| time.0);
        let origin = self.origin(message);
        let told = refused(reason, origin, Some(key), (time, offset), item.content, withheld);
        out.push(Output::Refused(told));
    }

    /// Value, late: the record goes to its window, or to the late output.
    fn add(&mut self, record: &Judged, item: Item<'_>, message: &Message<'_>, out: &mut Effects) {
        if !record.valued {
            self.books.valueless += 1;
            return;
        }
        let w = self.closing_watermark(record.device);
        let (cx, device, region) = self.parts(record.device);
        let method = record.moved.map(|moved| moved.method);
        let sample = Record { values: item.values, at: record.at, method };
        match device.add(&cx, w, sample, region, out) {
            Added::Aggregated { stirs } => {
                self.books.aggregated += 1;
                self.mark(record.device);
                if stirs {
                    self.look_again_at(record.device);
                }
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
            moved: record.moved,
            window: self.settings.windows[source.base].name.clone(),
            start,
            end,
            watermark,
            arrival: message.arrival,
            clock: self.clock.quality,
            content: item.content.to_vec(),
        }
    }

    /// What a record raises the watermark of its device (or partition) to.
    fn note_progress(&mut self, record: &Judged) {
        let device = &mut self.devices[record.device];
        let lateness = device.policy.lateness;
        if record.seen() {
            device.generator.see(record.at);
        }
        let generator = match (self.settings.scope, record.seen()) {
            (Scope::Device, _) => device.generator,
            (Scope::Region(_), true) => *self.partitions.see(device.region, record.at),
            (Scope::Region(_), false) => self.partitions.get(device.region).generator,
        };
        let (to, cause) = match record.heartbeat {
            true => (generator.punctuated(), Cause::Heartbeat),
            // What was seen is not above the highest; what was stamped may be.
            false => {
                (generator.bounded(lateness).max(bounded(record.at, lateness)), Cause::Bounded)
            }
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
}
