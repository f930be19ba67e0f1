//! The engine against the specification, worked out the slow way (`reference`), and against itself.
//!
//! A random fleet lives through a random day: out of order, late, twice, silent, with wrong clocks, retained, in
//! batches, through outages. Times fall on boundaries more often than chance would have it. A failing case is shrunk and
//! shown; a named test is made of it in `found`, or beside the code that was wrong.

#[path = "model/attendance.rs"]
mod attendance;
#[path = "model/clocks.rs"]
mod clocks;
#[path = "model/found.rs"]
mod found;
#[path = "model/gate.rs"]
mod gate;
#[path = "model/gateway.rs"]
mod gateway;
#[path = "model/pains.rs"]
mod pains;
#[path = "model/plan.rs"]
mod plan;
mod reference;
#[path = "model/reload.rs"]
mod reload;

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::Config as Cases;
use tidegate::config::{Config, Mode};
use tidegate::engine::Engine;
use tidegate::engine::books::Books;
use tidegate::engine::effect::Effects;
use tidegate::engine::input::{Ingress, Input, Publish, Topic};
use tidegate::engine::restore::Restorer;
use tidegate::engine::settings::ClockRules;
use tidegate::event::{AlertKind, Cause, Firing, MetricResult, Output};
use tidegate::ids::Generation;
use tidegate::time::{ArrivalTime, ClockStatus, MonoTime, Now};

use gateway::{Gateway, Hearing, config};
use plan::{Plan, beating, plans};
use reference::{Answer, Content, Key, Message, Metric, Place, RegionContent, Step, What, answer};

/// So many, or as many as `PROPTEST_CASES` says.
fn cases(cases: u32) -> Cases {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let cases = asked.unwrap_or(cases);
    // The same cases every time, so that a failure speaks of the change; others with TIDEGATE_LONG.
    let rng_seed = match std::env::var_os("TIDEGATE_LONG") {
        None => proptest::test_runner::RngSeed::Fixed(2026),
        Some(_) => proptest::test_runner::RngSeed::Random,
    };
    Cases {
        cases,
        max_shrink_iters: 20_000,
        failure_persistence: None,
        rng_seed,
        ..Cases::default()
    }
}

fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::Heartbeat => "heartbeat",
        Cause::Bounded => "bounded",
        Cause::Idle => "idle",
        Cause::Element => "element",
        Cause::End => "end",
    }
}

fn metric<'a>(metrics: &'a [MetricResult], name: &str) -> Option<&'a MetricResult> {
    metrics.iter().find(|metric| metric.metric.as_str() == name)
}

fn told_metric(metrics: &[MetricResult], name: &str) -> Metric {
    let Some(m) = metric(metrics, name) else { return Metric::default() };
    let of = |value: Option<f64>| value.expect("it was asked for");
    Metric {
        count: m.count,
        sum: of(m.sum),
        min: of(m.min),
        max: of(m.max),
        first: of(m.first),
        last: of(m.last),
    }
}

fn told_region_metric(metrics: &[MetricResult], name: &str) -> (u32, f64, f64, f64) {
    let Some(m) = metric(metrics, name) else { return (0, 0.0, f64::INFINITY, f64::NEG_INFINITY) };
    let of = |value: Option<f64>| value.expect("it was asked for");
    (m.count, of(m.sum), of(m.min), of(m.max))
}

fn window_name(firing: &Firing) -> &'static str {
    if firing.window.as_str() == "day" { "day" } else { "hour" }
}

/// A window of a device as it was told, in the words of the reference.
fn told(output: &Output) -> Option<(Key, reference::Firing)> {
    let Output::Window(result) = output else { return None };
    let firing = &result.firing;
    let content = Content {
        samples: firing.samples,
        stamped: firing.stamped,
        corrected: firing.corrected,
        first_at: result.first.0,
        last_at: result.last.0,
        metrics: ["v", "w"].map(|name| told_metric(&result.metrics, name)),
    };
    let key = (result.region.as_str().to_owned(), result.device.as_str().to_owned());
    let told = reference::Firing {
        window: window_name(firing),
        start: firing.start.0,
        revision: firing.revision,
        cause: cause(firing.cause),
        watermark: firing.watermark.map(|w| w.0),
        content,
    };
    Some((key, told))
}

