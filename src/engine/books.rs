//! The books: every message and every record is in exactly one column (SPEC 6), at every moment and across restarts.

macro_rules! columns {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the store was created.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
        #[serde(rename_all = "kebab-case")]
        pub struct Books { $($(#[$doc])* pub $name: u64,)* }

        impl Books {
            /// The columns in their order; a newer version only appends.
            pub fn columns(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }

            /// The inverse of [`Self::columns`]; columns that are missing are zero.
            pub fn from_columns(mut counts: impl Iterator<Item = u64>) -> Self {
                Self { $($name: counts.next().unwrap_or(0),)* }
            }
        }
    };
}

columns! {
    /// Messages received.
    received,
    /// Messages with at least one record.
    decoded,
    /// Messages ignored by rule.
    ignored,
    /// Messages that no source claims.
    unmatched,
    /// Messages of which nothing could be read.
    malformed,
    /// Messages over `max-payload`.
    oversize,
    /// Records in decoded messages.
    records,
    /// Records in a window.
    aggregated,
    /// Records without a value: heartbeats and the like.
    valueless,
    /// Records seen before.
    duplicate,
    /// Records whose window was final.
    late,
    /// Records refused for their time or their source.
    quarantined,
    /// Retained records that told nothing new.
    retained_ignored,
    /// Records beyond `max-devices` or `max-open-windows`.
    no_room,
    /// Fields and array items that were there and could not be read (in no balance).
    unreadable,
    /// Records whose unusable stamp was replaced by the arrival time (in no balance).
    stamped,
    /// Refused records and messages that were counted but not told (in no balance).
    withheld,
    /// Device windows that closed after their region's roll-up was final, and are not in it (in no balance).
    region_missed,
    /// What a damaged store had lost, in things named in the log at the start that found out (in no balance).
    lost,
}

impl Books {
    /// Whether every message and every record is in one column.
    pub fn is_balanced(&self) -> bool {
        (self.received, self.records) == self.sums()
    }

    /// Checks both balances. A difference is our fault.
    ///
    /// # Panics
    /// When a message or record is in no column, or in two.
    pub fn balance(&self) {
        let (messages, records) = self.sums();
        assert_eq!(self.received, messages, "messages out of balance: {self:?}");
        assert_eq!(self.records, records, "records out of balance: {self:?}");
    }

    /// Messages and records as the columns have them. Wraps, as what a damaged store says may be any number.
    fn sums(&self) -> (u64, u64) {
        let messages = [self.decoded, self.ignored, self.unmatched, self.malformed, self.oversize];
        let records = [
            self.aggregated,
            self.valueless,
            self.duplicate,
            self.late,
            self.quarantined,
            self.retained_ignored,
            self.no_room,
        ];
        let sum = |columns: &[u64]| columns.iter().fold(0, |sum: u64, it| sum.wrapping_add(*it));
        (sum(&messages), sum(&records))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_survive_a_round_trip() {
        let books =
            Books { received: 3, decoded: 3, records: 4, late: 4, withheld: 7, ..Books::default() };
        assert_eq!(Books::from_columns(books.columns().map(|(_, count)| count)), books);
        books.balance();
    }

    #[test]
    #[should_panic(expected = "records out of balance")]
    fn a_record_in_no_column_is_noticed() {
        Books { received: 1, decoded: 1, records: 1, ..Books::default() }.balance();
    }
}
