//! Who is offline, and never because of us: what others were hurt by, with the documented defaults.

use tidegate::config::Config;
use tidegate::engine::input::Input;
use tidegate::event::{GapReport, Output, PresenceCause, PresenceReport, PresenceState};
use tidegate::time::{ClockQuality, ClockStatus, Span};

use crate::gateway::{Gateway, HOUR, Hearing, MINUTE, NOON, SECOND, config, defaults};
use crate::reference::{Message, Step, What};

fn quiet() -> Config {
    config(&defaults(), false, MINUTE)
}

fn message(device: &str, time: Option<i64>, value: i64) -> Message {
    let time = time.map_or(String::new(), |time| format!(",\"ts\":{time}"));
    let level = if time.is_empty() { "p" } else { "m" };
    let payload = format!("{{\"dev\":\"{device}\"{time},\"v\":{value}}}");
    Message { topic: format!("{level}/north/{device}"), payload, retain: false, dup: false }
}

fn reading(device: &str, time: i64) -> Message {
    message(device, Some(time), time / MINUTE % 7)
}

impl Gateway<'_> {
    fn turns(&mut self, at: i64, what: What) {
        self.sleep_until(at);
        self.step(&Step { at, what });
    }

    fn presence(&self) -> Vec<&PresenceReport> {
        let outputs = self.outputs.iter();
        outputs
            .filter_map(|output| match output {
                Output::Presence(report) => Some(report),
                _ => None,
            })
            .collect()
    }

    /// How often a device was told to be in this state.
    fn told(&self, state: PresenceState) -> usize {
        self.presence().iter().filter(|report| report.state == state).count()
    }

    fn gaps(&self) -> Vec<GapReport> {
        let of = |output: &Output| match output {
            Output::Gap(report) => Some(*report),
            _ => None,
        };
        self.outputs.iter().filter_map(of).collect()
    }
}

fn name(number: i64) -> String {
    format!("d{number:03}")
}

/// Two hundred devices, one message each in a minute of its own of every quarter of an hour.
fn quarter(gateway: &mut Gateway<'_>, from: i64) {
    for number in 0..200 {
        let at = from + number * 4 * SECOND;
        gateway.hears(at, reading(&name(number), at - SECOND));
    }
}

/// Pain 28, first half: the agent is stopped for two hours, and the broker keeps what is sent.
#[test]
fn an_agent_that_was_stopped_for_two_hours_tells_one_gap_and_nobody_offline() {
    let config = quiet();
    let mut gateway = Gateway::listening(&config, NOON);
    quarter(&mut gateway, NOON);
    gateway.commit();
    gateway.now = NOON + 15 * MINUTE + 2 * HOUR;
    gateway.restart(|gateway| {
        for sent in (NOON + 15 * MINUTE..NOON + 15 * MINUTE + 2 * HOUR).step_by(900_000) {
            for number in 0..200 {
                gateway.publish(&reading(&name(number), sent + number * 4 * SECOND), false);
            }
        }
    });
    let now = gateway.now;
    quarter(&mut gateway, now);
    quarter(&mut gateway, now + 15 * MINUTE);
    assert_eq!(
        (gateway.told(PresenceState::Online), gateway.told(PresenceState::Offline)),
        (200, 0)
    );
    let [gap] = gateway.gaps()[..] else { panic!("{:?}", gateway.gaps()) };
    assert_eq!(gap.cause, tidegate::event::GapCause::AgentStopped);
    let minutes = [gap.start, gap.end].map(|at| (at.0 - NOON) / MINUTE);
    assert_eq!(minutes, [13, 135], "from the last commit until all was heard");
}

