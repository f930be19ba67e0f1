//! Random days of a small fleet.

use proptest::prelude::*;

use crate::gateway::{HOUR, MINUTE, NOON, SECOND};
use crate::reference::{Message, Rules, Step, What, Window};

const REGIONS: [&str; 3] = ["north", "south", "west"];
const DEVICES: [&str; 6] = ["a", "b", "z1", "c", "z2", "d"];

/// What is drawn; [`Plan::steps`] makes a sensible day of it.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) rules: Rules,
    pub(crate) publish_interval: i64,
    regions: usize,
    devices: usize,
    actions: Vec<(i64, Action)>,
}

#[derive(Clone, Debug)]
enum Action {
    Send {
        device: usize,
        items: Vec<ItemPlan>,
        retain: bool,
    },
    /// A heartbeat with the time of the device's own clock, which the network had for so long.
    Beat {
        device: usize,
        delay: i64,
        value: u8,
    },
    /// The clock of a device is set: ahead of the true time by this.
    Set {
        device: usize,
        error: i64,
    },
    /// The same message again.
    Repeat {
        back: usize,
        dup: bool,
    },
    /// A message of the source without times.
    Timeless {
        device: usize,
        value: u8,
        dup: bool,
    },
    Garbage(usize),
    Tick,
    Down,
    Up,
    CaughtUp,
}

#[derive(Clone, Debug)]
struct ItemPlan {
    /// Added to the device of the message; 0 most of the time.
    other: usize,
    time: Time,
    value: u8,
    heartbeat: bool,
}

#[derive(Clone, Copy, Debug)]
enum Time {
    /// Relative to now.
    Near(i64),
    /// Relative to the last boundary of a base window, that many windows back.
    Boundary(i64, i64),
    Absolute(i64),
    Missing,
    Unreadable,
}

pub(crate) fn plans(length: usize) -> impl Strategy<Value = Plan> {
    let rules = rules();
    let actions = prop::collection::vec((pause(), action()), 1..length);
    (rules, prop::sample::select(vec![7_000, MINUTE, HOUR]), 1..=3_usize, 1..=6_usize, actions)
        .prop_map(|(rules, publish_interval, regions, devices, actions)| Plan {
            rules,
            publish_interval,
            regions,
            devices,
            actions,
        })
}

/// Days of one or two devices that send heartbeats most of the time, by clocks that are set now and then.
pub(crate) fn beating(length: usize) -> impl Strategy<Value = Plan> {
    let beat = (0..2_usize, delay(), 0..40_u8);
    let beat = beat.prop_map(|(device, delay, value)| Action::Beat { device, delay, value });
    let set = (0..2_usize, error()).prop_map(|(device, error)| Action::Set { device, error });
    let pause = prop_oneof![
        8 => 1..2 * MINUTE,
        1 => prop::sample::select(vec![0, 1_999, 2_000, 2_001]),
        1 => MINUTE..HOUR,
    ];
    let action = prop_oneof![30 => beat, 2 => set, 3 => action()];
    let actions = prop::collection::vec((pause, action), 1..length);
    (rules(), 1..=2_usize, actions).prop_map(|(rules, devices, actions)| Plan {
        rules,
        publish_interval: MINUTE,
        regions: 1,
        devices,
        actions,
    })
}

fn rules() -> impl Strategy<Value = Rules> {
    let lateness = prop::collection::vec(
        prop::sample::select(vec![0, 20 * SECOND, 2 * MINUTE, 10 * MINUTE]),
        3,
    );
    let allowed = || prop::sample::select(vec![0, 1, 5 * MINUTE, 20 * MINUTE, 2 * HOUR]);
    let hold = prop::sample::select(vec![11 * MINUTE, 30 * MINUTE]);
    let offsets = (0..2_i64, 0..6_i64);
    (lateness, allowed(), allowed(), hold, offsets, any::<bool>()).prop_map(
        |(
            lateness,
            allowed_lateness,
            allowed_lateness_z,
            max_hold,
            (half, shift),
            multiple_first,
        )| {
            let offset = half * 150 * SECOND;
            Rules {
                lateness: REGIONS.map(str::to_owned).into_iter().zip(lateness).collect(),
                idle_timeout: 5 * MINUTE,
                allowed_lateness,
                allowed_lateness_z,
                max_hold,
                future_tolerance: 30 * SECOND,
                past_limit: 3 * HOUR,
                not_before: 1_577_836_800_000,
                correct: true,
                slow_tolerance: 5 * MINUTE,
                revision_delay: 30 * SECOND,
                base: Window { name: "hour", size: 10 * MINUTE, offset },
                multiple: Window { name: "day", size: HOUR, offset: offset + shift * 10 * MINUTE },
                multiple_first,
            }
        },
    )
}

