//! Wrong clocks of devices, as an engine meets them.

use tidegate::config::Config;
use tidegate::engine::input::Input;
use tidegate::event::{Alert, AlertKind, Firing, LateRecord, Method, Output, Reason, Refused};
use tidegate::time::{ArrivalTime, ClockQuality, ClockStatus, Span};

use crate::gateway::{Gateway, HOUR, Hearing, MINUTE, NOON, SECOND, config, defaults};
use crate::reference::{Message, Step, What};

fn coalesced() -> Config {
    config(&defaults(), false, MINUTE)
}

fn message(device: &str, body: &str) -> Message {
    let payload = format!("{{\"dev\":\"{device}\",{body}}}");
    Message { topic: format!("m/north/{device}"), payload, retain: false, dup: false }
}

fn reading(device: &str, time: i64) -> Message {
    message(device, &format!("\"ts\":{time},\"v\":1"))
}

fn heartbeat(device: &str, time: i64) -> Message {
    message(device, &format!("\"ts\":{time},\"kind\":\"heartbeat\""))
}

impl Gateway<'_> {
    /// A reading and a heartbeat each minute, of a clock that is ahead by `error`.
    fn minutes(&mut self, minutes: std::ops::Range<i64>, device: &str, error: i64) {
        for at in minutes.map(|minute| NOON + minute * MINUTE) {
            self.hears(at, heartbeat(device, at + error));
            self.hears(at + SECOND, reading(device, at + SECOND + error));
        }
    }

    fn clock_alerts(&self) -> Vec<AlertKind> {
        let of_clock = |output: &Output| match output {
            Output::Alert(Alert { kind, .. }) => kind.clock_offset().map(|_| *kind),
            _ => None,
        };
        self.outputs.iter().filter_map(of_clock).collect()
    }

    fn refused(&self) -> Vec<&Refused> {
        let outputs = self.outputs.iter();
        let refused = outputs.filter_map(|output| match output {
            Output::Refused(refused) => Some(refused),
            _ => None,
        });
        refused.collect()
    }

    fn late(&self) -> Vec<&LateRecord> {
        let outputs = self.outputs.iter();
        let late = outputs.filter_map(|output| match output {
            Output::Late(late) => Some(late),
            _ => None,
        });
        late.collect()
    }

    /// The last of each hour: of devices, and of regions.
    fn hours(&self) -> [Vec<&Firing>; 2] {
        let mut hours = [Vec::new(), Vec::new()];
        for output in &self.outputs {
            match output {
                Output::Window(result) => hours[0].push(&result.firing),
                Output::Region(result) => hours[1].push(&result.firing),
                _ => {}
            }
        }
        hours.map(|all| all.into_iter().filter(|firing| firing.window.as_str() == "hour").collect())
    }
}

/// Pain 1, where the clock stays a day ahead and its heartbeats say so.
#[test]
fn a_clock_that_stays_a_day_ahead_is_corrected_and_makes_nobody_late() {
    let config = coalesced();
    let mut gateway = Gateway::listening(&config, NOON);
    for minute in 0..180 {
        let at = NOON + minute * MINUTE;
        for number in 0..20 {
            let error = if number == 7 { 24 * HOUR } else { 0 };
            let device = format!("d{number:02}");
            let at = at + number * SECOND;
            gateway.hears(at, heartbeat(&device, at + error));
            gateway.hears(at, reading(&device, at + error + 1));
        }
    }
    let refused: Vec<_> = gateway.refused().iter().map(|refused| refused.reason).collect();
    assert_eq!(refused, [Reason::Future, Reason::Future], "the first of each");
    assert_eq!(gateway.clock_alerts(), [AlertKind::ClockCorrected(Span(-24 * HOUR))]);
    let books = gateway.engine.books();
    assert_eq!((books.late, books.corrected), (0, 2 * 179));
    let watermark = gateway.device_watermark("north", "d07").expect("it is corrected");
    assert_eq!(watermark, NOON + 179 * MINUTE + 7 * SECOND);
}