fn told_region(output: &Output) -> Option<((String, &'static str, i64), RegionContent)> {
    let Output::Region(result) = output else { return None };
    let firing = &result.firing;
    let content = RegionContent {
        samples: firing.samples,
        stamped: firing.stamped,
        corrected: firing.corrected,
        reporting: result.reporting,
        metrics: ["v", "w"].map(|name| told_region_metric(&result.metrics, name)),
    };
    Some(((result.region.as_str().to_owned(), window_name(firing), firing.start.0), content))
}

fn told_late(output: &Output) -> Option<(Key, i64, i64, String)> {
    let Output::Late(late) = output else { return None };
    let key = (late.region.as_str().to_owned(), late.device.as_str().to_owned());
    let content = String::from_utf8(late.content.clone()).expect("it was text");
    Some((key, late.start.0, late.time.0, content))
}

/// The books as the ledger says they are after a step.
fn expected_books(answer: &Answer, step: usize) -> [u64; 9] {
    let after = &answer.after[step];
    let ledger = &answer.ledger[..after.entries];
    let count = |place: fn(&Place) -> bool| {
        ledger.iter().filter(|entry| place(&entry.place)).count() as u64
    };
    [
        count(|place| matches!(place, Place::Aggregated(_))),
        count(|place| matches!(place, Place::Late(_))),
        count(|place| *place == Place::Duplicate),
        count(|place| matches!(place, Place::Quarantined(_))),
        count(|place| *place == Place::Valueless),
        count(|place| *place == Place::RetainedIgnored),
        ledger.iter().filter(|entry| entry.stamped && entry.at.is_some()).count() as u64,
        ledger.iter().filter(|entry| entry.corrected.is_some() && entry.at.is_some()).count()
            as u64,
        after.malformed,
    ]
}

fn books(books: &Books) -> [u64; 9] {
    [
        books.aggregated,
        books.late,
        books.duplicate,
        books.quarantined,
        books.valueless,
        books.retained_ignored,
        books.stamped,
        books.corrected,
        books.malformed,
    ]
}

/// What the engine shows after each step against the reference: books, watermarks, and that regions keep up.
struct Follower<'a> {
    plan: &'a Plan,
    answer: &'a Answer,
    devices: BTreeMap<Key, i64>,
    regions: BTreeMap<String, i64>,
    reported: BTreeMap<Option<String>, i64>,
    seen: usize,
}

impl<'a> Follower<'a> {
    fn new(plan: &'a Plan, answer: &'a Answer) -> Self {
        Self {
            plan,
            answer,
            devices: BTreeMap::new(),
            regions: BTreeMap::new(),
            reported: BTreeMap::new(),
            seen: 0,
        }
    }

    fn follow(&mut self, gateway: &Gateway<'_>, step: usize) -> Result<(), TestCaseError> {
        let after = &self.answer.after[step];
        prop_assert_eq!(
            books(gateway.engine.books()),
            expected_books(self.answer, step),
            "books, step {}",
            step
        );
        for entry in &self.answer.ledger[..after.entries] {
            let key = &entry.key;
            let got = gateway.device_watermark(&key.0, &key.1);
            let expected = after.watermarks.get(key).copied();
            prop_assert_eq!(got, expected, "watermark of {:?}, step {}", key, step);
            let known = self.devices.entry(key.clone()).or_insert(i64::MIN);
            prop_assert!(got.unwrap_or(i64::MIN) >= *known, "{:?} moved back, step {}", key, step);
            *known = got.unwrap_or(i64::MIN);
        }
        for (region, bounds) in &after.regions {
            let got = gateway.engine.region_watermark(region).map_or(i64::MIN, |w| w.0);
            let known = self.regions.entry(region.clone()).or_insert(i64::MIN);
            prop_assert!(got >= *known, "{} moved back, step {}", region, step);
            prop_assert!(
                got <= bounds.ever,
                "{} is ahead, step {}: {} > {:?}",
                region,
                step,
                got,
                bounds
            );
            *known = got;
        }
        self.reports_move_on(gateway, step)?;
        self.regions_keep_up(gateway, step)?;
        self.seen = gateway.outputs.len();
        nobody_is_ahead(gateway, self.plan)
    }