fn pause() -> impl Strategy<Value = i64> {
    prop_oneof![
        3 => Just(0),
        6 => 1..2 * MINUTE,
        2 => (1..8_i64).prop_map(|n| n * MINUTE),
        1 => Just(5 * MINUTE - 1),
        1 => 5 * MINUTE..40 * MINUTE,
    ]
}

fn action() -> impl Strategy<Value = Action> {
    let items = prop_oneof![6 => prop::collection::vec(item(), 1), 2 => prop::collection::vec(item(), 2..5)];
    prop_oneof![
        16 => (0..6_usize, items, prop::bool::weighted(0.1))
            .prop_map(|(device, items, retain)| Action::Send { device, items, retain }),
        24 => (0..6_usize, delay(), 0..40_u8)
            .prop_map(|(device, delay, value)| Action::Beat { device, delay, value }),
        4 => (0..6_usize, error()).prop_map(|(device, error)| Action::Set { device, error }),
        3 => (1..6_usize, any::<bool>()).prop_map(|(back, dup)| Action::Repeat { back, dup }),
        3 => (0..6_usize, 0..3_u8, any::<bool>())
            .prop_map(|(device, value, dup)| Action::Timeless { device, value, dup }),
        1 => (0..3_usize).prop_map(Action::Garbage),
        4 => Just(Action::Tick),
        1 => Just(Action::Down),
        2 => Just(Action::Up),
        2 => Just(Action::CaughtUp),
    ]
}

fn delay() -> impl Strategy<Value = i64> {
    prop_oneof![
        8 => 0..1_000_i64,
        2 => 0..4 * SECOND,
        1 => 0..12 * MINUTE,
        1 => (-1..2_i64).prop_map(|by| 2 * SECOND + by),
    ]
}

fn error() -> impl Strategy<Value = i64> {
    let (tolerance, slow) = (30 * SECOND, -5 * MINUTE);
    prop_oneof![
        3 => prop::sample::select(vec![0, 10 * MINUTE, -10 * MINUTE, HOUR, -15 * MINUTE, 24 * HOUR]),
        1 => (-2..3_i64).prop_map(move |by| tolerance + by),
        1 => (-1_000..2_i64).prop_map(move |by| slow + by),
        1 => -HOUR..HOUR,
        1 => Just(-1 << 40),
    ]
}

fn item() -> impl Strategy<Value = ItemPlan> {
    let other = prop_oneof![4 => Just(0), 1 => 0..6_usize];
    (other, time(), 0..40_u8, prop::bool::weighted(0.25))
        .prop_map(|(other, time, value, heartbeat)| ItemPlan { other, time, value, heartbeat })
}

fn time() -> impl Strategy<Value = Time> {
    let limit = 3 * HOUR;
    prop_oneof![
        8 => (-3 * MINUTE..31 * SECOND).prop_map(Time::Near),
        3 => (-40 * MINUTE..0).prop_map(Time::Near),
        2 => (-limit - HOUR..0).prop_map(Time::Near),
        7 => (0..6_i64, -1..2_i64).prop_map(|(back, by)| Time::Boundary(back, by)),
        1 => (-1..2_i64).prop_map(|by| Time::Near(30 * SECOND + by)),
        1 => (-1..2_i64).prop_map(move |by| Time::Near(by - limit)),
        1 => prop::sample::select(vec![0, -1, 5_000, 946_684_800_000, 1_577_836_799_999]).prop_map(Time::Absolute),
        1 => prop::sample::select(vec![24 * HOUR, 1 << 60]).prop_map(Time::Near),
        1 => Just(Time::Missing),
        1 => Just(Time::Unreadable),
    ]
}