/// Pain 28, second half: the broker is away for two hours, and what was sent is lost.
#[test]
fn a_broker_that_was_away_for_two_hours_is_one_gap_and_nobody_offline() {
    let config = quiet();
    let mut gateway = Gateway::listening(&config, NOON);
    quarter(&mut gateway, NOON);
    let down = NOON + 14 * MINUTE;
    gateway.turns(down, What::Down);
    gateway.turns(down + 2 * HOUR, What::Up);
    gateway.turns(down + 2 * HOUR + MINUTE, What::CaughtUp);
    assert_eq!(gateway.gaps().len(), 1, "told when it has caught up, not before");
    // The judgement goes on where it stopped: 14 minutes of silence at most, and 15 to the next report.
    quarter(&mut gateway, down + 2 * HOUR + 2 * MINUTE);
    assert_eq!(gateway.told(PresenceState::Offline), 0);
    let gap = gateway.gaps()[0];
    assert_eq!(gap.cause, tidegate::event::GapCause::BrokerAway);
    assert_eq!((gap.start.0, gap.end.0), (down, down + 2 * HOUR + MINUTE));
    gateway.sleep_until(gateway.now + 31 * MINUTE);
    assert_eq!(gateway.told(PresenceState::Offline), 200, "now they are");
}

#[test]
fn nobody_is_judged_while_the_broker_is_away_and_the_time_before_it_counts() {
    let config = quiet();
    let mut gateway = Gateway::listening(&config, NOON);
    gateway.hears(NOON, reading("a", NOON));
    gateway.turns(NOON + 20 * MINUTE, What::Down);
    gateway.commit();
    gateway.now = NOON + 5 * HOUR;
    gateway.restart(|_| {});
    gateway.turns(NOON + 6 * HOUR, What::Up);
    gateway.sleep_until(NOON + 7 * HOUR);
    gateway.turns(NOON + 7 * HOUR, What::CaughtUp);
    gateway.sleep_until(NOON + 7 * HOUR + 10 * MINUTE - 1);
    assert_eq!(gateway.told(PresenceState::Offline), 0);
    gateway.sleep_until(NOON + 7 * HOUR + 10 * MINUTE);
    assert_eq!(gateway.presence()[1].since.0, NOON + 7 * HOUR + 10 * MINUTE, "30 minutes listened");
    let cause = gateway.gaps()[0].cause;
    assert_eq!(
        cause,
        tidegate::event::GapCause::BrokerAway,
        "it began with that, whatever came then"
    );
}

/// Pain 26: a retained sample of three days ago, with and without a time of its own.
#[test]
fn a_retained_sample_is_no_news() {
    let config = quiet();
    let mut gateway = Gateway::listening(&config, NOON);
    for time in [Some(NOON - 72 * HOUR), None] {
        gateway.hears(NOON, Message { retain: true, ..message("a", time, 1) });
    }
    gateway.sleep_until(NOON + HOUR);
    assert_eq!(gateway.presence().len(), 0, "neither online nor offline");
    gateway.hears(NOON + HOUR, reading("a", NOON + HOUR));
    assert_eq!(gateway.told(PresenceState::Online), 1, "a live one works after it");
    let again = Message { retain: true, ..reading("a", NOON + HOUR + 20 * MINUTE) };
    gateway.hears(NOON + HOUR + 25 * MINUTE, again);
    gateway.sleep_until(NOON + 2 * HOUR);
    let offline = gateway.presence()[1];
    assert_eq!(offline.since.0, NOON + HOUR + 30 * MINUTE, "the retained one put nothing off");
}

/// Pain 29: battery devices and mains ones, a restart in between, and a device never heard since.
#[test]
fn each_class_is_judged_by_its_own_span_and_last_seen_survives_a_restart() {
    let toml = "[[devices]]\npattern = \"s-*\"\noffline-after = \"26h\"\n[[source]]\nname = \"meters\"\n\
                topic = \"m/{region}/{sender}\"\ndevice = \"/dev\"\ntime = { from = \"/ts\", as = \"epoch_ms\" }\n\
                [[source.metric]]\nname = \"v\"\nfrom = \"/v\"\n";
    let config = Config::from_toml(toml).expect("no mistake");
    let mut gateway = Gateway::listening(&config, NOON);
    for device in ["s-1", "mains"] {
        gateway.hears(NOON, reading(device, NOON - SECOND));
    }
    gateway.sleep_until(NOON + 10 * MINUTE);
    gateway.commit();
    gateway.now = NOON + 12 * MINUTE;
    gateway.restart(|_| {});
    gateway.sleep_until(NOON + 48 * HOUR);
    let offline: Vec<_> = gateway.presence()[2..]
        .iter()
        .map(|it| (it.device.as_str().to_owned(), it.since.0 - NOON, it.last_seen.expect("seen").0))
        .collect();
    let (lost, seen) = (2 * MINUTE - SECOND, NOON - SECOND);
    let mains = ("mains".to_owned(), 30 * MINUTE + lost, seen);
    assert_eq!(offline, [mains, ("s-1".to_owned(), 26 * HOUR + lost, seen)]);
}

