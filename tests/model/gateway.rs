//! An engine in virtual time, with a store in memory that it can be restarted from.

use std::collections::BTreeMap;

use tidegate::config::{Config, Mode};
use tidegate::engine::Engine;
use tidegate::engine::effect::Effects;
use tidegate::engine::input::{Ingress, Input, Publish, Topic};
use tidegate::engine::restore::Restorer;
use tidegate::event::Output;
use tidegate::ids::Generation;
use tidegate::time::{ArrivalTime, ClockQuality, ClockStatus, EventTime, MonoTime, Now};
use tidegate::wire::encode::{Identity, encode_line};

use crate::reference::{Message, Rules, Step, What, Window};

pub(crate) const NOON: i64 = 1_795_953_600_000;
pub(crate) const SECOND: i64 = 1_000;
pub(crate) const MINUTE: i64 = 60_000;
pub(crate) const HOUR: i64 = 3_600_000;

/// Hours and days, and the documented defaults.
pub(crate) fn defaults() -> Rules {
    Rules {
        lateness: ["north", "south", "west"].map(|region| (region.to_owned(), 2 * MINUTE)).into(),
        idle_timeout: 5 * MINUTE,
        allowed_lateness: 2 * HOUR,
        allowed_lateness_z: 2 * HOUR,
        max_hold: 30 * MINUTE,
        future_tolerance: 30 * SECOND,
        past_limit: 30 * 24 * HOUR,
        not_before: 1_577_836_800_000,
        correct: true,
        slow_tolerance: 5 * MINUTE,
        revision_delay: 30 * SECOND,
        base: Window { name: "hour", size: HOUR, offset: 0 },
        multiple: Window { name: "day", size: 24 * HOUR, offset: 0 },
        multiple_first: false,
    }
}

/// The configuration of an operator who wants `rules`.
pub(crate) fn config(rules: &Rules, immediate: bool, publish_interval: i64) -> Config {
    let revisions = match immediate {
        true => "revisions = \"immediate\"".to_owned(),
        false => {
            format!("revisions = \"coalesced\"\nrevision-delay = \"{}ms\"", rules.revision_delay)
        }
    };
    let mut toml = format!(
        "[gateway]\nid = \"gw\"\n[clock]\nsync-timeout = \"1d\"\n[watermarks]\npublish-interval = \"{publish_interval}ms\"\n\
         [limits]\nrefused-per-hour = 1000000\n[defaults]\nidle-timeout = \"{}ms\"\nallowed-lateness = \"{}ms\"\n\
         max-hold = \"{}ms\"\nfuture-tolerance = \"{}ms\"\npast-limit = \"{}ms\"\n{revisions}\n\
         correct = \"{}\"\nslow-tolerance = \"{}ms\"\n\
         [[devices]]\npattern = \"z*\"\nallowed-lateness = \"{}ms\"\n",
        rules.idle_timeout,
        rules.allowed_lateness,
        rules.max_hold,
        rules.future_tolerance,
        rules.past_limit,
        if rules.correct { "on" } else { "off" },
        rules.slow_tolerance,
        rules.allowed_lateness_z,
    );
    let mut windows = [rules.base, rules.multiple];
    if rules.multiple_first {
        windows.reverse();
    }
    for Window { name, size, offset } in windows {
        toml += &format!(
            "[[window]]\nname = \"{name}\"\nsize = \"{size}ms\"\noffset = \"{offset}ms\"\n"
        );
    }
    for (region, lateness) in &rules.lateness {
        toml += &format!("[[region]]\nname = \"{region}\"\nlateness = \"{lateness}ms\"\n");
    }
    for (name, level, time) in
        [("meters", "m", "time = { from = \"/ts\", as = \"epoch_ms\" }\n"), ("plain", "p", "")]
    {
        toml += &format!(
            "[[source]]\nname = \"{name}\"\ntopic = \"{level}/{{region}}/{{sender}}\"\ndevice = \"/dev\"\nitems = \"\"\n\
             {time}heartbeat = {{ from = \"/kind\", equals = \"heartbeat\" }}\n\
             window = \"{}\"\nrollups = [\"{}\"]\n",
            rules.base.name, rules.multiple.name,
        );
        for metric in ["v", "w"] {
            toml += &format!(
                "[[source.metric]]\nname = \"{metric}\"\nfrom = \"/{metric}\"\n\
                 aggregates = [\"sum\", \"min\", \"max\", \"first\", \"last\", \"mean\", \"deviation\"]\n"
            );
        }
    }
    Config::from_toml(&toml).unwrap_or_else(|errors| panic!("{errors}\n{toml}"))
}

