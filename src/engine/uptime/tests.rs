use super::*;
use crate::engine::input::{Ingress, Input, Publish, Topic};
use crate::engine::settings::Settings;
use crate::engine::snapshot::DEVICE;
use crate::engine::tests::{Gateway, HOUR, MINUTE, NOON, item, settings_with_times, spec};
use crate::event::{Method, Moved, Output, Reason};
use crate::time::{ClockQuality, ClockStatus};
use crate::wire::profile::{Profile, ProfileSpec, Reference, TimeFormat};

const SECOND: i64 = 1_000;

/// Hears that a device had been running for `uptime` at `at` after noon, both in ms.
fn hear(clock: &mut UptimeClock, at: i64, uptime: i64) {
    hear_as(clock, at, uptime, true);
}

fn hear_as(clock: &mut UptimeClock, at: i64, uptime: i64, live: bool) {
    let (uptime, arrival) = (Span(uptime), ArrivalTime(NOON + at));
    clock.hear(Heard { uptime, arrival, mono: MonoTime(at), session: 1, live });
}

/// When it was started, in ms after noon.
fn start(clock: &UptimeClock) -> i64 {
    clock.start().0 - NOON
}

/// Started at noon, heard each minute for ten minutes.
fn running() -> UptimeClock {
    let mut clock = UptimeClock::default();
    (1..=10).for_each(|n| hear(&mut clock, n * MINUTE + 100, n * MINUTE));
    clock
}

#[test]
fn an_uptime_counts_from_the_start_that_the_quickest_message_tells() {
    let mut clock = UptimeClock::default();
    hear(&mut clock, 10_900, 10_000);
    assert_eq!(start(&clock), 900);
    hear(&mut clock, 20_300, 20_000);
    assert_eq!(start(&clock), 300);
    hear(&mut clock, 35_000, 30_000);
    assert_eq!(start(&clock), 300);
}

#[test]
fn what_waited_in_a_queue_moves_nothing() {
    let mut clock = running();
    // The device had no network for an hour; its queue comes at once, and what it says next is live.
    for n in 11..=70 {
        hear(&mut clock, 70 * MINUTE + n * 100, n * MINUTE);
    }
    // A queue that is emptied slowly, of readings of each second.
    for n in 0..200 {
        hear(&mut clock, 80 * MINUTE + n * 2_500, 71 * MINUTE + n * SECOND);
    }
    // The gateway was away.
    for n in 0..60 {
        hear_as(&mut clock, 200 * MINUTE + n * 3 * SECOND, 140 * MINUTE + n * 3 * SECOND, false);
    }
    assert_eq!(start(&clock), 100);
}

#[test]
fn messages_of_one_moment_do_not_keep_pace_however_alike_they_are() {
    let mut clock = running();
    // Five of them are apart from each other by more than two seconds only in the end.
    for n in 0..20 {
        hear(&mut clock, 20 * MINUTE + n * 500, 11 * MINUTE + n * 500);
    }
    assert_eq!(start(&clock), 100);
    hear(&mut clock, 20 * MINUTE + 20_000, 11 * MINUTE + 20_000);
    assert_eq!(start(&clock), 9 * MINUTE, "a slow network, or a start that nobody noticed");
}

#[test]
fn a_clock_that_loses_is_followed_even_where_it_is_heard_once_a_day() {
    let day = 24 * HOUR;
    let mut clock = UptimeClock::default();
    for n in 1..=30 {
        let lost = n * 8_640; // 100 parts in a million
        hear(&mut clock, n * day + 100, n * day - lost);
    }
    assert_eq!(start(&clock), 26 * 8_640 + 100, "the least of the last five");
}

#[test]
fn a_higher_start_is_learnt_from_five_live_messages_and_not_across_sessions() {
    let later = |session_of: fn(i64) -> u32| {
        let mut clock = running();
        for n in 0..6 {
            let (at, uptime) = ((60 + n) * MINUTE, Span((20 + n) * MINUTE));
            let (arrival, mono) = (ArrivalTime(NOON + at), MonoTime(at));
            let session = session_of(n);
            clock.hear(Heard { uptime, arrival, mono, session, live: true });
        }
        start(&clock)
    };
    assert_eq!(later(|_| 1), 40 * MINUTE);
    assert_eq!(later(|n| 2 + u32::try_from(n / 3).unwrap()), 100, "two of each keep pace");
}