/// Pain 29, second half: a device that reports after 29 and 31 minutes in turns.
#[test]
fn a_device_at_the_edge_is_offline_once_for_each_long_pause() {
    let config = quiet();
    let mut gateway = Gateway::listening(&config, NOON);
    let mut at = NOON;
    for number in 0..20 {
        gateway.hears(at, reading("a", at));
        at += if number % 2 == 0 { 29 } else { 31 } * MINUTE;
    }
    assert_eq!(gateway.told(PresenceState::Offline), 9);
    assert_eq!(gateway.told(PresenceState::Flapping), 0);
    for number in 0..20 {
        gateway.hears(at, reading("a", at));
        at += 31 * MINUTE;
        assert_eq!(gateway.told(PresenceState::Flapping), 0, "{number}: two changes in 31 minutes");
    }
}

/// Pain 15: the wall clock is stepped by two hours, either way, while devices report every minute.
#[test]
fn a_step_of_the_clock_makes_nobody_offline() {
    for step in [2 * HOUR, -2 * HOUR] {
        let config = quiet();
        let mut gateway = Gateway::listening(&config, NOON);
        let mut time = NOON;
        for minute in 0..180 {
            let quality = match minute {
                60 => ClockQuality::Suspect,
                120 => ClockQuality::Synchronised,
                _ => {
                    for device in ["a", "b"] {
                        gateway.publish(&reading(device, time), false);
                    }
                    gateway.pass(MINUTE);
                    time += MINUTE;
                    continue;
                }
            };
            // The step itself, and back: the monotonic clock does not notice.
            gateway.step_wall(if minute == 60 { step } else { -step });
            let bound = Span::ZERO;
            gateway.handle(Input::Clock(ClockStatus { quality, bound }));
        }
        assert_eq!(gateway.told(PresenceState::Offline), 0, "{step}");
        assert_eq!(gateway.told(PresenceState::Online), 2);
        assert_eq!(gateway.gaps(), []);
    }
}

/// Pain 4: ten devices are declared, one never speaks.
#[test]
fn a_device_that_never_speaks_is_never_seen_and_nobody_waits_for_it() {
    let names: Vec<_> = (0..10).map(|number| format!("\"north/d{number}\"")).collect();
    let toml = format!("{METERS}{WILLS}[[devices]]\nnames = [{}]\n", names.join(", "));
    let config = Config::from_toml(&toml).expect("no mistake");
    let mut gateway = Gateway::listening(&config, NOON);
    for minute in 0..90 {
        for number in 0..9 {
            let at = NOON + minute * MINUTE;
            gateway.hears(at, reading(&format!("d{number}"), at));
        }
        if minute == 20 {
            gateway.commit();
            gateway.restart(|_| {});
        }
    }
    let hours = gateway.outputs.iter().filter(|output| matches!(output, Output::Window(_)));
    assert_eq!(hours.count(), 9, "the hour of the nine is closed");
    let region = gateway.outputs.iter().find_map(|output| match output {
        Output::Region(result) => Some((result.reporting, result.devices)),
        _ => None,
    });
    assert_eq!(region, Some((9, 10)), "nine report, of ten that are expected");
    for retain in [true, false] {
        gateway.hears(NOON + 89 * MINUTE, says("bridge/north", "{\"state\":\"offline\"}", retain));
    }
    gateway.hears(NOON + 89 * MINUTE, says("m/north/d9/status", "offline", true));
    assert_eq!((gateway.told(PresenceState::Online), gateway.told(PresenceState::Offline)), (9, 0));
    let never: Vec<_> =
        gateway.presence().into_iter().filter(|it| it.state == PresenceState::NeverSeen).collect();
    let [never] = never[..] else { panic!("told once: {never:?}") };
    assert_eq!((never.device.as_str(), never.since.0), ("d9", NOON + 30 * MINUTE));
    assert_eq!(never.last_seen, None);
    assert_eq!(gateway.engine.device_counts().presence.never_seen, 1);
    let at = NOON + 90 * MINUTE;
    gateway.hears(at, reading("d9", at));
    assert_eq!(gateway.told(PresenceState::Online), 10);
    gateway.sleep_until(at + HOUR);
    assert_eq!(gateway.told(PresenceState::Offline), 10, "from then on as any other");
}

