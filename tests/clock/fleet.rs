//! The agent in this process, between real brokers, with a clock that is kept in a hurry: what takes a minute takes a
//! fraction of a second, so that lies, silence and steps can be lived through while a fleet reports.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use tidegate::clock::{Clock, Pace};
use tidegate::config::Config;
use tokio::sync::oneshot;

use crate::central::{Arrived, Central};
use crate::hosts::{HOUR, Lines, Stage, machine};
use crate::support::{self, Broker, Manner, PACKET, Seconds, TimeServer};

fn hurried() -> Pace {
    Pace {
        burst: 2,
        spacing: Duration::from_millis(5),
        patience: Duration::from_millis(200),
        shortest: Duration::from_millis(300),
        longest: Duration::from_secs(2),
        quick: Duration::from_millis(50),
        host: Duration::from_millis(50),
        floor: Duration::from_secs(3_600),
    }
}

/// It leaves with its owner.
struct Agent {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    fn run(stage: &Stage) -> Self {
        let nothing: [(String, String); 0] = [];
        let mut config = Config::load(&[stage.config()], nothing).expect("it is good");
        config.clock.pace = hurried();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let clock = Clock::start_with(config.clock.clone());
            let life =
                tidegate::agent::run(&config, &clock, tidegate::notify::Notify::silent(), async {
                    drop(stopped.await);
                });
            runtime.expect("a runtime").block_on(life).expect("it leaves cleanly");
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().expect("taken once").join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

struct World {
    _agent: Agent,
    server: TimeServer,
    stage: Stage,
    centre: Central,
}

impl World {
    fn new(manner: Manner, lines: &Lines<'_>) -> Self {
        let server = TimeServer::start(manner);
        let clock = format!("source = \"sntp\"\nservers = [\"{}\"]", server.name());
        let stage = Stage::new(Broker::start(), &Lines { clock: &clock, ..*lines });
        let centre = Central::at(stage.central.port());
        let world = Self { _agent: Agent::run(&stage), server, stage, centre };
        world.stage.synchronised();
        world
    }

