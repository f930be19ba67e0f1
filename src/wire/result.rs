//! Views of results: what is told of a window of a device or a region.

use serde::{Serialize, Serializer};

use crate::event::{Cause, Firing, MetricResult, RegionResult, WindowResult};
use crate::time::ClockQuality;
use crate::wire::encode::{finite_time, is_zero};
use crate::wire::fields::{Field, Fields};

#[derive(Serialize)]
struct FiringView {
    start: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<i64>,
    revision: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<Cause>,
    /// `null` is infinity.
    #[serde(skip_serializing_if = "Option::is_none")]
    watermark: Option<Option<i64>>,
    samples: u32,
    #[serde(skip_serializing_if = "is_zero")]
    stamped: u32,
    #[serde(skip_serializing_if = "is_zero")]
    corrected: u32,
    #[serde(skip_serializing_if = "is_false")]
    partial: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    clock: Option<ClockQuality>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl FiringView {
    fn of(firing: &Firing, fields: Fields) -> Self {
        Self {
            start: firing.start.0,
            end: fields.pick(Field::End, firing.end.0),
            revision: firing.revision,
            cause: fields.pick(Field::Cause, firing.cause),
            watermark: fields.pick(Field::Watermark, firing.watermark.and_then(finite_time)),
            samples: firing.samples,
            stamped: firing.stamped,
            corrected: firing.corrected,
            partial: firing.partial,
            clock: fields.pick(Field::Clock, firing.clock),
        }
    }
}

/// Of a device.
#[derive(Serialize)]
pub(super) struct WindowView<'a> {
    #[serde(flatten)]
    firing: FiringView,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    coverage: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gap: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_at: Option<i64>,
    metrics: Metrics<'a>,
}

impl<'a> WindowView<'a> {
    pub(super) fn of(result: &'a WindowResult, fields: Fields) -> Self {
        let ends = result.metrics.iter().any(|metric| metric.first.or(metric.last).is_some());
        let coverage = fields.pick(Field::Coverage, (result.coverage * 1e3).round() / 1e3);
        Self {
            firing: FiringView::of(&result.firing, fields),
            expected: result.expected.filter(|_| fields.has(Field::Expected)),
            coverage: finite(coverage),
            gap: fields.pick(Field::Gap, result.largest_gap.0),
            first_at: fields.pick(Field::FirstAt, result.first.0).filter(|_| ends),
            last_at: fields.pick(Field::LastAt, result.last.0).filter(|_| ends),
            metrics: Metrics { all: &result.metrics, samples: result.firing.samples, fields },
        }
    }
}

/// Of a region.
#[derive(Serialize)]
pub(super) struct RegionView<'a> {
    #[serde(flatten)]
    firing: FiringView,
    reporting: u32,
    devices: u32,
    metrics: Metrics<'a>,
}

impl<'a> RegionView<'a> {
    pub(super) fn of(result: &'a RegionResult, fields: Fields) -> Self {
        let RegionResult { firing, reporting, devices, metrics, .. } = result;
        Self {
            firing: FiringView::of(firing, fields),
            reporting: *reporting,
            devices: *devices,
            metrics: Metrics { all: metrics, samples: firing.samples, fields },
        }
    }
}

/// An object with one field for each.
struct Metrics<'a> {
    all: &'a [MetricResult],
    samples: u32,
    fields: Fields,
}

impl Serialize for Metrics<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let view = |metric| MetricView::of(metric, self.samples, self.fields);
        serializer.collect_map(self.all.iter().map(|metric| (&metric.metric, view(metric))))
    }
}

#[derive(Serialize)]
struct MetricView<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    unit: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u32>,
    #[serde(flatten)]
    aggregates: Aggregates,
}

/// Only what was asked for and is a number: JSON has no NaN.
#[derive(Serialize)]
struct Aggregates {
    #[serde(skip_serializing_if = "Option::is_none")]
    sum: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mean: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deviation: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sum_of_means: Option<f64>,
}

impl<'a> MetricView<'a> {
    fn of(metric: &'a MetricResult, samples: u32, fields: Fields) -> Self {
        let aggregates = Aggregates {
            sum: finite(metric.sum),
            mean: finite(metric.mean),
            min: finite(metric.min),
            max: finite(metric.max),
            first: finite(metric.first),
            last: finite(metric.last),
            deviation: finite(metric.deviation),
            sum_of_means: finite(metric.sum_of_means),
        };
        let tells_count = fields.has(Field::Count) || metric.count != samples;
        Self {
            unit: if fields.has(Field::Unit) { &metric.unit } else { "" },
            count: tells_count.then_some(metric.count),
            aggregates,
        }
    }
}

fn finite(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite())
}