const METERS: &str = "[[source]]\nname = \"meters\"\ntopic = \"m/{region}/{sender}\"\ndevice = \"/dev\"\n\
                      time = { from = \"/ts\", as = \"epoch_ms\" }\nmetric = [{ name = \"v\", from = \"/v\" }]\n";

const WILLS: &str = "[[source.status]]\ntopic = \"m/{region}/{device}/status\"\n\
                     [[source.status]]\ntopic = \"bridge/{region}\"\nscope = \"region\"\nfrom = \"/state\"\n";

/// Meters with last wills of their own and of their concentrator.
fn with_wills() -> Config {
    Config::from_toml(&format!("{METERS}{WILLS}")).expect("no mistake")
}

fn says(topic: &str, payload: &str, retain: bool) -> Message {
    Message { topic: topic.to_owned(), payload: payload.to_owned(), retain, dup: false }
}

impl Gateway<'_> {
    /// Minute of `since`, state and cause of all that was told after the first event of each device.
    fn told_of(&self, device: &str) -> Vec<(i64, PresenceState, PresenceCause)> {
        let of = self.presence().into_iter().filter(|it| it.device.as_str() == device);
        of.map(|it| ((it.since.0 - NOON) / MINUTE, it.state, it.cause)).collect()
    }
}

#[test]
fn a_last_will_makes_suspect_at_once_and_offline_after_the_debounce() {
    use PresenceCause::{News, Will};
    use PresenceState::{Offline, Online, Suspect};
    let config = with_wills();
    let mut gateway = Gateway::listening(&config, NOON);
    let gone = |retain| says("m/north/a/status", "offline", retain);
    gateway.hears(NOON, reading("a", NOON));
    gateway.hears(NOON + 5 * MINUTE, gone(false));
    gateway.hears(NOON + 5 * MINUTE + 29 * SECOND, reading("a", NOON + 5 * MINUTE));
    gateway.sleep_until(NOON + 9 * MINUTE);
    let came_back = [(0, Online, News), (5, Suspect, Will), (5, Online, News)];
    assert_eq!(gateway.told_of("a"), came_back, "news after a will keeps it online");
    gateway.hears(NOON + 10 * MINUTE, gone(false));
    gateway.commit();
    gateway.restart(|_| {});
    gateway.sleep_until(NOON + 12 * MINUTE);
    let offline = gateway.presence().pop().expect("told").clone();
    assert_eq!((offline.state, offline.cause), (Offline, Will));
    assert_eq!(offline.since.0, NOON + 10 * MINUTE + 30 * SECOND);
    gateway.hears(NOON + 13 * MINUTE, says("m/north/a/status", "\"online\"", false));
    assert_eq!(gateway.told_of("a").last(), Some(&(13, Online, News)), "a live word is news");
    assert_eq!(gateway.engine.books().valueless, 3, "they are records without a value");
    gateway.engine.books().balance();
}

#[test]
fn a_retained_word_proves_nothing_and_a_retained_will_makes_suspect_at_most() {
    use PresenceState::{Offline, Online, Suspect};
    let config = with_wills();
    let mut gateway = Gateway::listening(&config, NOON);
    for word in ["online", "offline"] {
        gateway.hears(NOON, says("m/north/a/status", word, true));
    }
    assert_eq!(gateway.engine.device_count(), 0, "a device that was never heard is not made of it");
    gateway.hears(NOON, reading("a", NOON));
    gateway.hears(NOON + 5 * MINUTE, says("m/north/a/status", "offline", true));
    gateway.sleep_until(NOON + 29 * MINUTE);
    let states = |gateway: &Gateway<'_>| {
        gateway.told_of("a").iter().map(|told| (told.0, told.1)).collect::<Vec<_>>()
    };
    assert_eq!(states(&gateway), [(0, Online), (5, Suspect)]);
    gateway.hears(NOON + 29 * MINUTE, says("m/north/a/status", "online", true));
    gateway.sleep_until(NOON + 31 * MINUTE);
    assert_eq!(states(&gateway)[2..], [(30, Offline)], "by its silence, which nothing put off");
    assert_eq!(gateway.engine.books().retained_ignored, 3);
}

