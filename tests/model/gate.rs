//! Days on which the gateway does not always know the time.

use proptest::prelude::*;
use tidegate::engine::input::Input;
use tidegate::event::Output;
use tidegate::time::ClockStatus;

use crate::gateway::{Gateway, HOUR, Hearing, LOST, MINUTE, NOON, config, defaults};
use crate::plan::{Plan, plans};
use crate::reference::{Answer, Message, Rules, Step, What, answer};
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
        let steps = with_losses(plan.steps(true), &turns);
        let answer = answer(&plan.rules, &steps);
        let config = config(&plan.rules, immediate, plan.publish_interval);
        crate::followed(&plan, &config, &steps, &answer)?;
    }
}

/// A device of a region whose gateway has no good clock: how far its clock is from the true time.
fn device_clocks() -> impl Strategy<Value = Vec<i64>> {
    let clock =
        prop_oneof![8 => -20_000..20_000_i64, 1 => prop::sample::select(vec![-HOUR, 6 * HOUR])];
    prop::collection::vec(clock, 1..20)
}

/// What a region's devices say, by the slow way: the last word of the last fifteen, and how far that ever came.
struct StandIn {
    words: Vec<(usize, i64)>,
    reached: i64,
}

impl StandIn {
    fn reads(&self, at: i64) -> Option<i64> {
        let mut devices: Vec<usize> = Vec::new();
        let mut offsets = Vec::new();
        for (device, offset) in self.words.iter().rev() {
            if !devices.contains(device) && devices.len() < 15 {
                devices.push(*device);
                offsets.push(*offset);
            }
        }
        offsets.sort_unstable();
        (offsets.len() >= 3).then(|| at + offsets[(offsets.len() - 1) / 2])
    }

    fn goes_on_to(&mut self, at: i64) {
        self.reached = self.reached.max(self.reads(at).unwrap_or(i64::MIN));
    }
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn where_three_devices_report_the_median_of_their_clocks_stands_in(
        clocks in device_clocks(), lost in 0..40_usize, error in errors(),
        beats in prop::collection::vec((0..20_usize, 0..90_000_i64, 0..5_000_i64, any::<bool>()), 10..160),
    ) {
        let rules = Rules { correct: false, ..defaults() };
        let config = config(&rules, true, MINUTE);
        let mut gateway = Gateway::listening(&config, NOON);
        gateway.publish(&heartbeat("silent", NOON), false);
        let mut stand_in = StandIn { words: vec![(99, 0)], reached: NOON }; // it said what time it was, too
        let mut is_lost = false;
        for (number, (device, pause, delay, ticks)) in beats.iter().enumerate() {
            let at = gateway.now + pause;
            if *ticks {
                gateway.sleep_until(gateway.now + pause / 2);
            }
            gateway.now = at;
            if number == lost {
                stand_in.reached = stand_in.reached.max(at);
                is_lost = true;
                gateway.handle(Input::Tick);
                gateway.set_clock(LOST, error);
            }
            let device = device % clocks.len();
            let time = at - delay + clocks[device];
            let now = if is_lost { stand_in.reads(at) } else { Some(at) };
            gateway.publish(&heartbeat(&format!("d{device}"), time), false);
            if is_lost {
                stand_in.goes_on_to(at);
            } else {
                stand_in.reached = at;
            }
            if now.is_none_or(|now| time <= now + rules.future_tolerance) {
                stand_in.words.push((device, time - at));
            }
            if is_lost {
                stand_in.goes_on_to(at);
            }
            let is_idle = at - NOON >= rules.idle_timeout;
            let by_clock = stand_in.reached - rules.lateness["north"] - 1;
            let expected = if is_idle { by_clock.max(NOON) } else { NOON };
            prop_assert_eq!(gateway.device_watermark("north", "silent"), Some(expected), "beat {}", number);
        }
    }

    #[test]
    fn without_a_good_clock_ticks_and_commits_change_nothing_either(
        plan in plans(60), turns in prop::collection::vec((0..12_u8, errors()), 60), immediate: bool,
        extra in prop::collection::vec((any::<u16>(), 0..3_u8), 80),
    ) {
        let steps = with_losses(plan.steps(true), &turns);
        let config = config(&plan.rules, immediate, plan.publish_interval);
        let quiet = crate::live(&config, &steps);
        let busy = crate::busy(&config, &steps, &extra);
        identities(&busy.outputs)?;
        crate::same(&busy, &quiet)?;
    }
}

fn heartbeat(device: &str, time: i64) -> Message {
    let payload = format!("{{\"dev\":\"{device}\",\"ts\":{time},\"kind\":\"heartbeat\"}}");
    Message { topic: format!("m/north/{device}"), payload, retain: false, dup: false }
}

fn with_losses(steps: Vec<Step>, turns: &[(u8, i64)]) -> Vec<Step> {
    let mut with = Vec::new();
    for (step, (turn, error)) in steps.into_iter().zip(turns.iter().cycle()) {
        let at = step.at;
        with.push(step);
        match turn {
            0 | 1 => with.push(Step { at, what: What::Lost(*error) }),
            2 => with.push(Step { at, what: What::Good }),
            _ => {}
        }
    }
    with
}
