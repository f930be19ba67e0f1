//! Event times of devices that write how long they have been running, and no time.
//!
//! `arrival − uptime` is when a device was started, plus the delay of the message, and delay only adds. So what is *lower*
//! than known is taken at once. What is *higher* is taken from five live messages, whose uptime advanced by as much as
//! monotonic time did: of the last five the least counts. So a clock that gains or loses is followed, and what waited in
//! a queue, the broker's or the device's, moves nothing.
//!
//! A device was *started again* where the newest uptime of a message says no more than is known, and where it can have
//! reached that uptime since it was last heard. What is too old for that is an old reading that was kept, or sent twice.

use crate::engine::Engine;
use crate::engine::admission::Admitted;
use crate::engine::codec::{Reader, Writer};
use crate::engine::correction::{ALIKE, Few, STEP};
use crate::engine::device::Device;
use crate::engine::intake::{Message, Origin};
use crate::time::{ArrivalTime, DeviceTime, EventTime, MonoTime, Span};
use crate::wire::decode::{Item, Scratch, Stamp};

/// How much a clock may gain or lose: one part in so many. Further than that, and than [`ALIKE`], uptime and monotonic
/// time do not part in live messages.
const DRIFTS: i64 = 2_000;

/// An uptime that was heard: the newest of its message.
#[derive(Clone, Copy, Debug)]
pub struct Heard {
    /// How long the device had been running.
    pub uptime: Span,
    /// When the message arrived, by a clock that is good.
    pub arrival: ArrivalTime,
    /// The same in monotonic time.
    pub mono: MonoTime,
    /// The session in which it came. Monotonic times of two of them are not compared.
    pub session: u32,
    /// Nothing says that it had to wait: it came while we were caught up, and for the first time.
    pub live: bool,
}

/// What a store keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kept {
    start: i64,
    live: bool,
    boot: u16,
}

/// Live messages, each of which keeps pace with the first of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    session: u32,
    /// Monotonic arrival less uptime of the first, and its arrival.
    first: (i64, MonoTime),
    /// When the last came.
    at: MonoTime,
    starts: Few,
}

/// When a device was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UptimeClock {
    start: EventTime,
    /// A live message has told of it; else it may have been earlier, by as long as a queue waited.
    live: bool,
    /// How many starts were noticed before this one; it wraps.
    boot: u16,
    /// The message in hand is of another start.
    restarts: bool,
    run: Option<Run>,
    stored: Option<Kept>,
}

impl Default for UptimeClock {
    fn default() -> Self {
        let start = EventTime::MAX;
        Self { start, live: false, boot: 0, restarts: false, run: None, stored: None }
    }
}

impl UptimeClock {
    /// When it was started, as far as that is known.
    pub fn start(&self) -> EventTime {
        self.start
    }

    /// Whether it must have been started again, if `uptime` is the newest of a message that arrived then. `highest` is
    /// its highest event time.
    pub fn is_another_start(&self, uptime: Span, arrival: ArrivalTime, highest: EventTime) -> bool {
        let says_more = self.start + uptime > highest;
        let is_possible = (arrival - uptime).0 >= highest.0;
        !says_more && (is_possible || !self.live)
    }

    /// Hears the newest uptime of a message.
    pub fn hear(&mut self, heard: Heard) {
        if std::mem::take(&mut self.restarts) {
            *self =
                Self { boot: self.boot.wrapping_add(1), stored: self.stored, ..Self::default() };
        }
        let start = EventTime((heard.arrival - heard.uptime).0);
        if heard.live {
            self.live = true;
            self.keep_pace(heard, start);
        }
        self.start = self.start.min(start);
    }

    /// Whether uptime and monotonic time advance alike in the last few live messages: then their least counts. What
    /// comes too soon after another says nothing.
    fn keep_pace(&mut self, heard: Heard, start: EventTime) {
        let Heard { mono, session, .. } = heard;
        let pace = mono.0.saturating_sub(heard.uptime.0);
        let run = self.run.filter(|run| run.session == session);
        if run.is_some_and(|run| mono - run.at <= ALIKE) {
            return;
        }
        let keeps = |run: &Run| {
            let (first, since) = run.first;
            let allowed = ALIKE.0.saturating_add((mono - since).0 / DRIFTS);
            pace.saturating_sub(first).saturating_abs() <= allowed
        };
        let begun = Run { session, first: (pace, mono), at: mono, starts: Few::default() };
        let mut run = Run { at: mono, ..run.filter(keeps).unwrap_or(begun) };
        run.starts.push(start.0);
        if run.starts.is_full() {
            self.start = EventTime(run.starts.least());
        }
        self.run = Some(run);
    }

    /// What tells an uptime from the same one after another start.
    fn raw(&self, uptime: Span) -> DeviceTime {
        let boot = self.boot.wrapping_add(u16::from(self.restarts));
        DeviceTime(uptime.0 ^ i64::from(boot) << 47)
    }

    fn kept(&self) -> Kept {
        Kept { start: self.start.0, live: self.live, boot: self.boot }
    }

