//! The schemas themselves: sound, alike where they say the same, and strict.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tidegate::config::Config;
use tidegate::replay::{Lines, replay};

use crate::contract::{CONTRACT, REPLAY_LINE};

const GENERATION: &str = "0197f0c3a1b27e5f";

fn online() -> Value {
    json!({
        "schema": 1, "generation": GENERATION, "version": "0.1.0", "status": "online", "at": 9, "since": 7, "configured": 8,
        "refused_configuration": 9,
        "health": "degraded", "reasons": [{ "level": "degraded", "code": "lag", "text": "late" }],
        "clock": "suspect", "clock_source": "host", "clock_bound": 9, "watermark": 7, "lag": 2, "devices": 3, "active": 2, "outbox": 1,
        "outbox_bytes": 400, "received": 5, "late": 0, "quarantined": 0, "malformed": 0, "unmatched": 0,
    })
}

/// What tells of who is there.
fn presence() -> [(&'static str, Value); 2] {
    [
        (
            "presence",
            json!({
                "schema": 1, "generation": GENERATION, "state": "online", "since": 7, "cause": "news",
                "last_seen": 5, "outage": 9, "clock": "holdover",
            }),
        ),
        (
            "gateway-gap",
            json!({
                "schema": 1, "generation": GENERATION, "start": 5, "end": 7, "cause": "broker-away",
                "clock": "holdover",
            }),
        ),
    ]
}

/// A message of each kind that has every field.
fn whole() -> BTreeMap<&'static str, Value> {
    let result = json!({
        "schema": 1, "generation": GENERATION, "start": 1_749_945_600_000_i64, "end": 1_749_949_200_000_i64,
        "revision": 0, "cause": "bounded", "watermark": 1_749_949_205_916_i64, "samples": 360, "stamped": 1, "corrected": 1,
        "partial": true, "clock": "holdover",
    });
    let with = |more: Value| {
        let mut all = result.as_object().expect("an object").clone();
        all.extend(more.as_object().expect("an object").clone());
        Value::Object(all)
    };
    let refused = json!({
        "schema": 1, "generation": GENERATION, "region": "north", "device": "m", "topic": "a/b",
        "device_time": 5, "offset": -7, "method": "offset", "arrival": null, "clock": "suspect", "length": 5000,
        "sha256": "0".repeat(64), "withheld": 2, "record_base64": "eyJhIjo=",
    });
    let others = [
        (
            "window",
            with(json!({
                "expected": 360, "coverage": 1.0, "gap": 0, "first_at": 1_749_945_600_916_i64,
                "last_at": 1_749_949_190_916_i64,
                "metrics": { "power": {
                    "unit": "W", "count": 359, "sum": 1.5, "mean": 1.5, "min": 1.5, "max": 1.5, "first": 1.5,
                    "last": 1.5, "deviation": 0.5,
                } },
            })),
        ),
        (
            "region",
            with(json!({
                "reporting": 2, "devices": 3,
                "metrics": { "power": {
                    "unit": "W", "count": 359, "sum": 1.5, "mean": 1.5, "min": 1.5, "max": 1.5, "deviation": 0.5,
                    "sum_of_means": 3,
                } },
            })),
        ),
        (
            "late",
            json!({
                "schema": 1, "generation": GENERATION, "source": "meters", "time": 5, "device_time": 12,
                "offset": -7, "method": "offset", "window": "hour", "start": 0, "end": 3_600_000, "watermark": 7,
                "arrival": 9, "clock": "holdover", "record": { "power": 1 },
            }),
        ),
        ("quarantine", refused),
        (
            "watermark",
            json!({
                "schema": 1, "generation": GENERATION, "watermark": 7, "clock": "suspect",
            }),
        ),
        (
            "alert",
            json!({
                "schema": 1, "generation": GENERATION, "kind": "clock-right", "watermark": 7,
                "clock": "holdover", "offset": 80,
            }),
        ),
        (
            "clock",
            json!({
                "schema": 1, "generation": GENERATION, "from": 5, "to": 7, "shift": 2, "source": "host",
                "initial": false,
            }),
        ),
        ("status", online()),
    ];
    others.into_iter().chain(presence()).collect()
}

