//! What has been told of a window, and when it is to be told again (SPEC 4). The delay of a revision is a span of listened
//! time (SPEC 3.4): it passes whatever the wall clock does.

use crate::engine::settings::Revisions;
use crate::time::Span;

/// Revisions of one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Emission {
    told: u32,
    due: Option<Span>,
}

/// What a change to a window that is past its end asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Tell it at once.
    TellNow,
    /// Tell it when the listened duration reaches the one in [`Emission::due`], or before the window becomes final.
    TellLater,
}

impl Emission {
    /// As a snapshot kept it.
    pub fn restore(told: u32, due: Option<Span>) -> Self {
        Self { told, due }
    }

    /// How often it was told; the revision of the next firing.
    pub fn told(&self) -> u32 {
        self.told
    }

    /// The listened duration at which a pending revision is due; [`Span::MAX`]: not before the window becomes final.
    pub fn due(&self) -> Option<Span> {
        self.due
    }

    /// The watermark passed its end and it was neither told nor is it about to be.
    pub fn awaits_watermark(&self) -> bool {
        self.told == 0 && self.due.is_none()
    }

    /// The window changed after its end. `now` is the listened duration, `None` without a clock.
    pub fn changed(&mut self, revisions: Revisions, now: Option<Span>) -> Change {
        match revisions {
            Revisions::Immediate => Change::TellNow,
            Revisions::Coalesced(delay) => {
                self.defer(delay, now);
                Change::TellLater
            }
        }
    }

    /// The window changed after its end and is told `delay` later, with whatever else changes until then.
    pub fn defer(&mut self, delay: Span, now: Option<Span>) {
        self.due.get_or_insert(now.map_or(Span::MAX, |now| now + delay));
    }

    /// It is told now: the revision to put on it.
    pub fn tell(&mut self) -> u32 {
        let revision = self.told;
        self.told = self.told.saturating_add(1);
        self.due = None;
        revision
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Revisions = Revisions::Coalesced(Span(30));

    #[test]
    fn changes_within_the_delay_are_told_once() {
        let mut emission = Emission::default();
        assert!(emission.awaits_watermark());
        assert_eq!(emission.tell(), 0);
        assert_eq!(emission.changed(DELAY, Some(Span(100))), Change::TellLater);
        assert_eq!(emission.changed(DELAY, Some(Span(120))), Change::TellLater);
        assert_eq!(emission.due(), Some(Span(130)));
        assert_eq!(emission.tell(), 1);
        assert_eq!(emission.due(), None);
    }

    #[test]
    fn without_a_clock_a_revision_waits_for_the_end_of_the_window() {
        let mut emission = Emission::default();
        emission.changed(DELAY, None);
        assert_eq!(emission.due(), Some(Span::MAX));
        assert!(!emission.awaits_watermark());
    }
}
