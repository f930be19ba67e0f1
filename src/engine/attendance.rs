//! Who is there: what a message says of the presence of its device, deadlines of silence, and the gateway's own gaps.
//!
//! [`crate::engine::presence`] decides for one device; here are the moments at which it is asked. Gaps of the gateway
//! are told for themselves, once for all devices: the listened duration stands still in them, so that none is judged.

use crate::engine::Engine;
use crate::engine::correction::Corrected;
use crate::engine::deadline::SpanDeadline;
use crate::engine::effect::Effects;
use crate::engine::input::{Publish, Topic};
use crate::engine::intake::Message;
use crate::engine::listen::Gap;
use crate::engine::presence::{Age, Moment, Told};
use crate::engine::validity::Verdict;
use crate::event::{GapReport, Output, PresenceCause, PresenceReport, Reason};
use crate::time::{ArrivalTime, Now, Span};
use crate::wire::decode::{Item, Stamp};
use crate::wire::status::{Scope, Status};

use std::collections::BTreeSet;

/// What a message says of who is there.
#[derive(Debug)]
pub(super) struct StatusNews {
    source: usize,
    scope: Scope,
    region: String,
    device: String,
    /// `None`: neither of the words that are known.
    pub(super) online: Option<bool>,
}

impl StatusNews {
    /// As if it were a record, so that a copy of it is recognised.
    pub(super) fn item<'a>(&'a self, content: &'a [u8]) -> Item<'a> {
        Item {
            device: &self.device,
            region: &self.region,
            time: Stamp::Undeclared,
            unit: None,
            heartbeat: false,
            idle: false,
            values: &[],
            content,
        }
    }
}

impl Engine {
    /// A record that is neither retained nor a duplicate was judged: is it news, and what does it say of its device?
    pub(super) fn on_news(
        &mut self,
        index: usize,
        verdict: Verdict,
        message: &Message<'_>,
        out: &mut Effects,
    ) {
        let Some(arrival) = message.arrival else { return };
        let Some(age) = self.age_of_news(index, verdict, arrival) else { return };
        let held = message.heard.map_or(Span::ZERO, |heard| self.listening.duration() - heard);
        let age = Age { held: held.max(Span::ZERO), ..age };
        let now = Moment { wall: arrival, heard: self.listening.duration() };
        let device = &mut self.devices[index];
        let told = device.presence.on_news(&device.policy.presence, now, age);
        self.tell_presence(index, told, out);
        self.arm_presence(index);
    }

    /// A message of it is held while we listen: it lives, whenever that is.
    pub(super) fn on_life(&mut self, index: usize, message: &Message<'_>, out: &mut Effects) {
        if self.listening.is_caught_up() && self.devices[index].source == message.source {
            let arrival = message.arrival.map(ArrivalTime::stamped);
            arrival.into_iter().for_each(|at| {
                self.on_news(index, Verdict::Arrival(at), message, out);
            });
        }
    }

    /// Its age, of none where its time is not trusted: whoever sends a wrong time is alive. `None`: it is no news.
    fn age_of_news(&self, index: usize, verdict: Verdict, arrival: ArrivalTime) -> Option<Age> {
        let device = &self.devices[index];
        match verdict {
            Verdict::Accepted(at) | Verdict::Corrected(Corrected { at, .. })
                if at <= device.generator.highest() =>
            {
                None
            }
            Verdict::Accepted(at) | Verdict::Corrected(Corrected { at, .. })
                if self.clock.is_good(device.policy.lateness) =>
            {
                let sent = ArrivalTime(at.0);
                let whole = (arrival - sent).max(Span::ZERO);
                let listened = self.listening.heard_between(sent, arrival);
                Some(Age { whole, listened, ..Age::default() })
            }
            Verdict::Quarantined(Reason::OtherSource, _) => None,
            Verdict::Accepted(_)
            | Verdict::Corrected(_)
            | Verdict::Stamped(_)
            | Verdict::Arrival(_)
            | Verdict::Quarantined(..) => Some(Age::default()),
        }
    }

    /// What a message says of who is there, where its topic is one for that.
    pub(super) fn read_status(&self, publish: Publish<'_>) -> Option<StatusNews> {
        self.read_statuses(publish).next()
    }