impl Plan {
    /// The day. `redelivers`: the broker says of some messages without a time that it may have sent them before.
    pub(crate) fn steps(&self, redelivers: bool) -> Vec<Step> {
        let mut now = NOON + 7 * MINUTE;
        let step = |at, what| Step { at, what };
        let mut steps = vec![step(now, What::Up), step(now, What::CaughtUp)];
        let (mut up, mut sent) = (true, Vec::<Message>::new());
        let mut errors = [0; 6];
        for (pause, action) in &self.actions {
            now += pause;
            let what = match action {
                Action::Down if up => What::Down,
                Action::Up if !up => What::Up,
                Action::CaughtUp if up => What::CaughtUp,
                Action::Tick | Action::Down | Action::Up | Action::CaughtUp => What::Tick,
                Action::Set { device, error } => {
                    errors[device % self.devices] = *error;
                    What::Tick
                }
                _ if !up => What::Tick,
                Action::Beat { device, delay, value } => {
                    let time = Time::Near(errors[device % self.devices] - delay);
                    let item = ItemPlan { other: 0, time, value: *value, heartbeat: true };
                    What::Message(self.send(now, *device, &[item], false))
                }
                Action::Send { device, items, retain } => {
                    What::Message(self.send(now, *device, items, *retain))
                }
                Action::Repeat { back, dup } => match sent.iter().rev().nth(back - 1) {
                    Some(message) => {
                        What::Message(Message { dup: *dup && redelivers, ..message.clone() })
                    }
                    None => What::Tick,
                },
                Action::Timeless { device, value, dup } => {
                    What::Message(self.timeless(*device, *value, *dup && redelivers))
                }
                Action::Garbage(which) => What::Message(Message {
                    payload: ["", "{\"dev\":", "[1,2]"][*which].into(),
                    ..self.timeless(0, 0, false)
                }),
            };
            match &what {
                What::Down => up = false,
                What::Up => up = true,
                What::Message(message) => sent.push(message.clone()),
                _ => {}
            }
            steps.push(step(now, what));
        }
        steps
    }

    /// At most two devices write the time in a region, whoever they say they are.
    pub(crate) fn with_few_devices(mut self) -> Self {
        self.devices = self.devices.min(2);
        self
    }

    /// Devices are dealt out to regions.
    fn device(&self, number: usize) -> (&'static str, &'static str) {
        let number = number % self.devices;
        (REGIONS[number % self.regions], DEVICES[number])
    }

    fn send(&self, now: i64, device: usize, items: &[ItemPlan], retain: bool) -> Message {
        let (region, sender) = self.device(device);
        let texts: Vec<String> = items.iter().map(|item| self.item(now, device, item)).collect();
        let payload = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(",")),
        };
        Message { topic: format!("m/{region}/{sender}"), payload, retain, dup: false }
    }

    fn item(&self, now: i64, device: usize, item: &ItemPlan) -> String {
        let (_, name) = self.device(device + item.other);
        let base = self.rules.base;
        let at = |at: i64| format!(",\"ts\":{at}");
        let time = match item.time {
            Time::Near(by) => at(now + by),
            Time::Boundary(back, by) => at(base.start(now) - back * base.size + by),
            Time::Absolute(time) => at(time),
            Time::Missing => String::new(),
            Time::Unreadable => ",\"ts\":\"soon\"".into(),
        };
        let quarter = f64::from(item.value) / 4.0 - 3.0;
        let values = match item.value % 8 {
            0 => String::new(),
            1 => ",\"v\":null,\"w\":\"NaN\"".into(),
            2 => format!(",\"v\":\"{quarter}\""),
            3 => format!(",\"w\":{quarter}"),
            _ => format!(",\"v\":{quarter},\"w\":{}", quarter * 3.0),
        };
        let kind = if item.heartbeat { ",\"kind\":\"heartbeat\"" } else { "" };
        format!("{{\"dev\":\"{name}\"{time}{values}{kind}}}")
    }

    /// Some of the names are also those of devices that write the time.
    fn timeless(&self, device: usize, value: u8, dup: bool) -> Message {
        let (region, name) = self.device(device);
        let name = if device == 0 { name.to_owned() } else { format!("{name}-plain") };
        let payload = format!("{{\"dev\":\"{name}\",\"v\":{value}}}");
        Message { topic: format!("p/{region}/x"), payload, retain: false, dup }
    }
}
