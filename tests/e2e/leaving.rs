//! A clean end, with results on their way.

use std::time::{Duration, Instant};

use crate::agent::Agent;
use crate::fleet::{self, HOUR, Message, Times, heartbeat, sample};
use crate::reference::{self, Expected};
use crate::setup::{Options, Setup, rules};
use crate::support::{Mode, Proxy};
use crate::whole_run::eventually;

/// Devices with one hour each: fewer results than the window of the upstream connection, so that all are on their way.
const DEVICES: usize = 30;

fn one_hour() -> (Vec<Message>, Expected) {
    let hour = fleet::now().div_euclid(HOUR) * HOUR - 2 * HOUR;
    let device = |number: usize| format!("m{number:02}");
    let samples = (0..DEVICES).map(|number| sample("north", &device(number), hour, 1.5));
    let beats = (0..DEVICES).map(|number| heartbeat("north", &device(number), hour + HOUR));
    let messages: Vec<_> = samples.chain(beats).collect();
    let expected = reference::expect(&rules(Times::around_midnight()), &messages);
    (messages, expected)
}

/// An agent that is connected to both brokers, in either order.
fn listening(setup: &Setup) -> Agent {
    let agent = setup.agent();
    for line in ["connected to the central broker", "caught up"] {
        eventually(line, || agent.count(&[line]) > 0);
    }
    agent
}

/// An agent whose results are all at the central broker, while none of their acknowledgements has come back.
fn with_results_on_their_way(setup: &Setup, link: &Proxy, mode: Mode) -> (Agent, Expected) {
    setup.configure(&Options::default(), link.port());
    let agent = listening(setup);
    link.set(mode);
    let (messages, expected) = one_hour();
    setup.publish(&messages);
    setup.arrives(&expected);
    (agent, expected)
}

#[test]
fn results_on_their_way_are_waited_for_and_not_sent_again() {
    let setup = Setup::new();
    let link = Proxy::to(setup.broker.port());
    let (mut agent, expected) = with_results_on_their_way(&setup, &link, Mode::Held);
    agent.ask_to_end();
    agent.hears("leaving");
    link.set(Mode::Open);
    let left = agent.end();
    assert!(left.status.success());
    assert_eq!((left.number("unacknowledged"), left.number("outbox")), (0, 0));

    setup.leaves_empty(listening(&setup));
    setup.arrives(&expected);
    assert_eq!(setup.central.arrived().repeated, 0, "sent twice");
}

#[test]
fn a_broker_that_does_not_answer_holds_up_the_end_for_seconds_only_and_nothing_is_lost() {
    let setup = Setup::new();
    let link = Proxy::to(setup.broker.port());
    let (agent, expected) = with_results_on_their_way(&setup, &link, Mode::Deaf);
    let asked = Instant::now();
    let left = agent.stop();
    println!("left after {:?}", asked.elapsed());
    assert!(asked.elapsed() < Duration::from_secs(12), "{:?}", asked.elapsed());
    assert!(left.number("unacknowledged") > DEVICES as u64);
    assert_eq!(left.number("outbox"), left.number("unacknowledged"));

    link.cut();
    link.set(Mode::Open);
    setup.leaves_empty(listening(&setup));
    setup.arrives(&expected);
    assert!(setup.central.arrived().repeated >= DEVICES as u64, "all of it was sent again");
}