#[test]
fn a_schema_is_one_and_knows_its_name() {
    for (kind, schema) in CONTRACT.schemas() {
        if let Err(error) = jsonschema::meta::validate(schema) {
            panic!("{kind}: {error}");
        }
        assert_eq!(schema["$id"], format!("urn:tidegate:schema:1:{kind}"));
        assert_eq!(
            schema.get("additionalProperties"),
            None,
            "fields may be added within a version"
        );
    }
}

#[test]
fn what_two_schemas_call_by_one_name_is_the_same() {
    let mut definitions = BTreeMap::new();
    for (kind, schema) in CONTRACT.schemas() {
        for (name, definition) in schema["$defs"].as_object().into_iter().flatten() {
            // A region has no first and no last.
            if name != "metric" {
                let known = definitions.entry(name).or_insert(definition);
                assert_eq!(*known, definition, "{name} of {kind}");
            }
        }
    }
    assert!(definitions.len() >= 4, "{definitions:?}");
}

/// Values that are wrong for nearly every field.
fn wrong() -> Vec<Value> {
    vec![
        json!("#"),
        json!(-0.5),
        json!(1e300),
        json!([]),
        json!({}),
        json!(true),
        json!(null),
        json!(-1),
    ]
}

/// What may stand in a field although it is wrong elsewhere.
fn allowed(kind: &str, field: &str, value: &Value) -> bool {
    match field {
        "record" => true,
        "source" | "topic" | "region" | "device" | "window" => value.is_string(),
        "watermark" | "arrival" | "last_seen" => value.is_null() || *value == -1,
        "start" | "end" | "time" | "first_at" | "last_at" | "device_time" | "offset" | "at"
        | "since" | "from" | "to" | "shift" => *value == -1,
        "state" | "outage" => false,
        "version" => value.is_string(),
        "clock_source" => value.is_string() || value.is_null(),
        "clock_bound" => value.is_null(),
        "configured" => *value == -1,
        "refused_configuration" => value.is_null() || *value == -1,
        "initial" => *value == true,
        "reasons" => *value == json!([]),
        "lag" => value.is_null() || *value == -1,
        "status" | "health" | "active" | "outbox" | "outbox_bytes" | "received" | "late"
        | "quarantined" | "malformed" | "unmatched" => false,
        "partial" => *value == true,
        "metrics" => *value == json!({}),
        "unit" => value.is_string(),
        "deviation" => *value == 1e300,
        "sum" | "mean" | "min" | "max" | "first" | "last" | "sum_of_means" => value.is_number(),
        "schema" | "generation" | "revision" | "cause" | "samples" | "stamped" | "corrected"
        | "clock" | "kind" | "method" | "expected" | "coverage" | "gap" | "count" | "reporting"
        | "devices" | "length" | "sha256" | "withheld" | "record_base64" => false,
        _ => panic!("{kind} has a new field {field}: say what it may hold"),
    }
}

#[test]
fn a_message_that_has_everything_passes_and_every_wrong_value_in_it_is_refused() {
    let mut refused = 0;
    for (kind, message) in whole() {
        assert_eq!(CONTRACT.check_kind(kind, &message), Ok(()));
        let mut places: Vec<String> = keys(&message).map(|key| format!("/{key}")).collect();
        let metric = message.pointer("/metrics/power").unwrap_or(&Value::Null);
        places.extend(keys(metric).map(|key| format!("/metrics/power/{key}")));
        for place in places {
            let field = place.rsplit('/').next().expect("a name");
            for value in wrong() {
                let mut mutated = message.clone();
                *mutated.pointer_mut(&place).expect("it is there") = value.clone();
                let passes = CONTRACT.check_kind(kind, &mutated).is_ok();
                assert_eq!(passes, allowed(kind, field, &value), "{kind}{place} = {value}");
                refused += u32::from(!passes);
            }
        }
    }
    assert!(refused > 400, "only {refused} wrong values were refused");
}