/// A clock that somebody may have set.
pub(crate) const LOST: ClockStatus =
    ClockStatus { quality: ClockQuality::Suspect, bound: tidegate::time::Span::MAX };

/// Whether the broker's messages are heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hearing {
    Down,
    Up,
    CaughtUp,
}

/// A gateway.
pub(crate) struct Gateway<'a> {
    config: &'a Config,
    pub(crate) engine: Engine,
    pub(crate) store: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) outputs: Vec<Output>,
    pub(crate) hearing: Hearing,
    pub(crate) now: i64,
    booted: i64,
    boot: u128,
    created: ArrivalTime,
    /// What its clock is worth, and how far it is from the true time, which is `now`.
    pub(crate) clock: ClockStatus,
    pub(crate) error: i64,
    /// It was not good once.
    pub(crate) was_in_doubt: bool,
    /// So many held messages are read from the store at once.
    pub(crate) at_once: usize,
}

impl<'a> Gateway<'a> {
    /// Connected and caught up at `now`.
    pub(crate) fn new(config: &'a Config, now: i64) -> Self {
        let created = ArrivalTime(now);
        let mut gateway = Self {
            config,
            engine: Engine::new(config.settings(Mode::Run), Generation(7), created),
            store: BTreeMap::new(),
            outputs: Vec::new(),
            hearing: Hearing::Down,
            now,
            booted: now - 500,
            boot: 1,
            created,
            was_in_doubt: false,
            clock: ClockStatus::EXACT,
            error: 0,
            at_once: 3,
        };
        gateway.handle(Input::Boot(gateway.boot));
        gateway.handle(Input::Clock(gateway.clock));
        gateway
    }

    /// Connected at `now`, thirteen days behind the true time and without a good clock.
    pub(crate) fn unsynchronised(config: &'a Config, now: i64) -> Self {
        let mut gateway = Self::new(config, now);
        gateway.engine = Engine::new(config.settings(Mode::Run), Generation(7), gateway.created);
        (gateway.clock, gateway.error) = (ClockStatus::UNSYNCHRONISED, -13 * 24 * HOUR);
        gateway.handle(Input::Boot(gateway.boot));
        gateway.handle(Input::Clock(gateway.clock));
        gateway
    }

    /// The same, and it hears the devices.
    pub(crate) fn listening(config: &'a Config, now: i64) -> Self {
        let mut gateway = Self::new(config, now);
        gateway.hear(Hearing::CaughtUp);
        gateway
    }

    pub(crate) fn handle(&mut self, input: Input<'_>) {
        self.take(input);
        while let Some(wanted) = self.engine.held_wanted() {
            self.commit();
            let found = self.store.range(wanted).take(self.at_once);
            let found: Vec<_> = found.map(|(key, value)| (key.clone(), value.clone())).collect();
            for (key, value) in &found {
                self.take(Input::Held { key, value });
            }
            if found.len() < self.at_once {
                self.take(Input::HeldEnd);
            }
            self.commit();
        }
    }

    fn take(&mut self, input: Input<'_>) {
        let mono = MonoTime(self.now - self.booted);
        let now = Now { wall: ArrivalTime(self.now + self.error), mono };
        let mut effects = Effects::default();
        self.engine.handle(input, now, &mut effects);
        self.outputs.extend(effects.outputs);
        self.engine.books().balance();
    }

    /// The clock is worth something else, and is so far from the true time.
    pub(crate) fn set_clock(&mut self, clock: ClockStatus, error: i64) {
        (self.clock, self.error) = (clock, error);
        self.was_in_doubt |= clock != ClockStatus::EXACT;
        self.handle(Input::Clock(clock));
    }

    /// The machine was switched off and on.
    pub(crate) fn reboot(&mut self) {
        (self.boot, self.booted) = (self.boot + 1, self.now - 3);
        self.restart(|_| {});
    }

    fn hear(&mut self, hearing: Hearing) {
        self.hearing = hearing;
        match hearing {
            Hearing::Down => self.handle(Input::Ingress(Ingress::Down)),
            Hearing::Up => self.handle(Input::Ingress(Ingress::Up)),
            Hearing::CaughtUp => {
                self.handle(Input::Ingress(Ingress::Up));
                self.handle(Input::Ingress(Ingress::CaughtUp));
            }
        }
    }

