//! Who is there, where nobody knows what time it is.

use super::*;
use crate::event::{GapCause, PresenceCause, PresenceState};
use crate::wire::profile::Reference;
use crate::wire::status::{Scope, StatusSpec, StatusTopic};
use PresenceCause::{News, Silence, Will};
use PresenceState::{Offline, Online, Suspect};

/// Meters that leave last wills; the time is waited for without an end.
fn with_wills() -> Settings {
    let will = StatusSpec {
        topic: "will/{device}".into(),
        from: None,
        online: vec!["on".into()],
        offline: vec!["off".into()],
        scope: Scope::Device,
        device: Reference::Topic("device".into()),
        region: Reference::Const("north".into()),
    };
    let mut settings = settings();
    settings.sources[0].statuses = vec![StatusTopic::new(&will).expect("no mistake")];
    settings.gate.sync_timeout = Span::from_hours(1_000);
    settings
}

/// The same, but the time is waited for for five minutes.
fn waiving() -> Settings {
    Settings { gate: GateSettings::default(), ..with_wills() }
}

impl Gateway {
    fn will(&mut self, at: i64, device: &str, word: &str, dup: bool) {
        let topic = format!("will/{device}");
        let (topic, payload) = (Topic::Name(&topic), word.as_bytes());
        self.handle(at, Input::Publish(Publish { topic, payload, retain: false, dup }));
    }

    /// Wakes at each deadline up to `at`.
    fn sleep_until(&mut self, at: i64) {
        while let Some(due) = self.engine.next_deadline().map(|it| it.0.0 + self.booted)
            && due <= at
        {
            self.handle(due, Input::Tick);
        }
        self.handle(at, Input::Tick);
    }

    /// Seconds after noon of since, state and cause.
    fn told_of(&self, device: &str) -> Vec<(i64, PresenceState, PresenceCause)> {
        let reports = self.outputs.iter().filter_map(|output| match output {
            Output::Presence(report) if report.device.as_str() == device => Some(report),
            _ => None,
        });
        reports.map(|it| ((it.since.0 - NOON) / 1_000, it.state, it.cause)).collect()
    }

    fn gaps(&self) -> Vec<(i64, i64, GapCause)> {
        let minutes = |at: ArrivalTime| (at.0 - NOON) / MINUTE;
        let gaps = self.outputs.iter().filter_map(|output| match output {
            Output::Gap(gap) => Some((minutes(gap.start), minutes(gap.end), gap.cause)),
            _ => None,
        });
        gaps.collect()
    }
}

const AT: [i64; 4] = [NOON + MINUTE, NOON + 2 * MINUTE, NOON + 3 * MINUTE, NOON + 4 * MINUTE];

#[test]
fn a_will_and_the_news_after_it_are_held_and_come_in_their_order() {
    let mut gateway = Gateway::new(with_wills);
    for device in ["back", "gone"] {
        gateway.send(AT[0], &reading(device, AT[0]));
        gateway.will(AT[1], device, "off", false);
    }
    gateway.send(AT[2], &reading("back", AT[2]));
    assert_eq!((gateway.outputs.len(), gateway.books().held), (0, 5));
    gateway.synchronise(AT[3]);
    gateway.sleep_until(NOON + 10 * MINUTE);
    let back = [(60, Online, News), (120, Suspect, Will), (180, Online, News)];
    assert_eq!(gateway.told_of("back"), back);
    // The debounce is time in which we hear that it is back: none of it had passed.
    let gone = [(60, Online, News), (120, Suspect, Will), (270, Offline, Will)];
    assert_eq!(gateway.told_of("gone"), gone);
}

#[test]
fn a_held_will_that_is_delivered_again_after_a_crash_is_no_second_one() {
    let mut gateway = Gateway::new(with_wills);
    gateway.send(AT[0], &reading("a", AT[0]));
    gateway.will(AT[1], "a", "off", false);
    gateway.send(AT[2], &reading("a", AT[2]));
    gateway.commit(); // and acknowledges nothing
    gateway.restart(AT[3], ClockStatus::UNSYNCHRONISED);
    gateway.will(AT[3], "a", "off", true);
    gateway.publish(AT[3], &reading("a", AT[2]), true);
    gateway.synchronise(AT[3]);
    gateway.sleep_until(NOON + 10 * MINUTE);
    assert_eq!(gateway.told_of("a").last(), Some(&(180, Online, News)));
    assert_eq!((gateway.books().duplicate, gateway.books().held), (2, 0));
}