#[test]
fn a_device_was_started_again_only_where_it_can_have_come_as_far_since() {
    let clock = running();
    let highest = EventTime(NOON + 10 * MINUTE + 100);
    let again = |at: i64, uptime: i64| {
        clock.is_another_start(Span(uptime), ArrivalTime(NOON + at), highest)
    };
    assert!(!again(20 * MINUTE, 10 * MINUTE + 1), "it says more");
    assert!(again(20 * MINUTE, 10 * MINUTE - 100), "it has been running since a moment after");
    assert!(!again(20 * MINUTE, 10 * MINUTE - 99), "it was still up then");
    assert!(again(10 * MINUTE + 100, 0));
    assert!(!again(11 * MINUTE, 9 * MINUTE), "a reading that it kept");
    let queued = UptimeClock { live: false, ..clock };
    let again = queued.is_another_start(Span(9 * MINUTE), ArrivalTime(NOON + 11 * MINUTE), highest);
    assert!(again, "who knows when it was heard");
}

#[test]
fn numbers_at_the_end_of_the_range_are_survived() {
    let ends = [i64::MIN, -1, 0, 1, i64::MAX];
    for (arrival, mono) in ends.into_iter().flat_map(|a| ends.map(|b| (a, b))) {
        let mut clock = UptimeClock::default();
        for uptime in [0, 1, i64::MAX, 0] {
            let arrival = ArrivalTime(arrival);
            let (uptime, mono) = (Span(uptime), MonoTime(mono));
            clock.is_another_start(uptime, arrival, EventTime::MAX);
            clock.hear(Heard { uptime, arrival, mono, session: 1, live: true });
            clock.raw(uptime);
            clock.is_stored();
        }
    }
}

#[test]
fn what_is_known_of_a_start_is_read_as_it_was_written_and_is_small() {
    let mut clock = UptimeClock { boot: 300, ..running() };
    let mut w = Writer::default();
    clock.write(&mut w);
    assert!(w.0.len() <= 10, "{} bytes", w.0.len());
    let read = UptimeClock::read(&mut Reader(&w.0)).unwrap();
    assert_eq!((read.start(), read.live, read.boot), (clock.start(), true, 300));
    assert!(read.is_stored() && clock.is_stored());
    hear(&mut clock, 11 * MINUTE - 149, 11 * MINUTE);
    assert!(clock.is_stored(), "a step of 249 ms");
    hear(&mut clock, 12 * MINUTE - 150, 12 * MINUTE);
    assert!(!clock.is_stored());
    assert!(std::mem::size_of::<UptimeClock>() <= 128);
}

fn settings() -> Settings {
    settings_with_times(TimeFormat::UptimeS)
}