/// Pain 7: 1970, 1971 and 2000, all of which count on.
#[test]
fn clocks_that_were_never_set_are_stamped_open_no_old_window_and_hours_go_on() {
    let config = coalesced();
    let mut gateway = Gateway::listening(&config, NOON);
    let unset = [("a", 0), ("b", 31_536_000_000), ("c", 946_684_800_000)];
    for minute in 0..=120 {
        let at = NOON + minute * MINUTE;
        gateway.hears(at, heartbeat("right", at));
        for (device, from) in unset {
            gateway.hears(at, heartbeat(device, from + minute * MINUTE));
            gateway.hears(at, reading(device, from + minute * MINUTE));
        }
    }
    gateway.sleep_until(NOON + 3 * HOUR);
    let [devices, regions] = gateway.hours();
    assert!(devices.iter().all(|firing| firing.start.0 >= NOON), "no old window");
    for start in [NOON, NOON + HOUR] {
        let mine: Vec<_> =
            devices.iter().filter(|f| f.start.0 == start && f.revision == 0).collect();
        assert_eq!(mine.len(), 3, "hourly output goes on");
        assert!(
            mine.iter().all(|f| (f.samples, f.stamped, f.corrected) == (60, 60, 0)),
            "{mine:?}"
        );
        let region = regions.iter().rfind(|f| f.start.0 == start).expect("it is told");
        assert_eq!((region.samples, region.stamped), (180, 180));
    }
    assert_eq!(gateway.clock_alerts(), []);
    let books = gateway.engine.books();
    assert_eq!((books.quarantined, books.late, books.corrected), (0, 0, 0));
}

/// The agent is away for half an hour, and each device has thirty heartbeats in the broker's queue. They come a second
/// apart, as over a slow link, or as slowly as they were sent: then each keeps pace with the one before.
#[test]
fn an_agent_down_for_30_minutes_with_30_queued_heartbeats_per_device_corrects_nobody() {
    for (restarts, apart) in [(false, SECOND), (true, SECOND), (false, MINUTE), (true, MINUTE)] {
        let config = coalesced();
        let mut gateway = Gateway::listening(&config, NOON);
        let devices: Vec<String> = (0..10).map(|number| format!("d{number}")).collect();
        for minute in 0..10 {
            let at = NOON + minute * MINUTE;
            devices.iter().for_each(|device| gateway.hears(at, heartbeat(device, at)));
        }
        gateway.step(&Step { at: NOON + 10 * MINUTE, what: What::Down });
        let back = NOON + 40 * MINUTE;
        gateway.sleep_until(back);
        gateway.commit();
        if restarts {
            gateway.restart(|_| {});
        }
        gateway.step(&Step { at: back, what: What::Up });
        for minute in 10..40 {
            let at = back + (minute - 10) * apart;
            let time = NOON + minute * MINUTE;
            devices.iter().for_each(|device| gateway.hears(at, heartbeat(device, time)));
        }
        gateway.step(&Step { at: back + 30 * apart, what: What::CaughtUp });
        assert_eq!(gateway.hearing, Hearing::CaughtUp);
        for minute in 71..90 {
            let at = NOON + minute * MINUTE;
            devices.iter().for_each(|device| gateway.hears(at, heartbeat(device, at)));
        }
        let books = gateway.engine.books();
        assert_eq!((books.corrected, books.quarantined, books.stamped), (0, 0, 0), "{apart}");
        assert_eq!(gateway.clock_alerts(), []);
    }
}

/// The same of what a device itself has kept, while the gateway listens.
#[test]
fn thirty_heartbeats_that_a_device_has_kept_correct_nobody() {
    let config = coalesced();
    let mut gateway = Gateway::listening(&config, NOON);
    gateway.minutes(0..10, "a", 0);
    for minute in 10..40 {
        gateway.hears(NOON + 40 * MINUTE + minute, heartbeat("a", NOON + minute * MINUTE));
    }
    gateway.minutes(41..60, "a", 0);
    assert_eq!(gateway.engine.books().corrected, 0);
    assert_eq!(gateway.clock_alerts(), []);
}

