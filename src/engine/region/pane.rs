//! A window of a region, and what is merged into it.

use crate::engine::aggregate::Gauge;
use crate::engine::emission::Emission;
use crate::engine::pane::Samples;
use crate::engine::settings::SourceMetric;
use crate::time::EventTime;

/// The roll-up of one window over a region: the samples of devices whose own window is final. What it tells is these,
/// merged with the devices' windows that are still open.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionPane {
    /// First instant inside.
    pub start: EventTime,
    /// Samples of the devices that are final.
    pub settled: RegionSamples,
    /// What has been told of it.
    pub emission: Emission,
    /// It differs from what the store has.
    pub dirty: bool,
}

impl RegionPane {
    pub(super) fn new(start: EventTime, metrics: usize) -> Self {
        Self {
            start,
            settled: RegionSamples::none(metrics),
            emission: Emission::default(),
            dirty: true,
        }
    }
}

/// Merged samples of many devices.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionSamples {
    /// Records with a value.
    pub count: u32,
    /// Those of them that carry the arrival time.
    pub stamped: u32,
    /// Those of them whose device time was corrected.
    pub corrected: u32,
    /// Devices with a sample.
    pub reporting: u32,
    /// Per metric of the configuration: merged values, and the sum of the devices' means.
    pub metrics: Vec<(Gauge, f64)>,
}

impl RegionSamples {
    /// None yet, of so many metrics.
    pub fn none(metrics: usize) -> Self {
        let metrics = vec![(Gauge::default(), 0.0); metrics];
        Self { count: 0, stamped: 0, corrected: 0, reporting: 0, metrics }
    }

    /// Adds one device's window.
    pub fn merge(&mut self, device: &Samples, metrics: &[SourceMetric]) {
        self.count = self.count.saturating_add(device.count);
        self.stamped = self.stamped.saturating_add(device.stamped);
        self.corrected = self.corrected.saturating_add(device.corrected);
        self.reporting += u32::from(device.count > 0);
        for (gauge, metric) in device.metrics.iter().zip(metrics) {
            let (merged, sum_of_means) = &mut self.metrics[metric.metric];
            merged.merge(gauge);
            *sum_of_means += gauge.mean().unwrap_or(0.0);
        }
    }
}