#[test]
fn nobody_is_offline_because_the_time_was_not_known_and_the_gap_is_told_once_it_is() {
    let mut gateway = Gateway::new(with_wills);
    gateway.synchronise(NOON);
    gateway.send(NOON, &reading("a", NOON));
    gateway.commit();
    gateway.error = WRONG;
    gateway.reboot(NOON + HOUR);
    gateway.restart(NOON + HOUR, ClockStatus::UNSYNCHRONISED);
    gateway.send(NOON + 2 * HOUR, &reading("a", NOON + 2 * HOUR));
    gateway.sleep_until(NOON + 9 * HOUR);
    assert_eq!((gateway.told_of("a").len(), gateway.gaps().len()), (1, 0));
    gateway.synchronise(NOON + 9 * HOUR);
    assert_eq!(gateway.gaps(), [(0, 9 * 60, GapCause::AgentStopped)]);
    assert_eq!(gateway.told_of("a").len(), 1, "what it sent waited for us");
    gateway.sleep_until(NOON + 10 * HOUR);
    let offline = gateway.told_of("a")[1];
    assert_eq!(offline, (9 * 3_600 + 1_800, Offline, Silence), "it was heard at two");
}

#[test]
fn held_news_is_as_old_as_it_is() {
    let mut gateway = Gateway::new(with_wills);
    gateway.send(AT[0], &reading("late", AT[0] - 20 * MINUTE));
    gateway.send(AT[0], &reading("old", AT[0] - 40 * MINUTE));
    gateway.send(AT[0], TIMELESS);
    gateway.synchronise(AT[3]);
    gateway.sleep_until(NOON + 3 * HOUR);
    let last_seen = |device: &str| {
        let view = gateway.engine.device_view("north", device).expect("it is known");
        (view.last_seen.expect("it was heard").0 - NOON) / MINUTE
    };
    assert_eq!([last_seen("late"), last_seen("old"), last_seen("t")], [-19, -39, 1]);
    for device in ["late", "old", "t"] {
        let told = gateway.told_of(device);
        assert_eq!(
            told[0],
            (60, Online, News),
            "{device}: what we did not hear is not its silence"
        );
        assert_eq!(told[1], (34 * 60, Offline, Silence), "{device}");
    }
}

/// A device without a clock of its own goes on sending while everybody waits for ours: its readings are held, and it lives.
#[test]
fn a_device_whose_messages_are_held_while_we_listen_is_alive_and_its_held_news_is_not_new() {
    let mut gateway = Gateway::new(waiving);
    gateway.synchronise(NOON);
    for device in ["lives", "dies"] {
        gateway.send(NOON, &timeless(device, 0));
    }
    gateway.commit();
    gateway.error = WRONG;
    gateway.reboot(NOON + 10 * MINUTE);
    gateway.restart(NOON + 10 * MINUTE, ClockStatus::UNSYNCHRONISED);
    for minute in (11..190).step_by(10) {
        let at = NOON + minute * MINUTE;
        gateway.sleep_until(at);
        gateway.send(at, &timeless("lives", minute));
        if minute < 60 {
            gateway.send(at, &timeless("dies", minute));
        }
    }
    gateway.sleep_until(NOON + 190 * MINUTE);
    // By the clock as it is that is 13 days before it came: the event is marked as of such a clock, and is the newest.
    let dies = [(0, Online, News), (0, Offline, Silence)];
    assert_eq!(gateway.told_of("lives"), [(0, Online, News)]);
    assert_eq!(gateway.told_of("dies"), dies);
    assert_eq!((gateway.books().held, gateway.gaps().len()), (18 + 5, 0));
    gateway.synchronise(NOON + 190 * MINUTE);
    assert_eq!(gateway.books().held, 0);
    assert_eq!(
        gateway.gaps(),
        [(0, 15, GapCause::AgentStopped)],
        "it ended when we waited no longer"
    );
    assert_eq!(gateway.told_of("dies"), dies, "what it sent before it died does not revive it");
    gateway.sleep_until(NOON + 200 * MINUTE);
    assert_eq!(gateway.told_of("lives"), [(0, Online, News)]);
    gateway.sleep_until(NOON + 230 * MINUTE);
    assert_eq!(gateway.told_of("lives")[1], (211 * 60, Offline, Silence));
}

fn timeless(device: &str, value: i64) -> String {
    format!(r#"{{"dev":"{device}","v":{value}}}"#)
}

/// A clock that stops being good while devices are silent: their silence ends at the right wall time.
#[test]
fn offline_without_a_good_clock_is_since_when_it_would_be_with_one() {
    let mut gateway = Gateway::new(with_wills);
    gateway.synchronise(NOON);
    gateway.send(NOON, &reading("a", NOON));
    gateway.handle(NOON + 10 * MINUTE, Input::Clock(BAD));
    gateway.send(NOON + 20 * MINUTE, &reading("b", NOON + 20 * MINUTE));
    gateway.handle(NOON + HOUR, Input::Tick); // long after both deadlines
    assert_eq!(gateway.told_of("a"), [(0, Online, News), (30 * 60, Offline, Silence)]);
    assert_eq!(gateway.told_of("b"), [(20 * 60, Online, News), (50 * 60, Offline, Silence)]);
}
