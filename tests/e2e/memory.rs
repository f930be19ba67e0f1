//! Memory over bursts that do not end (pain 39): what a burst takes is given back, or taken again by the next.

use std::fs;
use std::time::{Duration, Instant};

use crate::fleet::{HOUR, MINUTE, heartbeat, now, sample};
use crate::setup::{Options, Setup};
use crate::status;

const DEVICES: usize = 500;

/// Samples of a device in a burst, which is an hour of its time.
const SAMPLES: i64 = 10;

/// Bursts of the short form, and how long those of the long one go on.
const BURSTS: usize = 12;
const LONG: Duration = Duration::from_secs(30 * 60);

/// How much more the second half may take than the first, in per cent: 200 bytes for each message in the short form, less
/// than one in the long form. Some MiB are kept of a burst that met a busy machine.
const MORE: [u64; 2] = [15, 20];

#[test]
fn pain_39_memory_levels_off() {
    let setup = Setup::with(&Options::default());
    let mut agent = setup.agent();
    agent.hears("caught up");
    let long = std::env::var_os("TIDEGATE_LONG").is_some();
    let started = Instant::now();
    let beginning = now() / HOUR * HOUR - 5_000 * HOUR;
    let mut resident = Vec::new();
    while resident.len() < BURSTS || (long && started.elapsed() < LONG) {
        let hour = beginning + resident.len() as i64 * HOUR;
        setup.publish(&burst(hour));
        let received = ((resident.len() + 1) * DEVICES * (SAMPLES as usize + 1)) as u64;
        status::until(&setup, "the burst is done with", |_, document| {
            document["books"]["received"] == received && document["outbox"]["entries"] == 0
        });
        resident.push(resident_kib(agent.id()));
    }
    println!("KiB after each burst: {resident:?}");
    let (early, late) = resident.split_at(resident.len() / 2);
    let most = |of: &[u64]| *of.iter().max().expect("some");
    let more = MORE[usize::from(long)];
    assert!(most(late) <= most(early) * (100 + more) / 100, "it grows: {resident:?}");
}

/// An hour of the fleet, sample by sample, and the end of it.
fn burst(hour: i64) -> Vec<crate::fleet::Message> {
    let devices = || (0..DEVICES).map(|device| format!("m{device:03}"));
    let samples = (0..SAMPLES).flat_map(|number| {
        devices().map(move |device| sample("north", &device, hour + number * 5 * MINUTE, 1.5))
    });
    let ends = devices().map(|device| heartbeat("north", &device, hour + HOUR));
    samples.chain(ends).collect()
}

fn resident_kib(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