#[test]
fn results_of_devices_and_regions_count_what_was_corrected_and_what_was_stamped() {
    let config = coalesced();
    let mut gateway = Gateway::listening(&config, NOON);
    gateway.minutes(0..20, "a", 10 * MINUTE);
    gateway.hears(NOON + 20 * MINUTE, reading("a", 5));
    gateway.commit();
    gateway.restart(|_| {});
    gateway.minutes(21..60, "a", 10 * MINUTE);
    gateway.hears(NOON + HOUR, heartbeat("a", NOON + 70 * MINUTE));
    gateway.sleep_until(NOON + HOUR + MINUTE);
    let [devices, regions] = gateway.hours();
    for firing in [devices.last(), regions.last()] {
        let firing = firing.expect("it is told");
        let counts = (firing.start.0, firing.samples, firing.stamped, firing.corrected);
        assert_eq!(counts, (NOON, 59, 1, 58), "the first was refused");
    }
    // Once it is final, what is merged into the day and the region still counts it.
    gateway.minutes(240..400, "a", 10 * MINUTE);
    gateway.commit();
    gateway.restart(|_| {});
    gateway.end();
    let day = |output: &&Output| matches!(output, Output::Region(it) if it.firing.window.as_str() == "day");
    let Some(Output::Region(day)) = gateway.outputs.iter().rfind(day) else { panic!("no day") };
    let counts = (day.firing.samples, day.firing.stamped, day.firing.corrected);
    assert_eq!(counts, (59 + 160, 1, 58 + 160));
}

#[test]
fn an_offset_survives_a_restart_and_is_applied_to_the_first_message() {
    let config = coalesced();
    let mut gateway = Gateway::listening(&config, NOON);
    gateway.minutes(0..10, "a", 10 * MINUTE);
    gateway.commit();
    gateway.restart(|_| {});
    let before = *gateway.engine.books();
    gateway.minutes(10..12, "a", 10 * MINUTE);
    let after = gateway.engine.books();
    assert_eq!((after.corrected - before.corrected, after.quarantined), (4, before.quarantined));
    assert_eq!(gateway.clock_alerts(), [AlertKind::ClockCorrected(Span(-10 * MINUTE))], "once");
    // Right again: that is told, and after another restart not told again.
    gateway.minutes(12..14, "a", 37);
    gateway.commit();
    gateway.restart(|_| {});
    gateway.minutes(14..16, "a", 37);
    assert_eq!(gateway.clock_alerts()[1..], [AlertKind::ClockRight(Span(-37))]);
    assert_eq!(gateway.engine.books().quarantined, before.quarantined);
}

/// Nothing of it was refused, so nothing but the offset calls for its record.
#[test]
fn an_offset_of_a_slow_clock_survives_a_restart() {
    let config = coalesced();
    let mut gateway = Gateway::listening(&config, NOON);
    gateway.minutes(0..10, "a", -10 * MINUTE);
    gateway.commit();
    gateway.restart(|_| {});
    let before = gateway.engine.books().corrected;
    gateway.minutes(10..12, "a", -10 * MINUTE);
    assert_eq!(gateway.engine.books().corrected - before, 4);
}

#[test]
fn a_flagged_clock_is_told_and_nothing_is_moved_while_the_guards_hold() {
    let flagged = flagged();
    for (device, error) in [("slow", -10 * MINUTE), ("fast", 10 * MINUTE)] {
        let mut gateway = Gateway::listening(&flagged, NOON);
        gateway.minutes(0..10, device, error);
        let books = gateway.engine.books();
        let refused = if error > 0 { 20 } else { 0 };
        assert_eq!((books.corrected, books.future), (0, refused));
        assert_eq!(gateway.clock_alerts(), [AlertKind::ClockWrong(Span(-error))]);
    }
}

fn flagged() -> Config {
    let toml = "[limits]\nrefused-per-hour = 1000000\n[defaults]\ncorrect = \"flag\"\n\
                [[source]]\nname = \"meters\"\ntopic = \"m/{region}/{sender}\"\ndevice = \"/dev\"\n\
                time = { from = \"/ts\", as = \"epoch_ms\" }\n\
                heartbeat = { from = \"/kind\", equals = \"heartbeat\" }\n\
                metric = [{ name = \"v\", from = \"/v\" }]\n";
    Config::from_toml(toml).expect("no mistake")
}

