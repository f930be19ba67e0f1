//! Whom to believe: the largest set of servers whose times can all be true at once (Marzullo's intersection), where it
//! is the majority.
//!
//! Where the servers alone have none, as with two that contradict each other, our own clock is one more witness while
//! it is worth something. Without it nobody is believed: a coin would be right half of the time.

/// Error that every server is granted, in nanoseconds: half a path may be slower than the other half.
const GRAIN: i64 = 5_000_000;

/// What a server says. In nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Estimate {
    /// Which of them.
    pub server: usize,
    /// Wall time less `CLOCK_BOOTTIME`.
    pub difference: i64,
    /// How far that is from the truth at most.
    pub bound: i64,
}

impl Estimate {
    fn reach(&self) -> (i64, i64) {
        let bound = self.bound.saturating_add(GRAIN);
        (self.difference.saturating_sub(bound), self.difference.saturating_add(bound))
    }

    fn meets(&self, other: &Self) -> bool {
        let ((low, high), (from, to)) = (self.reach(), other.reach());
        low <= to && from <= high
    }

    fn allows(&self, difference: i64) -> bool {
        let (low, high) = self.reach();
        (low..=high).contains(&difference)
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Nobody answered.
    Nobody,
    /// They contradict each other, and there is no majority.
    Disagreement,
    /// The most exact of the majority, and the servers that are not in it.
    Taken {
        /// Of whom.
        best: Estimate,
        /// Those that say otherwise.
        minority: Vec<usize>,
    },
}

/// Chooses among what was answered. `own` is what our clock says, while it is worth something.
pub(super) fn choose(estimates: &[Estimate], own: Option<Estimate>) -> Choice {
    if estimates.is_empty() {
        return Choice::Nobody;
    }
    let alone = majority(estimates, estimates.len());
    let Some(at) = alone.or_else(|| with_a_witness(estimates, own?)) else {
        return Choice::Disagreement;
    };
    let (inside, outside): (Vec<Estimate>, Vec<Estimate>) =
        estimates.iter().partition(|one| one.allows(at));
    match inside.into_iter().min_by_key(|one| one.bound) {
        Some(best) => {
            Choice::Taken { best, minority: outside.into_iter().map(|one| one.server).collect() }
        }
        None => Choice::Disagreement,
    }
}

/// The same with our own clock among them. It has to contradict who is left out: one that is so uncertain that it
/// allows both sides is no witness.
fn with_a_witness(estimates: &[Estimate], own: Estimate) -> Option<i64> {
    let all: Vec<_> = estimates.iter().copied().chain([own]).collect();
    let at = majority(&all, all.len()).filter(|at| own.allows(*at))?;
    let mut left_out = estimates.iter().filter(|one| !one.allows(at));
    left_out.all(|one| !one.meets(&own)).then_some(at)
}

/// A difference that more than half of them allow. It can be looked for where one of them begins.
fn majority(estimates: &[Estimate], of: usize) -> Option<i64> {
    let votes = |at: i64| estimates.iter().filter(|one| one.allows(at)).count();
    let beginnings = estimates.iter().map(|one| one.reach().0);
    let best = beginnings.map(|at| (votes(at), at)).max_by_key(|(votes, _)| *votes);
    best.filter(|(votes, _)| votes * 2 > of).map(|(_, at)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: i64 = 1_000_000_000;

    fn estimate(server: usize, difference: i64, bound: i64) -> Estimate {
        Estimate { server, difference, bound }
    }

    fn taken(choice: Choice) -> (usize, Vec<usize>) {
        match choice {
            Choice::Taken { best, minority } => (best.server, minority),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn of_three_the_one_that_says_otherwise_is_left_out_and_the_most_exact_of_the_others_taken() {
        let all =
            [estimate(0, 0, 30_000_000), estimate(1, 7 * SECOND, 1_000), estimate(2, 10, 2_000)];
        assert_eq!(taken(choose(&all, None)), (2, vec![1]));
    }

    #[test]
    fn a_liar_that_claims_a_wide_bound_does_not_win_by_it() {
        let all = [
            estimate(0, 0, 1_000_000),
            estimate(1, SECOND / 2, SECOND),
            estimate(2, 1_000_000, 2_000_000),
        ];
        assert_eq!(taken(choose(&all, None)), (0, vec![]));
    }

    #[test]
    fn of_two_that_contradict_each_other_nobody_is_believed_but_whom_our_own_clock_confirms() {
        let all = [estimate(0, 0, 1_000), estimate(1, 7 * SECOND, 1_000)];
        assert_eq!(choose(&all, None), Choice::Disagreement);
        let own = estimate(usize::MAX, 20_000_000, 30_000_000);
        assert_eq!(taken(choose(&all, Some(own))), (0, vec![1]));
        let vague = estimate(usize::MAX, SECOND, 30 * SECOND);
        assert_eq!(choose(&all, Some(vague)), Choice::Disagreement, "it would confirm both");
        let astray = estimate(usize::MAX, 90 * SECOND, 30_000_000);
        assert_eq!(choose(&all, Some(astray)), Choice::Disagreement);
    }

    #[test]
    fn one_alone_is_taken_and_none_is_none() {
        assert_eq!(taken(choose(&[estimate(4, 9, 1)], None)), (4, vec![]));
        assert_eq!(choose(&[], Some(estimate(9, 0, 0))), Choice::Nobody);
    }

    proptest! {
        #[test]
        fn an_honest_majority_is_never_outvoted(
            truth in -SECOND..SECOND,
            honest in prop::collection::vec((0..50_000_000_i64, -100_i64..=100), 3..7),
            lies in prop::collection::vec((10 * SECOND..1_000 * SECOND, 0..50_000_000_i64), 0..3),
        ) {
            let mut all = Vec::new();
            for (bound, off) in &honest {
                all.push(estimate(all.len(), truth + bound * off / 100, *bound));
            }
            for (away, bound) in lies.iter().take(honest.len() - 1) {
                all.push(estimate(all.len(), truth + away, *bound));
            }
            let (server, minority) = taken(choose(&all, None));
            prop_assert!(server < honest.len());
            prop_assert!(minority.iter().all(|server| *server >= honest.len()));
        }
    }
}
