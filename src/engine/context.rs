//! What the steps of the engine share: the settings made ready for use, and the state of the clock.

use crate::engine::aggregate::Gauge;
use crate::engine::coverage::Slots;
use crate::engine::device::Device;
use crate::engine::pane::{Pane, Samples};
use crate::engine::region::RegionPane;
use crate::engine::region::RegionSamples;
use crate::engine::settings::{Aggregates, ClockRules, Settings, SourceSettings};
use crate::event::{Cause, Firing, MetricResult, RegionResult, WindowResult};
use crate::time::{ArrivalTime, ClockQuality, EventTime, Span};

/// Settings and clock, for the time of one call.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// What the engine was told.
    pub settings: &'a Settings,
    /// Aggregates that a region tells, per metric.
    pub region_aggregates: &'a [Aggregates],
    /// Quality of the gateway's clock.
    pub clock: ClockQuality,
    /// When the store was created; windows that began before are partial.
    pub created: ArrivalTime,
    /// The listened stamp of the region in hand.
    pub stamp: ArrivalTime,
    /// The listened duration.
    pub duration: Span,
}

/// Why and at which watermark something fires; `watermark` is `None` at the end of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// Why.
    pub cause: Cause,
    /// The watermark to report.
    pub watermark: Option<EventTime>,
}

impl Context<'_> {
    /// The listened duration where there is a clock.
    pub fn clock_duration(&self) -> Option<Span> {
        (self.settings.clock == ClockRules::Applied).then_some(self.duration)
    }

    /// The source of a device.
    pub fn source(&self, device: &Device) -> &SourceSettings {
        &self.settings.sources[device.source]
    }

    /// How a window of a device is cut into slots.
    pub fn slots(&self, device: &Device, window: usize) -> Slots {
        Slots::new(self.settings.windows[window].size, device.policy.interval)
    }

    /// A window that fires, of a device.
    pub fn window_result(
        &self,
        device: &Device,
        pane: &Pane,
        samples: &Samples,
        revision: u32,
        trigger: Trigger,
    ) -> WindowResult {
        let source = self.source(device);
        let slots = self.slots(device, pane.window);
        let size = self.settings.windows[pane.window].size;
        let expected = device.policy.interval.map(|every| (size.0 / every.0.max(1)).max(1));
        WindowResult {
            firing: self.firing(
                pane.window,
                pane.start,
                pane.end,
                revision,
                trigger,
                [samples.count, samples.stamped, samples.corrected],
            ),
            source: source.profile.source().clone(),
            region: device.region_id.clone(),
            device: device.id.clone(),
            expected: expected.map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
            coverage: slots.coverage(samples.slots),
            largest_gap: slots.largest_gap(samples.slots),
            first: samples.first,
            last: samples.last,
            metrics: source
                .metrics
                .iter()
                .zip(&samples.metrics)
                .filter(|(_, gauge)| gauge.count > 0)
                .map(|(metric, gauge)| {
                    self.metric_result(metric.metric, gauge, metric.aggregates, None)
                })
                .collect(),
        }
    }

    /// A window that fires, of a region.
    pub fn region_result(
        &self,
        region: (&crate::ids::RegionId, usize),
        key: (EventTime, usize),
        pane: &RegionPane,
        samples: &RegionSamples,
        revision: u32,
        trigger: Trigger,
    ) -> RegionResult {
        let (end, window) = key;
        RegionResult {
            firing: self.firing(
                window,
                pane.start,
                end,
                revision,
                trigger,
                [samples.count, samples.stamped, samples.corrected],
            ),
            region: region.0.clone(),
            reporting: samples.reporting,
            devices: u32::try_from(region.1).unwrap_or(u32::MAX),
            metrics: (0..)
                .zip(&samples.metrics)
                .filter(|(_, (gauge, _))| gauge.count > 0)
                .map(|(metric, (gauge, sum))| {
                    self.metric_result(metric, gauge, self.region_aggregates[metric], Some(*sum))
                })
                .collect(),
        }
    }

    fn firing(
        &self,
        window: usize,
        start: EventTime,
        end: EventTime,
        revision: u32,
        trigger: Trigger,
        [samples, stamped, corrected]: [u32; 3],
    ) -> Firing {
        Firing {
            window: self.settings.windows[window].name.clone(),
            start,
            end,
            revision,
            cause: trigger.cause,
            watermark: trigger.watermark,
            samples,
            stamped,
            corrected,
            partial: self.settings.clock == ClockRules::Applied && start < self.created.stamped(),
            clock: self.clock,
        }
    }

    fn metric_result(
        &self,
        metric: usize,
        gauge: &Gauge,
        asked: Aggregates,
        sum_of_means: Option<f64>,
    ) -> MetricResult {
        let spec = &self.settings.metrics[metric];
        MetricResult {
            metric: spec.name.clone(),
            unit: spec.unit.clone(),
            count: gauge.count,
            sum: asked.sum.then_some(gauge.sum),
            mean: asked.mean.then(|| gauge.mean()).flatten(),
            min: asked.min.then_some(gauge.min),
            max: asked.max.then_some(gauge.max),
            first: asked.first.then_some(gauge.first.1),
            last: asked.last.then_some(gauge.last.1),
            deviation: asked.deviation.then(|| gauge.deviation()).flatten(),
            sum_of_means: sum_of_means.filter(|_| asked.mean),
        }
    }
}
