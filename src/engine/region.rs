//! A region: the minimum over its devices, and the roll-ups that this minimum closes (SPEC 3.2).
//!
//! Three kinds of members are kept apart, so that a message or a tick costs the same in a fleet of ten and of ten
//! thousand: those with a watermark of their own (in trees of minima), those that are idle and follow the clock
//! (counted by lateness: they all stand at `L − D − 1`), and those held out for lagging more than their `max-hold`.

mod pane;

use std::collections::BTreeMap;

use crate::engine::fleet::Clocks;
use crate::engine::minimum::Minimum;
use crate::engine::settings::Policy;
use crate::engine::watermark::bounded;
use crate::engine::window::{final_at, last_inside};
use crate::ids::RegionId;
use crate::time::{ArrivalTime, EventTime, Span};

pub use self::pane::{RegionPane, RegionSamples};

/// One region.
#[derive(Debug)]
pub struct Region {
    /// Its name.
    pub id: RegionId,
    /// Indices of its devices, in the order in which they joined.
    pub members: Vec<usize>,
    /// How many of them are forgotten.
    pub forgotten: usize,
    /// Open roll-ups by end and window.
    pub panes: BTreeMap<(EventTime, usize), RegionPane>,
    /// Next moment on the listened clock at which it wants to be looked at.
    pub armed: Option<ArrivalTime>,
    /// Next listened duration at which a revision of it is due, as far as that is noted.
    pub revises_at: Option<Span>,
    /// It is to be looked at when all its devices are that moved at this moment.
    pub looked_for: bool,
    /// Its listened stamp while the gateway's clock is not good: what stood in for it has come so far.
    pub stamp: ArrivalTime,
    /// The clocks of its devices.
    pub clocks: Clocks,
    /// Device windows that closed after their roll-up here was final, since they were last counted.
    pub missed: u64,
    /// Roll-ups that the store still has and that are final, by end and window.
    pub closed: Vec<(EventTime, usize)>,
    /// Watermark last published.
    pub published: EventTime,
    /// Region scope: listened duration when anything of it was last heard.
    pub heard: Span,
    /// Region scope: a deadline for its silence is set.
    pub watched: bool,
    /// It differs from what the store has.
    pub dirty: bool,
    /// The next watermark at which a roll-up fires or becomes final.
    next: EventTime,
    /// Watermarks by `max-hold`, which most regions have one of.
    own: BTreeMap<Span, Minimum>,
    held: Minimum,
    /// Held out until they moved, and not looked at since; with their `max-hold`.
    returning: Vec<(usize, Span)>,
    /// How many, by lateness and `max-hold`.
    followers: BTreeMap<(Span, Span), u32>,
    /// Stamp at which a member last began to follow the clock.
    pub joined_clock_at: ArrivalTime,
    highest: EventTime,
    idle_timeout: Span,
    /// Longest allowed lateness of its devices.
    allowed_lateness: Span,
    /// Longest lateness and silence of a device in order: how far behind the clock the region may be.
    usual_lag: Span,
    watermark: EventTime,
    /// The minimum with those held out: nothing at or below it comes from anybody.
    complete: EventTime,
    /// Roll-ups whose last instant is at or below it are final, however long the lateness of who joins later.
    final_to: EventTime,
}

/// A member crossed `max-hold`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldChange {
    /// The member.
    pub member: usize,
    /// It is held out now; else it is back.
    pub out: bool,
    /// Its watermark.
    pub watermark: EventTime,
}

impl Region {
    /// A region without devices.
    pub fn new(id: RegionId, policy: &Policy) -> Self {
        Self {
            id,
            members: Vec::new(),
            forgotten: 0,
            panes: BTreeMap::new(),
            armed: None,
            revises_at: None,
            looked_for: false,
            stamp: ArrivalTime::MIN,
            clocks: Clocks::default(),
            missed: 0,
            closed: Vec::new(),
            published: EventTime::MIN,
            heard: Span::ZERO,
            watched: false,
            dirty: true,
            next: EventTime::MAX,
            own: BTreeMap::new(),
            held: Minimum::default(),
            returning: Vec::new(),
            followers: BTreeMap::new(),
            joined_clock_at: ArrivalTime::MIN,
            highest: EventTime::MIN,
            idle_timeout: policy.idle_timeout,
            allowed_lateness: Span::ZERO,
            usual_lag: policy.lateness + policy.idle_timeout,
            watermark: EventTime::MIN,
            complete: EventTime::MIN,
            final_to: EventTime::MIN,
        }
    }

