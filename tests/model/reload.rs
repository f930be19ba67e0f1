//! Another configuration, taken while the agent runs, is what a restart with it is; and the same one changes nothing.

use super::*;
use crate::gateway::{HOUR, MINUTE, SECOND};
use crate::reference::Rules;

/// What an operator may have changed.
#[derive(Clone, Debug)]
struct Change {
    lateness: i64,
    idle_timeout: i64,
    allowed_lateness: i64,
    max_hold: i64,
    publish_interval: i64,
    /// A region that is no longer named.
    forgotten: bool,
    immediate: bool,
    /// A source is no longer there, or there for the first time.
    plain: bool,
    metric: bool,
}

fn changes() -> impl Strategy<Value = Change> {
    let spans = prop::sample::select(vec![0, 1, MINUTE, 10 * MINUTE, HOUR, 3 * HOUR]);
    let intervals = prop::sample::select(vec![0, SECOND, MINUTE, HOUR]);
    let spans = [spans.clone(), spans.clone(), spans.clone(), spans];
    (spans, intervals, any::<[bool; 4]>()).prop_map(|(spans, publish_interval, others)| {
        let [lateness, idle, allowed_lateness, hold] = spans;
        let [forgotten, immediate, plain, metric] = others;
        Change {
            lateness,
            idle_timeout: idle + SECOND,
            allowed_lateness,
            max_hold: hold + lateness + HOUR,
            publish_interval,
            forgotten,
            immediate,
            plain,
            metric,
        }
    })
}

fn changed(rules: &Rules, change: &Change) -> Config {
    let mut rules = rules.clone();
    rules.lateness.values_mut().for_each(|lateness| *lateness = change.lateness);
    if change.forgotten {
        rules.lateness.remove("south");
    }
    rules.idle_timeout = change.idle_timeout;
    rules.allowed_lateness = change.allowed_lateness;
    rules.max_hold = change.max_hold;
    let mut toml = crate::gateway::toml(&rules, change.immediate, change.publish_interval);
    if !change.metric {
        toml = toml.replace("name = \"w\"", "name = \"x\"");
    }
    if change.plain {
        toml += "[[source]]\nname = \"new\"\ntopic = \"q/{region}/{sender}\"\ndevice = \"/dev\"\n";
    }
    Config::from_toml(&toml).unwrap_or_else(|errors| panic!("{errors}\n{toml}"))
}

/// Watermarks of all who have one.
fn watermarks(gateway: &Gateway<'_>) -> Vec<Option<i64>> {
    let regions = ["north", "south", "west"];
    let devices = ["a", "b", "c", "d", "z"];
    let of = |region| devices.map(|device| gateway.device_watermark(region, device));
    let own = |region| gateway.engine.region_watermark(region).map(|w| w.0);
    regions.into_iter().flat_map(|region| of(region).into_iter().chain([own(region)])).collect()
}

/// Lives through the steps; at each of those that are chosen another configuration is taken, in turns, in some way.
fn changing<'a>(
    configs: [&'a Config; 2],
    steps: &[Step],
    turns: &[u8],
    lowered: [bool; 2],
    mut take: impl FnMut(&mut Gateway<'a>, &'a Config),
) -> Result<Gateway<'a>, TestCaseError> {
    let mut gateway = Gateway::new(configs[0], steps[0].at);
    let mut next = configs.into_iter().zip(lowered).cycle().skip(1);
    for (step, turn) in steps.iter().zip(turns.iter().cycle()) {
        gateway.step(step);
        if *turn == 0 {
            let before = watermarks(&gateway);
            let (config, lowered) = next.next().expect("without end");
            take(&mut gateway, config);
            // Under a longer lateness the clock has yet to come to where it has taken a silent device.
            for (before, after) in before.into_iter().zip(watermarks(&gateway)) {
                prop_assert!(!lowered || after >= before, "{before:?} moved back to {after:?}");
            }
        }
    }
    gateway.end();
    told_watermarks(&gateway.outputs)?;
    Ok(gateway)
}

