//! The agent on a host that does not know the time, with a kernel that is told by a file whether it does.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::agent::{Agent, command};
use crate::fleet::{self, HOUR, MINUTE, Message, heartbeat, sample};
use crate::outages::faketime_library;
use crate::setup::{Options, Setup};
use crate::status::{codes, until};

/// A kernel that is in step with the world where the file of `IN_STEP` exists, and says that it is not where it does not.
const KERNEL: &str = r#"
#include <stdlib.h>
#include <sys/timex.h>
#include <unistd.h>
int adjtimex(struct timex *t) {
    int in_step = access(getenv("IN_STEP"), F_OK) == 0;
    t->status = in_step ? 0 : STA_UNSYNC;
    return in_step ? TIME_OK : TIME_ERROR;
}
"#;

pub struct Host {
    pub setup: Setup,
    library: PathBuf,
}

impl Host {
    pub fn new(options: &Options) -> Self {
        let setup = Setup::with(options);
        let (source, library) = (setup.dir().join("kernel.c"), setup.dir().join("kernel.so"));
        std::fs::write(&source, KERNEL).expect("the directory is ours");
        let mut compiler = Command::new("cc");
        let compiled = compiler.args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
        assert!(compiled.expect("a C compiler, which cargo needs too").success());
        Self { setup, library }
    }

    fn agent(&self) -> Agent {
        self.agent_that_waits("5m")
    }

    fn agent_that_waits(&self, sync_timeout: &str) -> Agent {
        let mut command = self.command("run");
        command.env("TIDEGATE_CLOCK__SYNC_TIMEOUT", sync_timeout);
        Agent::spawn(command)
    }

    /// `tidegate` with this kernel.
    fn command(&self, what: &str) -> Command {
        let mut command = command(&self.setup.config(), what);
        command.env("LD_PRELOAD", &self.library).env("IN_STEP", self.in_step());
        command.env("TIDEGATE_CLOCK__TRUST_HOST", "false");
        command
    }

    /// The same, with a clock that is wrong besides: what faketime is told.
    pub fn command_at(&self, what: &str, faketime: &[(&str, &str)]) -> Command {
        let mut command = self.command(what);
        let preload = format!("{}:{}", self.library.display(), faketime_library().display());
        command.env("LD_PRELOAD", preload).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        command.envs(faketime.iter().copied());
        command
    }

    fn in_step(&self) -> PathBuf {
        self.setup.dir().join("in-step")
    }

    fn synchronise(&self) {
        std::fs::write(self.in_step(), "").expect("the directory is ours");
    }

    /// Waits until so many messages are held, committed and acknowledged.
    pub fn holds(&self, messages: u64) -> Value {
        until(&self.setup, "held", |_, document| {
            document["held"]["messages"] == messages && document["broker"]["in_flight"] == 0
        })
    }
}

/// A reading whose device has no idea what time it is.
fn unset(device: &str, power: f64) -> Message {
    sample("north", device, 5_000, power)
}