    /// Takes back where a snapshot left the watermarks: the published one, the slowest, the one last told, and what is
    /// final.
    pub fn restore(&mut self, watermarks: [EventTime; 4]) {
        [self.watermark, self.complete, self.published, self.final_to] = watermarks;
        self.dirty = false;
    }

    /// A device joins; returns its number among the members. It holds nothing until it speaks.
    pub fn join(&mut self, device: usize, policy: &Policy) -> usize {
        self.members.push(device);
        self.allowed_lateness = self.allowed_lateness.max(policy.allowed_lateness);
        self.usual_lag = self.usual_lag.max(policy.lateness + policy.idle_timeout);
        self.members.len() - 1
    }

    /// Devices that are known and not forgotten.
    pub fn devices(&self) -> usize {
        self.members.len() - self.forgotten
    }

    /// The watermark as published: it never moves back. [`EventTime::MIN`] before the first.
    pub fn watermark(&self) -> EventTime {
        self.watermark
    }

    /// The watermark of the slowest device, those held out included.
    pub fn complete(&self) -> EventTime {
        self.complete
    }

    /// A member's watermark is now `to`. Whom it leaves behind is for [`Self::hold_out`] to say, once all that a message
    /// moves have moved.
    pub fn advance(&mut self, member: usize, max_hold: Span, to: EventTime) {
        self.highest = self.highest.max(to);
        if self.held.value(member) != EventTime::MAX {
            self.held.set(member, EventTime::MAX);
            self.returning.push((member, max_hold));
        }
        self.own.entry(max_hold).or_default().set(member, to);
    }

    /// Leaves out whoever lags more than its `max-hold` behind the highest, and takes back who no longer does. Says who
    /// crossed it, which is nobody most of the time.
    pub fn hold_out(&mut self, stamp: ArrivalTime) -> Vec<HoldChange> {
        let mut changes = Vec::new();
        let highest = self.highest(stamp);
        for (max_hold, own) in &mut self.own {
            while highest - own.least() > *max_hold
                && let Some(member) = own.least_slot()
            {
                let watermark = own.value(member);
                own.set(member, EventTime::MAX);
                self.held.set(member, watermark);
                match self.returning.iter().position(|(returning, _)| *returning == member) {
                    Some(at) => drop(self.returning.remove(at)),
                    None => changes.push(HoldChange { member, out: true, watermark }),
                }
            }
        }
        for (member, max_hold) in self.returning.drain(..) {
            let watermark = self.own[&max_hold].value(member);
            changes.push(HoldChange { member, out: false, watermark });
        }
        changes
    }

    /// The watermark of the slowest of those that have one of their own and are not held out.
    fn least_own(&self) -> EventTime {
        self.own.values().map(Minimum::least).min().unwrap_or(EventTime::MAX)
    }

    /// The highest watermark of a member, those that follow the clock included.
    pub fn highest(&self, stamp: ArrivalTime) -> EventTime {
        let fastest = self.followers.keys().next();
        fastest.map_or(self.highest, |(lateness, _)| {
            self.highest.max(bounded(stamp.stamped(), *lateness))
        })
    }

    /// An idle member follows the clock from now on, with its lateness and `max-hold`; one that was left out is back
    /// with that.
    pub fn follow(
        &mut self,
        member: usize,
        (lateness, max_hold): (Span, Span),
        stamp: ArrivalTime,
    ) -> Option<HoldChange> {
        self.own.entry(max_hold).or_default().set(member, EventTime::MAX);
        *self.followers.entry((lateness, max_hold)).or_default() += 1;
        let watermark = bounded(stamp.stamped(), lateness);
        let was_held = self.held.value(member) != EventTime::MAX;
        self.held.set(member, EventTime::MAX);
        was_held.then_some(HoldChange { member, out: false, watermark })
    }

    /// Some member follows the clock, so that its watermarks move between messages.
    pub fn follows_clock(&self) -> bool {
        !self.followers.is_empty()
    }

    /// A member that followed the clock is heard again; [`Self::advance`] says where it stands.
    pub fn unfollow(&mut self, (lateness, max_hold): (Span, Span)) {
        let key = (lateness, max_hold);
        let count = self.followers.get_mut(&key).expect("it followed with these");
        *count -= 1;
        if *count == 0 {
            self.followers.remove(&key);
        }
    }