    /// The connection breaks and comes back at once: what a restart does to all that is compared over time.
    pub(crate) fn reconnect(&mut self) {
        if self.hearing != Hearing::Down {
            self.handle(Input::Ingress(Ingress::Up));
        }
        if self.hearing == Hearing::CaughtUp {
            self.handle(Input::Ingress(Ingress::CaughtUp));
        }
    }

    pub(crate) fn publish(&mut self, message: &Message, dup: bool) {
        let topic = Topic::Name(&message.topic);
        let Message { retain, .. } = *message;
        let payload = message.payload.as_bytes();
        self.handle(Input::Publish(Publish { topic, payload, retain, dup: dup || message.dup }));
    }

    pub(crate) fn step(&mut self, step: &Step) {
        self.now = step.at;
        match &step.what {
            What::Message(message) => self.publish(message, false),
            What::Tick => self.handle(Input::Tick),
            What::Down => self.hear(Hearing::Down),
            What::Up => self.hear(Hearing::Up),
            What::Lost(error) => self.set_clock(LOST, *error),
            What::Good => self.set_clock(ClockStatus::EXACT, 0),
            What::Left(..) => unreachable!("that is how the reference has it"),
            What::CaughtUp => {
                self.hearing = Hearing::CaughtUp;
                self.handle(Input::Ingress(Ingress::CaughtUp));
            }
        }
    }

    /// Time passes, and a message comes.
    pub(crate) fn hears(&mut self, at: i64, message: Message) {
        self.sleep_until(at);
        self.step(&Step { at, what: What::Message(message) });
    }

    /// Goes to `at`, as a gateway does that wakes up for its deadlines; returns how often it woke up.
    pub(crate) fn sleep_until(&mut self, at: i64) -> u32 {
        let mut woken = 0;
        while let Some((mono, _)) = self.engine.next_deadline()
            && mono.0 + self.booted <= at
        {
            self.now = self.now.max(mono.0 + self.booted);
            self.handle(Input::Tick);
            woken += 1;
            assert!(woken < 100_000, "it wakes up without end at {}", self.now);
        }
        self.now = at;
        self.handle(Input::Tick);
        woken
    }

    /// An operator no longer misses a device of the region `north`.
    pub(crate) fn forget(&mut self, device: &str) {
        let is_missed = self.engine.device_view("north", device).is_some_and(|it| it.is_missed);
        assert!(is_missed, "{device}");
        self.handle(Input::Forget { region: "north", device });
    }

    /// Time passes, on both clocks.
    pub(crate) fn pass(&mut self, span: i64) {
        self.now += span;
        self.handle(Input::Tick);
    }

    /// Somebody sets the wall clock.
    pub(crate) fn step_wall(&mut self, by: i64) {
        self.now += by;
        self.booted += by;
    }

    /// Commits; returns the mark to settle with.
    pub(crate) fn commit(&mut self) -> u64 {
        let checkpoint = self.engine.checkpoint();
        let mut keys: Vec<_> = checkpoint.changes.iter().map(|(key, _)| key).collect();
        keys.sort();
        assert!(keys.windows(2).all(|pair| pair[0] != pair[1]), "a key occurs once: {keys:02x?}");
        for (key, value) in checkpoint.changes {
            match value {
                Some(value) => drop(self.store.insert(key, value)),
                None => drop(self.store.remove(&key)),
            }
        }
        checkpoint.mark
    }

    /// The process ends and a new one starts from what the store has. It hears what it heard once `redeliver` is done.
    pub(crate) fn restart(&mut self, redeliver: impl FnOnce(&mut Self)) {
        let mut restorer =
            Restorer::new(self.config.settings(Mode::Run), Generation(7), self.created);
        for (key, value) in &self.store {
            restorer.take(key, value).expect("it was written by this version");
        }
        self.engine = restorer.finish();
        self.handle(Input::Boot(self.boot));
        self.handle(Input::Clock(self.clock));
        let hearing = self.hearing;
        if hearing != Hearing::Down {
            self.hear(Hearing::Up);
            redeliver(self);
        }
        if hearing == Hearing::CaughtUp {
            self.hearing = hearing;
            self.handle(Input::Ingress(Ingress::CaughtUp));
        }
    }

    pub(crate) fn end(&mut self) {
        self.handle(Input::End);
    }

    pub(crate) fn device_watermark(&self, region: &str, device: &str) -> Option<i64> {
        self.engine.device_watermark(region, device).map(|EventTime(w)| w)
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.outputs.iter().map(|output| encode_line(output, &identity(), None)).collect()
    }
}

pub(crate) fn identity() -> Identity {
    Identity { gateway: "gw".into(), generation: Generation(7) }
}
