//! Finding the entry on which the broker closes the connection.
//!
//! MQTT 3.1.1 gives a broker no way to refuse a message that is too large for it but to close the
//! connection. Sent again first thing on the next one, such an entry would hold up the outbox for
//! ever. So after a connection that was closed with entries on their way, as many as the window holds
//! are sent one at a time: whichever is then on its way is the only one that can be to blame. An entry
//! that is three times is.

use std::collections::BTreeSet;

use crate::ids::OutboxSeq;

const STRIKES: u32 = 3;

/// How carefully to send.
#[derive(Debug, Default)]
pub(super) struct Care {
    /// How many entries are still to be sent alone.
    alone: usize,
    suspect: Option<Suspect>,
}

#[derive(Debug)]
struct Suspect {
    entry: OutboxSeq,
    strikes: u32,
}

impl Care {
    /// How many entries may be on their way.
    pub(super) fn limit(&self, window: usize) -> usize {
        if self.alone > 0 { 1 } else { window }
    }

    pub(super) fn on_acked(&mut self) {
        self.alone = self.alone.saturating_sub(1);
    }

    /// The broker closed the connection. Returns the entry that is to blame, once that is certain.
    pub(super) fn on_closed(
        &mut self,
        on_their_way: &BTreeSet<OutboxSeq>,
        window: usize,
    ) -> Option<OutboxSeq> {
        let entry = *on_their_way.first()?;
        let was_alone = self.limit(window) == 1;
        self.alone = window;
        let before = self.suspect.take().filter(|suspect| suspect.entry == entry);
        let strikes = before.map_or(0, |suspect| suspect.strikes) + u32::from(was_alone);
        if strikes >= STRIKES {
            return Some(entry);
        }
        self.suspect = Some(Suspect { entry, strikes });
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(seqs: impl IntoIterator<Item = u64>) -> BTreeSet<OutboxSeq> {
        seqs.into_iter().map(OutboxSeq).collect()
    }

    #[test]
    fn an_entry_is_to_blame_after_three_closings_alone() {
        let mut care = Care::default();
        assert_eq!(care.limit(100), 100);
        assert_eq!(care.on_closed(&entries(5..105), 100), None);
        assert_eq!(care.limit(100), 1);
        assert_eq!(care.on_closed(&entries([5]), 100), None);
        assert_eq!(care.on_closed(&entries([5]), 100), None);
        assert_eq!(care.on_closed(&entries([5]), 100), Some(OutboxSeq(5)));
        assert_eq!(care.on_closed(&entries([6]), 100), None, "each is judged by itself");
    }

    #[test]
    fn every_entry_that_was_on_its_way_is_sent_alone_and_then_the_window_opens_again() {
        let mut care = Care::default();
        care.on_closed(&entries(5..105), 100);
        for _ in 0..100 {
            assert_eq!(care.limit(100), 1);
            care.on_acked();
        }
        assert_eq!(care.limit(100), 100);
    }

    #[test]
    fn a_connection_that_was_closed_with_nothing_on_its_way_blames_nobody() {
        let mut care = Care::default();
        assert_eq!(care.on_closed(&entries([]), 100), None);
        assert_eq!(care.limit(100), 100);
    }
}