#[test]
fn the_death_of_a_bridge_makes_its_devices_suspect_and_touches_nothing_else() {
    use PresenceState::{Online, Suspect};
    let config = with_wills();
    let mut gateway = Gateway::listening(&config, NOON);
    for device in ["a", "b"] {
        gateway.hears(NOON, reading(device, NOON));
    }
    let other = message("c", Some(NOON), 1);
    gateway.hears(NOON, Message { topic: "m/south/c".to_owned(), ..other });
    gateway.hears(NOON + MINUTE, says("bridge/north", "{\"state\":\"offline\"}", false));
    gateway.hears(NOON + 2 * MINUTE, says("bridge/north", "{\"state\":\"online\"}", false));
    gateway.hears(NOON + 3 * MINUTE, reading("a", NOON + 3 * MINUTE));
    gateway.sleep_until(NOON + 20 * MINUTE);
    let states = |device| gateway.told_of(device).iter().map(|told| told.1).collect::<Vec<_>>();
    assert_eq!(states("a"), [Online, Suspect, Online]);
    assert_eq!(states("b"), [Online, Suspect], "the bridge is back, which says nothing of it");
    assert_eq!(states("c"), [Online]);
    assert_eq!(gateway.told_of("b")[1].2, PresenceCause::Parent);
    assert_eq!(gateway.engine.books().aggregated, 4);
}

#[test]
fn a_will_that_is_delivered_again_after_a_crash_is_no_second_one() {
    let config = with_wills();
    let mut gateway = Gateway::listening(&config, NOON);
    gateway.hears(NOON, reading("a", NOON));
    gateway.hears(NOON + MINUTE, says("m/north/a/status", "offline", false));
    gateway.hears(NOON + MINUTE, reading("a", NOON + MINUTE));
    gateway.commit();
    gateway.restart(|gateway| gateway.publish(&says("m/north/a/status", "offline", false), true));
    assert_eq!(gateway.engine.books().duplicate, 1);
    assert_eq!(gateway.engine.device_counts().presence.online, 1);
    gateway.engine.books().balance();
}

#[test]
fn a_word_of_neither_side_is_ignored() {
    let config = with_wills();
    let mut gateway = Gateway::listening(&config, NOON);
    gateway.hears(NOON, says("m/north/a/status", "rebooting", false));
    gateway.hears(NOON, says("bridge/north", "offline", false));
    assert_eq!((gateway.engine.books().ignored, gateway.engine.device_count()), (2, 0));
}

#[test]
fn the_books_know_nothing_of_presence() {
    let config = quiet();
    let mut gateway = Gateway::listening(&config, NOON);
    gateway.hears(NOON, reading("a", NOON));
    let books = *gateway.engine.books();
    gateway.sleep_until(NOON + HOUR);
    assert_eq!(gateway.told(PresenceState::Offline), 1);
    assert_eq!(*gateway.engine.books(), books);
}

#[test]
fn a_device_with_a_wrong_clock_is_alive() {
    let config = quiet();
    let mut gateway = Gateway::listening(&config, NOON);
    for minute in (0..120).step_by(10) {
        let at = NOON + minute * MINUTE;
        gateway.hears(at, reading("fast", at + 24 * HOUR));
        gateway.hears(at, message("unset", Some(minute * MINUTE), 1));
        gateway.hears(at, message("none", None, minute));
        gateway.hears(at, reading("slow", at - 15 * MINUTE));
    }
    assert_eq!(gateway.told(PresenceState::Offline), 0);
    assert_eq!(gateway.told(PresenceState::Online), 4);
    gateway.sleep_until(NOON + 4 * HOUR);
    let since = |name: &str| {
        let reports = gateway.presence();
        let last = reports.iter().rfind(|it| it.device.as_str() == name).expect("told");
        (last.since.0 - NOON) / MINUTE
    };
    assert_eq!(["fast", "unset", "none", "slow"].map(since), [140, 140, 140, 125]);
}