    fn reports_move_on(&mut self, gateway: &Gateway<'_>, step: usize) -> Result<(), TestCaseError> {
        for output in &gateway.outputs[self.seen..] {
            let Output::Watermark(report) = output else { continue };
            let region = report.region.as_ref().map(|region| region.as_str().to_owned());
            let w = report.watermark.expect("not at the end").0;
            let known = self.reported.entry(region.clone()).or_insert(i64::MIN);
            prop_assert!(w > *known, "{:?} is told again, step {}", region, step);
            *known = w;
            if let Some(region) = region {
                prop_assert!(
                    w <= self.answer.after[step].regions[&region].ever,
                    "{} is ahead",
                    region
                );
            }
        }
        Ok(())
    }

    /// A roll-up that the devices have passed was told.
    fn regions_keep_up(&self, gateway: &Gateway<'_>, step: usize) -> Result<(), TestCaseError> {
        let after = &self.answer.after[step];
        let rules = &self.plan.rules;
        for ((region, name, start), rollup) in &self.answer.rollups {
            let window = if *name == "day" { rules.multiple } else { rules.base };
            let Some(bounds) = after.regions.get(region) else { continue };
            let passed = start + window.size - 1 <= bounds.now;
            let long_open = rollup.opened.saturating_add(rules.revision_delay) <= after.duration;
            if passed && long_open && !rollup.disputed && rollup.step <= step {
                let key = (region.clone(), *name, *start);
                let is_told =
                    gateway.outputs.iter().filter_map(told_region).any(|(told, _)| told == key);
                prop_assert!(is_told, "{:?} waits, step {}, {:?}", key, step, bounds);
            }
        }
        Ok(())
    }
}

/// No identity occurs twice with different content; revisions count from 0, and are told in their order.
fn identities(outputs: &[Output]) -> Result<(), TestCaseError> {
    let mut revisions = BTreeMap::new();
    for output in outputs {
        let (key, firing) = match output {
            Output::Window(result) => {
                (format!("{:?}/{:?}", result.region, result.device), &result.firing)
            }
            Output::Region(result) => (format!("{:?}", result.region), &result.firing),
            _ => continue,
        };
        let next: &mut u32 =
            revisions.entry((key.clone(), firing.window.clone(), firing.start)).or_default();
        prop_assert_eq!(firing.revision, *next, "{} {:?}", key, firing);
        *next += 1;
    }
    Ok(())
}

/// A device that is left out is told to be, and told to be back, in turns.
fn alerts(outputs: &[Output]) -> Result<(), TestCaseError> {
    let mut held_out = BTreeMap::new();
    for output in outputs {
        let Output::Alert(alert) = output else { continue };
        if alert.kind.clock_offset().is_some() {
            continue;
        }
        let is_out = alert.kind == AlertKind::HeldOut;
        let was_out = held_out.insert((alert.region.clone(), alert.device.clone()), is_out);
        prop_assert_eq!(was_out.unwrap_or(false), !is_out, "{:?}", alert);
    }
    Ok(())
}

/// Final windows, late records and roll-ups are those of the reference, and a day is the sum of its hours.
fn results(plan: &Plan, answer: &Answer, gateway: &Gateway<'_>) -> Result<(), TestCaseError> {
    let outputs = &gateway.outputs;
    let mut windows = BTreeMap::new();
    for (key, firing) in outputs.iter().filter_map(told) {
        windows.insert((key, firing.window, firing.start), firing.content);
    }
    prop_assert_eq!(&windows, &answer.windows);
    for ((key, name, start), day) in windows.iter().filter(|((_, name, _), _)| *name == "day") {
        let hours = windows.iter().filter(|((other, window, at), _)| {
            other == key && *window == "hour" && plan.rules.multiple.start(*at) == *start
        });
        let (samples, sum) = hours.fold((0, 0.0), |(samples, sum), (_, hour)| {
            (samples + hour.samples, sum + hour.metrics[0].sum)
        });
        prop_assert_eq!(
            (day.samples, day.metrics[0].sum),
            (samples, sum),
            "{:?} {} {}",
            key,
            name,
            start
        );
    }
    let mut late: Vec<_> = outputs.iter().filter_map(told_late).collect();
    let mut expected: Vec<_> = answer.ledger.iter().filter_map(expected_late).collect();
    late.sort();
    expected.sort();
    prop_assert_eq!(late, expected);
    alerts(outputs)?;
    clocks(answer, outputs)?;
    regions(answer, gateway)
}