    /// The same in the words of each source that has such a topic.
    fn read_statuses(&self, publish: Publish<'_>) -> impl Iterator<Item = StatusNews> {
        let sources = self.settings.sources.iter().enumerate();
        let topics =
            sources.flat_map(|(at, source)| source.statuses.iter().map(move |it| (at, it)));
        topics.filter_map(move |(source, it)| {
            let Topic::Name(topic) = publish.topic else { return None };
            let Status { scope, region, device, online } = it.read(topic, publish.payload)?;
            // Owned, since it may stand in the settings; such messages are few.
            let (region, device) = (region.to_owned(), device.to_owned());
            Some(StatusNews { source, scope, region, device, online })
        })
    }

    pub(super) fn on_status(
        &mut self,
        status: &StatusNews,
        message: Message<'_>,
        out: &mut Effects,
    ) {
        let StatusNews { source, scope, online, .. } = status;
        let Some(online) = *online else {
            self.books.ignored += 1;
            return;
        };
        self.books.decoded += 1;
        self.books.records += 1;
        let message = Message { source: *source, ..message };
        match scope {
            Scope::Device => self.on_device_status(status, online, &message, out),
            Scope::Region | Scope::Source => self.on_parent_status(status, online, &message, out),
        }
    }

    fn on_device_status(
        &mut self,
        status: &StatusNews,
        online: bool,
        message: &Message<'_>,
        out: &mut Effects,
    ) {
        let item = status.item(message.publish.payload);
        let known = self.find_device(item.region, item.device);
        if message.publish.retain && (online || known.is_none()) {
            self.books.retained_ignored += 1; // it says nothing of now
            return;
        }
        let Some(device) = known.or_else(|| self.device(message.source, item)) else {
            self.books.no_room += 1;
            return;
        };
        if !message.publish.retain && !self.is_new(0, item, message) {
            self.books.duplicate += 1;
            return;
        }
        self.books.valueless += 1;
        let Some(now) = self.moment(message) else { return };
        if online {
            // Of now, whatever time is in it.
            self.on_news(device, Verdict::Arrival(now.wall.stamped()), message, out);
        } else {
            self.on_death(device, now, PresenceCause::Will, !message.publish.retain, out);
        }
    }

    /// What devices hang on is gone: each is suspect, and its own silence decides. That it is there again says nothing of
    /// them.
    fn on_parent_status(
        &mut self,
        status: &StatusNews,
        online: bool,
        message: &Message<'_>,
        out: &mut Effects,
    ) {
        let devices = if online { BTreeSet::new() } else { self.behind(message.publish) };
        let retained = message.publish.retain;
        if retained && devices.is_empty() {
            self.books.retained_ignored += 1;
            return;
        }
        if !retained && !self.is_new(0, status.item(message.publish.payload), message) {
            self.books.duplicate += 1;
            return;
        }
        self.books.valueless += 1;
        let Some(now) = self.moment(message) else { return };
        for device in devices {
            self.on_death(device, now, PresenceCause::Parent, false, out);
        }
    }

    /// The devices that hang on it, by the word of any source: one bridge may have devices of several kinds.
    fn behind(&self, publish: Publish<'_>) -> BTreeSet<usize> {
        let mut all = BTreeSet::new();
        for status in self.read_statuses(publish).filter(|it| it.online == Some(false)) {
            match status.scope {
                Scope::Device => {}
                Scope::Region => {
                    let region = self.region_by_name.get(status.region.as_str());
                    all.extend(region.iter().flat_map(|region| &self.regions[**region].members));
                }
                Scope::Source => {
                    let is_of_it = |device: &usize| self.devices[*device].source == status.source;
                    all.extend((0..self.devices.len()).filter(is_of_it));
                }
            }
        }
        all
    }

    fn moment(&self, message: &Message<'_>) -> Option<Moment> {
        let heard = self.listening.duration();
        message.arrival.map(|wall| Moment { wall, heard })
    }

