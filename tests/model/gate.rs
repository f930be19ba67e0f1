//! Days on which the gateway does not always know the time.

use proptest::prelude::*;
use tidegate::event::Output;
use tidegate::time::ClockStatus;

use crate::gateway::{Gateway, HOUR, Hearing, config};
use crate::plan::{Plan, plans};
use crate::reference::{Answer, Step, What, answer};
use crate::{Follower, cases, identities, results};

/// Where in a day the agent starts without the time, where it is started once more, and where it gets the time.
#[derive(Clone, Copy, Debug)]
struct Dark {
    from: usize,
    again: usize,
    to: usize,
    reboots: bool,
}

impl Dark {
    fn place(steps: &[Step], mut at: [u8; 3], reboots: bool) -> Self {
        at.sort_unstable();
        let [from, again, to] = at.map(|at| 2 + usize::from(at) * (steps.len() - 2) / 256);
        Self { from, again, to, reboots }
    }

    /// The same day as one on which the agent only could not listen: what was held counts from the moment at which it is
    /// processed, with the arrival that it had. What a boot left behind that never got the time is between the last
    /// good time, which is `floor`, and the first one after.
    fn as_heard(self, steps: &[Step], floor: i64) -> Vec<Step> {
        let mut heard: Vec<Step> = Vec::new();
        let (mut hearing, mut end) = (Hearing::Down, steps[self.to - 1].at);
        end = end.max(steps[self.from - 1].at);
        for (number, step) in steps.iter().enumerate() {
            for at in [self.from, self.again] {
                if number == at {
                    let up = hearing != Hearing::Down;
                    heard.push(Step {
                        at: steps[at - 1].at,
                        what: if up { What::Up } else { What::Tick },
                    });
                }
            }
            if number == self.to {
                let what = if hearing == Hearing::CaughtUp { What::CaughtUp } else { What::Tick };
                heard.push(Step { at: end, what });
            }
            hearing = after(hearing, &step.what);
            let is_dark = (self.from..self.to).contains(&number);
            let what = match &step.what {
                What::CaughtUp if is_dark => What::Tick,
                What::Message(message) if is_dark && self.reboots && number < self.again => {
                    What::Left(message.clone(), (floor, end))
                }
                what => what.clone(),
            };
            heard.push(Step { at: step.at, what });
        }
        heard
    }

    /// Lives through the day, and follows the reference where it is not in the dark.
    fn live(
        self,
        plan: &Plan,
        steps: &[Step],
        (heard, answer): (&[Step], &Answer),
        (error, at_once): (i64, usize),
        commits: &[bool],
    ) -> Result<(), TestCaseError> {
        let config = config(&plan.rules, true, plan.publish_interval);
        let mut gateway = Gateway::new(&config, steps[0].at);
        gateway.at_once = at_once;
        let mut follower = Follower::new(plan, answer);
        let mut index = 0;
        for (number, step) in steps.iter().enumerate() {
            if number == self.from {
                gateway.commit();
                (gateway.clock, gateway.error) = (ClockStatus::UNSYNCHRONISED, error);
                gateway.restart(|_| {});
                index += 1;
            }
            if number == self.again {
                gateway.commit();
                if self.reboots {
                    gateway.reboot();
                } else {
                    gateway.restart(|_| {});
                }
                index += 1;
            }
            let told = gateway.outputs.len();
            if number == self.to {
                gateway.set_clock(ClockStatus::EXACT, 0);
                prop_assert_eq!(gateway.engine.books().held, 0);
                follower.follow(&gateway, index)?;
                index += 1;
            }
            gateway.step(step);
            if (self.from..self.to).contains(&number) {
                let is_wrong = |output: &Output| !matches!(output, Output::Refused(_));
                prop_assert!(!gateway.outputs[told..].iter().any(is_wrong), "told in the dark");
                if commits[number % commits.len()] {
                    gateway.commit();
                }
            } else {
                follower.follow(&gateway, index)?;
            }
            index += 1;
        }
        prop_assert_eq!(index, heard.len());
        gateway.end();
        identities(&gateway.outputs)?;
        results(plan, answer, &gateway)
    }
}