    /// Brings the watermarks up to date; tells whether any moved. `stamp` is the listened stamp.
    pub fn progress(&mut self, stamp: ArrivalTime) -> bool {
        self.move_to(self.least(stamp), self.slowest(stamp))
    }

    /// The watermark as [`Self::progress`] would leave it, without moving anything.
    pub fn watermark_at(&self, stamp: ArrivalTime) -> EventTime {
        let least = self.least(stamp);
        if least == EventTime::MAX { self.watermark } else { self.watermark.max(least) }
    }

    /// How far behind the clock the region may be while all is well.
    pub fn usual_lag(&self) -> Span {
        self.usual_lag
    }

    /// The least watermark of a member that is not left out; [`EventTime::MAX`] where there is none.
    fn least(&self, stamp: ArrivalTime) -> EventTime {
        let (mut least, highest) = (self.least_own(), self.highest(stamp));
        for (lateness, max_hold) in self.followers.keys() {
            let follower = bounded(stamp.stamped(), *lateness);
            if highest - follower <= *max_hold {
                least = least.min(follower);
            }
        }
        least
    }

    /// The least watermark of a member, whether left out or not; [`EventTime::MAX`] where none has spoken.
    fn slowest(&self, stamp: ArrivalTime) -> EventTime {
        let all = self.least_own().min(self.held.least());
        let slowest = self.followers.keys().next_back();
        slowest.map_or(all, |(lateness, _)| all.min(bounded(stamp.stamped(), *lateness)))
    }

    /// Whatever is final at `stamp` stays final, however long the lateness of who joins next.
    pub fn keep_final(&mut self, stamp: ArrivalTime) {
        self.move_to(self.watermark, self.slowest(stamp));
        let final_to = self.complete - self.allowed_lateness;
        self.dirty |= final_to > self.final_to;
        self.final_to = self.final_to.max(final_to);
    }

    /// Sets the watermarks from outside: region scope, or the end of a replay.
    pub fn move_to(&mut self, watermark: EventTime, complete: EventTime) -> bool {
        let mut moved = false;
        for (mine, to) in [(&mut self.watermark, watermark), (&mut self.complete, complete)] {
            if to > *mine && to != EventTime::MAX {
                *mine = to;
                moved = true;
            }
        }
        self.dirty |= moved;
        moved
    }

    /// Whether the roll-up of a window that ends at `end` is final.
    pub fn is_final(&self, end: EventTime) -> bool {
        last_inside(end) <= self.final_to || final_at(end, self.allowed_lateness) <= self.complete
    }

    /// Roll-ups whose last instant is at or below it are final.
    pub fn final_to(&self) -> EventTime {
        self.final_to
    }

    /// Forgets the roll-ups that are final at `complete`.
    pub fn finalise(&mut self, complete: EventTime) {
        let lateness = self.allowed_lateness;
        let closed = &mut self.closed;
        self.panes.retain(|key, _| {
            let open = final_at(key.0, lateness) > complete;
            closed.extend((!open).then_some(*key));
            open
        });
        self.final_to = self.final_to.max(complete - lateness);
        self.find_next();
    }

    /// The roll-up that a device's window belongs to, made where it does not exist; `None` when it is final.
    pub fn pane(
        &mut self,
        window: usize,
        start: EventTime,
        end: EventTime,
        metrics: usize,
    ) -> Option<&mut RegionPane> {
        if self.is_final(end) {
            return None;
        }
        self.next = self.next.min(last_inside(end));
        Some(self.panes.entry((end, window)).or_insert_with(|| RegionPane::new(start, metrics)))
    }

    /// Whether `w` is a watermark at which something is to be done.
    pub fn is_due_at(&self, w: EventTime) -> bool {
        w >= self.next
    }

    /// Region scope: listened duration at which it is idle if nothing of it is heard until then.
    pub fn silent_at(&self) -> Span {
        self.heard + self.idle_timeout
    }

    /// Longest allowed lateness of its devices.
    pub fn allowed_lateness(&self) -> Span {
        self.allowed_lateness
    }

    /// Finds the next such watermark.
    pub fn find_next(&mut self) {
        self.next = self.targets().min().unwrap_or(EventTime::MAX);
    }