/// What was told of the clocks is what the reference makes of them, in this order.
fn clocks(answer: &Answer, outputs: &[Output]) -> Result<(), TestCaseError> {
    let mut told: BTreeMap<Key, Vec<Option<i64>>> = BTreeMap::new();
    for output in outputs {
        let Output::Alert(alert) = output else { continue };
        let corrected = match alert.kind {
            AlertKind::ClockCorrected(offset) => Some(offset.0),
            AlertKind::ClockWrong(_) | AlertKind::ClockRight(_) => None,
            _ => continue,
        };
        let key = (alert.region.as_str().to_owned(), alert.device.as_str().to_owned());
        told.entry(key).or_default().push(corrected);
    }
    let some = |(_, told): &(&Key, &Vec<_>)| !told.is_empty();
    let expected: Vec<_> = answer.clocks.iter().filter(some).collect();
    prop_assert_eq!(told.iter().collect::<Vec<_>>(), expected);
    Ok(())
}

/// No output speaks of a time beyond the gateway's and the tolerance, unless the gateway once did not know the time.
fn nobody_is_ahead(gateway: &Gateway<'_>, plan: &Plan) -> Result<(), TestCaseError> {
    if gateway.was_in_doubt {
        return Ok(());
    }
    let latest = gateway.now + plan.rules.future_tolerance;
    for region in ["north", "south", "west"] {
        let w = gateway.engine.region_watermark(region).map_or(i64::MIN, |w| w.0);
        prop_assert!(w <= latest, "{region} is ahead of the clock");
    }
    Ok(())
}

fn expected_late(entry: &reference::Entry) -> Option<(Key, i64, i64, String)> {
    let Place::Late(start) = entry.place else { return None };
    Some((entry.key.clone(), start, entry.at?, entry.content.clone()))
}

fn regions(answer: &Answer, gateway: &Gateway<'_>) -> Result<(), TestCaseError> {
    let rollups: BTreeMap<_, _> = gateway.outputs.iter().filter_map(told_region).collect();
    let disputed = answer.rollups.values().any(|rollup| rollup.disputed);
    prop_assert!(disputed || gateway.engine.books().region_missed == 0, "a region misses a window");
    for (key, rollup) in &answer.rollups {
        if !rollup.disputed {
            prop_assert_eq!(rollups.get(key), Some(&rollup.content), "{:?}", key);
        }
    }
    prop_assert!(rollups.keys().all(|key| answer.rollups.contains_key(key)));
    Ok(())
}

/// A day whose every step and whose results are those of the reference.
fn followed<'a>(
    plan: &Plan,
    config: &'a Config,
    steps: &[Step],
    answer: &Answer,
) -> Result<Gateway<'a>, TestCaseError> {
    let mut gateway = Gateway::new(config, steps[0].at);
    let mut follower = Follower::new(plan, answer);
    for (number, step) in steps.iter().enumerate() {
        gateway.step(step);
        follower.follow(&gateway, number)?;
    }
    gateway.end();
    identities(&gateway.outputs)?;
    results(plan, answer, &gateway)?;
    Ok(gateway)
}

/// A day without a restart.
fn live<'a>(config: &'a Config, steps: &[Step]) -> Gateway<'a> {
    let mut gateway = Gateway::new(config, steps[0].at);
    steps.iter().for_each(|step| gateway.step(step));
    gateway.end();
    gateway
}