/// SPEC 2.2: without a good clock nothing is rejected or corrected against it, and nothing is learnt.
#[test]
fn a_clock_that_is_not_good_refuses_corrects_and_teaches_nothing() {
    let config = coalesced();
    let mut gateway = Gateway::listening(&config, NOON);
    let status = |quality, bound| ClockStatus { quality, bound };
    let holdover = |bound| status(ClockQuality::Holdover, bound);
    gateway.handle(Input::Clock(holdover(Span::from_mins(1))));
    gateway.minutes(0..10, "a", 5 * MINUTE);
    let books = gateway.engine.books();
    assert_eq!((books.corrected, books.quarantined, gateway.clock_alerts().len()), (0, 0, 0));
    gateway.handle(Input::Clock(holdover(Span::from_secs(59))));
    gateway.minutes(10..12, "b", 5 * MINUTE);
    assert_eq!(gateway.engine.books().corrected, 2);
    gateway.handle(Input::Clock(ClockStatus::UNSYNCHRONISED));
    gateway.minutes(12..14, "b", 5 * MINUTE);
    assert_eq!(
        gateway.engine.books().corrected,
        2,
        "an offset that is known is not applied either"
    );
}

#[test]
fn a_late_record_and_a_quarantined_one_keep_raw_time_offset_and_method() {
    let config = coalesced();
    let mut gateway = Gateway::listening(&config, NOON);
    let error = -20 * MINUTE;
    gateway.minutes(0..300, "a", error);
    let now = NOON + 300 * MINUTE;
    gateway.hears(now, reading("a", NOON + MINUTE + error));
    let past = now - 30 * 24 * HOUR - 21 * MINUTE;
    gateway.hears(now, reading("a", past));
    let [late] = gateway.late()[..] else { panic!("one: {:?}", gateway.late()) };
    let moved = late.moved.expect("it is corrected");
    let raw = (moved.device_time, moved.offset, moved.method);
    assert_eq!(raw, (Some(NOON + MINUTE + error), Some(Span(-error)), Method::Offset));
    assert_eq!(late.time.0, NOON + MINUTE);
    let refused = gateway.refused();
    let refused = refused.last().expect("it is too old");
    assert_eq!((refused.reason, refused.device_time), (Reason::Past, Some(past)));
    assert_eq!(
        (refused.offset, refused.arrival),
        (Some((Span(-error), Method::Offset)), Some(ArrivalTime(now)))
    );
    let line = gateway.lines().into_iter().find(|line| line.contains("\"late\"")).expect("told");
    let fields = format!(
        "\"device_time\":{},\"offset\":1200000,\"method\":\"offset\"",
        NOON + MINUTE + error
    );
    assert!(line.contains(&fields), "{line}");
}

/// Duplicates are told by the raw time: the same message before and after the offset was known.
#[test]
fn a_copy_is_a_duplicate_whatever_the_offset_was() {
    let config = coalesced();
    let mut gateway = Gateway::listening(&config, NOON);
    gateway.minutes(0..3, "a", -10 * MINUTE);
    let first = reading("a", NOON + SECOND - 10 * MINUTE);
    gateway.minutes(3..10, "a", -10 * MINUTE);
    gateway.hears(NOON + 10 * MINUTE, first);
    assert_eq!(gateway.engine.books().duplicate, 1);
}

/// Readings tell of a clock where their source says that they are live, of an array only the newest, and none that was
/// retained or delivered before.
#[test]
fn readings_of_a_live_source_correct_a_clock_and_those_of_another_do_not() {
    let cases = [("live = true\n", [false; 2], 18), ("", [false; 2], 0)];
    let waited = [[true, false], [false, true]].map(|flags| ("live = true\n", flags, 0));
    for (live, [retain, dup], corrected) in cases.into_iter().chain(waited) {
        let toml = format!(
            "[[source]]\nname = \"meters\"\ntopic = \"m/{{region}}/{{sender}}\"\ndevice = \"/dev\"\nitems = \"\"\n\
             time = {{ from = \"/ts\", as = \"epoch_ms\" }}\n{live}metric = [{{ name = \"v\", from = \"/v\" }}]\n",
        );
        let config = Config::from_toml(&toml).expect("no mistake");
        let mut gateway = Gateway::listening(&config, NOON);
        for minute in 0..10 {
            let at = NOON + minute * MINUTE;
            let items = [at + HOUR, at + HOUR - 30 * SECOND].map(|time| reading("a", time).payload);
            let payload = format!("[{}]", items.join(","));
            gateway.hears(at, Message { payload, retain, dup, ..reading("a", 0) });
        }
        assert_eq!(gateway.engine.books().corrected, corrected, "{live} {retain} {dup}");
        let told = (corrected > 0).then_some(AlertKind::ClockCorrected(Span(-HOUR)));
        assert_eq!(
            gateway.clock_alerts(),
            told.as_slice(),
            "the older reading waited for half a minute"
        );
    }
}