#[test]
fn a_duplicate_is_no_news() {
    let config = quiet();
    let mut gateway = Gateway::listening(&config, NOON);
    for minute in [0, 10, 20] {
        gateway.hears(NOON + minute * MINUTE, reading("a", NOON));
        gateway.hears(NOON + minute * MINUTE, reading("a", NOON - minute * SECOND));
    }
    gateway.sleep_until(NOON + HOUR);
    assert_eq!(gateway.presence()[1].since.0, NOON + 30 * MINUTE);
}

#[test]
fn the_clock_comes_first_a_deadline_at_the_arrival_is_met_before_the_message() {
    let config = quiet();
    let mut gateway = Gateway::listening(&config, NOON);
    gateway.hears(NOON, reading("a", NOON));
    gateway.turns(NOON + 30 * MINUTE, What::Message(reading("a", NOON + 30 * MINUTE)));
    let states: Vec<_> = gateway.presence().iter().map(|it| it.state).collect();
    assert_eq!(states, [PresenceState::Online, PresenceState::Offline, PresenceState::Online]);
    assert_eq!(gateway.presence()[2].outage, Some(Span(30 * MINUTE)));
}

#[test]
fn a_fleet_is_watched_with_a_wake_up_per_device_and_half_hour() {
    let config = quiet();
    let mut gateway = Gateway::listening(&config, NOON);
    let mut woken = 0;
    for minute in 0..240 {
        for number in 0..10 {
            let at = NOON + minute * MINUTE + number;
            woken += gateway.sleep_until(at);
            gateway.publish(&reading(&name(number), at), false);
        }
    }
    // Idleness and presence of ten devices, and watermarks once a minute.
    assert!(woken < 240 + 10 * (240 / 5 + 240 / 30 + 2) + 100, "{woken}");
    assert_eq!(gateway.hearing, Hearing::CaughtUp);
}

/// Two devices of which one is forgotten: its region goes on as it was, but for the number of its devices.
#[test]
fn forgetting_moves_no_watermark_and_what_was_told_is_not_told_again() {
    let run = |forgets: bool| {
        let config = quiet();
        let mut gateway = Gateway::listening(&config, NOON);
        gateway.hears(NOON, reading("gone", NOON));
        for minute in 0..300 {
            let at = NOON + minute * MINUTE;
            gateway.hears(at, reading("a", at));
            if forgets && minute == 120 {
                gateway.forget("gone");
                gateway.commit();
                gateway.restart(|_| {});
            }
        }
        gateway.hears(NOON + 300 * MINUTE, reading("gone", NOON + MINUTE));
        gateway.hears(NOON + 301 * MINUTE, reading("gone", NOON + 301 * MINUTE));
        let of = |output: &Output| match output {
            Output::Region(it) => Some(it.devices),
            _ => None,
        };
        let devices: Vec<u32> = gateway.outputs.iter().filter_map(of).collect();
        let w = gateway.engine.region_watermark("north");
        let windows = gateway.outputs.iter().filter(|it| matches!(it, Output::Window(_))).count();
        let states: Vec<_> = gateway.told_of("gone").iter().map(|told| told.1).collect();
        (states, devices, (w, windows, gateway.engine.books().late))
    };
    use PresenceState::{Forgotten, Offline, Online};
    let (kept, forgotten) = (run(false), run(true));
    assert_eq!(kept.0, [Online, Offline, Online]);
    assert_eq!(
        forgotten.0,
        [Online, Offline, Forgotten, Offline, Online],
        "told as for the first time"
    );
    assert_eq!(kept.2, forgotten.2, "watermark, results, and a late record that is late");
    assert_eq!((kept.1.last(), forgotten.1.last()), (Some(&2), Some(&1)));
}

