use super::*;
use crate::status::Store;

const AT: i64 = 1_795_953_600_000;

fn connected() -> Link {
    Link { state: LinkState::Connected, since: AT - HOUR, address: "a".into(), ..Link::default() }
}

/// All is well.
fn well() -> Status {
    Status {
        at: AT,
        clock: Some(ClockQuality::Synchronised),
        broker: connected(),
        upstream: connected(),
        outbox: Outbox { quota: 1_000, ..Outbox::default() },
        regions: vec![region(12 * MINUTE, 12 * MINUTE)],
        ..Status::default()
    }
}

fn region(lag: i64, usual_lag: i64) -> Region {
    Region { region: "moor".into(), lag: Some(lag), usual_lag, ..Region::default() }
}

/// Level and codes.
fn told(status: &Status) -> (Level, Vec<String>) {
    let Health { level, reasons } = judge(status);
    for reason in &reasons {
        assert!(!reason.text.is_empty() && !reason.remedy.is_empty(), "{reason:?}");
    }
    (level, reasons.into_iter().map(|reason| reason.code).collect())
}

fn is(status: &Status, level: Level, codes: &[&str]) {
    assert_eq!(told(status), (level, codes.iter().map(|code| (*code).to_owned()).collect()));
}

#[test]
fn all_is_well() {
    is(&well(), Level::Ok, &[]);
}

#[test]
fn the_devices_broker_may_be_away_for_ten_seconds() {
    let away = |ago| Link { state: LinkState::Away, since: AT - ago, ..connected() };
    is(&Status { broker: away(RECONNECTING), ..well() }, Level::Degraded, &["broker-away"]);
    is(&Status { broker: away(RECONNECTING + 1), ..well() }, Level::Failing, &["broker-away"]);
}

#[test]
fn a_reason_says_why_and_what_to_do() {
    let upstream = Link {
        state: LinkState::Away,
        error: Some("user name or password refused".into()),
        remedy: Some("check them".into()),
        ..connected()
    };
    let reason = judge(&Status { upstream, ..well() }).reasons.remove(0);
    assert_eq!(
        reason.text,
        "not connected to the central broker, a: user name or password refused"
    );
    assert_eq!((reason.level, reason.remedy.as_str()), (Level::Degraded, "check them"));
}

#[test]
fn catching_up_is_normal_for_ten_minutes_and_hides_the_lag_it_explains() {
    let catching_up = |ago| Link { state: LinkState::CatchingUp, since: AT - ago, ..connected() };
    let regions = vec![region(3 * HOUR, 0)];
    let status = Status { regions, broker: catching_up(CATCHING_UP), ..well() };
    is(&status, Level::Ok, &[]);
    let status = Status { broker: catching_up(CATCHING_UP + 1), ..status };
    is(&status, Level::Degraded, &["catching-up"]);
    is(&Status { broker: connected(), ..status }, Level::Failing, &["lag"]);
}

#[test]
fn a_lag_counts_above_what_lateness_and_silence_explain() {
    let usual = 12 * MINUTE;
    let lags = |excess| Status { regions: vec![region(usual + excess, usual)], ..well() };
    is(&lags(5 * MINUTE), Level::Ok, &[]);
    is(&lags(5 * MINUTE + 1), Level::Degraded, &["lag"]);
    is(&lags(10 * MINUTE), Level::Degraded, &["lag"]);
    is(&lags(10 * MINUTE + 1), Level::Failing, &["lag"]);
    let mut idle = lags(HOUR);
    idle.regions[0].idle = true;
    is(&idle, Level::Ok, &[]);
    let silent = Region { lag: None, ..region(0, usual) };
    is(&Status { regions: vec![silent], ..well() }, Level::Ok, &[]);
}

#[test]
fn after_an_outage_silent_devices_have_their_idle_timeout_before_their_lag_counts() {
    let regions = vec![region(3 * HOUR, 12 * MINUTE)];
    let since = |ago| Link { since: AT - ago, ..connected() };
    let status = Status { broker: since(12 * MINUTE - 1), regions, ..well() };
    is(&status, Level::Ok, &[]);
    is(&Status { broker: since(12 * MINUTE), ..status }, Level::Failing, &["lag"]);
}

#[test]
fn the_region_furthest_beyond_its_usual_lag_is_named() {
    let near = Region { region: "near".into(), ..region(8 * MINUTE, MINUTE) };
    let regions = vec![region(15 * MINUTE, 12 * MINUTE), near, region(30 * MINUTE, 22 * MINUTE)];
    let reason = judge(&Status { regions, ..well() }).reasons.remove(0);
    assert!(reason.text.starts_with("region moor is 30 min 0 s behind"), "{}", reason.text);
    assert!(reason.text.ends_with("; 1 more lag too"), "{}", reason.text);
}

#[test]
fn a_refused_subscription_is_not_well_although_we_are_connected() {
    let refused_filters = vec!["meters/#".into(), "b".into()];
    is(&Status { refused_filters, ..well() }, Level::Degraded, &["subscription-refused"]);
}