    /// For each roll-up the next watermark at which something is to be done with it.
    fn targets(&self) -> impl Iterator<Item = EventTime> {
        self.panes.iter().map(|((end, _), pane)| {
            let fires = pane.emission.awaits_watermark();
            if fires { last_inside(*end) } else { final_at(*end, self.allowed_lateness) }
        })
    }

    /// The watermark that has been reached for sure: what was told of a roll-up says so.
    pub fn passed(&self) -> EventTime {
        let told = self.panes.iter().filter(|(_, pane)| !pane.emission.awaits_watermark());
        told.map(|((end, _), _)| last_inside(*end)).max().unwrap_or(EventTime::MIN)
    }

    /// When the clock alone brings the next thing to do: a roll-up closes, those that follow it leave a member
    /// behind, or one of them is about to be back from there.
    ///
    /// # Invariants
    /// Its watermark is the highest that its members ever gave, so whatever lowers that is met while it still stands:
    /// else it would tell of a moment only when somebody happened to look.
    pub fn next_on_clock(&self, stamp: ArrivalTime) -> Option<ArrivalTime> {
        let reaches = |w: EventTime, lateness: Span| ArrivalTime((w + lateness + Span(1)).0);
        // Not only the slowest, which may be left out; not only the next: that one may wait for a member that lags.
        let closes = self
            .followers
            .keys()
            .flat_map(|(lateness, _)| self.targets().map(move |w| reaches(w, *lateness)));
        let returns = self
            .followers
            .keys()
            .map(|(lateness, max_hold)| reaches(self.highest - *max_hold - Span(1), *lateness));
        let fastest = self.followers.keys().next().into_iter();
        let leaves = fastest.flat_map(|(lateness, _)| {
            let waiting = self.own.iter().filter(|(_, own)| own.least() != EventTime::MAX);
            waiting.map(|(max_hold, own)| reaches(own.least() + *max_hold + Span(1), *lateness))
        });
        closes
            .chain(leaves)
            .chain(returns)
            .filter(|at| *at > stamp && *at != ArrivalTime::MAX)
            .min()
    }

