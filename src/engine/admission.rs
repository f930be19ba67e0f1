//! Which items of a message are news: those of devices that there is room for, not retained without need, not seen before.

use crate::engine::Engine;
use crate::engine::dedup::Fingerprint;
use crate::engine::device::Device;
use crate::engine::effect::Effects;
use crate::engine::habit::settle;
use crate::engine::intake::{Message, Origin};
use crate::time::DeviceTime;
use crate::wire::decode::{Item, Stamp};

/// An item that is news, of a device that there is room for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admitted {
    pub(super) item: usize,
    pub(super) device: usize,
    /// Its stamp, one of the two where a local time is there twice.
    pub(super) time: Stamp,
}

impl Engine {
    /// Retained, duplicate, in this order (SPEC 11). `None`: it is in its column already.
    pub(super) fn admit(
        &mut self,
        index: usize,
        item: Item<'_>,
        message: &Message<'_>,
        out: &mut Effects,
    ) -> Option<Admitted> {
        if item.idle {
            self.books.valueless += 1;
            self.on_idle_marker(item.region, out);
            return None;
        }
        let Some(device) = self.device(message.source, item) else {
            self.books.no_room += 1;
            return None;
        };
        self.refresh_region(self.devices[device].region, out);
        let time = self.settled(device, item, message);
        let item = Item { time, ..item };
        if message.publish.retain && !self.tells_news(device, item, message) {
            self.books.retained_ignored += 1;
            return None;
        }
        if !self.is_new(index, item, message) {
            self.books.duplicate += 1;
            return None;
        }
        Some(Admitted { item: index, device, time })
    }

    /// The stamp of an item: one of the two where a local time is there twice.
    fn settled(&mut self, device: usize, item: Item<'_>, message: &Message<'_>) -> Stamp {
        let Stamp::Repeated { earlier, .. } = item.time else { return item.time };
        // What is delivered again stays what it was, however late.
        let first = Item { time: Stamp::At(earlier), ..item };
        if message.publish.dup && self.dedup.is_seen(self.fingerprint(first, message)) {
            return first.time;
        }
        let Device { generator, habit, policy, .. } = &mut self.devices[device];
        let last = generator.highest().max(habit.repeated);
        let time = settle(item.time, message.arrival, policy.future_tolerance, last);
        if !message.publish.retain {
            habit.repeated = habit.repeated.max(time.time().map_or(last, DeviceTime::accepted));
        }
        time
    }

    fn fingerprint(&self, item: Item<'_>, message: &Message<'_>) -> Fingerprint {
        self.recogniser.fingerprint(message.topic, item.device, item.content, item.time.time())
    }

    /// A retained message is history: a sample, if its own time is newer than anything seen of the device.
    fn tells_news(&self, device: usize, item: Item<'_>, message: &Message<'_>) -> bool {
        let reference = self.reference(self.devices[device].region, message.arrival, message.mono);
        let device = &self.devices[device];
        let newer = item.time.time().is_some_and(|time| {
            let usable = time >= device.policy.not_before || !self.has_clock();
            let corrected =
                reference.and_then(|now| device.clock.correct(time, now, &device.policy));
            let at = corrected.map_or(time.accepted(), |corrected| corrected.at);
            usable && at > device.generator.highest()
        });
        newer && item.has_value()
    }

    /// Whether a record was not seen before; remembers it.
    pub(super) fn is_new(&mut self, index: usize, item: Item<'_>, message: &Message<'_>) -> bool {
        if message.origin != Origin::Received && item.time.time().is_none() {
            return !message.was_redelivered(index); // as was judged when it came
        }
        if !self.settings.deduplicate {
            return true;
        }
        let fingerprint = self.fingerprint(item, message);
        if item.time.time().is_some() {
            return self.dedup.remember(fingerprint);
        }
        if message.publish.dup && self.dedup.is_redelivery(fingerprint) {
            return false;
        }
        self.dedup.remember_unsettled(fingerprint);
        true
    }
}