fn sample(uptime: i64) -> String {
    format!(r#"{{"dev":"a","ts":{},"v":1}}"#, uptime / SECOND)
}

fn array(uptimes: impl IntoIterator<Item = i64>) -> String {
    let samples: Vec<_> = uptimes.into_iter().map(sample).collect();
    format!("[{}]", samples.join(","))
}

impl Gateway {
    /// Hears messages of a device that was started at noon, each minute up to one.
    fn hears_minutes(&mut self, minutes: std::ops::Range<i64>) {
        for minute in minutes {
            self.send(NOON + minute * MINUTE + 100, &sample(minute * MINUTE));
        }
    }

    /// Its highest event time, in ms after noon.
    fn highest(&self) -> i64 {
        self.engine.devices[0].generator.highest().0 - NOON
    }

    /// Hours after noon and samples in them, of their last revisions, once all has come.
    fn hours(&mut self, at: i64) -> Vec<(i64, u32)> {
        self.handle(at, Input::End);
        let mut hours = std::collections::BTreeMap::new();
        for (_, hour, _, samples) in self.windows().into_iter().filter(|told| told.0 == "hour") {
            hours.insert(hour, samples);
        }
        hours.into_iter().collect()
    }

    fn books(&self) -> crate::engine::books::Books {
        *self.engine.books()
    }
}

#[test]
fn readings_count_when_they_were_taken_and_are_corrected() {
    let mut gateway = Gateway::new(settings());
    gateway.hears_minutes(1..50);
    assert_eq!(gateway.highest(), 49 * MINUTE + 100);
    // No network for two hours; then all of it in one message, and one by one.
    let late = NOON + 170 * MINUTE;
    gateway.send(late, &array((50..110).map(|minute| minute * MINUTE)));
    for minute in 110..=170 {
        gateway.send(late + minute, &sample(minute * MINUTE));
    }
    let books = gateway.books();
    assert_eq!((books.corrected, books.stamped, books.aggregated), (170, 0, 170));
    assert_eq!(gateway.hours(late + MINUTE), [(0, 59), (1, 60), (2, 51)]);
    let mut told = gateway.outputs.iter().filter_map(|output| match output {
        Output::Window(window) => Some((window.firing.corrected, window.firing.stamped)),
        _ => None,
    });
    assert_eq!(told.next_back(), Some((170, 0)), "of the day");
}

#[test]
fn hours_that_waited_at_the_broker_while_we_were_away_are_the_right_ones() {
    let mut gateway = Gateway::new(settings());
    gateway.hears_minutes(1..50);
    gateway.stop_and_start(settings());
    let back = NOON + 230 * MINUTE;
    gateway.handle(back, Input::Clock(ClockStatus::EXACT));
    gateway.handle(back, Input::Ingress(Ingress::Up));
    for minute in 50..=230 {
        gateway.send(back + minute * 3 * SECOND, &sample(minute * MINUTE));
    }
    gateway.handle(back + 700 * SECOND, Input::Ingress(Ingress::CaughtUp));
    assert_eq!(gateway.highest(), 230 * MINUTE + 100);
    assert_eq!(gateway.hours(back + HOUR), [(0, 59), (1, 60), (2, 60), (3, 51)]);
}

#[test]
fn a_restart_that_nobody_saw_is_told_by_the_next_messages() {
    let mut gateway = Gateway::new(settings());
    gateway.hears_minutes(1..50);
    gateway.stop_and_start(settings());
    // It was started again at 13:00, while nobody listened. The queue counts at its arrival.
    let back = NOON + 120 * MINUTE;
    gateway.handle(back, Input::Clock(ClockStatus::EXACT));
    gateway.handle(back, Input::Ingress(Ingress::Up));
    for minute in 50..60 {
        gateway.send(back, &sample(minute * MINUTE));
    }
    for minute in 1..=60 {
        gateway.send(back + minute, &sample(minute * MINUTE));
    }
    assert_eq!(gateway.highest(), 120 * MINUTE + 60);
    gateway.handle(back + SECOND, Input::Ingress(Ingress::CaughtUp));
    // A reading that it kept is in its right hour now.
    gateway.send(back + MINUTE, &sample(61 * MINUTE));
    gateway.send(back + MINUTE, &sample(20 * MINUTE + SECOND));
    assert_eq!(gateway.hours(back + HOUR), [(0, 59), (1, 1), (2, 61)]);
}

#[test]
fn what_is_first_heard_of_a_queue_gives_a_start_and_the_last_of_it_the_right_one() {
    let mut gateway = Gateway::new(settings());
    gateway.handle(NOON, Input::Ingress(Ingress::Down));
    let back = NOON + 90 * MINUTE;
    gateway.handle(back, Input::Ingress(Ingress::Up));
    gateway.send(back, &array([20 * MINUTE, 10 * MINUTE, 0])); // 70 minutes of delay
    assert_eq!(gateway.highest(), 90 * MINUTE, "the newest came at once, as far as is known");
    assert_eq!(gateway.books().corrected, 3);
    gateway.send(back + 1, &sample(90 * MINUTE));
    gateway.handle(back + 2, Input::Ingress(Ingress::CaughtUp));
    gateway.send(back + 10 * MINUTE + 5, &sample(100 * MINUTE));
    assert_eq!(gateway.highest(), 100 * MINUTE + 1);
    assert_eq!(gateway.hours(back + HOUR), [(1, 5)]);
}

#[test]
fn a_smaller_uptime_is_that_of_another_start_and_an_older_one_a_reading_that_was_kept() {
    let mut gateway = Gateway::new(settings());
    gateway.hears_minutes(1..50);
    gateway.send(NOON + 50 * MINUTE, &sample(30 * MINUTE + SECOND));
    assert_eq!(
        (gateway.highest(), gateway.engine.devices[0].uptime.as_ref().unwrap().boot),
        (49 * MINUTE + 100, 0)
    );
    // Started again at 13:10.
    gateway.send(NOON + 71 * MINUTE, &sample(MINUTE));
    assert_eq!(gateway.highest(), 71 * MINUTE);
    gateway.send(NOON + 72 * MINUTE + 100, &sample(2 * MINUTE));
    assert_eq!(gateway.highest(), 72 * MINUTE);
    assert_eq!(gateway.hours(NOON + 73 * MINUTE), [(0, 50), (1, 2)]);
    assert_eq!(gateway.books().duplicate, 0);
}

/// The uptime stands beside the items: equal readings are equal to the byte.
fn beside() -> Settings {
    let mut settings = settings();
    settings.sources[0].profile = Profile::new(ProfileSpec {
        time: Some((Reference::Root("/up".into()), TimeFormat::UptimeS)),
        items: Some("/items".into()),
        device: item("/dev"),
        ..spec()
    })
    .unwrap();
    settings
}

fn publish(gateway: &mut Gateway, at: i64, uptime: i64, dup: bool) {
    let payload = format!(r#"{{"up":{},"items":[{{"dev":"a","v":1}}]}}"#, uptime / SECOND);
    let (topic, payload) = (Topic::Name("meters"), payload.as_bytes());
    gateway.handle(NOON + at, Input::Publish(Publish { topic, payload, retain: false, dup }));
}

#[test]
fn equal_readings_at_two_uptimes_are_two_and_a_resend_is_a_duplicate() {
    let mut gateway = Gateway::new(beside());
    let counts = |gateway: &Gateway| (gateway.books().aggregated, gateway.books().duplicate);
    publish(&mut gateway, 9 * MINUTE, 9 * MINUTE, false);
    publish(&mut gateway, 10 * MINUTE, 10 * MINUTE, false);
    publish(&mut gateway, 11 * MINUTE, 11 * MINUTE, false);
    assert_eq!(counts(&gateway), (3, 0));
    for dup in [false, true] {
        publish(&mut gateway, 12 * MINUTE, 10 * MINUTE, dup);
    }
    assert_eq!(counts(&gateway), (3, 2));
    // Also after a restart of ours, however late where it says so.
    gateway.restart(NOON + 13 * MINUTE, beside());
    publish(&mut gateway, 14 * MINUTE, 11 * MINUTE, false);
    publish(&mut gateway, 40 * MINUTE, 11 * MINUTE, true);
    assert_eq!(counts(&gateway), (3, 4));
    // Another start comes by the same uptimes.
    publish(&mut gateway, 60 * MINUTE, 10 * MINUTE, false);
    assert_eq!((counts(&gateway), gateway.highest()), ((4, 4), 60 * MINUTE));
    publish(&mut gateway, 61 * MINUTE, 10 * MINUTE, false);
    gateway.restart(NOON + 62 * MINUTE, beside());
    publish(&mut gateway, 63 * MINUTE, 10 * MINUTE, false);
    assert_eq!(counts(&gateway), (4, 6), "which start it is, is kept too");
}

#[test]
fn the_samples_that_are_sent_with_each_message_again_are_no_other_start() {
    let mut gateway = Gateway::new(settings());
    for n in 1..10 {
        let minutes = (1_i64.max(n - 4)..=n).map(|minute| minute * MINUTE);
        gateway.send(NOON + n * MINUTE + 100, &array(minutes));
    }
    let books = gateway.books();
    assert_eq!((books.aggregated, books.duplicate), (9, 26));
    assert_eq!(gateway.engine.devices[0].uptime.as_ref().unwrap().boot, 0);
}

#[test]
fn a_retained_uptime_is_a_sample_where_it_is_newer_and_teaches_nothing() {
    let mut gateway = Gateway::new(settings());
    gateway.publish(NOON + MINUTE, &sample(MINUTE), true);
    assert_eq!(gateway.books().retained_ignored, 1, "nobody knows when that was");
    gateway.hears_minutes(2..10);
    gateway.publish(NOON + 30 * MINUTE, &sample(8 * MINUTE + SECOND), true);
    gateway.publish(NOON + 30 * MINUTE, &sample(MINUTE), true);
    assert_eq!(gateway.books().retained_ignored, 3);
    gateway.publish(NOON + 30 * MINUTE, &sample(20 * MINUTE), true);
    assert_eq!((gateway.books().retained_ignored, gateway.highest()), (3, 20 * MINUTE + 100));
    gateway.publish(NOON + 30 * MINUTE, &sample(2 * HOUR), true);
    assert_eq!(refused(&gateway), [(Reason::Future, Some(2 * HOUR), Some(NOON + 100))]);
    assert_eq!(gateway.engine.devices[0].uptime.as_ref().map(|clock| start(clock)), Some(100));
}

/// Reason, uptime, and the start that was added to it.
fn refused(gateway: &Gateway) -> Vec<(Reason, Option<i64>, Option<i64>)> {
    let refused = gateway.outputs.iter().filter_map(|output| match output {
        Output::Refused(refused) => Some(refused),
        _ => None,
    });
    let told = refused.map(|refused| {
        let (offset, method) = refused.offset.unzip();
        assert_eq!(method.unwrap_or(Method::Uptime), Method::Uptime);
        (refused.reason, refused.device_time, offset.map(|offset| offset.0))
    });
    told.collect()
}

#[test]
fn what_is_kept_for_too_long_is_refused_or_late_with_its_uptime_and_the_start() {
    let mut gateway = Gateway::new(settings());
    let day = 24 * HOUR;
    gateway.send(NOON, &sample(40 * day));
    gateway.send(NOON + 1, &sample(40 * day - 30 * day - SECOND));
    let start = NOON - 40 * day;
    assert_eq!(refused(&gateway), [(Reason::Past, Some(10 * day - SECOND), Some(start))]);
    gateway.send(NOON + 2, &sample(30 * day));
    let late = gateway.outputs.iter().filter_map(|output| match output {
        Output::Late(late) => Some((late.time, late.moved)),
        _ => None,
    });
    let (device_time, offset) = (Some(30 * day), Some(Span(start)));
    let moved = Moved { device_time, offset, method: Method::Uptime };
    assert_eq!(late.collect::<Vec<_>>(), [(EventTime(NOON - 10 * day), Some(moved))]);
}

#[test]
fn while_the_clock_is_not_good_only_a_known_start_dates_what_says_more() {
    let mut gateway = Gateway::new(settings());
    gateway.hears_minutes(1..10);
    let status = ClockStatus { quality: ClockQuality::Suspect, bound: Span::MAX };
    gateway.handle(NOON + 10 * MINUTE, Input::Clock(status));
    gateway.send(NOON + 20 * MINUTE, &sample(12 * MINUTE));
    assert_eq!((gateway.highest(), gateway.books().stamped), (12 * MINUTE + 100, 0));
    gateway.send(NOON + 21 * MINUTE, &sample(SECOND));
    assert_eq!((gateway.highest(), gateway.books().stamped), (12 * MINUTE + 100, 1));
    gateway.send(NOON + 22 * MINUTE, &sample(MINUTE).replace("\"a\"", "\"b\""));
    assert_eq!(gateway.books().stamped, 2);
    assert!(gateway.engine.devices[1].uptime.is_none(), "nothing is learnt");
}

#[test]
fn a_reading_of_another_source_teaches_nothing() {
    let (mut all, mut other) = (settings(), settings().sources.remove(0));
    let spec = ProfileSpec { source: "other".into(), topic: "other".into(), ..spec() };
    other.profile =
        Profile::new(ProfileSpec { time: Some((item("/ts"), TimeFormat::UptimeMs)), ..spec })
            .unwrap();
    all.sources.push(other);
    let mut gateway = Gateway::new(all);
    gateway.hears_minutes(1..10);
    let payload = sample(20 * HOUR * SECOND);
    let (topic, payload) = (Topic::Name("other"), payload.as_bytes());
    let publish = Publish { topic, payload, retain: false, dup: false };
    gateway.handle(NOON + 10 * MINUTE, Input::Publish(publish));
    assert_eq!(refused(&gateway), [(Reason::OtherSource, Some(20 * HOUR), None)]);
    assert_eq!(gateway.engine.devices[0].uptime.as_ref().map(|clock| start(clock)), Some(100));
    assert!(gateway.engine.devices[0].newest.is_none());
}

#[test]
fn a_commit_writes_when_a_device_was_started_only_where_that_is_new() {
    let mut gateway = Gateway::new(settings());
    let mut written = |minutes| {
        gateway.hears_minutes(minutes);
        let changes = gateway.engine.checkpoint().changes;
        changes.iter().filter(|(key, _)| key[0] == DEVICE).count()
    };
    assert_eq!([written(1..2), written(2..3), written(3..9)], [1, 0, 0]);
    // A snapshot that stands alone has it too.
    gateway.engine.mark_all();
    gateway.restart(NOON + 10 * MINUTE, settings());
    assert_eq!(gateway.engine.devices[0].uptime.as_ref().map(|clock| start(clock)), Some(100));
}
