//! The agent killed with -9 in each phase of a message's life, again and again, in the middle of a fleet's six hours.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::agent::Agent;
use crate::fleet::{self, HOUR, Times, heartbeat, sample};
use crate::reference;
use crate::setup::{AGENT, Options, Setup, books_agree, rules};
use crate::whole_run::{VERBOSE, is_worth_it, packets};

/// The phases, and how often one is passed at most before the agent is held there.
const PHASES: [(&str, u32); 5] =
    [("recovering", 1), ("receiving", 250), ("committing", 3), ("committed", 3), ("published", 15)];

#[test]
fn killed_in_every_phase_nothing_is_lost_and_nothing_counted_twice() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = Rng::with_seed(seed);
    let rounds = if std::env::var_os("TIDEGATE_LONG").is_some() { 60 } else { 8 };
    let setup = Setup::with(&Options { mosquitto: VERBOSE, ..Options::default() });
    let times = Times::around_midnight();
    let messages = fleet::publish(seed, times);
    let expected = reference::expect(&rules(times), &messages);
    is_worth_it(&expected);

    // The session must be there before anything is published, and windows must close in each round.
    let mut agent = setup.agent();
    agent.hears("caught up");
    let (first, rest) = messages.split_at(messages.len() / 5);
    setup.publish(first);
    setup.central.until("the first results", |arrived| arrived.messages > 20);
    agent.kill();

    let size = rest.len() / (rounds * PHASES.len() + 1);
    let mut chunks = rest.chunks(size);
    let mut redelivered: BTreeMap<&str, u64> = BTreeMap::new();
    let mut killed_in = "receiving";
    for _ in 0..rounds {
        let mut phases = PHASES;
        rng.shuffle(&mut phases);
        for (phase, times) in phases {
            let chunk = chunks.next().expect("one for each round");
            let before = deliveries_marked_as_repeated(&setup);
            // Some of it is queued while the agent is away.
            let (queued, live) = chunk.split_at(rng.usize(0..=chunk.len()));
            setup.publish(queued);
            let point = format!("{phase}:{}", rng.u32(1..=times));
            let mut agent = Agent::run_to(&setup.config(), &point);
            setup.publish(live);
            agent.hears(&format!("holding at {phase}"));
            // Acknowledgements that it gave too early have time to reach the broker.
            setup.round_trip();
            agent.kill();
            let repeated = deliveries_marked_as_repeated(&setup) - before;
            *redelivered.entry(killed_in).or_default() += repeated;
            killed_in = phase;
        }
    }
    let before = deliveries_marked_as_repeated(&setup);
    let agent = setup.agent();
    for chunk in chunks {
        setup.publish(chunk);
    }
    setup.arrives(&expected);
    let left = setup.leaves_empty(agent);
    *redelivered.entry(killed_in).or_default() += deliveries_marked_as_repeated(&setup) - before;

    let books = left.books();
    books_agree(&books, &expected);
    let surplus = books.of("duplicate") - expected.duplicate;
    println!(
        "redelivered after a kill while: {redelivered:?}; of these {surplus} had been committed"
    );
    println!("{} results came twice", setup.central.arrived().repeated);
    for phase in ["receiving", "committing", "committed"] {
        assert!(redelivered[phase] > 0, "{phase}: {redelivered:?}");
    }
    assert!(surplus > 0, "no kill came between commit and acknowledgement");
    assert!(setup.central.arrived().repeated > 0, "no kill came between PUBACK and its commit");
}

/// By mosquitto's own account: PUBLISH packets with DUP = 1.
fn deliveries_marked_as_repeated(setup: &Setup) -> u64 {
    packets(setup, &format!("Sending PUBLISH to {AGENT} (d1")) as u64
}

#[test]
fn what_a_new_configuration_closes_at_the_start_is_not_lost_with_the_process() {
    let setup = Setup::new();
    let hour = fleet::now().div_euclid(HOUR) * HOUR - 2 * HOUR;
    let mut agent = setup.agent();
    agent.hears("caught up");
    setup.publish(&[sample("watch", "quiet", hour, 1.0)]);
    // Silence of two seconds, which another device makes known.
    let silent_since = Instant::now();
    while silent_since.elapsed() < Duration::from_secs(2) {
        setup.publish(&[heartbeat("watch", "other", fleet::now())]);
    }
    agent.stop();

    setup.configure(&Options { idle_timeout: "1s", ..Options::default() }, setup.broker.port());
    // The first commit is that of the start.
    let mut agent = Agent::run_to(&setup.config(), "committing:2");
    agent.hears("holding at committing");
    agent.kill();
    let mut agent = setup.agent();
    agent.hears("caught up");
    let window = ("window/hour/watch/quiet", hour);
    setup.central.until("the silent device's hour", |all| all.last().contains_key(&window));
    agent.stop();
}
