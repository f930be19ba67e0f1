//! A broker away, on either side; the agent away for three hours.

use std::path::PathBuf;

use fastrand::Rng;

use crate::agent::{Agent, command};
use crate::fleet::{self, HOUR, MINUTE, Message, Times, heartbeat, sample};
use crate::reference::{self, Expected};
use crate::setup::{Options, Setup, books_agree, rules};
use crate::support::{Mode, Proxy};

/// A fleet's messages in three parts, and what comes of them.
fn fleet_in_parts() -> (Vec<Message>, usize, Expected) {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let times = Times::around_midnight();
    let messages = fleet::publish(seed, times);
    let expected = reference::expect(&rules(times), &messages);
    let third = messages.len() / 3;
    (messages, third, expected)
}

/// A device that is none of the fleet's sends an hour: when it is upstream, what was published before is processed.
fn everything_so_far_is_processed(setup: &Setup, name: &str) {
    let hour = fleet::now().div_euclid(HOUR) * HOUR - 2 * HOUR;
    setup.publish(&[sample("watch", name, hour, 1.0), heartbeat("watch", name, hour + HOUR)]);
    let topic = format!("window/hour/watch/{name}");
    setup.central.until(&topic, |arrived| arrived.last().contains_key(&(topic.as_str(), hour)));
}

#[test]
fn a_central_broker_that_is_stopped_for_a_while_gets_everything() {
    let (messages, third, expected) = fleet_in_parts();
    let mut setup = Setup::new();
    let mut agent = setup.agent();
    agent.hears("caught up");
    setup.publish(&messages[..third]);
    setup.central.until("the first results", |arrived| arrived.messages > 20);
    setup.broker.stop();
    agent.hears("egress down: cannot be reached");
    setup.publish(&messages[third..2 * third]);
    agent.hears("egress still down");
    setup.broker.run();
    setup.publish(&messages[2 * third..]);
    setup.arrives(&expected);
    books_agree(&setup.leaves_empty(agent).books(), &expected);
}

#[test]
fn a_central_broker_that_is_killed_and_forgets_gets_everything_all_the_same() {
    let (messages, third, expected) = fleet_in_parts();
    let mut setup = Setup::new();
    // So that nothing is sent to the new broker before somebody listens there.
    let link = Proxy::to(setup.broker.port());
    setup.configure(&Options::default(), link.port());
    let mut agent = setup.agent();
    agent.hears("caught up");
    setup.publish(&messages[..third]);
    setup.central.until("the first results", |arrived| arrived.messages > 20);
    setup.broker.kill();
    link.set(Mode::Closed);
    setup.broker.forget();
    setup.publish(&messages[third..2 * third]);
    agent.hears("egress still down");
    setup.broker.run();
    setup.central.subscribed(2);
    link.set(Mode::Open);
    setup.publish(&messages[2 * third..]);
    setup.arrives(&expected);
    books_agree(&setup.leaves_empty(agent).books(), &expected);
}

#[test]
fn a_devices_broker_that_comes_back_with_its_sessions_or_without_is_listened_to_again() {
    let (messages, third, expected) = fleet_in_parts();
    let mut setup = Setup::new();
    let mut agent = setup.agent();
    agent.hears("caught up");
    setup.publish(&messages[..third]);
    setup.devices.stop();
    setup.devices.run();
    // Queued for a session that nobody has come back to yet.
    setup.publish(&messages[third..2 * third]);
    agent.hears("connected to the devices' broker session_present=true");
    agent.hears("caught up");
    everything_so_far_is_processed(&setup, "first");

    setup.devices.kill();
    setup.devices.forget();
    setup.devices.run();
    agent.hears("connected to the devices' broker session_present=false");
    assert!(agent.hears("no longer had our session").contains("WARN"));
    agent.hears("caught up");
    setup.publish(&messages[2 * third..]);
    setup.arrives(&expected);
    let books = setup.leaves_empty(agent).books();
    for column in ["late", "quarantined", "region_missed"] {
        let wanted = match column {
            "late" => expected.late.len() as u64,
            "quarantined" => expected.quarantined,
            _ => 0,
        };
        assert_eq!(books.of(column), wanted, "{column} in {books:?}");
    }
    assert_eq!(books.of("aggregated"), expected.aggregated + 1, "{books:?}");
}

