//! What the engine knows of itself, for whoever asks how it is. Changes nothing.

use crate::engine::Engine;
use crate::engine::device::{Activity, Device};
use crate::engine::recent::Recent;
use crate::event::PresenceState;
use crate::ids::{DeviceId, RegionId};
use crate::time::{ArrivalTime, EventTime, Now, Span};

/// A region, as it stands at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionView {
    /// Its name.
    pub id: RegionId,
    /// Its watermark with the clock applied; `None` before the first.
    pub watermark: Option<EventTime>,
    /// How far the watermark may be behind the clock while all is well: the longest lateness and idle timeout of its
    /// devices together. A device that is silent for longer follows the clock.
    pub usual_lag: Span,
    /// Devices known in it.
    pub devices: usize,
    /// Region scope: nothing of it is heard, and it is left out of the minimum.
    pub idle: bool,
}

/// Devices by what is known of them. Each is in one of the first four.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Heard within their idle timeout. In region scope silence is the region's, and all are here.
    pub active: usize,
    /// Silent, and ahead of the clock's watermark.
    pub idle: usize,
    /// Silent, and their watermark follows the clock.
    pub following: usize,
    /// Known by name only: nothing with a usable time ever came from them.
    pub without_time: usize,
    /// By what was told of their presence.
    pub presence: PresenceCounts,
}

/// Devices by what was told of their presence. Those of which nothing was told are in none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the state of that name")]
pub struct PresenceCounts {
    pub never_seen: usize,
    pub online: usize,
    pub suspect: usize,
    pub offline: usize,
    pub flapping: usize,
    pub forgotten: usize,
}

impl PresenceCounts {
    fn count(&mut self, state: PresenceState) {
        *match state {
            PresenceState::NeverSeen => &mut self.never_seen,
            PresenceState::Online => &mut self.online,
            PresenceState::Suspect => &mut self.suspect,
            PresenceState::Offline => &mut self.offline,
            PresenceState::Flapping => &mut self.flapping,
            PresenceState::Forgotten => &mut self.forgotten,
        } += 1;
    }
}

/// A device, for whoever looks after it.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceView {
    /// Its region.
    pub region: RegionId,
    /// Its name.
    pub device: DeviceId,
    /// What was told of it, and since when; `None`: nothing.
    pub state: Option<(PresenceState, ArrivalTime)>,
    /// When it was last known to live.
    pub last_seen: Option<ArrivalTime>,
    /// Its watermark with the clock applied; `None` before the first.
    pub watermark: Option<EventTime>,
    /// Windows that are open.
    pub open_windows: usize,
    /// How far its clock is off, event time less device time, where that is known.
    pub clock_offset: Option<Span>,
    /// Whether it can be forgotten.
    pub is_missed: bool,
}

impl Engine {
    /// All devices but so many, in the order in which they were met.
    pub fn device_views(&self, from: usize) -> impl Iterator<Item = DeviceView> {
        let rest = self.devices.get(from..).unwrap_or_default();
        rest.iter().map(|device| self.view_of(device))
    }

    /// A device, if it is known.
    pub fn device_view(&self, region: &str, device: &str) -> Option<DeviceView> {
        self.find_device(region, device).map(|index| self.view_of(&self.devices[index]))
    }

    fn view_of(&self, device: &Device) -> DeviceView {
        let watermark = device.watermark(self.stamp_of(device.region));
        DeviceView {
            region: device.region_id.clone(),
            device: device.id.clone(),
            state: device.presence.state().zip(device.presence.since()),
            last_seen: device.presence.last_seen(),
            watermark: Some(watermark).filter(|w| *w != EventTime::MIN),
            open_windows: device.panes.len(),
            clock_offset: device.clock.offset(),
            is_missed: device.presence.is_missed(),
        }
    }

    /// The regions as they stand at `now`, in the order in which they were met.
    pub fn region_views(&self, now: Now) -> impl Iterator<Item = RegionView> {
        let (stamp, _) = self.listening.at(now);
        let live = self.listening.live_at().map(|_| now.mono);
        let in_device_scope = self.in_device_scope();
        self.regions.iter().enumerate().map(move |(index, region)| {
            let watermark = match in_device_scope {
                true => region.watermark_at(self.stamp_at(index, stamp, live)),
                false => region.watermark(),
            };
            RegionView {
                id: region.id.clone(),
                watermark: Some(watermark).filter(|w| *w != EventTime::MIN),
                usual_lag: region.usual_lag(),
                devices: region.devices(),
                idle: !in_device_scope && self.partitions.get(index).idle,
            }
        })
    }

    /// The gateway's watermark as last published; `None` before the first.
    pub fn published_watermark(&self) -> Option<EventTime> {
        Some(self.gateway_published).filter(|w| *w != EventTime::MIN)
    }

    /// Devices by what is known of them. Looks at each: milliseconds for tens of thousands.
    pub fn device_counts(&self) -> DeviceCounts {
        let mut counts = DeviceCounts::default();
        for device in &self.devices {
            let column = match device.activity {
                _ if device.generator.watermark() == EventTime::MIN => &mut counts.without_time,
                Activity::Active => &mut counts.active,
                Activity::Idle => &mut counts.idle,
                Activity::Following => &mut counts.following,
            };
            *column += 1;
            device.presence.state().into_iter().for_each(|state| counts.presence.count(state));
        }
        counts
    }

    /// Topics of messages that no source claimed, since the start.
    pub fn unmatched(&self) -> &Recent {
        &self.unmatched
    }

    /// What was refused, since the start.
    pub fn refused(&self) -> &Recent {
        &self.refused
    }
}
