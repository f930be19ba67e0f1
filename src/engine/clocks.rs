//! The clocks of the devices, as the messages in hand tell of them.

use crate::engine::Engine;
use crate::engine::correction::{ClockChange, Heard};
use crate::engine::effect::Effects;
use crate::engine::intake::{Admitted, Message};
use crate::engine::settings::Correct;
use crate::event::{Alert, AlertKind, Output};
use crate::time::{ArrivalTime, DeviceTime};
use crate::wire::decode::Scratch;

impl Engine {
    /// What the times of a device are held against: when its message arrived, by a clock that is good. `None`: nothing
    /// is refused or corrected, and no clock is judged (SPEC 2.2).
    pub(super) fn reference(
        &self,
        device: usize,
        arrival: Option<ArrivalTime>,
    ) -> Option<ArrivalTime> {
        arrival.filter(|_| self.clock.is_good(self.devices[device].policy.lateness))
    }

    /// Hears what a message says of the clocks of its devices: of each the newest time, since all others waited for it.
    pub(super) fn hear_clocks(
        &mut self,
        admitted: &[Admitted],
        message: &Message<'_>,
        scratch: &Scratch,
        out: &mut Effects,
    ) {
        let publish = message.publish;
        if publish.retain || publish.dup || !self.listening.is_caught_up() {
            return;
        }
        let live = self.settings.sources[message.source].live;
        let tells = |at: &Admitted| {
            let heartbeat = || scratch.item(at.item, publish.payload).heartbeat;
            at.time.time().filter(|_| live || heartbeat())
        };
        for at in admitted {
            let device = &mut self.devices[at.device];
            if device.source == message.source && device.policy.correct != Correct::Off {
                device.newest = device.newest.max(tells(at));
            }
        }
        for at in admitted {
            if let Some(time) = self.devices[at.device].newest.take() {
                self.hear_clock(at.device, time, message, out);
            }
        }
    }

    fn hear_clock(
        &mut self,
        index: usize,
        time: DeviceTime,
        message: &Message<'_>,
        out: &mut Effects,
    ) {
        let Some(reference) = self.reference(index, message.arrival) else { return };
        let heard = Heard { time, mono: message.mono, reference, session: self.session };
        let device = &mut self.devices[index];
        let before = device.clock;
        let change = device.clock.hear(heard, &device.policy);
        if !device.clock.is_kept_as(&before) {
            device.clock_is_stored = false;
            self.mark(index);
        }
        if let Some(change) = change {
            self.tell_clock(index, change, out);
        }
    }

    fn tell_clock(&self, index: usize, change: ClockChange, out: &mut Effects) {
        let device = &self.devices[index];
        let kind = match (change, device.policy.correct) {
            (ClockChange::Wrong(offset), Correct::On) => AlertKind::ClockCorrected(offset),
            (ClockChange::Wrong(offset), _) => AlertKind::ClockWrong(offset),
            (ClockChange::Right(offset), _) => AlertKind::ClockRight(offset),
        };
        out.push(Output::Alert(Alert {
            kind,
            region: device.region_id.clone(),
            device: device.id.clone(),
            watermark: device.watermark(self.listening.stamp()),
        }));
    }
}