#[test]
fn an_outbox_warns_from_four_fifths_and_fails_when_something_had_to_go() {
    let outbox = |bytes, lost_at| Outbox { bytes, quota: 1_000, lost_at, ..Outbox::default() };
    let full = |bytes, lost_at| Status { outbox: outbox(bytes, lost_at), ..well() };
    is(&full(799, None), Level::Ok, &[]);
    is(&full(800, None), Level::Degraded, &["outbox-full"]);
    is(&full(1_000, Some(AT - HOUR + 1)), Level::Failing, &["outbox-lost", "outbox-full"]);
    is(&full(0, Some(AT - HOUR)), Level::Ok, &[]);
}

#[test]
fn a_store_that_fails_explains_that_nothing_is_taken_in() {
    let store = Store { error: Some("disk full".into()), ..Store::default() };
    let broker = Link { state: LinkState::Away, since: AT - HOUR, ..connected() };
    is(&Status { store, broker, ..well() }, Level::Failing, &["store"]);
}

#[test]
fn a_clock_that_nobody_vouches_for_is_a_warning() {
    for (quality, level) in [
        (ClockQuality::Holdover, Level::Ok),
        (ClockQuality::Suspect, Level::Degraded),
        (ClockQuality::Unsynchronised, Level::Degraded),
    ] {
        assert_eq!(told(&Status { clock: Some(quality), ..well() }).0, level, "{quality:?}");
    }
}

#[test]
fn records_without_room_are_spoken_of_for_an_hour() {
    let status = Status { no_room_at: Some(AT - 1), ..well() };
    is(&status, Level::Degraded, &["no-room"]);
    is(&Status { no_room_at: Some(AT - HOUR), ..status }, Level::Ok, &[]);
}

#[test]
fn the_worst_comes_first_and_decides() {
    let away = Link { state: LinkState::Away, since: AT - HOUR, ..connected() };
    let clock = Some(ClockQuality::Suspect);
    let status = Status { broker: away.clone(), upstream: away, clock, ..well() };
    is(&status, Level::Failing, &["broker-away", "upstream-away", "clock"]);
    let regions = vec![region(HOUR, 0)];
    let status = Status { broker: connected(), regions, ..status };
    is(&status, Level::Failing, &["lag", "upstream-away", "clock"]);
    assert_eq!([Level::Ok, Level::Degraded, Level::Failing].map(Level::exit_code), [0, 1, 2]);
}

#[test]
fn every_reason_is_in_the_handbook() {
    const HANDBOOK: &str = include_str!("../../../docs/operations.md");
    let rules = include_str!("../health.rs").split("Reason::new(").skip(1);
    let words = rules.filter_map(|rule| rule.split(';').next()?.split('"').nth(1));
    let codes: Vec<_> = words.filter(|word| !word.contains(' ')).collect();
    assert!(codes.len() >= 9, "{codes:?}");
    for code in codes {
        assert!(HANDBOOK.contains(&format!("\n| `{code}` | ")), "{code}");
    }
}

#[test]
fn a_span_is_told_in_its_two_largest_units() {
    let told = [0, 59_999, 61_000, 2 * HOUR + 5 * MINUTE, 50 * HOUR, -1_500].map(spoken);
    assert_eq!(told, ["0 ms", "59 s", "1 min 1 s", "2 h 5 min", "2 d 2 h", "-1 s"]);
}

#[test]
fn a_clock_that_is_not_well_says_why_and_what_to_do() {
    let why = |clock, timekeeping| {
        let health = judge(&Status { clock: Some(clock), timekeeping, ..well() });
        health.reasons.first().map(|reason| (reason.text.clone(), reason.remedy.clone()))
    };
    let time = Timekeeping::default;
    let servers = vec!["a".to_owned(), "b".to_owned()];
    let cases = [
        (ClockQuality::Unsynchronised, time(), "nothing keeps", "trust-host"),
        (
            ClockQuality::Unsynchronised,
            Timekeeping { servers: servers.clone(), ..time() },
            "no time server answers",
            "UDP port 123",
        ),
        (
            ClockQuality::Unsynchronised,
            Timekeeping { servers: servers.clone(), disagreement: true, ..time() },
            "contradict each other",
            "a third server",
        ),
        (ClockQuality::Suspect, time(), "before the last good one", "after an hour"),
        (
            ClockQuality::Suspect,
            Timekeeping { doubted: Some(-7_200_000), ..time() },
            "2 h 0 min earlier",
            "are right",
        ),
        (
            ClockQuality::Holdover,
            Timekeeping { bound: Some(3_000), servers, ..time() },
            "off by up to 3 s",
            "UDP port 123",
        ),
        (
            ClockQuality::Holdover,
            Timekeeping { host_away: Some(7_200_000), ..time() },
            "2 h 0 min away",
            "restart",
        ),
    ];
    for (quality, time, text, remedy) in cases {
        let told = why(quality, time).expect("it is told");
        assert!(told.0.contains(text) && told.1.contains(remedy), "{told:?}");
    }
    assert_eq!(why(ClockQuality::Holdover, Timekeeping { bound: Some(999), ..time() }), None);
}