fn after(hearing: Hearing, what: &What) -> Hearing {
    match what {
        What::Down => Hearing::Down,
        What::Up => Hearing::Up,
        What::CaughtUp => Hearing::CaughtUp,
        _ => hearing,
    }
}

/// How far a clock is wrong.
fn errors() -> impl Strategy<Value = i64> {
    prop::sample::select(vec![-13 * 24 * HOUR, -2 * HOUR, -1, 0, 2 * HOUR, 24 * 365 * HOUR])
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn what_was_held_is_processed_as_if_it_had_waited_at_the_broker(
        plan in plans(60), at in any::<[u8; 3]>(), reboots: bool, error in errors(), at_once in 1..5_usize,
        commits in prop::collection::vec(any::<bool>(), 8),
    ) {
        let steps = plan.steps(false);
        let dark = Dark::place(&steps, at, reboots);
        prop_assume!(steps[dark.to - 1].at - steps[dark.from - 1].at < 23 * HOUR);
        let before = answer(&plan.rules, &steps[..dark.from]);
        let heard = dark.as_heard(&steps, before.after[dark.from - 1].stamp);
        let answer = answer(&plan.rules, &heard);
        dark.live(&plan, &steps, (&heard, &answer), (error, at_once), &commits)?;
    }

    #[test]
    fn redeliveries_on_the_same_connection_are_told_apart_while_held(
        plan in plans(60), at in any::<u8>(), at_once in 1..5_usize,
    ) {
        // No restart, but connections that come and go while everything is held.
        let steps = plan.steps(true);
        let to = 2 + usize::from(at) * (steps.len() - 2) / 256;
        let dark = Dark { from: usize::MAX, again: usize::MAX, to, reboots: false };
        let config = config(&plan.rules, true, plan.publish_interval);
        let mut gateway = Gateway::unsynchronised(&config, steps[0].at);
        gateway.at_once = at_once;
        let mut heard = Vec::new();
        let mut hearing = Hearing::Down;
        for (number, step) in steps.iter().enumerate() {
            if number == to {
                let what = if hearing == Hearing::CaughtUp { What::CaughtUp } else { What::Tick };
                heard.push(Step { at: gateway.now, what });
                gateway.set_clock(ClockStatus::EXACT, 0);
            }
            hearing = after(hearing, &step.what);
            let deaf = number < dark.to && matches!(step.what, What::CaughtUp);
            heard.push(Step { at: step.at, what: if deaf { What::Tick } else { step.what.clone() } });
            gateway.step(step);
        }
        let answer = answer(&plan.rules, &heard);
        if to >= steps.len() {
            return Ok(());
        }
        let follower = &mut Follower::new(&plan, &answer);
        follower.follow(&gateway, heard.len() - 1)?;
        gateway.end();
        results(&plan, &answer, &gateway)?;
    }

    #[test]
    fn while_the_clock_is_not_good_nothing_is_closed_or_refused_by_it(
        plan in plans(60), turns in prop::collection::vec((0..12_u8, errors()), 60), immediate: bool,
    ) {
        let plan = plan.with_few_devices();
        let mut steps = Vec::new();
        for (step, (turn, error)) in plan.steps(true).into_iter().zip(turns.iter().cycle()) {
            let at = step.at;
            steps.push(step);
            match turn {
                0 | 1 => steps.push(Step { at, what: What::Lost(*error) }),
                2 => steps.push(Step { at, what: What::Good }),
                _ => {}
            }
        }
        let answer = answer(&plan.rules, &steps);
        let config = config(&plan.rules, immediate, plan.publish_interval);
        crate::followed(&plan, &config, &steps, &answer)?;
    }
}
