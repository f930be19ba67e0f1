//! Messages that are held until the time is known: how they lie in the store, and how they come back (SPEC 2.2).
//!
//! The engine keeps none of them. It asks for them ([`Engine::held_wanted`]), is handed one after the other
//! ([`Input::Held`]), and releases or keeps it; that it is gone is part of the same checkpoint as what came of it.
//!
//! Whether a message without a device time is a redelivery (SPEC 7) is decided when it comes, since it depends on the
//! connection that brings it, and is written down with it. What has a device time is recognised when it is processed.
//!
//! [`Input::Held`]: crate::engine::input::Input::Held

use std::ops::Range;

use crate::engine::Engine;
use crate::engine::attendance::StatusNews;
use crate::engine::codec::{Reader, Writer};
use crate::engine::effect::Effects;
use crate::engine::gate::{Moment, Ruling};
use crate::engine::input::{Publish, Topic};
use crate::engine::intake::{Message, Origin};
use crate::engine::snapshot::{HELD, key};
use crate::time::{ArrivalTime, MonoTime, Now, Span};
use crate::wire::decode::{Decoded, Scratch};

/// Version of the record of a held message. The one before did not say how much had been listened.
const RECORD: u8 = 2;

/// How it is with what is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// How long the clock has not been good in this life of the agent; `None` once it was.
    pub waiting: Option<Span>,
    /// Records with a usable time of their own are processed.
    pub waived: bool,
    /// Messages held.
    pub messages: u64,
    /// Bytes that they take in the store.
    pub bytes: u64,
    /// How long ago the oldest came, at most; `None` where none is held, or it is of an earlier boot.
    pub oldest: Option<Span>,
}

/// A held message as its record has it.
struct Record<'a> {
    at: Moment,
    /// Listened duration when it came.
    heard: Option<Span>,
    retain: bool,
    dup: bool,
    topic: &'a str,
    /// A bit for each item: it has no device time, and was a redelivery.
    redelivered: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Record<'a> {
    fn write(&self) -> Vec<u8> {
        let mut w = Writer(Vec::with_capacity(40 + self.topic.len() + self.payload.len()));
        w.u8(RECORD).u8(u8::from(self.retain) | u8::from(self.dup) << 1);
        w.0.extend(self.at.boot.to_be_bytes());
        w.signed(self.at.mono.0);
        w.signed(self.heard.map_or(i64::MIN, |heard| heard.0));
        w.text(self.topic).unsigned(self.redelivered.len() as u64);
        w.0.extend(self.redelivered);
        w.0.extend(self.payload);
        w.0
    }

    fn read(value: &'a [u8]) -> Option<Self> {
        let mut r = Reader(value);
        let version = r.u8().filter(|version| (1..=RECORD).contains(version))?;
        let flags = r.u8()?;
        let (boot, rest) = r.0.split_first_chunk()?;
        r.0 = rest;
        let at = Moment { boot: u128::from_be_bytes(*boot), mono: MonoTime(r.signed()?) };
        let heard = if version > 1 { Some(Span(r.signed()?)) } else { None };
        let topic = r.text()?;
        let bits = r.small()?;
        let (redelivered, payload) = r.0.split_at_checked(bits)?;
        let (retain, dup) = (flags & 1 != 0, flags & 2 != 0);
        Some(Self { at, heard, retain, dup, topic, redelivered, payload })
    }
}

impl Engine {
    /// The keys of the store's state among which held messages are wanted, from the first on: each is to be handed over
    /// as [`Input::Held`], and after the last one [`Input::HeldEnd`]. What the last checkpoint changed is in the store by
    /// then. `None`: none is wanted now, though more may be held.
    ///
    /// [`Input::Held`]: crate::engine::input::Input::Held
    /// [`Input::HeldEnd`]: crate::engine::input::Input::HeldEnd
    pub fn held_wanted(&self) -> Option<Range<Vec<u8>>> {
        let from = self.gate.wanted()?;
        Some(key(HELD, &from.to_be_bytes())..key(HELD + 1, &[]))
    }

    /// How it is with what is held, at `now`.
    pub fn holding(&self, now: Now) -> Holding {
        let here = |moment: &Moment| *moment == self.gate.moment(moment.mono);
        Holding {
            waiting: self.gate.since().map(|since| now.mono - since),
            waived: self.gate.is_waived(),
            messages: self.gate.held(),
            bytes: self.gate.bytes(),
            oldest: self.gate.oldest().filter(here).map(|moment| now.mono - moment.mono),
        }
    }

    /// Whether a message that comes now, and can be read, is held.
    pub(super) fn is_to_be_held(&self, message: &Message<'_>, scratch: &Scratch) -> bool {
        let has_topic = matches!(message.publish.topic, Topic::Name(_));
        has_topic
            && self.has_clock()
            && match self.gate.ruling() {
                Ruling::Process => false,
                Ruling::IfTimed => !self.is_timed(message, scratch, None),
                Ruling::Hold => true,
            }
    }

    /// Whether all records have a usable time of their own, and not one before `since`.
    fn is_timed(
        &self,
        message: &Message<'_>,
        scratch: &Scratch,
        since: Option<ArrivalTime>,
    ) -> bool {
        let source = self.settings.sources[message.source].profile.source().as_str();
        (0..scratch.len()).all(|index| {
            let item = scratch.item(index, message.publish.payload);
            let not_before = match self.find_device(item.region, item.device) {
                Some(device) => self.devices[device].policy.not_before,
                None => self.settings.policies.resolve(item.region, source, item.device).not_before,
            };
            item.time.time().map_or(item.idle, |time| {
                time >= not_before && since.is_none_or(|since| time.0 >= since.0)
            })
        })
    }

