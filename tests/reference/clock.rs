//! The offset of a device's clock (SPEC 2.4), worked out from all that was ever heard of it.

use super::Rules;

/// A message that may tell of a clock: a heartbeat that was neither retained nor a duplicate, heard while caught up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beat {
    pub(crate) raw: i64,
    pub(crate) at: i64,
    /// How often the connection changed before.
    pub(crate) session: usize,
}

impl Beat {
    fn offset(&self) -> i64 {
        self.at.saturating_sub(self.raw)
    }

    /// Both clocks advanced alike, up to two seconds.
    fn keeps_pace_with(&self, earlier: &Self) -> bool {
        self.offset().saturating_sub(earlier.offset()).saturating_abs() <= 2_000
    }

    fn is_apart_from(&self, earlier: &Self) -> bool {
        self.at - earlier.at > 2_000
    }
}

/// What of a session may still be compared.
#[derive(Default)]
struct Trail {
    /// Live messages that keep pace.
    run: Vec<Beat>,
    /// Those after the last of them, which do not.
    stray: Vec<Beat>,
    /// All since the clock was last seen to be set.
    since: Vec<Beat>,
}

impl Trail {
    /// Whether the message is live.
    fn take(&mut self, beat: &Beat, rules: &Rules) -> bool {
        self.since.push(*beat);
        if let Some(last) = self.run.last()
            && beat.keeps_pace_with(last)
        {
            let live = beat.is_apart_from(last);
            if live {
                self.run.push(*beat);
                self.stray.clear();
            }
            return live;
        }
        if let Some(last) = self.stray.last().copied()
            && beat.keeps_pace_with(&last)
        {
            let live = beat.is_apart_from(&last);
            if live {
                let far = |from: &Beat| {
                    last.offset().saturating_sub(from.offset()).saturating_abs()
                        > rules.slow_tolerance / 2
                };
                if self.stray.len() == 1 && self.run.last().is_some_and(far) {
                    self.since.retain(|one| one.at >= last.at);
                }
                self.run = vec![last, *beat];
                self.stray.clear();
            }
            return live;
        }
        self.stray.push(*beat);
        false
    }
}

/// The offset that is trusted after each of `beats`, the oldest first; and what was told on the way, in this order: an
/// offset where the clock was wrong, `None` where it was right again.
pub(crate) fn offsets(rules: &Rules, beats: &[Beat]) -> (Vec<Option<i64>>, Vec<Option<i64>>) {
    let (mut trusted, mut all): (Option<i64>, _) = (None, Vec::new());
    let (mut told, mut is_told) = (Vec::new(), false);
    let mut trail = Trail::default();
    for (number, beat) in beats.iter().enumerate() {
        if beat.raw < rules.not_before {
            trusted = None;
            trail = Trail::default();
            all.push(None);
            continue;
        }
        let last = number.checked_sub(1).map(|last| beats[last]);
        if last.is_some_and(|last| last.session != beat.session) {
            trail = Trail::default();
        }
        let before = trusted;
        let mut tells = false;
        let near = rules.future_tolerance.max(2_000);
        let right_from = -(rules.future_tolerance / 2);
        if let Some(offset) = trusted {
            let last = trail.stray.last().or(trail.run.last());
            let rose = last.is_none_or(|last| beat.offset() > last.offset().saturating_add(2_000));
            let certain = offset > 0 && beat.offset() < offset - near;
            let returned = offset < 0 && (right_from..=near).contains(&beat.offset()) && rose;
            if certain || returned {
                (trusted, tells) = (None, true);
            }
        }
        let live = trail.take(beat, rules);
        if live {
            trusted = decide(rules, trusted, &trail.run, &trail.since);
        }
        tells |= live;
        match trusted {
            Some(now) => {
                let anew = before.is_none_or(|before| (now - before).abs() > 2_000);
                told.extend(anew.then_some(Some(now)));
                is_told = true;
            }
            None if is_told
                && tells
                && (right_from..=rules.slow_tolerance).contains(&beat.offset()) =>
            {
                told.push(None);
                is_told = false;
            }
            None => {}
        }
        all.push(trusted);
    }
    (all, told)
}

fn decide(rules: &Rules, trusted: Option<i64>, run: &[Beat], since: &[Beat]) -> Option<i64> {
    let few = &run[run.len().saturating_sub(5)..];
    let least = few.iter().map(Beat::offset).min()?;
    let greatest = few.iter().map(Beat::offset).max()?;
    let five = few.len() == 5;
    if let Some(offset) = trusted {
        if least >= offset && !five {
            return trusted;
        }
        let new = zone(least);
        let still_wrong = match offset < 0 {
            true => new < -(rules.future_tolerance / 2),
            false => new > rules.slow_tolerance / 2,
        };
        if still_wrong {
            return Some(if (new - offset).abs() >= 250 { new } else { offset });
        }
    }
    let now = run[run.len() - 1].at;
    let floor =
        since.iter().map(|beat| beat.offset().saturating_add((now - beat.at) / 400)).min()?;
    let slow = five && greatest - least <= 2_000 && least.min(floor) > rules.slow_tolerance;
    (least < -rules.future_tolerance || slow).then(|| zone(least))
}

/// Within two seconds of whole quarter hours it is those.
fn zone(offset: i64) -> i64 {
    let quarter = 900_000;
    let whole = offset.saturating_add(quarter / 2).div_euclid(quarter) * quarter;
    if whole != 0 && (offset - whole).abs() <= 2_000 { whole } else { offset }
}