/// What was told of a watermark is never taken back.
fn told_watermarks(outputs: &[Output]) -> Result<(), TestCaseError> {
    let mut told = BTreeMap::new();
    for output in outputs {
        let Output::Watermark(report) = output else { continue };
        let Some(watermark) = report.watermark else { continue }; // the end
        let before = told.insert(report.region.clone(), watermark);
        prop_assert!(before.is_none_or(|it| watermark >= it), "{:?} after {:?}", report, before);
    }
    Ok(())
}

/// What was told of each thing, in its order. A shorter lateness makes much due at one moment, of which nobody is first.
fn by_topic(gateway: &Gateway<'_>) -> BTreeMap<String, Vec<String>> {
    let mut told: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in gateway.lines() {
        let fields: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        let topic = ["type", "window", "region", "device"].map(|name| fields[name].to_string());
        told.entry(topic.join("/")).or_default().push(line);
    }
    told
}

proptest! {
    #![proptest_config(Cases { max_shrink_iters: 600, ..cases(200) })]

    #[test]
    fn a_reload_is_a_restart_with_that_configuration(
        plan in plans(60), change in changes(), turns in prop::collection::vec(0..12_u8, 80),
    ) {
        let steps = plan.steps(false);
        let before = config(&plan.rules, false, plan.publish_interval);
        let after = changed(&plan.rules, &change);
        let highest = plan.rules.lateness.values().max().copied().unwrap_or_default();
        let least = plan.rules.lateness.values().min().copied().unwrap_or_default();
        // A region that is no longer named has the default.
        let lowered = [highest <= change.lateness, change.lateness <= least].map(|it| it && !change.forgotten);
        let reloaded = changing([&before, &after], &steps, &turns, lowered, |gateway, config| {
            gateway.reload(config);
            // A restart is a new connection.
            gateway.reconnect();
        })?;
        let restarted = changing([&before, &after], &steps, &turns, lowered, |gateway, config| {
            gateway.handle(Input::Tick);
            gateway.commit();
            gateway.restart_with(config);
            gateway.commit();
        })?;
        identities(&reloaded.outputs)?;
        prop_assert_eq!(by_topic(&reloaded), by_topic(&restarted));
        prop_assert_eq!(reloaded.engine.books(), restarted.engine.books());
        prop_assert_eq!(&reloaded.store, &restarted.store);
    }

    #[test]
    fn a_reload_of_the_same_changes_nothing(
        mut plan in plans(60), immediate: bool, turns in prop::collection::vec(0..4_u8, 80),
    ) {
        // What proves a wrong clock is gathered anew.
        plan.rules.correct = false;
        let steps = plan.steps(true);
        let config = config(&plan.rules, immediate, plan.publish_interval);
        let steady = live(&config, &steps);
        let reloaded = changing([&config, &config], &steps, &turns, [true; 2], Gateway::reload)?;
        same(&reloaded, &steady)?;
        prop_assert_eq!(reloaded.engine.books(), steady.engine.books());
    }
}

#[test]
fn a_clock_that_was_good_holds_nothing_back_after_a_reload_and_nobody_is_told_of_a_gap() {
    let config = config(&crate::gateway::defaults(), false, MINUTE);
    let mut gateway = Gateway::listening(&config, crate::gateway::NOON);
    gateway.pass(MINUTE);
    gateway.set_clock(crate::gateway::LOST, 0);
    gateway.pass(10 * MINUTE);
    gateway.reload(&config);
    let payload = format!("[{{\"dev\":\"a\",\"ts\":{},\"v\":1}}]", gateway.now);
    let message = Message { topic: "m/north/x".into(), payload, retain: false, dup: false };
    gateway.publish(&message, false);
    assert_eq!((gateway.engine.books().held, gateway.engine.books().aggregated), (0, 1));
    gateway.pass(MINUTE);
    gateway.set_clock(ClockStatus::EXACT, 0);
    gateway.pass(MINUTE);
    let is_gap = |output: &Output| matches!(output, Output::Gap(_));
    assert!(!gateway.outputs.iter().any(is_gap), "{:?}", gateway.outputs);
}
