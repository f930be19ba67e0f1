//! Watermarks as they are told: at an interval of listened time, whatever the wall clock does.

use crate::engine::Engine;
use crate::engine::deadline::SpanDeadline;
use crate::engine::effect::Effects;
use crate::engine::region::Region;
use crate::event::{Output, WatermarkReport};
use crate::time::{EventTime, Span};

/// Watermarks of a longer gap are not told one by one.
const MAX_PUBLISH_GAP: Span = Span::from_hours(24);

impl Engine {
    /// Watermarks are published from now on, in steps of the interval.
    pub(super) fn start_publishing(&mut self) {
        if self.publish_at.is_none() && self.settings.watermark_interval > Span::ZERO {
            let now = self.listening.duration();
            self.publish_again(now, now);
        }
    }

    /// Sets the next moment after `last`. Of a gap of days in a recording only the end is told.
    pub(super) fn publish_again(&mut self, last: Span, now: Span) {
        let interval = self.settings.watermark_interval;
        let missed = (now - last).0 / interval.0;
        let skipped =
            if now - last > MAX_PUBLISH_GAP { missed.saturating_mul(interval.0) } else { 0 };
        let at = (last + Span(skipped)).max(last + interval);
        self.publish_at = Some(at);
        if at > last {
            self.deadlines.at_duration(at, SpanDeadline::Publish);
        }
    }

    pub(super) fn publish_if_immediate(&mut self, out: &mut Effects) {
        if self.settings.watermark_interval == Span::ZERO {
            self.publish_watermarks(out);
        }
    }

    /// Tells the watermarks that moved since they were last told, of the regions and then of the gateway.
    pub(super) fn publish_watermarks(&mut self, out: &mut Effects) {
        for index in 0..self.regions.len() {
            if self.in_device_scope() {
                self.progress_region(index, out);
            }
            let region = &mut self.regions[index];
            let w = region.watermark();
            if w > region.published {
                region.published = w;
                region.dirty = true;
                let region = Some(region.id.clone());
                out.push(self.watermark_report(region, Some(w)));
            }
        }
        let w = self.gateway_watermark();
        if w > self.gateway_published {
            self.gateway_published = w;
            out.push(self.watermark_report(None, Some(w)));
        }
    }

    pub(super) fn watermark_report(
        &self,
        region: Option<crate::ids::RegionId>,
        watermark: Option<EventTime>,
    ) -> Output {
        Output::Watermark(WatermarkReport { region, watermark, clock: self.clock.quality })
    }

    /// The minimum over the regions that have spoken; region scope: the combined watermark.
    fn gateway_watermark(&self) -> EventTime {
        if !self.in_device_scope() {
            return self.partitions.combined();
        }
        let spoken = self.regions.iter().map(Region::watermark);
        spoken.filter(|w| *w != EventTime::MIN).min().unwrap_or(EventTime::MIN)
    }
}
