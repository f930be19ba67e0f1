//! Gauge aggregates of one metric in one window: mergeable, so that a day is made of its hours.

use crate::engine::settings::Aggregates;
use crate::time::EventTime;

/// Running aggregates of a gauge. All are kept in memory; the store keeps what the configuration asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gauge {
    /// Values added.
    pub count: u32,
    /// Their sum.
    pub sum: f64,
    /// The least; `+∞` when there is none.
    pub min: f64,
    /// The greatest; `−∞` when there is none.
    pub max: f64,
    /// Sum of squared distances from the mean (Welford); kept only where the deviation is asked for.
    pub m2: f64,
    /// Lowest event time of a value, and the value that arrived first at it.
    pub first: (EventTime, f64),
    /// Highest event time of a value, and the value that arrived last at it.
    pub last: (EventTime, f64),
}

impl Default for Gauge {
    fn default() -> Self {
        Self {
            count: 0,
            sum: 0.0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            m2: 0.0,
            first: (EventTime::MAX, 0.0),
            last: (EventTime::MIN, 0.0),
        }
    }
}

impl Gauge {
    /// Adds one finite value taken at `at`.
    pub fn add(&mut self, value: f64, at: EventTime, asked: Aggregates) {
        if asked.deviation && self.count > 0 {
            let n = f64::from(self.count);
            let distance = value - self.sum / n;
            self.m2 += distance * distance * n / (n + 1.0);
        }
        if self.count == 0 || at < self.first.0 {
            self.first = (at, value);
        }
        if self.count == 0 || at >= self.last.0 {
            self.last = (at, value);
        }
        self.count = self.count.saturating_add(1);
        self.sum += value;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Adds all that `other` holds; `other` arrived later where times tie.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = *other;
            return;
        }
        let (n, m) = (f64::from(self.count), f64::from(other.count));
        let distance = other.sum / m - self.sum / n;
        self.m2 += other.m2 + distance * distance * n * m / (n + m);
        if other.first.0 < self.first.0 {
            self.first = other.first;
        }
        if other.last.0 >= self.last.0 {
            self.last = other.last;
        }
        self.count = self.count.saturating_add(other.count);
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Arithmetic mean; `None` without a value.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / f64::from(self.count))
    }

    /// Standard deviation of the population; `None` without a value.
    pub fn deviation(&self) -> Option<f64> {
        (self.count > 0).then(|| (self.m2 / f64::from(self.count)).max(0.0).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: Aggregates = Aggregates {
        sum: true,
        mean: true,
        min: true,
        max: true,
        first: true,
        last: true,
        deviation: true,
    };

    fn gauge(values: &[(f64, i64)]) -> Gauge {
        let mut gauge = Gauge::default();
        values.iter().for_each(|&(value, at)| gauge.add(value, EventTime(at), ALL));
        gauge
    }

    #[test]
    fn first_is_the_earliest_arrived_at_the_lowest_time_and_last_the_latest_at_the_highest() {
        let gauge = gauge(&[(1.0, 5), (2.0, 3), (3.0, 3), (4.0, 9), (5.0, 9)]);
        assert_eq!((gauge.first.1, gauge.last.1), (2.0, 5.0));
    }

    #[test]
    fn deviation_is_that_of_the_population() {
        let deviation = gauge(&[
            (2.0, 0),
            (4.0, 0),
            (4.0, 0),
            (4.0, 0),
            (5.0, 0),
            (5.0, 0),
            (7.0, 0),
            (9.0, 0),
        ])
        .deviation()
        .unwrap();
        assert!((deviation - 2.0).abs() < 1e-12, "{deviation}");
    }

    #[test]
    fn an_empty_gauge_has_no_mean() {
        assert_eq!(gauge(&[]).mean(), None);
        assert_eq!(gauge(&[]).deviation(), None);
    }

    proptest! {
        #[test]
        fn merging_parts_is_adding_all(
            values in proptest::collection::vec((-1000..1000_i32, 0..50_i64), 0..40), cut in 0..40_usize,
        ) {
            let values: Vec<_> = values.iter().map(|&(v, at)| (f64::from(v) / 4.0, at)).collect();
            let cut = cut.min(values.len());
            let mut merged = gauge(&values[..cut]);
            merged.merge(&gauge(&values[cut..]));
            let whole = gauge(&values);
            prop_assert_eq!((merged.count, merged.sum, merged.first, merged.last), (whole.count, whole.sum, whole.first, whole.last));
            prop_assert_eq!((merged.min, merged.max), (whole.min, whole.max));
            prop_assert!((merged.m2 - whole.m2).abs() <= 1e-6 * whole.m2.abs().max(1.0));
        }
    }
}