#[test]
fn after_three_hours_away_with_three_hours_queued_nothing_is_late() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let (start, idle) = (fleet::now(), "8s");
    let away_at = start - 3 * HOUR;
    let options = Options { allowed_lateness: "0s", idle_timeout: idle, ..Options::default() };
    let setup = Setup::with(&options);
    let times = Times { from: start.div_euclid(HOUR) * HOUR - 5 * HOUR, to: start, now: start };
    let mut rng = Rng::with_seed(seed);
    let before = in_order_of_time(&mut rng, times.from, away_at);
    let queued = in_order_of_time(&mut rng, away_at, times.to);
    let rules = reference::Rules { allowed_lateness: 0, ..rules(times) };

    let mut agent = Agent::spawn(three_hours_ago(&setup));
    agent.hears("caught up");
    // The future, three hours ago.
    setup.publish(&[sample("watch", "ahead", away_at + HOUR, 1.0)]);
    setup.publish(&before);
    // A device of which the clock alone closes a window, once it is silent for long enough; by then all are.
    setup.publish(&[sample("watch", "quiet", times.from, 1.0)]);
    setup.arrives(&reference::expect(&rules, &before));
    let quiet = ("window/hour/watch/quiet", times.from);
    setup.central.until("the silent device's hour", |arrived| {
        arrived.last().get(&quiet).is_some_and(|hour| hour["cause"] == "idle")
    });
    let books = agent.stop().books();
    assert_eq!(books.of("quarantined"), 1, "it did not live three hours ago: {books:?}");

    setup.publish(&queued);
    let mut agent = setup.agent();
    agent.hears("session_present=true");
    agent.hears("caught up");
    let all: Vec<_> = before.into_iter().chain(queued).collect();
    let expected = reference::expect(&rules, &all);
    assert_eq!(expected.late.len(), 0, "in order of time nothing is");
    setup.arrives(&expected);
    let books = setup.leaves_empty(agent).books();
    assert_eq!((books.of("late"), books.of("aggregated")), (0, expected.aggregated + 1));
    nobody_was_closed_early(&setup);
}

/// Each window was told once, and not because the clock had run away.
fn nobody_was_closed_early(setup: &Setup) {
    for ((topic, _, start), revisions) in &setup.central.arrived().results {
        assert_eq!(revisions.len(), 1, "{topic} {start} was revised");
        let first = &revisions[&0];
        let early =
            first["cause"] == "idle" && topic.starts_with("window") && !topic.contains("watch");
        assert!(!early, "{topic} {start} was closed by silence: {first}");
    }
}

/// 200 devices, each sample after all older ones, and heartbeats between them.
fn in_order_of_time(rng: &mut Rng, from: i64, to: i64) -> Vec<Message> {
    let mut messages = Vec::new();
    for number in 0..fleet::DEVICES {
        let (region, device) = (["north", "moor"][number % 2], format!("m{number:03}"));
        let mut time = from + rng.i64(1..5 * MINUTE);
        while time < to {
            messages
                .push((time, sample(region, &device, time, f64::from(rng.i32(0..9_000)) / 4.0)));
            if rng.u8(0..6) == 0 {
                messages.push((time + 1, heartbeat(region, &device, time + 1)));
            }
            time += 5 * MINUTE;
        }
        messages.push((to, heartbeat(region, &device, to)));
    }
    messages.sort_by_key(|(time, _)| *time);
    messages.into_iter().map(|(_, message)| message).collect()
}

/// What shows a process another time.
pub fn faketime_library() -> PathBuf {
    crate::support::faketime().expect("faketime is installed: apt-get install faketime")
}

/// The agent, to whom it is three hours ago.
pub fn three_hours_ago(setup: &Setup) -> std::process::Command {
    let mut command = command(&setup.config(), "run");
    command
        .env("LD_PRELOAD", faketime_library())
        .env("FAKETIME", "-3h")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    command
}