    fn publish(&self, readings: &[(&str, i64)]) {
        let messages = readings.iter().map(|(device, time)| {
            (format!("meters/{device}"), format!(r#"{{"ts":{time},"power":1}}"#))
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let port = self.stage.devices.port();
        runtime.expect("a runtime").block_on(support::publish(port, messages));
    }

    /// A reading of each of five.
    fn round(&self, time: i64) {
        let fleet = ["north/m1", "north/m2", "north/m3", "south/m4", "south/m5"];
        self.publish(&fleet.map(|device| (device, time)));
    }

    /// So many were aggregated, and nothing was late or refused.
    fn has(&self, aggregated: u64) -> Value {
        let status =
            self.stage.until("heard", |status| status["books"]["aggregated"] == aggregated);
        let books = &status["books"];
        assert_eq!([&books["late"], &books["quarantined"]], [0, 0], "{books:#}");
        status
    }

    /// The centre knows what the clock is worth.
    fn told(&self, clock: &str) {
        self.centre.until(clock, |arrived| {
            let last = arrived.others.iter().rfind(|(topic, _)| topic == "status");
            last.is_some_and(|(_, body)| body["clock"] == clock)
        });
    }
}

impl Arrived {
    fn of(&self, topic: &str) -> Vec<&Value> {
        self.others
            .iter()
            .filter(|(name, _)| name.starts_with(topic))
            .map(|(_, body)| body)
            .collect()
    }

    fn offline(&self) -> Vec<&Value> {
        let presence = self.of("presence/").into_iter();
        presence.filter(|body| body["state"] == "offline").collect()
    }
}

/// 2036, another hour of it each time, so that nothing confirms it.
fn of_2036(packet: &mut [u8; PACKET]) {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let ahead = 10 * 365 * 24 * 3_600 + 3_600 * ASKED.fetch_add(1, Ordering::Relaxed);
    for at in [32, 40] {
        let seconds = u32::from_be_bytes(packet[at..at + 4].try_into().expect("four bytes"));
        packet[at..at + 4].copy_from_slice(&seconds.wrapping_add(ahead).to_be_bytes());
    }
}

#[test]
fn a_jump_to_2036_closes_nothing_and_refuses_nothing_and_a_step_of_two_hours_is_taken_and_told() {
    const STEP: Seconds = 2 * 3_600;
    let world = World::new(Manner::ahead(0), &Lines::default());
    let now = machine();
    let hour = now.div_euclid(HOUR) * HOUR;
    world.round(now);
    assert_eq!(world.has(5)["clock"], "synchronised");

    world.server.set(Manner::changed(of_2036));
    world.stage.until("suspect", |status| status["clock"] == "suspect");
    world.told("suspect");
    world.round(now + 1);
    world.publish(&[("north/m9", hour - 3 * HOUR), ("north/m9", hour - HOUR)]);
    let status = world.has(12);
    assert_eq!(status["clock"], "suspect");
    assert!(status["timekeeping"]["doubted"].as_i64() > Some(9 * 365 * 24 * HOUR), "{status:#}");
    let closed = ("window/hour/north/m9", hour - 3 * HOUR);
    world.centre.until("by data", |arrived| arrived.last().contains_key(&closed));
    {
        let arrived = world.centre.arrived();
        assert_eq!(arrived.last()[&closed]["clock"], "suspect");
        assert_eq!(arrived.last().len(), 1, "{:#?}", arrived.results);
    }
    world.server.set(Manner::ahead(0));
    world.stage.synchronised();
    world.told("synchronised");
    world.stage.is_right();
    assert_eq!(world.centre.arrived().of("clock"), Vec::<&Value>::new());

    world.server.set(Manner::ahead(STEP));
    world.centre.until("the step", |arrived| !arrived.of("clock").is_empty());
    let status = world.stage.synchronised();
    let ahead = status["at"].as_i64().expect("a time") - machine();
    assert!((ahead - STEP * 1_000).abs() < 10_000, "{ahead}");
    world.round(now + STEP * 1_000);
    world.has(17);
    let first = ("window/hour/north/m1", hour);
    world.centre.until("the hour of the first", |arrived| arrived.last().contains_key(&first));
    let arrived = world.centre.arrived();
    let result = arrived.last()[&first];
    assert_eq!((&result["samples"], &result["clock"]), (&2.into(), &"synchronised".into()));
    let told = arrived.of("clock")[0];
    let shift = told["shift"].as_i64().expect("a span");
    assert!((shift - STEP * 1_000).abs() < 10_000, "{told}");
    assert_eq!(told["initial"], false, "{told}");
    assert_eq!(arrived.offline(), Vec::<&Value>::new());
    assert_eq!(arrived.contradictions, Vec::<String>::new());
}

/// By its own account off by a little less than a second: at 100 parts in a million that is full nine seconds later.
fn nearly_a_second_off(packet: &mut [u8; PACKET]) {
    packet[8..12].copy_from_slice(&65_475_u32.to_be_bytes());
}

#[test]
fn a_holdover_that_grows_past_the_lateness_is_told_and_leaves_closing_to_data_and_to_three_devices()
{
    let lines = Lines {
        source: "window = \"second\"",
        tables: "[[window]]\nname = \"second\"\nsize = \"1s\"\n\
                 [defaults]\nlateness = \"2s\"\nidle-timeout = \"3s\"\noffline-after = \"4s\"",
        ..Lines::default()
    };
    let world = World::new(Manner::changed(nearly_a_second_off), &lines);
    world.server.set(Manner::silent());
    let status = world.stage.until("holdover", |status| status["clock"] == "holdover");
    assert!(status["timekeeping"]["bound"].as_i64() <= Some(1_000), "{status:#}");
    world
        .stage
        .until("too far off", |status| status["timekeeping"]["bound"].as_i64() > Some(1_000));
    let now = machine();
    let devices = ["north/a", "north/b", "south/c", "south/d", "south/e"];
    world.publish(&devices.map(|device| (device, now)));
    world.has(5);
    let second = now.div_euclid(1_000) * 1_000;
    let hour = |device: &str| (format!("window/second/{device}"), second);
    world.centre.until("everybody offline", |arrived| arrived.offline().len() == 5);
    world.centre.until("where three stand in", |arrived| {
        let last = arrived.last();
        let south = ["south/c", "south/d", "south/e"].map(hour);
        south.iter().all(|(topic, start)| last.contains_key(&(topic.as_str(), *start)))
    });
    {
        let arrived = world.centre.arrived();
        for offline in arrived.offline() {
            let of = |name: &str| offline[name].as_i64().expect("a time");
            assert_eq!(of("since") - of("last_seen"), 4_000, "{offline}");
            assert_eq!(offline["clock"], "holdover", "{offline}");
        }
        for ((topic, _), result) in arrived.last() {
            assert_eq!((&result["clock"], &result["cause"]), (&"holdover".into(), &"idle".into()));
            assert!(topic.contains("south"), "{topic} {result}");
        }
    }
    world.server.set(Manner::ahead(0));
    world.stage.synchronised();
    world.centre.until("the others", |arrived| {
        let (topic, start) = hour("north/a");
        let last = arrived.last();
        last.get(&(topic.as_str(), start)).is_some_and(|it| it["clock"] == "synchronised")
    });
    let arrived = world.centre.arrived();
    assert!(arrived.late.is_empty() && arrived.contradictions.is_empty(), "{arrived:#?}");
}