#[test]
fn what_came_before_the_time_was_known_is_held_through_a_kill_and_lands_in_the_right_hours() {
    let host = Host::new(&Options::default());
    let setup = &host.setup;
    let mut agent = host.agent();
    agent.hears("messages are held until it is");
    agent.hears("caught up");
    let hour = fleet::now().div_euclid(HOUR) * HOUR - 3 * HOUR;
    let began = fleet::now();
    setup.publish(&[
        sample("north", "m1", hour + MINUTE, 1.0),
        sample("north", "m1", hour + 2 * MINUTE, 3.0),
        unset("m2", 7.0),
        sample("north", "m3", began + 2 * HOUR, 7.0),
    ]);
    let document = host.holds(4);
    let published = fleet::now();
    assert_eq!(document["clock"], "unsynchronised");
    assert!(codes(&document).contains(&"holding"), "{document:#}");
    assert_eq!(
        (&document["books"]["received"], &document["books"]["held"]),
        (&4.into(), &4.into())
    );
    assert_eq!(document["held"]["waived"], false);
    let oldest = document["held"]["oldest"].as_i64().expect("it is of this boot");
    assert!((began - 1..=published).contains(&oldest), "{document:#}");

    agent.kill();
    let mut agent = host.agent();
    agent.hears("messages are held until it is");
    agent.hears("caught up");
    let document = host.holds(4);
    assert_eq!(document["books"]["received"], 4, "nothing was delivered again: {document:#}");
    setup.publish(&[
        sample("north", "m1", hour + 3 * MINUTE, 8.0),
        heartbeat("north", "m1", hour + HOUR),
        heartbeat("north", "m2", fleet::now()),
    ]);
    host.holds(7);
    assert!(setup.central.arrived().last().is_empty(), "told in the dark");

    host.synchronise();
    agent.hears("the clock is good: what was held is processed");
    agent.hears("the clock is good; no message is held");
    let topic = "window/hour/north/m1";
    setup.central.until("the hour", |arrived| {
        let last = arrived.last();
        last.get(&(topic, hour)).is_some_and(|hour| {
            hour["samples"] == 3
                && hour["metrics"]["power"]["sum"] == 12.0
                && hour["clock"] == "synchronised"
        })
    });
    let document =
        until(setup, "well", |code, document| code == 0 && document["held"]["messages"] == 0);
    let books = &document["books"];
    assert_eq!((&books["aggregated"], &books["stamped"]), (&4.into(), &1.into()), "{books}");
    assert_eq!(
        (&books["late"], &books["future"], &books["held"]),
        (&0.into(), &1.into(), &0.into())
    );

    // When it came is worked out backwards, over the kill.
    let arrived = setup.central.arrived();
    let refused = arrived.others.iter().find(|(topic, _)| topic == "quarantine/future/meters");
    let at = refused.and_then(|(_, body)| body["arrival"].as_i64()).expect("it was refused");
    assert!((began - 1..=published).contains(&at), "{began} <= {at} <= {published}");
    drop(arrived);
    agent.stop();
}

#[test]
fn after_the_timeout_what_has_a_time_of_its_own_is_told_as_of_an_unsynchronised_clock() {
    let host = Host::new(&Options::default());
    let mut agent = host.agent_that_waits("1s");
    agent.hears("caught up");
    let hour = fleet::now().div_euclid(HOUR) * HOUR - 3 * HOUR;
    host.setup.publish(&[
        sample("north", "m1", hour + MINUTE, 1.0),
        unset("m2", 7.0),
        heartbeat("north", "m1", hour + HOUR),
    ]);
    agent.hears("still no good clock");
    let document = host.holds(1);
    assert_eq!(document["held"]["waived"], true);
    host.setup.central.until("the hour", |arrived| {
        let last = arrived.last();
        last.get(&("window/hour/north/m1", hour)).is_some_and(|it| it["clock"] == "unsynchronised")
    });
    host.synchronise();
    let document = until(&host.setup, "well", |code, _| code == 0);
    assert_eq!((&document["books"]["held"], &document["books"]["stamped"]), (&0.into(), &1.into()));
    agent.stop();
}

#[test]
fn a_good_clock_at_the_next_start_finds_what_was_held() {
    let host = Host::new(&Options::default());
    let mut agent = host.agent();
    agent.hears("caught up");
    let hour = fleet::now().div_euclid(HOUR) * HOUR - 3 * HOUR;
    host.setup.publish(&[
        sample("north", "m1", hour + MINUTE, 1.0),
        heartbeat("north", "m1", hour + HOUR),
    ]);
    host.holds(2);
    agent.kill();
    host.synchronise();
    let agent = host.agent();
    host.setup
        .central
        .until("the hour", |arrived| arrived.last().contains_key(&("window/hour/north/m1", hour)));
    let document = until(&host.setup, "well", |code, _| code == 0);
    assert_eq!(
        (&document["books"]["received"], &document["books"]["held"]),
        (&2.into(), &0.into())
    );
    agent.stop();
}
