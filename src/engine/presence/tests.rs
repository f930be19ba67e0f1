use super::*;
use crate::event::PresenceState::{Flapping, NeverSeen, Offline, Online, Suspect};

const MINUTE: i64 = 60_000;
const NOON: i64 = 1_795_953_600_000;

/// A device, and what was told of it: minute of its `since`, state, cause.
#[derive(Default)]
struct Watched {
    presence: Presence,
    rules: PresencePolicy,
    told: Vec<(i64, PresenceState, PresenceCause)>,
    last: Option<Told>,
}

fn at(minute: i64) -> Moment {
    Moment { wall: ArrivalTime(NOON + minute * MINUTE), heard: Span::from_mins(minute) }
}

impl Watched {
    fn note(&mut self, told: Option<Told>) {
        let minute = |told: &Told| (told.since.0 - NOON) / MINUTE;
        self.told.extend(told.iter().map(|told| (minute(told), told.state, told.cause)));
        self.last = told.or(self.last);
    }

    fn run_to(&mut self, minute: i64) {
        while let Some(due) = self.presence.deadline(&self.rules)
            && due <= Span::from_mins(minute)
        {
            let wall = ArrivalTime(NOON + due.0);
            let told = self.presence.on_deadline(&self.rules, Moment { wall, heard: due });
            self.note(told);
        }
    }

    fn news(&mut self, minute: i64, age: i64) {
        self.run_to(minute);
        let age = Span::from_mins(age);
        let told = self.presence.on_news(
            &self.rules,
            at(minute),
            Age { whole: age, listened: age, ..Age::default() },
        );
        self.note(told);
    }

    fn dies(&mut self, minute: i64, is_final: bool) {
        self.run_to(minute);
        let told = self.presence.on_death(&self.rules, at(minute), PresenceCause::Will, is_final);
        self.note(told);
    }

    fn restart(&mut self) {
        let heard = Span(self.presence.silent_from.0.max(0));
        let record = self.presence.record(&self.rules, heard);
        let progress = self.presence.progress();
        self.presence = Presence::default();
        self.presence.read_record(&record).expect("as written");
        self.presence.advance(progress);
    }
}

#[test]
fn a_device_is_offline_at_exactly_its_deadline_and_online_with_the_next_news() {
    let mut device = Watched::default();
    device.news(0, 0);
    device.news(20, 5);
    device.run_to(44);
    assert_eq!(device.told.len(), 1);
    device.run_to(100);
    device.news(100, 0);
    let (news, silence) = (PresenceCause::News, PresenceCause::Silence);
    assert_eq!(device.told, [(0, Online, news), (45, Offline, silence), (100, Online, news)]);
    let last = device.last.expect("told");
    assert_eq!(last.outage, Some(Span::from_mins(85)), "from 15, when it was last seen");
    assert_eq!(last.last_seen, Some(ArrivalTime(NOON + 100 * MINUTE)));
}

#[test]
fn last_seen_and_silence_do_not_go_back_with_older_news() {
    let mut device = Watched::default();
    device.news(0, 0);
    device.news(10, 25);
    assert_eq!(device.presence.last_seen(), Some(ArrivalTime(NOON)));
    device.run_to(29);
    assert_eq!(device.told.len(), 1);
    device.run_to(30);
    assert_eq!(device.told[1], (30, Offline, PresenceCause::Silence));
}

#[test]
fn news_of_exactly_offline_after_does_not_bring_online() {
    let mut device = Watched::default();
    device.news(0, 30);
    assert_eq!(device.told, [(0, Offline, PresenceCause::Silence)], "its deadline was then");
    device.news(1, 30);
    assert_eq!(device.told.len(), 1);
    device.news(2, 29);
    assert_eq!(device.told[1], (2, Online, PresenceCause::News));
}

#[test]
fn a_device_whose_news_is_always_too_old_is_told_to_be_delayed_once() {
    let mut device = Watched::default();
    for minute in (0..300).step_by(10) {
        device.news(minute, 40);
        device.restart();
    }
    let expected = [(-10, Offline, PresenceCause::Silence), (-10, Offline, PresenceCause::Delayed)];
    assert_eq!(device.told, expected);
    device.news(300, 1);
    for minute in (400..500).step_by(10) {
        device.news(minute, 40);
    }
    assert_eq!(device.told.last(), Some(&(329, Offline, PresenceCause::Delayed)));
    assert_eq!(device.told.len(), 5, "online, offline, and delayed again");
}

#[test]
fn a_buffer_that_is_emptied_after_an_outage_is_no_delay() {
    let mut device = Watched::default();
    device.news(0, 0);
    device.run_to(200);
    for sent in (10..200).step_by(10) {
        device.news(200, 200 - sent);
    }
    let causes: Vec<_> = device.told.iter().map(|told| told.2).collect();
    assert_eq!(causes, [PresenceCause::News, PresenceCause::Silence, PresenceCause::News]);
}

#[test]
fn age_that_we_did_not_listen_to_makes_nobody_silent() {
    let mut device = Watched::default();
    device.news(0, 0);
    let age = Age { whole: Span::from_mins(180), listened: Span::from_mins(5), ..Age::default() };
    let told = device.presence.on_news(&device.rules, at(10), age);
    device.note(told);
    assert_eq!(device.presence.deadline(&device.rules), Some(Span::from_mins(35)));
    let mut first = Presence::default();
    let told = first.on_news(&device.rules, at(10), age).expect("the first");
    assert_eq!(told.state, Online, "a gateway that was away finds its devices alive");
    device.run_to(60);
    let told = device.presence.on_news(&device.rules, at(60), age);
    assert_eq!(told, None, "what is offline is not brought back by what is old");
}