    /// When its next revision is due.
    pub fn next_revision(&self) -> Option<Span> {
        let due = self.panes.values().filter_map(|pane| pane.emission.due());
        due.filter(|due| *due != Span::MAX).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Span = Span(100);

    fn region(members: usize) -> Region {
        let mut region = Region::new("north".into(), &Policy::default());
        (0..members).for_each(|device| {
            region.join(device, &Policy { allowed_lateness: Span(10), ..Policy::default() });
        });
        region
    }

    fn watermark(region: &mut Region, stamp: i64) -> i64 {
        region.progress(ArrivalTime(stamp));
        region.watermark().0
    }

    #[test]
    fn the_slowest_of_those_that_have_spoken_decides() {
        let mut region = region(3);
        region.advance(0, HOLD, EventTime(50));
        assert_eq!(watermark(&mut region, 0), 50);
        region.advance(1, HOLD, EventTime(20));
        assert_eq!(watermark(&mut region, 0), 50, "the published watermark does not go back");
        region.advance(0, HOLD, EventTime(90));
        region.advance(1, HOLD, EventTime(80));
        assert_eq!(watermark(&mut region, 0), 80);
    }

    #[test]
    fn a_lag_of_exactly_max_hold_holds_and_one_more_is_left_out() {
        let mut region = region(2);
        region.advance(0, HOLD, EventTime(0));
        region.advance(1, HOLD, EventTime(100));
        assert!(region.hold_out(ArrivalTime(0)).is_empty());
        assert_eq!(watermark(&mut region, 0), 0);
        let out = HoldChange { member: 0, out: true, watermark: EventTime(0) };
        region.advance(1, HOLD, EventTime(101));
        assert_eq!(region.hold_out(ArrivalTime(0)), [out]);
        assert_eq!(watermark(&mut region, 0), 101);
        assert_eq!(region.complete(), EventTime(0), "a roll-up is kept for it");
        let back = HoldChange { member: 0, out: false, watermark: EventTime(1) };
        region.advance(0, HOLD, EventTime(1));
        assert_eq!(region.hold_out(ArrivalTime(0)), [back]);
        assert_eq!(watermark(&mut region, 0), 101);
    }

    #[test]
    fn a_member_is_left_out_by_its_own_max_hold() {
        let patient = Span(500);
        let mut region = region(3);
        region.advance(0, patient, EventTime(10));
        region.advance(1, HOLD, EventTime(0));
        region.advance(2, HOLD, EventTime(200));
        let out = HoldChange { member: 1, out: true, watermark: EventTime(0) };
        assert_eq!(region.hold_out(ArrivalTime(0)), [out]);
        assert_eq!(watermark(&mut region, 0), 10, "the patient one still holds");
        region.follow(2, (Span(10), HOLD), ArrivalTime(211));
        let leaves = region.next_on_clock(ArrivalTime(211));
        assert_eq!(leaves, Some(ArrivalTime(10 + 500 + 1 + 10 + 1)));
        let out = HoldChange { member: 0, out: true, watermark: EventTime(10) };
        assert_eq!(region.hold_out(ArrivalTime(521)), []);
        assert_eq!(region.hold_out(ArrivalTime(522)), [out]);
    }

    #[test]
    fn a_follower_holds_within_its_own_max_hold() {
        let mut region = region(2);
        region.advance(0, HOLD, EventTime(1_000));
        region.advance(1, Span(500), EventTime(500));
        region.follow(1, (Span(10), Span(500)), ArrivalTime(700));
        assert_eq!(watermark(&mut region, 700), 689);
        region.unfollow((Span(10), Span(500)));
        region.follow(1, (Span(10), HOLD), ArrivalTime(701));
        assert_eq!(watermark(&mut region, 701), 1_000);
    }

    #[test]
    fn members_that_move_together_leave_nobody_behind() {
        let mut region = region(3);
        (0..3).for_each(|member| region.advance(member, HOLD, EventTime(0)));
        (0..2).for_each(|member| region.advance(member, HOLD, EventTime(500)));
        let out = HoldChange { member: 2, out: true, watermark: EventTime(0) };
        assert_eq!(region.hold_out(ArrivalTime(0)), [out]);
        region.advance(2, HOLD, EventTime(50));
        assert_eq!(region.hold_out(ArrivalTime(0)), [], "it moved and is still out");
    }

    #[test]
    fn idle_members_follow_the_clock_with_their_lateness() {
        let mut region = region(2);
        region.advance(0, HOLD, EventTime(500));
        region.advance(1, HOLD, EventTime(500));
        region.follow(0, (Span(10), HOLD), ArrivalTime(0));
        region.follow(1, (Span(20), HOLD), ArrivalTime(0));
        assert_eq!(watermark(&mut region, 600), 579);
        region.unfollow((Span(20), HOLD));
        region.advance(1, HOLD, EventTime(579));
        assert_eq!(watermark(&mut region, 620), 579);
    }

    #[test]
    fn a_member_that_the_followers_leave_behind_is_left_out() {
        let mut region = region(2);
        region.advance(0, HOLD, EventTime(500));
        region.advance(1, HOLD, EventTime(500));
        region.follow(0, (Span(10), HOLD), ArrivalTime(520));
        assert_eq!(region.next_on_clock(ArrivalTime(520)), Some(ArrivalTime(612)));
        assert_eq!(region.hold_out(ArrivalTime(611)), [], "it follows at 600, and 100 is max-hold");
        let out = HoldChange { member: 1, out: true, watermark: EventTime(500) };
        assert_eq!(region.hold_out(ArrivalTime(612)), [out]);
        assert_eq!(watermark(&mut region, 612), 601);
        let back = HoldChange { member: 1, out: false, watermark: EventTime(609) };
        assert_eq!(region.follow(1, (Span(10), HOLD), ArrivalTime(620)), Some(back));
    }

    #[test]
    fn a_follower_that_is_left_out_is_met_before_it_is_back() {
        let mut region = region(2);
        region.advance(0, HOLD, EventTime(0));
        region.advance(1, HOLD, EventTime(500));
        region.follow(0, (Span(10), HOLD), ArrivalTime(20));
        assert_eq!(watermark(&mut region, 410), 500, "101 behind");
        assert_eq!(region.next_on_clock(ArrivalTime(20)), Some(ArrivalTime(410)));
        assert_eq!(region.next_on_clock(ArrivalTime(410)), Some(ArrivalTime(612)));
    }

    #[test]
    fn a_region_without_devices_has_no_watermark() {
        assert_eq!(watermark(&mut region(0), 1_000), i64::MIN);
    }
}
