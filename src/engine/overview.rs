//! What the engine knows of itself, for whoever asks how it is. Changes nothing.

use crate::engine::Engine;
use crate::engine::device::Activity;
use crate::engine::recent::Recent;
use crate::ids::RegionId;
use crate::time::{EventTime, Now, Span};

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

/// Devices by what is known of them. Each is in one of these.
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
}

impl Engine {
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
                devices: region.members.len(),
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