    /// Whether the store has it as it is, but for a step too small to be written.
    fn is_stored(&self) -> bool {
        let kept = self.kept();
        self.stored.is_some_and(|stored| {
            let moved = kept.start.saturating_sub(stored.start).saturating_abs();
            (kept.live, kept.boot) == (stored.live, stored.boot) && moved < STEP.0
        })
    }

    pub(super) fn write(&mut self, w: &mut Writer) {
        let kept = self.kept();
        self.stored = Some(kept);
        w.u8(u8::from(kept.live)).unsigned(u64::from(kept.boot)).signed(kept.start);
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Option<Self> {
        let live = r.u8()? & 1 != 0;
        let (boot, start) = (r.small()?, r.signed()?);
        let stored = Some(Kept { start, live, boot });
        Some(Self { start: EventTime(start), live, boot, stored, ..Self::default() })
    }
}

impl Engine {
    /// When a message arrived, if that tells of when its devices were started: it is no history, and the clock is good.
    fn tells_starts(&self, message: &Message<'_>) -> Option<ArrivalTime> {
        let may = !message.publish.retain && message.origin != Origin::Evicted;
        message.arrival.filter(|_| may && self.listening.is_trusted())
    }

    /// Before the items of a message are told from those that were seen before: whether they are of another start.
    pub(super) fn meet_uptimes(&mut self, message: &Message<'_>, scratch: &Scratch) {
        if !self.settings.sources[message.source].profile.declares_uptime() {
            return;
        }
        let arrival = self.tells_starts(message);
        let items = || (0..scratch.len()).map(|at| scratch.item(at, message.publish.payload));
        for item in items() {
            if let Some((device, uptime)) = self.uptime_of(item, message) {
                let newest = &mut self.devices[device].newest;
                *newest = (*newest).max(Some(DeviceTime(uptime.0)));
            }
        }
        for item in items() {
            let Some((index, uptime)) = self.uptime_of(item, message) else { continue };
            let device = &mut self.devices[index];
            if device.newest.take_if(|newest| newest.0 == uptime.0).is_none() {
                continue;
            }
            let Device { uptime: Some(clock), generator, .. } = device else { continue };
            clock.restarts = false;
            let again = arrival.is_some_and(|arrival| {
                clock.is_another_start(uptime, arrival, generator.highest())
            });
            // What is delivered again is of the start that it was of.
            let again = again && !(message.publish.dup && self.was_seen(item, message));
            if let Some(clock) = &mut self.devices[index].uptime {
                clock.restarts = again;
            }
        }
    }

    /// The device of an item and its uptime.
    fn uptime_of(&self, item: Item<'_>, message: &Message<'_>) -> Option<(usize, Span)> {
        let Stamp::Uptime(uptime) = item.time else { return None };
        let device = self.find_device(item.region, item.device)?;
        (!item.idle && self.devices[device].source == message.source).then_some((device, uptime))
    }

    /// Hears what a message says of when its devices were started: of each the newest uptime, since all others waited
    /// for it.
    pub(super) fn hear_uptimes(&mut self, admitted: &[Admitted], message: &Message<'_>) {
        let Some(arrival) = self.tells_starts(message) else { return };
        let (mono, session) = (message.mono, self.session);
        let is_first = message.origin == Origin::Received && !message.publish.dup;
        let live = is_first && self.listening.is_caught_up();
        for at in admitted {
            let device = &mut self.devices[at.device];
            if let Stamp::Uptime(uptime) = at.time
                && device.source == message.source
            {
                device.newest = device.newest.max(Some(DeviceTime(uptime.0)));
            }
        }
        for at in admitted {
            let device = &mut self.devices[at.device];
            let Some(newest) = device.newest.take() else { continue };
            let clock = device.uptime.get_or_insert_default();
            clock.hear(Heard { uptime: Span(newest.0), arrival, mono, session, live });
            if !clock.is_stored() {
                device.clock_is_stored = false;
                self.mark(at.device);
            }
        }
    }

    /// When a device was started that wrote `uptime`, if it is that start. Without a good clock nobody notices that it
    /// was started again: then only an uptime that says more than is known is certain to be of that start.
    pub(super) fn start_of(
        &self,
        device: &Device,
        uptime: Span,
        message: &Message<'_>,
    ) -> Option<EventTime> {
        let start = device.uptime.as_ref()?.start();
        let is_judged = message.arrival.is_some() && self.listening.is_trusted();
        (is_judged || start + uptime > device.generator.highest()).then_some(start)
    }

    /// What a record is recognised by besides its content: its raw device time, or its uptime and which start it is of.
    pub(super) fn raw_time(&self, item: Item<'_>) -> Option<DeviceTime> {
        let Stamp::Uptime(uptime) = item.time else { return item.time.time() };
        let device = self.find_device(item.region, item.device);
        let clock = device.and_then(|device| self.devices[device].uptime.as_ref());
        Some(clock.map_or(DeviceTime(uptime.0), |clock| clock.raw(uptime)))
    }
}

#[cfg(test)]
mod tests;
