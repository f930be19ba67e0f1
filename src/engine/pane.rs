//! The state of one window of one key, and of the roll-ups made of it.

use crate::engine::aggregate::Gauge;
use crate::engine::emission::Emission;
use crate::engine::settings::SourceMetric;
use crate::time::{EventTime, Span};

/// What is known of the samples of a window.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    /// Records with a value.
    pub count: u32,
    /// Those of them that carry the arrival time.
    pub stamped: u32,
    /// Those of them whose device time was corrected.
    pub corrected: u32,
    /// Lowest event time; [`EventTime::MAX`] when there is none.
    pub first: EventTime,
    /// Highest event time; [`EventTime::MIN`] when there is none.
    pub last: EventTime,
    /// Slots with a sample, see [`crate::engine::coverage`].
    pub slots: u64,
    /// One per metric of the source, in its order.
    pub metrics: Box<[Gauge]>,
}

impl Samples {
    /// None yet, of so many metrics.
    pub fn none(metrics: usize) -> Self {
        Self {
            count: 0,
            stamped: 0,
            corrected: 0,
            first: EventTime::MAX,
            last: EventTime::MIN,
            slots: 0,
            metrics: vec![Gauge::default(); metrics].into_boxed_slice(),
        }
    }

    /// Adds one record: a value or none per metric, and the bit of its slot.
    pub fn add(
        &mut self,
        values: &[Option<f64>],
        at: EventTime,
        slot: u64,
        asked: &[SourceMetric],
    ) {
        self.count = self.count.saturating_add(1);
        self.first = self.first.min(at);
        self.last = self.last.max(at);
        self.slots |= slot;
        for ((gauge, value), metric) in self.metrics.iter_mut().zip(values).zip(asked) {
            if let Some(value) = value {
                gauge.add(*value, at, metric.kept);
            }
        }
    }

    /// Adds all samples of a part; `widen` turns its slots into ours.
    pub fn merge(&mut self, part: &Self, widen: impl Fn(u64) -> u64) {
        self.count = self.count.saturating_add(part.count);
        self.stamped = self.stamped.saturating_add(part.stamped);
        self.corrected = self.corrected.saturating_add(part.corrected);
        self.first = self.first.min(part.first);
        self.last = self.last.max(part.last);
        self.slots |= widen(part.slots);
        for (gauge, of_part) in self.metrics.iter_mut().zip(&part.metrics) {
            gauge.merge(of_part);
        }
    }
}

/// An open window of a device: the base window, or a larger multiple of it.
///
/// A base window holds its samples until it is final. A multiple holds those of its final parts only; what it tells
/// is these, merged with its parts that are still open. So a day is always the sum of its hours.
#[derive(Clone, Debug, PartialEq)]
pub struct Pane {
    /// Index into [`crate::engine::settings::Settings::windows`].
    pub window: usize,
    /// First instant inside.
    pub start: EventTime,
    /// First instant after it.
    pub end: EventTime,
    /// Its samples; of a multiple, those of its final parts.
    pub samples: Samples,
    /// What has been told of it.
    pub emission: Emission,
    /// It counts in its region's roll-up.
    pub in_region: bool,
    /// It differs from what the store has.
    pub dirty: bool,
}

impl Pane {
    /// A new, empty one.
    pub fn new(window: usize, start: EventTime, size: Span, metrics: usize) -> Self {
        Self {
            window,
            start,
            end: start + size,
            samples: Samples::none(metrics),
            emission: Emission::default(),
            in_region: false,
            dirty: true,
        }
    }

    /// Whether `part` lies inside.
    pub fn holds(&self, part: &Self) -> bool {
        self.start <= part.start && part.end <= self.end
    }
}