fn same(got: &Gateway<'_>, expected: &Gateway<'_>) -> Result<(), TestCaseError> {
    for (at, (got, expected)) in got.lines().iter().zip(expected.lines()).enumerate() {
        prop_assert_eq!(got, &expected, "output {}", at);
    }
    prop_assert_eq!(got.outputs.len(), expected.outputs.len(), "number of outputs");
    Ok(())
}

/// Lives through the steps with ticks and commits in between.
fn busy<'a>(config: &'a Config, steps: &[Step], extra: &[(u16, u8)]) -> Gateway<'a> {
    let mut busy = Gateway::new(config, steps[0].at);
    for (step, (when, what)) in steps.iter().zip(extra.iter().cycle()) {
        match what {
            0 => {
                busy.now += (step.at - busy.now) * i64::from(*when) / 65_535;
                busy.handle(Input::Tick);
                busy.handle(Input::Tick);
                busy.commit();
            }
            1 => drop(busy.sleep_until(step.at)),
            _ => {}
        }
        busy.step(step);
    }
    busy.end();
    busy
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn immediate_revisions_are_those_of_the_reference(plan in plans(60)) {
        let steps = plan.steps(true);
        let answer = answer(&plan.rules, &steps);
        let config = config(&plan.rules, true, plan.publish_interval);
        let gateway = followed(&plan, &config, &steps, &answer)?;
        let mut firings: BTreeMap<Key, Vec<reference::Firing>> = BTreeMap::new();
        for (key, firing) in gateway.outputs.iter().filter_map(told) {
            firings.entry(key).or_default().push(firing);
        }
        for (key, expected) in &answer.firings {
            let got = firings.remove(key).unwrap_or_default();
            for (number, (got, expected)) in got.iter().zip(expected).enumerate() {
                prop_assert_eq!(got, expected, "{:?}, firing {}", key, number);
            }
            prop_assert_eq!(got.len(), expected.len(), "{:?}", key);
        }
        prop_assert!(firings.is_empty(), "{:?}", firings);
    }

    #[test]
    fn coalesced_revisions_end_where_the_reference_ends(plan in plans(60)) {
        let steps = plan.steps(true);
        let answer = answer(&plan.rules, &steps);
        let config = config(&plan.rules, false, plan.publish_interval);
        followed(&plan, &config, &steps, &answer)?;
    }

    #[test]
    fn clocks_are_those_of_the_reference(plan in beating(120)) {
        let steps = plan.steps(true);
        let answer = answer(&plan.rules, &steps);
        let config = config(&plan.rules, false, plan.publish_interval);
        followed(&plan, &config, &steps, &answer)?;
    }

    #[test]
    fn ticks_and_commits_change_nothing(
        plan in plans(60), immediate: bool, extra in prop::collection::vec((any::<u16>(), 0..3_u8), 80),
    ) {
        let steps = plan.steps(true);
        let config = config(&plan.rules, immediate, plan.publish_interval);
        let quiet = live(&config, &steps);
        let busy = busy(&config, &steps, &extra);
        same(&busy, &quiet)?;
    }

    #[test]
    fn restarts_change_nothing(plan in plans(60), immediate: bool, restarts in prop::collection::vec(0..4_u8, 80)) {
        let steps = plan.steps(false);
        let config = config(&plan.rules, immediate, plan.publish_interval);
        // What is compared over time begins anew after a restart, and so it does after a connection.
        let mut steady = Gateway::new(&config, steps[0].at);
        let mut restarted = Gateway::new(&config, steps[0].at);
        for (step, restart) in steps.iter().zip(restarts.iter().cycle()) {
            steady.step(step);
            restarted.step(step);
            if *restart == 0 {
                steady.reconnect();
            }
            if *restart <= 1 {
                restarted.commit();
            }
            if *restart == 0 {
                restarted.restart(|_| {});
            }
        }
        steady.end();
        restarted.end();
        identities(&restarted.outputs)?;
        same(&restarted, &steady)?;
        prop_assert_eq!(restarted.engine.books(), steady.engine.books());
    }

    #[test]
    fn a_crash_changes_nothing(
        mut plan in plans(60), immediate: bool, (settled, committed, crashed) in any::<(u8, u8, u8)>(),
    ) {
        // A broker that delivers again what it delivered tells of no clock, and one without a crash does.
        plan.rules.correct = false;
        let steps: Vec<Step> = plan.steps(false).into_iter().filter(is_readable).collect();
        let config = config(&plan.rules, immediate, plan.publish_interval);
        let steady = live(&config, &steps);
        let crash = Crash::place(&steps, [settled, committed, crashed]);
        let crashed = crash.live(&config, &steps);
        identities(&crashed.outputs)?;
        same(&crashed, &steady)?;
        let of = |books: &Books| (books.aggregated, books.late, books.quarantined, books.valueless, books.stamped);
        prop_assert_eq!(of(crashed.engine.books()), of(steady.engine.books()));
    }
}

