//! Memory of the agent with 10,000 devices and two open hours each. Goal ≤ 40 MiB.
//!
//! `DEVICES` in the environment.

#![allow(
    clippy::disallowed_methods,
    reason = "a bench measures real time and waits for real processes"
)]

mod common;

use std::time::Duration;

use common::agent::Agent;
use common::broker::Broker;
use common::publisher::{now_ms, publish};

const HOUR_MS: i64 = 3_600_000;

fn main() {
    let devices = common::size("DEVICES", 10_000, 10_000);
    let directory = common::directory();
    let directory = directory.path();
    let (broker, central) =
        (Broker::start(directory, "devices"), Broker::start(directory, "central"));
    // An hour closes when the one after the next begins.
    let window = "defaults.lateness = \"1h\"\ndefaults.max-hold = \"2h\"\n[[window]]\nname = \"hour\"\nsize = \"1h\"";
    let mut agent = Agent::start(directory, &directory.join("store"), &broker, &central, window);
    println!(
        "{:<44}{:>10}{:>10}{:>8}",
        format!("{devices} devices, MiB"),
        "VmRSS",
        "RssAnon",
        "goal"
    );
    tell(&agent, "idle, nothing known");
    let this_hour = now_ms() / HOUR_MS * HOUR_MS;
    let mut sent = 0;
    for (ago, name) in
        [(2, "one open hour"), (1, "two open hours"), (0, "the first of three hours told")]
    {
        // Ten messages of each device, at once.
        publish(broker.port, devices * 10, devices, f64::INFINITY, |number| {
            this_hour - ago * HOUR_MS + (number / devices) as i64
        });
        sent += devices * 10;
        agent.wait_until_committed(sent);
        std::thread::sleep(Duration::from_secs(3));
        tell(&agent, name);
    }
    println!("highest ever: {:.1} MiB", mib(common::proc_number(agent.pid(), "status", "VmHWM")));
}

fn tell(agent: &Agent, what: &str) {
    let of = |key| mib(common::proc_number(agent.pid(), "status", key));
    println!("{what:<44}{:>10.1}{:>10.1}{:>8}", of("VmRSS"), of("RssAnon"), "≤ 40");
}

fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}