#[test]
fn a_will_makes_suspect_at_once_and_offline_after_the_debounce() {
    let mut device = Watched::default();
    device.rules.will_debounce = Span::from_mins(1);
    device.news(0, 0);
    device.dies(5, true);
    device.restart();
    device.run_to(9);
    let will = PresenceCause::Will;
    assert_eq!(device.told[1..], [(5, Suspect, will), (6, Offline, will)]);
    device.news(10, 0);
    device.dies(12, true);
    device.news(12, 0);
    device.run_to(40);
    assert_eq!(device.told.len(), 6, "news after a will keeps it online");
    assert_eq!(device.told[5], (12, Online, PresenceCause::News));
    assert_eq!(device.last.expect("told").outage, None, "it was not offline");
}

#[test]
fn what_is_only_hearsay_makes_suspect_and_no_more() {
    let mut device = Watched::default();
    device.dies(0, false);
    assert_eq!(device.told, [], "a retained will of a device that was never heard");
    device.news(1, 0);
    device.dies(5, false);
    device.run_to(30);
    assert_eq!(device.told.len(), 2);
    device.run_to(31);
    assert_eq!(device.told[2], (31, Offline, PresenceCause::Silence));
}

#[test]
fn five_changes_within_the_window_are_flapping_and_calm_is_one_window_without_any() {
    let mut device = Watched::default();
    device.rules.offline_after = Span::from_mins(5);
    for minute in [0, 10, 20, 30, 40] {
        device.news(minute, 0); // online at each, offline 5 minutes later
        device.restart();
    }
    device.run_to(104);
    let states: Vec<_> = device.told.iter().map(|told| (told.0, told.1)).collect();
    let until = [(0, Online), (5, Offline), (10, Online), (15, Offline), (20, Online)];
    assert_eq!(states[..5], until);
    assert_eq!(states[5..], [(25, Flapping)], "the fifth change; the first was no change");
    device.run_to(105);
    assert_eq!(device.told[6], (45, Offline, PresenceCause::Calm), "an hour after the last change");
    device.news(110, 0);
    assert_eq!(device.told[7], (110, Online, PresenceCause::News));
}

#[test]
fn changes_that_are_a_window_apart_are_no_flapping() {
    let mut device = Watched::default();
    device.rules.offline_after = Span::from_mins(15);
    for minute in [0, 30, 60, 90, 120, 150] {
        device.news(minute, 0); // changes at 15, 30, 45, 60, 75: the fifth is exactly an hour after the first
        device.restart();
    }
    assert!(device.told.iter().all(|told| told.1 != Flapping), "{:?}", device.told);
}

#[test]
fn a_declared_device_is_never_seen_and_not_offline() {
    let mut device = Watched::default();
    device.presence.declare(Span::ZERO);
    device.restart();
    device.run_to(29);
    assert_eq!(device.told, []);
    device.run_to(500);
    assert_eq!(device.told, [(30, NeverSeen, PresenceCause::Silence)]);
    device.restart();
    device.presence.declare(Span::from_mins(500));
    device.news(501, 0);
    assert_eq!(device.told[1], (501, Online, PresenceCause::News));
    assert_eq!(device.last.expect("told").outage, None);
}

#[test]
fn a_device_of_a_store_from_before_is_told_with_its_next_news_or_its_silence() {
    let mut device = Watched::default();
    device.presence.advance((Span(i64::MIN), ArrivalTime(NOON)));
    device.presence.wake(Span::from_mins(7));
    let mut other = Watched { presence: device.presence.clone(), ..Watched::default() };
    device.run_to(60);
    assert_eq!(device.told, [(37, Offline, PresenceCause::Silence)]);
    other.news(8, 0);
    assert_eq!(other.told, [(8, Online, PresenceCause::News)]);
}

#[test]
fn a_wall_clock_that_is_set_back_neither_undoes_what_was_told_nor_makes_an_outage_negative() {
    let mut device = Watched::default();
    device.news(0, 0);
    device.run_to(40);
    assert_eq!(device.told.last().map(|told| (told.0, told.1)), Some((30, Offline)));
    let back = Moment { wall: at(-80).wall, ..at(41) };
    let told = device.presence.on_news(&device.rules, back, Age::default()).expect("it is back");
    assert_eq!(
        (told.state, told.since),
        (Online, at(30).wall),
        "the greatest `since` is the newest"
    );
    assert_eq!(told.outage, Some(Span::ZERO));
}

#[test]
fn nobody_is_forgotten_before_they_are_offline() {
    let rules =
        PresencePolicy { forget_after: Some(Span::from_mins(10)), ..PresencePolicy::default() };
    let mut device = Watched { rules, ..Watched::default() };
    device.news(0, 0);
    device.run_to(60);
    let told: Vec<_> = device.told.iter().map(|told| (told.0, told.1)).collect();
    assert_eq!(told, [(0, Online), (30, Offline), (30, PresenceState::Forgotten)]);
}

#[test]
fn a_device_that_is_offline_for_long_is_forgotten_and_told_anew() {
    let mut device = Watched::default();
    device.rules.forget_after = Some(Span::from_hours(10));
    device.news(0, 0);
    device.run_to(10 * 60 - 1);
    device.restart();
    device.run_to(100 * 60);
    let forgotten = (10 * 60, PresenceState::Forgotten, PresenceCause::Silence);
    assert_eq!(device.told[2..], [forgotten]);
    device.restart();
    assert!(device.presence.is_forgotten());
    device.news(101 * 60, 0);
    assert_eq!(device.told[3], (101 * 60, Online, PresenceCause::News));
    let last = device.last.expect("told");
    assert_eq!((last.outage, last.last_seen), (None, Some(at(101 * 60).wall)));
}