/// What cannot be read has no time by which a second copy could be told from the first.
fn is_readable(step: &Step) -> bool {
    let What::Message(message) = &step.what else { return true };
    message.payload.starts_with(['{', '['])
        && serde_json::from_str::<serde_json::Value>(&message.payload).is_ok()
        && message.payload != "[1,2]"
}

/// A crash: everything up to `settled` is acknowledged for good, everything up to `committed` is in the store, and
/// everything up to `crashed` was processed. The broker delivers again what comes after `settled`.
#[derive(Clone, Copy, Debug)]
struct Crash {
    settled: usize,
    committed: usize,
    crashed: usize,
}

impl Crash {
    /// On one connection, so that what is delivered again comes on the next one.
    fn place(steps: &[Step], at: [u8; 3]) -> Self {
        let pick = |from: usize, at: u8| from + usize::from(at) % (steps.len() - from);
        let settled = pick(1, at[0]);
        let committed = settled + usize::from(at[1]) % (steps.len() - settled).min(12);
        let crashed = committed + usize::from(at[2]) % (steps.len() - committed).min(12);
        let turns = |step: &Step| matches!(step.what, What::Up | What::Down);
        let ends = |from: usize, to: usize| {
            steps[from + 1..=to].iter().position(turns).map_or(to, |at| from + at)
        };
        let committed = ends(settled, committed);
        Self { settled, committed, crashed: ends(committed, crashed) }
    }

    fn live<'a>(self, config: &'a Config, steps: &[Step]) -> Gateway<'a> {
        let mut gateway = Gateway::new(config, steps[0].at);
        let mut mark = 0;
        for (number, step) in steps[..=self.committed].iter().enumerate() {
            gateway.step(step);
            if number == self.settled {
                mark = gateway.commit();
            }
        }
        gateway.handle(Input::Ingress(Ingress::AcksSettled { through: mark }));
        assert!(gateway.commit() >= mark);
        let told = gateway.outputs.len();
        let (now, hearing) = (gateway.now, gateway.hearing);
        steps[self.committed + 1..=self.crashed].iter().for_each(|step| gateway.step(step));
        gateway.outputs.truncate(told);
        (gateway.now, gateway.hearing) = (now, hearing);
        let again = &steps[self.settled + 1..=self.committed];
        gateway.restart(|gateway| {
            for message in again.iter().filter_map(message) {
                gateway.publish(message, true);
            }
        });
        for (number, step) in steps.iter().enumerate().skip(self.committed + 1) {
            let mut step = step.clone();
            if let What::Message(message) = &mut step.what {
                message.dup |= number <= self.crashed;
            }
            gateway.step(&step);
        }
        gateway.end();
        gateway
    }
}

fn message(step: &Step) -> Option<&Message> {
    match &step.what {
        What::Message(message) => Some(message),
        _ => None,
    }
}