/// A tombstone is a device still: its watermark and what was told of it stay, or they would be told twice.
#[test]
fn a_forgotten_device_keeps_its_room_until_it_is_heard_again() {
    let config =
        Config::from_toml(&format!("limits.max-devices = 2\n{METERS}")).expect("no mistake");
    let mut gateway = Gateway::listening(&config, NOON);
    for device in ["a", "b"] {
        gateway.hears(NOON, reading(device, NOON));
    }
    gateway.forget("a");
    let room = |gateway: &Gateway<'_>| gateway.engine.books().no_room;
    gateway.hears(NOON + MINUTE, reading("c", NOON + MINUTE));
    assert_eq!((room(&gateway), gateway.engine.device_count()), (1, 2));
    gateway.commit();
    gateway.restart(|_| {});
    gateway.hears(NOON + 2 * MINUTE, reading("c", NOON + 2 * MINUTE));
    assert_eq!((room(&gateway), gateway.engine.device_count()), (2, 2), "nor after a restart");
    gateway.hears(NOON + 3 * MINUTE, reading("a", NOON + 3 * MINUTE));
    assert_eq!((room(&gateway), gateway.told(PresenceState::Online)), (2, 3));
    gateway.engine.books().balance();
}

#[test]
fn the_death_of_the_bridge_of_a_source_is_that_of_its_devices_in_all_regions_and_told_once() {
    use PresenceState::{Online, Suspect};
    let other = METERS.replace("meters", "others").replace("m/{", "o/{");
    let bridge = "[[source.status]]\ntopic = \"zigbee/bridge\"\nscope = \"source\"\n";
    let config = Config::from_toml(&format!("{METERS}{bridge}{other}")).expect("no mistake");
    let mut gateway = Gateway::listening(&config, NOON);
    let says_at = |topic: &str, device: &str| Message {
        topic: topic.to_owned(),
        ..message(device, Some(NOON), 1)
    };
    for (topic, device) in [("m/north/x", "a"), ("m/south/x", "b"), ("o/north/x", "c")] {
        gateway.hears(NOON, says_at(topic, device));
    }
    gateway.hears(NOON + MINUTE, says("zigbee/bridge", "offline", false));
    gateway.hears(NOON + 2 * MINUTE, reading("a", NOON + 2 * MINUTE));
    gateway.commit();
    gateway.restart(|gateway| gateway.publish(&says("zigbee/bridge", "offline", false), true));
    let states = |device| gateway.told_of(device).iter().map(|told| told.1).collect::<Vec<_>>();
    assert_eq!(states("a"), [Online, Suspect, Online], "the copy is no second death");
    assert_eq!(states("b"), [Online, Suspect]);
    assert_eq!(states("c"), [Online], "it is of another source");
    assert_eq!(gateway.engine.books().duplicate, 1);
    gateway.engine.books().balance();
}

/// One bridge may have plugs and sensors on it, which are read in two ways.
#[test]
fn the_death_of_a_bridge_is_that_of_the_devices_of_every_source_that_names_it() {
    use PresenceState::{Online, Suspect};
    let others = METERS.replace("meters", "others").replace("m/{", "o/{");
    let bridge = "[[source.status]]\ntopic = \"zigbee/bridge\"\nscope = \"source\"\n";
    let third = METERS.replace("meters", "third").replace("m/{", "p/{");
    let toml = format!("{METERS}{bridge}{others}{bridge}{third}");
    let config = Config::from_toml(&toml).expect("no mistake");
    let mut gateway = Gateway::listening(&config, NOON);
    for (topic, device) in [("m/north/x", "a"), ("o/north/x", "b"), ("p/north/x", "c")] {
        let message = Message { topic: topic.to_owned(), ..message(device, Some(NOON), 1) };
        gateway.hears(NOON, message);
    }
    gateway.hears(NOON + MINUTE, says("zigbee/bridge", "offline", false));
    let states = |device| gateway.told_of(device).iter().map(|told| told.1).collect::<Vec<_>>();
    assert_eq!((states("a"), states("b")), (vec![Online, Suspect], vec![Online, Suspect]));
    assert_eq!(states("c"), [Online], "it hangs on nothing");
    gateway.engine.books().balance();
}