fn keys(object: &Value) -> impl Iterator<Item = &String> {
    object.as_object().into_iter().flat_map(|fields| fields.keys())
}

#[test]
fn a_message_without_what_is_needed_is_refused_and_one_with_more_passes() {
    for (kind, message) in whole() {
        let schema = CONTRACT.schemas().find(|(name, _)| *name == kind).expect("it has one").1;
        let needed: Vec<_> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for field in keys(&message) {
            let mut without = message.clone();
            without.as_object_mut().expect("an object").remove(field);
            // Region and device come together, an offset with its method, one of the two forms of a record is there,
            // and so is all of a gateway that is online.
            let needed = needed.contains(&field.as_str())
                || field.starts_with("record")
                || field == "method"
                || kind == "status"
                || (kind == "quarantine" && ["region", "device"].contains(&field.as_str()));
            assert_eq!(
                CONTRACT.check_kind(kind, &without).is_err(),
                needed,
                "{kind} without {field}"
            );
        }
        let mut more = message.clone();
        more["colour"] = json!("blue");
        assert_eq!(
            CONTRACT.check_kind(kind, &more),
            Ok(()),
            "fields may be added within a version"
        );
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    let whole = whole();
    let mut both = whole["late"].clone();
    both["record_base64"] = json!("");
    assert!(CONTRACT.check_kind("late", &both).is_err(), "a record in two forms");
    let mut cut = whole["quarantine"].clone();
    cut.as_object_mut().expect("an object").remove("record_base64");
    cut["record"] = json!(1);
    assert!(CONTRACT.check_kind("quarantine", &cut).is_err(), "a cut record as JSON");
    let mut gone = whole["status"].clone();
    gone["status"] = json!("offline");
    assert!(CONTRACT.check_kind("status", &gone).is_err(), "offline without a reason");
    let mut coverage = whole["window"].clone();
    coverage["coverage"] = json!(1.001);
    assert!(CONTRACT.check_kind("window", &coverage).is_err(), "more than all slots");
    for topic in ["window/hour/north", "watermark/a/b", "quarantine/bad/meters", "weather/north"] {
        let kind = topic.split('/').next().expect("a level");
        let body = whole.get(kind).unwrap_or(&Value::Null);
        assert!(CONTRACT.check(topic, body).is_err(), "{topic}");
    }
    assert_eq!(CONTRACT.check("watermark", &whole["watermark"]), Ok(()));
    assert_eq!(CONTRACT.check("quarantine/past/meters", &whole["quarantine"]), Ok(()));
}

#[test]
fn every_line_of_the_morning_is_what_the_schemas_say() {
    let config =
        Config::from_toml(include_str!("../../examples/morning.toml")).expect("no mistake");
    let input = include_bytes!("../../examples/morning.jsonl");
    let mut output = Vec::new();
    replay(&config, &Lines::Recorded, input.as_slice(), &mut output, |_| {}).expect("replays");
    let mut kinds = BTreeMap::new();
    for line in String::from_utf8(output).expect("UTF-8").lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(CONTRACT.check_line(&line), Ok(()));
        *kinds.entry(line["type"].to_string()).or_insert(0) += 1;
    }
    assert!(kinds.len() >= 6, "{kinds:?}");
    let mut line =
        json!({ "type": "alert", "line": 0, "gateway": "gw", "region": "n", "device": "m" });
    line.as_object_mut()
        .expect("an object")
        .extend(whole()["alert"].as_object().expect("one").clone());
    assert!(CONTRACT.check_line(&line).is_err(), "lines are counted from 1");
    line["line"] = json!(1);
    assert_eq!(CONTRACT.check_line(&line), Ok(()));
    line.as_object_mut().expect("an object").remove("region");
    assert!(CONTRACT.check_kind(REPLAY_LINE, &line).is_err(), "an alert of no region");
}