/// Payloads that nobody should send.
fn hostile() -> impl Strategy<Value = String> {
    let time = prop_oneof![
        any::<i64>().prop_map(|time| time.to_string()),
        prop::sample::select(vec![
            "9223372036854775807",
            "-9223372036854775808",
            "9223372036854775808",
            "1e400",
            "-0",
            "null",
            "\"\"",
            "[]",
            "1795953600000",
            "1795953599999",
            "true",
            "\"1795953600000.9\"",
        ])
        .prop_map(str::to_owned),
    ];
    let value = prop::sample::select(vec![
        "1", "1e308", "-1e308", "1e-320", "\"NaN\"", "\"inf\"", "null", "{}", "-0",
    ]);
    let device =
        prop::sample::select(vec!["\"a\"", "\"\"", "7", "null", "\"\\u0000/+#\"", "[]", "\"z\""]);
    let kind = prop::sample::select(vec!["\"heartbeat\"", "1", "null"]);
    let item = (device, time, value, kind).prop_map(|(device, time, value, kind)| {
        format!("{{\"dev\":{device},\"ts\":{time},\"v\":{value},\"kind\":{kind}}}")
    });
    prop_oneof![
        6 => item.clone(),
        3 => prop::collection::vec(item, 0..5).prop_map(|items| format!("[{}]", items.join(","))),
        1 => "\\PC{0,20}",
        1 => (1..200_usize).prop_map(|depth| "[".repeat(depth)),
    ]
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn nothing_panics(
        plan in plans(2), clocked: bool, good: bool, immediate: bool,
        messages in prop::collection::vec(
            (hostile(), prop::sample::select(vec!["m/north/x", "p/south/x", "m//x", "q", ""]), any::<[bool; 2]>(), 0..7_u8, 0..HOUR_AND_MORE),
            0..60,
        ),
    ) {
        let config = config(&plan.rules, immediate, plan.publish_interval);
        let mode = || if clocked { Mode::Run } else { Mode::Replay(ClockRules::Absent) };
        let mut engine = Engine::new(config.settings(mode()), Generation(7), ArrivalTime(0));
        let mut store = BTreeMap::new();
        let mut now = Now { wall: ArrivalTime(gateway::NOON), mono: MonoTime(0) };
        let mut effects = Effects::default();
        // Once the clock is good, what is held is for other properties: here there is no store to ask.
        engine.handle(Input::Clock(ClockStatus::EXACT), now, &mut effects);
        if !good {
            engine.handle(Input::Clock(ClockStatus::UNSYNCHRONISED), now, &mut effects);
        }
        engine.handle(Input::Ingress(Ingress::CaughtUp), now, &mut effects);
        for (payload, topic, [retain, dup], what, pause) in &messages {
            now = Now { wall: now.wall + tidegate::time::Span(*pause), mono: now.mono + tidegate::time::Span(*pause) };
            let publish = Publish { topic: Topic::Name(topic), payload: payload.as_bytes(), retain: *retain, dup: *dup };
            engine.handle(Input::Publish(publish), now, &mut effects);
            engine.books().balance();
            engine.next_deadline();
            if *what == 0 {
                for (key, value) in engine.checkpoint().changes {
                    match value {
                        Some(value) => drop(store.insert(key, value)),
                        None => drop(store.remove(&key)),
                    }
                }
                let mut restorer = Restorer::new(config.settings(mode()), Generation(7), ArrivalTime(0));
                for (key, value) in &store {
                    restorer.take(key, value).expect("it was written by this version");
                }
                let before = *engine.books();
                engine = restorer.finish();
                prop_assert_eq!(engine.books(), &before);
                engine.handle(Input::Clock(ClockStatus::EXACT), now, &mut effects);
                engine.handle(Input::Ingress(Ingress::Up), now, &mut effects);
                engine.handle(Input::Ingress(Ingress::CaughtUp), now, &mut effects);
            }
        }
        engine.handle(Input::End, now, &mut effects);
        engine.books().balance();
        identities(&effects.outputs)?;
        for output in &effects.outputs {
            let line = tidegate::wire::encode::encode_line(output, &gateway::identity(), None);
            prop_assert!(serde_json::from_str::<serde_json::Value>(&line).is_ok(), "{}", line);
        }
    }
}

const HOUR_AND_MORE: i64 = 4_000_000;

#[test]
fn the_reference_hears_what_the_gateway_hears() {
    let config = config(&gateway::defaults(), true, gateway::MINUTE);
    assert_eq!(Gateway::new(&config, gateway::NOON).hearing, Hearing::Down);
    assert_eq!(Gateway::listening(&config, gateway::NOON).hearing, Hearing::CaughtUp);
}