    fn on_death(
        &mut self,
        index: usize,
        now: Moment,
        cause: PresenceCause,
        is_final: bool,
        out: &mut Effects,
    ) {
        let device = &mut self.devices[index];
        let told = device.presence.on_death(&device.policy.presence, now, cause, is_final);
        self.tell_presence(index, told, out);
        self.arm_presence(index);
    }

    /// Devices that the configuration expects are known from the start, and never seen until they speak.
    pub(super) fn expect_devices(&mut self) {
        let now = self.listening.duration();
        for source in 0..self.settings.sources.len() {
            for (region, name) in self.settings.sources[source].expects.clone() {
                let (region, name) = (region.as_str(), name.as_str());
                let known = self.find_device(region, name);
                let index = known.or_else(|| self.enlist(source, region, name));
                let Some(index) = index.filter(|_| self.has_clock()) else { continue };
                self.devices[index].presence.declare(now);
                if self.devices[index].presence.dirty {
                    self.mark(index);
                }
                self.arm_presence(index);
            }
        }
    }

    /// Sets the deadline of a device, where none is set that comes before it: news moves it away, and whoever comes too
    /// early sets it again. While nothing is heard, nothing is judged.
    pub(super) fn arm_presence(&mut self, index: usize) {
        if !self.has_clock() {
            return;
        }
        let device = &mut self.devices[index];
        let Some(at) = device.presence.deadline(&device.policy.presence) else { return };
        if device.presence.armed.is_none_or(|armed| at < armed) {
            let at = if self.listening.is_deaf() {
                at.max(self.listening.duration() + Span(1))
            } else {
                at
            };
            device.presence.armed = Some(at);
            self.deadlines.at_duration(at, SpanDeadline::Presence(index));
        }
    }

    /// A deadline of a device came up.
    pub(super) fn on_presence_silence(&mut self, at: Span, index: usize, out: &mut Effects) {
        if self.devices[index].presence.armed != Some(at) {
            return; // a nearer one took its place
        }
        self.devices[index].presence.armed = None;
        let wall = self.listening.wall();
        loop {
            let device = &mut self.devices[index];
            let rules = device.policy.presence;
            let Some(due) = device.presence.deadline(&rules).filter(|due| *due <= at) else {
                break;
            };
            let moment = Moment { wall: wall - (at - due), heard: due };
            let told = device.presence.on_deadline(&rules, moment);
            self.tell_presence(index, told, out);
        }
        self.arm_presence(index);
    }

    pub(super) fn tell_presence(&mut self, index: usize, told: Option<Told>, out: &mut Effects) {
        if self.devices[index].presence.dirty {
            self.mark(index);
            self.count_forgotten(index);
        }
        let Some(told) = told else { return };
        let device = &self.devices[index];
        out.push(Output::Presence(PresenceReport {
            region: device.region_id.clone(),
            device: device.id.clone(),
            state: told.state,
            since: told.since,
            cause: told.cause,
            last_seen: told.last_seen,
            outage: told.outage,
            clock: self.clock.quality,
        }));
    }

    /// An operator no longer misses a device: it leaves the counts, and is told as `forgotten`. A tombstone stays, with
    /// its watermark and its open windows, so that nothing moves and nothing is told twice.
    pub(super) fn on_forget(&mut self, region: &str, name: &str, now: Now, out: &mut Effects) {
        let Some(index) = self.find_device(region, name) else { return };
        let told = self.devices[index].presence.forget(now.wall, PresenceCause::Asked);
        self.tell_presence(index, told, out);
    }

    pub(super) fn count_forgotten(&mut self, index: usize) {
        let device = &mut self.devices[index];
        let is_now = device.presence.is_forgotten();
        if std::mem::replace(&mut device.is_forgotten, is_now) != is_now {
            let region = &mut self.regions[device.region];
            region.forgotten = region.forgotten.wrapping_add_signed(if is_now { 1 } else { -1 });
        }
    }

    /// We hear again. One event for all that we did not hear.
    pub(super) fn tell_gap(&self, gap: Option<Gap>, out: &mut Effects) {
        if let Some(gap) = gap.filter(|gap| gap.end - gap.start >= self.settings.gap_after) {
            let Gap { start, end, cause } = gap;
            out.push(Output::Gap(GapReport { start, end, cause, clock: self.clock.quality }));
        }
    }
}
