//! A fleet of meters: about 139 bytes an event, as FACTS of the field have it.

use std::fmt::Write as _;

use fastrand::Rng;

/// Where the fleet is spread.
pub const REGIONS: [&str; 10] =
    ["north", "south", "east", "west", "centre", "harbour", "hills", "lakes", "coast", "airport"];

/// Every device reports once a minute, each at its own second.
pub const INTERVAL_MS: i64 = 60_000;

/// One event.
pub struct Event {
    pub device: usize,
    pub region: &'static str,
    pub ts: i64,
}

/// Name of a device.
pub fn name(device: usize) -> String {
    format!("m-{device:05}")
}

/// Region of a device.
pub fn region(device: usize) -> &'static str {
    REGIONS[device % REGIONS.len()]
}

/// Appends the payload of an event.
pub fn payload(event: &Event, rng: &mut Rng, text: &mut String) {
    let Event { device, region, ts } = event;
    let power = f64::from(rng.u32(800..16_000)) / 4.0;
    let voltage = f64::from(rng.u32(1_760..1_960)) / 8.0;
    let current = f64::from(rng.u32(64..1_280)) / 64.0;
    let energy = (*device as f64 + (*ts % 1_000_000_000) as f64 / 64_000.0).round()
        + rng.f64().round() / 2.0;
    write!(
        text,
        "{{\"device\":\"m-{device:05}\",\"region\":\"{region}\",\"ts\":{ts},\"kind\":\"telemetry\",\
         \"power\":{power},\"voltage\":{voltage},\"current\":{current},\"energy_kwh\":{energy}}}"
    )
    .expect("text grows");
}

/// Events of a fleet in the order of their arrival, up to 20 s after they were taken.
pub struct Fleet {
    rng: Rng,
    phases: Vec<i64>,
    minute: i64,
    ready: std::vec::IntoIter<(i64, Event)>,
}

impl Fleet {
    pub fn new(devices: usize, start: i64) -> Self {
        let mut rng = Rng::with_seed(7);
        let phases = (0..devices).map(|_| rng.i64(0..INTERVAL_MS)).collect();
        Self { rng, phases, minute: start, ready: Vec::new().into_iter() }
    }
}

impl Iterator for Fleet {
    /// Arrival in ms, and the event.
    type Item = (i64, Event);

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(event) = self.ready.next() {
            return Some(event);
        }
        let taken = |(device, phase): (usize, &i64)| {
            let ts = self.minute + phase;
            (ts + self.rng.i64(0..20_000), Event { device, region: region(device), ts })
        };
        let mut events: Vec<_> = self.phases.iter().enumerate().map(taken).collect();
        events.sort_by_key(|(arrival, _)| *arrival);
        self.minute += INTERVAL_MS;
        self.ready = events.into_iter();
        self.ready.next()
    }
}

/// The source of these events, as an operator describes it.
pub const SOURCE: &str = r#"
[[source]]
name = "meters"
topic = "meters/{region}/{device}/{kind}"
device = "/device"
region = "/region"
time = { from = "/ts", as = "epoch_ms" }
heartbeat = { from = "/kind", equals = "heartbeat" }
window = "hour"

[[source.metric]]
name = "power"
from = "/power"
unit = "W"
aggregates = ["sum", "min", "max"]

[[source.metric]]
name = "energy_kwh"
from = "/energy_kwh"
unit = "kWh"
aggregates = ["first", "last"]
"#;
