//! Which fields a result tells, besides those that it always does.

use std::fmt;

/// A field of results that is told where it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Why it fired.
    Cause,
    /// The watermark that closed it.
    Watermark,
    /// Quality of the gateway's clock.
    Clock,
    /// Samples of a device that reports at its configured interval.
    Expected,
    /// Share of slots that hold a sample.
    Coverage,
    /// Longest run of empty slots.
    Gap,
    /// First instant after the window, which its start and its name imply.
    End,
    /// Lowest event time of a sample.
    FirstAt,
    /// Highest event time of a sample.
    LastAt,
    /// Units of metrics, which the configuration has.
    Unit,
    /// Values of each metric, where they are as many as the samples: else they are told anyway.
    Count,
}

impl Field {
    /// Every one, in the order of the contract.
    pub const ALL: [Self; 11] = [
        Self::Cause,
        Self::Watermark,
        Self::Clock,
        Self::Expected,
        Self::Coverage,
        Self::Gap,
        Self::End,
        Self::FirstAt,
        Self::LastAt,
        Self::Unit,
        Self::Count,
    ];

    /// What results call it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cause => "cause",
            Self::Watermark => "watermark",
            Self::Clock => "clock",
            Self::Expected => "expected",
            Self::Coverage => "coverage",
            Self::Gap => "gap",
            Self::End => "end",
            Self::FirstAt => "first_at",
            Self::LastAt => "last_at",
            Self::Unit => "unit",
            Self::Count => "count",
        }
    }
}

/// A set of them. By default what says how far a result can be trusted, and not what the receiver can know by itself:
/// an hourly result of a meter takes at most 400 bytes on the wire then.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fields(u16);

impl Fields {
    /// All of them.
    pub const ALL: Self = Self((1 << Field::ALL.len()) - 1);

    /// Whether a field is in it.
    pub const fn has(self, field: Field) -> bool {
        self.0 & 1 << field as u16 != 0
    }

    /// `value` where `field` is in it.
    pub(super) fn pick<T>(self, field: Field, value: T) -> Option<T> {
        self.has(field).then_some(value)
    }
}

impl Default for Fields {
    fn default() -> Self {
        use Field::{Cause, Clock, Coverage, Expected, Gap, Watermark};
        [Cause, Watermark, Clock, Expected, Coverage, Gap].into_iter().collect()
    }
}

impl FromIterator<Field> for Fields {
    fn from_iter<I: IntoIterator<Item = Field>>(fields: I) -> Self {
        Self(fields.into_iter().fold(0, |set, field| set | 1 << field as u16))
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = Field::ALL.into_iter().filter(|field| self.has(*field));
        f.debug_set().entries(told.map(Field::as_str)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_the_set_of_each() {
        assert_eq!(Field::ALL.into_iter().collect::<Fields>(), Fields::ALL);
        let empty: Fields = [].into_iter().collect();
        assert!(Field::ALL.into_iter().all(|field| Fields::ALL.has(field) && !empty.has(field)));
    }
}