    /// Holds a message, of which `scratch` has the items. Whoever sent it is alive now, whatever time it is.
    pub(super) fn hold(&mut self, message: &Message<'_>, scratch: &Scratch, out: &mut Effects) {
        let mut redelivered = vec![0; scratch.len().div_ceil(8)];
        for index in 0..scratch.len() {
            let item = scratch.item(index, message.publish.payload);
            if message.publish.retain || item.idle || item.time.raw().is_some() {
                continue;
            }
            if self.settings.deduplicate && !self.is_new(index, item, message) {
                redelivered[index / 8] |= 1 << (index % 8);
            } else if let Some(device) = self.find_device(item.region, item.device) {
                self.on_life(device, message, out);
            }
        }
        self.hold_message(message, &redelivered);
    }

    /// The same of one that says who is there.
    pub(super) fn hold_status(&mut self, status: &StatusNews, message: &Message<'_>) {
        let item = status.item(message.publish.payload);
        let is_new = message.publish.retain || self.is_new(0, item, message);
        self.hold_message(message, &[u8::from(!is_new)]);
    }

    fn hold_message(&mut self, message: &Message<'_>, redelivered: &[u8]) {
        let Publish { retain, dup, payload, .. } = message.publish;
        let (at, topic) = (self.gate.moment(message.mono), message.topic);
        let heard = Some(self.listening.duration());
        let record = Record { at, heard, retain, dup, topic, redelivered, payload };
        self.gate.hold(record.write(), message.mono);
        self.books.held += 1;
    }

    /// The store holds a message.
    pub(super) fn restore_held(&mut self, number: u64, value: &[u8]) -> Option<()> {
        self.gate.restore(number, value.len(), Record::read(value)?.at);
        Some(())
    }

    /// How many messages are held by the books and not by the store.
    pub(super) fn held_missing(&self) -> u64 {
        self.books.held.saturating_sub(self.gate.held())
    }

    /// What is held is what the store has.
    pub(super) fn reconcile_held(&mut self) {
        let held = self.gate.held();
        self.books.received = self.books.received.wrapping_sub(self.books.held).wrapping_add(held);
        self.books.held = held;
    }

    /// A held message comes back from the store.
    pub(super) fn on_held(&mut self, key: &[u8], value: &[u8], now: Now, out: &mut Effects) {
        let number = key.get(1..).and_then(|number| number.try_into().ok()).map(u64::from_be_bytes);
        let Some((number, record)) = number.zip(Record::read(value)) else { return };
        if self.gate.wanted().is_none_or(|from| number < from) {
            return;
        }
        let message = self.message_of(&record, now);
        if let Some(status) = self.read_status(message.publish) {
            // Its time is that of its arrival, which silence goes by whatever the clock.
            self.gate.release(number, value.len(), record.at);
            self.books.held -= 1;
            self.on_status(&status, Message { topic: record.topic, ..message }, out);
            return;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let (decoded, message) = self.decode(message, &mut scratch);
        if self.is_kept(decoded, &message, &scratch) {
            self.gate.keep(number, record.at);
        } else {
            self.gate.release(number, value.len(), record.at);
            self.books.held -= 1;
            self.process(decoded, message, &scratch, out);
        }
        self.scratch = scratch;
    }

    fn is_kept(&self, decoded: Decoded, message: &Message<'_>, scratch: &Scratch) -> bool {
        // Of another boot nothing is known but that it was after the last good time.
        let since = message.arrival.is_none().then(|| self.listening.stamp());
        decoded == Decoded::Items
            && match self.gate.ruling_of_held() {
                Ruling::Process => false,
                Ruling::IfTimed => !self.is_timed(message, scratch, since),
                Ruling::Hold => true,
            }
    }

    /// The message of a record. When it came is worked out backwards, where its monotonic time means something.
    fn message_of<'a>(&self, record: &Record<'a>, now: Now) -> Message<'a> {
        let here = record.at == self.gate.moment(record.at.mono);
        let arrival = here.then(|| now.wall - (now.mono - record.at.mono));
        let topic = Topic::Name(record.topic);
        let Record { payload, retain, dup, .. } = *record;
        let origin = if self.gate.is_evicting() { Origin::Evicted } else { Origin::Held };
        Message {
            source: 0,
            topic: "",
            publish: Publish { topic, payload, retain, dup },
            arrival,
            told_at: Some(now.wall),
            mono: record.at.mono,
            heard: record.heard,
            origin,
            redelivered: record.redelivered,
        }
    }

    /// All that were wanted have come.
    pub(super) fn on_held_end(&mut self, now: Now, out: &mut Effects) {
        let lost = self.gate.end_pass();
        self.books.held -= lost;
        self.books.received -= lost;
        self.books.lost += lost;
        self.listen_again(now, out);
    }

    /// We have waited for a good clock for long enough.
    pub(super) fn wait_no_longer(&mut self, now: Now, out: &mut Effects) {
        self.gate.begin(now.mono);
        if self.gate.ends().is_some_and(|ends| now.mono >= ends) {
            self.gate.waive();
            self.listen_again(now, out);
        }
    }

    /// Everything that arrived is processed, if the broker has nothing more and nothing is held that waits its turn.
    pub(super) fn listen_again(&mut self, now: Now, out: &mut Effects) {
        if self.caught_up && !(self.has_clock() && self.gate.waits()) {
            if self.listening.live_at().is_none() {
                let gap = self.listening.caught_up(now);
                self.tell_gap(gap, out);
                self.start_publishing();
                (0..self.regions.len()).for_each(|region| self.hint(region));
            }
            self.apply_clock(now, out);
        }
    }
}

#[cfg(test)]
mod tests;
