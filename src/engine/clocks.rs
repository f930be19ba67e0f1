//! The clocks of the devices, as the messages in hand tell of them.

use crate::engine::Engine;
use crate::engine::admission::Admitted;
use crate::engine::correction::{ClockChange, Heard};
use crate::engine::effect::Effects;
use crate::engine::intake::{Message, Origin};
use crate::engine::settings::Correct;
use crate::event::{Alert, AlertKind, Output};
use crate::time::DeviceTime;
use crate::wire::decode::Scratch;

impl Engine {
    /// Hears what a message says of the clocks of its devices: of each the newest time, since all others waited for it.
    pub(super) fn hear_clocks(
        &mut self,
        admitted: &[Admitted],
        message: &Message<'_>,
        scratch: &Scratch,
        out: &mut Effects,
    ) {
        let publish = message.publish;
        let is_live = message.origin == Origin::Received && self.listening.is_caught_up();
        // Devices whose clocks stand in for ours do not prove each other wrong.
        if publish.retain || publish.dup || !is_live || !self.listening.is_trusted() {
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
        let region = self.devices[index].region;
        let reference = self.reference(region, message.arrival, message.mono);
        let Some(reference) = reference else { return };
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
            watermark: device.watermark(self.stamp_of(device.region)),
            clock: self.clock.quality,
        }));
    }
}
