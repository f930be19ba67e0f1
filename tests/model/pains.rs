//! x
use crate::gateway::*;
use crate::reference::*;
#[test]
fn debug_missed() {
    let mut rules = defaults();
    rules.allowed_lateness = 5 * MINUTE;
    rules.lateness.values_mut().for_each(|l| *l = 0);
    rules.base.size = 10 * MINUTE;
    rules.multiple.size = HOUR;
    rules.allowed_lateness_z = 0;
    let config = config(&rules, true, 7000);
    let mut gw = Gateway::new(&config, NOON + 7 * MINUTE);
    let m = |ts: &str, v: &str| {
        What::Message(Message {
            topic: "m/north/a".into(),
            payload: format!("{{\"dev\":\"a\"{ts}{v}}}"),
            retain: false,
            dup: false,
        })
    };
    let t = NOON + 7 * MINUTE;
    let mut steps = vec![Step { at: t, what: What::Up }, Step { at: t, what: What::CaughtUp }];
    steps.push(Step { at: t + 108786, what: m(&format!(",\"ts\":{}", t + 108786), "") });
    steps.push(Step { at: t + 108786, what: m("", ",\"v\":1") });
    steps.push(Step { at: t + 408786, what: What::Tick });
    steps.push(Step { at: t + 528786, what: m(&format!(",\"ts\":{}", t + 528786), "") });
    for s in &steps {
        gw.step(s);
        println!(
            "{} missed {} out {}",
            s.at - t,
            gw.engine.books().region_missed,
            gw.outputs.len()
        );
    }
    gw.end();
    println!("missed {}", gw.engine.books().region_missed);
    for l in gw.lines() {
        println!("{l}");
    }
}
