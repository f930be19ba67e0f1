//! The books: every message and every record is in exactly one column (SPEC 6), at every moment and across restarts.

use crate::event::Reason;

macro_rules! columns {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the store was created.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
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
    /// Of `quarantined`: a device time ahead of the gateway's by more than `future-tolerance`.
    future,
    /// Of `quarantined`: an event time older than `past-limit`.
    past,
    /// Of `quarantined`: no usable time.
    no_time,
    /// Of `quarantined`: the device belongs to another source.
    other_source,
    /// Of `malformed`: not what the source reads at all.
    syntax,
    /// Of `malformed`: nothing there.
    empty,
    /// Of `malformed`: nothing in it that the source asks for.
    shape,
    /// Records with a local time in an hour that their zone leaves out (in no balance).
    skipped_hour,
    /// Records whose device time was corrected by the offset of the device's clock (in no balance).
    corrected,
    /// Messages held until the time is known. The only column that also falls.
    held,
}

impl Books {
    /// Counts a record or a message that was refused, by its reason and in all.
    pub fn refuse(&mut self, reason: Reason) {
        let (all, one) = match reason {
            Reason::Future => (&mut self.quarantined, Some(&mut self.future)),
            Reason::Past => (&mut self.quarantined, Some(&mut self.past)),
            Reason::NoTime => (&mut self.quarantined, Some(&mut self.no_time)),
            Reason::OtherSource => (&mut self.quarantined, Some(&mut self.other_source)),
            Reason::Syntax => (&mut self.malformed, Some(&mut self.syntax)),
            Reason::Empty => (&mut self.malformed, Some(&mut self.empty)),
            Reason::Shape => (&mut self.malformed, Some(&mut self.shape)),
            Reason::Oversize => (&mut self.oversize, None),
        };
        *all += 1;
        if let Some(one) = one {
            *one += 1;
        }
    }

    /// What was quarantined and what was malformed, as far as their reasons are known: those of a store from before
    /// reasons were counted are not.
    pub fn by_reason(&self) -> (u64, u64) {
        let quarantined = [self.future, self.past, self.no_time, self.other_source];
        let malformed = [self.syntax, self.empty, self.shape];
        let sum = |columns: &[u64]| columns.iter().fold(0, |sum: u64, it| sum.wrapping_add(*it));
        (sum(&quarantined), sum(&malformed))
    }

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
        let (quarantined, malformed) = self.by_reason();
        let reasons = quarantined <= self.quarantined && malformed <= self.malformed;
        assert!(reasons, "more reasons than were refused: {self:?}");
    }

    /// Messages and records as the columns have them. Wraps, as what a damaged store says may be any number.
    fn sums(&self) -> (u64, u64) {
        let messages =
            [self.decoded, self.ignored, self.unmatched, self.malformed, self.oversize, self.held];
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
    fn whatever_is_refused_is_in_the_column_of_its_reason_and_in_the_balance() {
        use Reason::{Empty, Future, NoTime, OtherSource, Oversize, Past, Shape, Syntax};
        let mut books = Books { received: 4, records: 4, ..Books::default() };
        for reason in [Future, Past, NoTime, OtherSource, Syntax, Empty, Shape, Oversize] {
            books.refuse(reason);
        }
        books.balance();
        assert_eq!((books.by_reason(), books.oversize), ((4, 3), 1));
        let named = ["future", "past", "no_time", "other_source", "syntax", "empty", "shape"];
        for (column, count) in books.columns().filter(|(column, _)| named.contains(column)) {
            assert_eq!(count, 1, "{column}");
        }
    }

    #[test]
    fn books_from_before_reasons_were_counted_are_balanced() {
        let books =
            Books { received: 1, decoded: 1, records: 2, quarantined: 2, ..Books::default() };
        let then = books.columns().take_while(|(name, _)| *name != "future").map(|(_, n)| n);
        let mut now = Books::from_columns(then);
        assert!(now.is_balanced());
        now.records += 1;
        now.refuse(Reason::Past);
        now.balance();
    }

    #[test]
    #[should_panic(expected = "records out of balance")]
    fn a_record_in_no_column_is_noticed() {
        Books { received: 1, decoded: 1, records: 1, ..Books::default() }.balance();
    }
}
