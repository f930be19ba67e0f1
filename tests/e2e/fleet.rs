//! A fleet of 200 devices and what it publishes in six hours, drawn from a seed.

use fastrand::Rng;

/// What a device publishes.
#[derive(Clone, Debug)]
pub struct Message {
    pub topic: String,
    pub payload: String,
}

pub const MINUTE: i64 = 60_000;
pub const HOUR: i64 = 60 * MINUTE;
pub const DAY: i64 = 24 * HOUR;

/// Devices in all.
pub const DEVICES: usize = 200;

/// Device times of a run, in ms since the epoch.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub from: i64,
    pub to: i64,
    pub now: i64,
}

impl Times {
    /// Six hours around the last midnight that is at least two hours ago: a day closes in them.
    pub fn around_midnight() -> Self {
        let now = now();
        let midnight = (now - 2 * HOUR).div_euclid(DAY) * DAY;
        Self { from: midnight - 4 * HOUR - 30 * MINUTE, to: midnight + 90 * MINUTE, now }
    }
}

/// Wall time, in ms since the epoch.
pub fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(since.expect("after 1970").as_millis()).expect("before the year 292 million")
}

/// A meter's message.
pub fn sample(region: &str, device: &str, time: i64, power: f64) -> Message {
    Message {
        topic: format!("meters/{region}/{device}/telemetry"),
        payload: format!(r#"{{"ts":{time},"power":{power}}}"#),
    }
}

/// A meter's heartbeat.
pub fn heartbeat(region: &str, device: &str, time: i64) -> Message {
    Message {
        topic: format!("meters/{region}/{device}/heartbeat"),
        payload: format!(r#"{{"ts":{time}}}"#),
    }
}

/// Messages in the order in which they are published: samples out of order within the lateness, some after their
/// window closed, some too late, some twice; heartbeats; arrays that repeat the last sample of the one before; a clock
/// that runs a day ahead now and then, and one that was never set. Devices are up to an hour apart in their progress,
/// so that windows close all the time.
pub fn publish(seed: u64, times: Times) -> Vec<Message> {
    let mut fleet = Fleet { rng: Rng::with_seed(seed), times, lag: 0, sent: Vec::new() };
    for device in 0..DEVICES {
        fleet.lag = i64::try_from(device).expect("small") * HOUR / 200;
        let region = if device % 2 == 0 { "north" } else { "moor" };
        match device {
            198 => fleet.runs_ahead_at_times(),
            199 => fleet.has_no_clock(),
            160.. => fleet.sends_arrays(region, device),
            _ => fleet.sends_samples(region, &format!("m{device:03}")),
        }
    }
    // The sort is stable: what a device says at one moment stays in order.
    fleet.sent.sort_by_key(|(at, _)| *at);
    fleet.sent.into_iter().map(|(_, message)| message).collect()
}

struct Fleet {
    rng: Rng,
    times: Times,
    /// How far the device at hand is behind the first.
    lag: i64,
    sent: Vec<(i64, Message)>,
}

impl Fleet {
    fn send(&mut self, at: i64, message: Message) {
        self.sent.push((at + self.lag, message));
    }

    /// Exact in binary, so that sums do not depend on their order.
    fn power(&mut self) -> f64 {
        f64::from(self.rng.i32(-4_000..40_000)) / 4.0
    }

    /// How long a sample is on its way.
    fn delay(&mut self, lateness: i64) -> i64 {
        match self.rng.u8(0..100) {
            0..70 => 0,
            70..90 => self.rng.i64(0..lateness),
            90..96 => self.rng.i64(20 * MINUTE..60 * MINUTE),
            _ => self.rng.i64(100 * MINUTE..170 * MINUTE),
        }
    }

    fn sends_samples(&mut self, region: &str, device: &str) {
        let lateness = if region == "north" { 2 * MINUTE } else { 10 * MINUTE };
        let mut time = self.times.from + self.rng.i64(0..MINUTE);
        while time < self.times.to {
            let message = sample(region, device, time, self.power());
            let at = time + self.delay(lateness);
            if self.rng.u8(0..100) < 3 {
                let again = at + self.rng.i64(0..20 * MINUTE);
                self.send(again, message.clone());
            }
            self.send(at, message);
            time += 5 * MINUTE + self.rng.i64(-20_000..20_000);
        }
        let mut time = self.times.from + self.rng.i64(0..30 * MINUTE);
        while time < self.times.to {
            self.send(time, heartbeat(region, device, time));
            time += 30 * MINUTE;
        }
        self.send(self.times.to, heartbeat(region, device, self.times.to));
    }

    fn sends_arrays(&mut self, region: &str, device: usize) {
        let topic = format!("arrays/{region}/a{device:03}");
        let mut time = self.times.from;
        let mut last = String::new();
        while time <= self.times.to {
            let mut samples = vec![last];
            for part in 0..3 {
                let time = time - (2 - part) * 5 * MINUTE;
                samples.push(format!(r#"{{"ts":{time},"power":{}}}"#, self.power()));
            }
            last = samples[3].clone();
            samples.retain(|sample| !sample.is_empty());
            self.rng.shuffle(&mut samples);
            let beat = time == self.times.to;
            let payload = format!(r#"{{"samples":[{}],"beat":{beat}}}"#, samples.join(","));
            let at = time + if beat { 0 } else { self.delay(2 * MINUTE) };
            self.send(at, Message { topic: topic.clone(), payload });
            time += 15 * MINUTE;
        }
    }

    fn runs_ahead_at_times(&mut self) {
        let mut time = self.times.from;
        while time < self.times.to {
            let power = self.power();
            self.send(time, sample("north", "ahead", time, power));
            let wrong = self.times.now + DAY + time % HOUR;
            self.send(time + 1, sample("north", "ahead", wrong, power));
            time += 30 * MINUTE + 1_001;
        }
        self.send(self.times.to, heartbeat("north", "ahead", self.times.to));
    }

    fn has_no_clock(&mut self) {
        for uptime in 1..=10 {
            let power = self.power();
            let at = self.times.from + uptime * 30 * MINUTE;
            self.send(at, sample("odd", "unset", uptime * 1_000, power));
        }
    }
}
