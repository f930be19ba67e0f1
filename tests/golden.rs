//! The cases of `tests/golden`: inputs with what a real Apache Flink answered (its README is the fine print).
//!
//! One runner turns `params.json` into an ordinary configuration, replays the input, renames fields, and compares every
//! field of every line. Nothing in `src/` knows a case.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use tidegate::config::Config;
use tidegate::replay::{Lines, replay};

#[path = "support/contract.rs"]
mod contract;

use contract::CONTRACT;

/// A case as it is on the disk.
struct Case {
    name: String,
    params: Value,
    input: Vec<u8>,
    expected: Answer,
}

/// What came out: windows, late records, watermarks.
#[derive(Debug, Default, PartialEq)]
struct Answer {
    windows: Vec<Value>,
    late: Vec<Value>,
    watermarks: Vec<Value>,
}

fn cases() -> Vec<Case> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut folders: Vec<PathBuf> = fs::read_dir(root)
        .expect("tests/golden is there")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders.iter().map(|folder| Case::read(folder)).collect()
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("readable");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

impl Case {
    fn read(folder: &Path) -> Self {
        Self {
            name: folder.file_name().expect("a name").to_string_lossy().into(),
            params: serde_json::from_slice(
                &fs::read(folder.join("params.json")).expect("readable"),
            )
            .expect("JSON"),
            input: fs::read(folder.join("input.jsonl")).expect("readable"),
            expected: Answer {
                windows: lines(&folder.join("expected_windows.jsonl")),
                late: lines(&folder.join("expected_late.jsonl")),
                watermarks: lines(&folder.join("expected_watermarks.jsonl")),
            },
        }
    }

    fn text(&self, field: &str) -> Option<&str> {
        self.params[field].as_str()
    }

    /// The configuration of an operator who wants this, in `scope`.
    fn configuration(&self, scope: &str) -> String {
        let watermark = &self.params["watermark"];
        let extra = 1 - watermark["subtract_ms"].as_i64().expect("a number");
        let window = &self.params["window"];
        let combine = match scope {
            "region" => format!("combine = {}\n", self.params["combine"]),
            _ => String::new(),
        };
        let mut toml = format!(
            "compat = \"flink\"\n[watermarks]\nscope = \"{scope}\"\n{combine}publish-interval = \"0s\"\n\
             [rollups]\nregions = false\n[defaults]\nallowed-lateness = \"{}ms\"\n\
             [[window]]\nname = \"w\"\nsize = \"{}ms\"\noffset = \"{}ms\"\n",
            self.params["allowed_lateness_ms"], window["size_ms"], window["offset_ms"],
        );
        for partition in self.params["partitions"].as_array().expect("a list") {
            // Without the extra millisecond is the same as with it and a bound one smaller.
            let lateness = partition["bound_ms"].as_i64().expect("a number") - extra;
            toml +=
                &format!("[[region]]\nname = {}\nlateness = \"{lateness}ms\"\n", partition["id"]);
        }
        let region = self
            .text("partition_field")
            .map_or("const:all".to_owned(), |field| format!("/{field}"));
        let key = self.text("key_field").expect("a key");
        toml += &format!(
            "[[source]]\nname = \"golden\"\ntopic = \"golden\"\nwindow = \"w\"\nkey = \"/{key}\"\nregion = \"{region}\"\n\
             time = {{ from = \"/ts\", as = \"epoch_ms\" }}\nidle = {{ from = \"/kind\", equals = \"idle\" }}\n",
        );
        if watermark["mode"] == "heartbeat" {
            toml += "heartbeat = { from = \"/kind\", equals = \"heartbeat\" }\n";
        }
        let value =
            self.text("value_field").map_or("const:1".to_owned(), |field| format!("/{field}"));
        toml += &metric("value", &value);
        if let Some(field) = self.text("first_last_field") {
            toml += &metric("ends", &format!("/{field}"));
        }
        toml
    }

    fn run(&self, scope: &str) -> Answer {
        let toml = self.configuration(scope);
        let config = Config::from_toml(&toml)
            .unwrap_or_else(|errors| panic!("{}: {errors}\n{toml}", self.name));
        let mut output = Vec::new();
        let lines = Lines::Payloads("golden".into());
        let outcome =
            replay(&config, &lines, self.input.as_slice(), &mut output, |_| {}).expect("replays");
        assert_eq!(outcome.bad, 0);
        let mut answer = Answer::default();
        for line in String::from_utf8(output).expect("UTF-8").lines() {
            let line: Value = serde_json::from_str(line).expect("JSON");
            assert_eq!(CONTRACT.check_line(&line), Ok(()), "{}", self.name);
            match line["type"].as_str() {
                Some("window") => answer.windows.push(self.window(&line)),
                Some("late") => answer.late.push(self.late(&line)),
                Some("watermark") if line["region"].is_null() => {
                    answer
                        .watermarks
                        .push(json!({ "seq": line["line"], "watermark": line["watermark"] }));
                }
                Some("watermark" | "alert") => {}
                other => panic!("{}: {other:?} in {line}", self.name),
            }
        }
        answer
    }

    fn window(&self, line: &Value) -> Value {
        let cause = match line["cause"].as_str() {
            Some("heartbeat" | "bounded" | "idle") => "watermark",
            Some(cause) => cause,
            None => panic!("no cause in {line}"),
        };
        let mut window = Map::new();
        let mut put = |name: &str, value: &Value| window.insert(name.to_owned(), value.clone());
        put(self.text("key_field").expect("a key"), &line["device"]);
        put("window_start", &line["start"]);
        put("window_end", &line["end"]);
        put("revision", &line["revision"]);
        put("count", &line["samples"]);
        if let Some(field) = self.text("value_field") {
            for aggregate in ["sum", "min", "max"] {
                put(&format!("{field}_{aggregate}"), &line["metrics"]["value"][aggregate]);
            }
        }
        if let Some(field) = self.text("first_last_field") {
            for aggregate in ["first", "last"] {
                put(&format!("{field}_{aggregate}"), &line["metrics"]["ends"][aggregate]);
            }
        }
        put("first_ts", &line["first_at"]);
        put("last_ts", &line["last_at"]);
        put("watermark", &line["watermark"]);
        put("cause", &cause.into());
        put("trigger_seq", &line["line"]);
        window.into()
    }

    fn late(&self, line: &Value) -> Value {
        json!({
            "seq": line["line"],
            self.text("key_field").expect("a key"): line["device"],
            "ts": line["time"],
            "window_start": line["start"],
            "window_end": line["end"],
            "watermark": line["watermark"],
            "record": line["record"],
        })
    }
}

fn metric(name: &str, from: &str) -> String {
    let aggregates = "[\"sum\", \"min\", \"max\", \"first\", \"last\"]";
    format!("[[source.metric]]\nname = \"{name}\"\nfrom = \"{from}\"\naggregates = {aggregates}\n")
}

/// The first difference, with what is around it.
fn compare(case: &str, what: &str, expected: &[Value], got: &[Value]) {
    for (at, (expected, got)) in expected.iter().zip(got).enumerate() {
        assert_eq!(got, expected, "{case}, {what} {at}");
    }
    assert_eq!(got.len(), expected.len(), "{case}: number of {what}s");
}

#[test]
fn every_case_is_answered_as_flink_answered_it() {
    let cases = cases();
    assert_eq!(cases.len(), 18);
    for case in &cases {
        let got = case.run("region");
        compare(&case.name, "watermark", &case.expected.watermarks, &got.watermarks);
        compare(&case.name, "late record", &case.expected.late, &got.late);
        compare(&case.name, "window", &case.expected.windows, &got.windows);
    }
}

/// The same inputs in device scope: a table of what is late in each, for people. A device waits for nobody and is hurt
/// by nobody, so nothing that is on time for the region is late for it.
#[test]
fn device_scope_calls_no_more_late_than_region_scope() {
    println!("{:<34}{:>8}{:>8}", "case", "region", "device");
    for case in cases() {
        let (region, device) = (case.run("region").late.len(), case.run("device").late.len());
        println!("{:<34}{region:>8}{device:>8}", case.name);
        let silent_holds = ["09", "10", "13", "14", "17"].iter().any(|n| case.name.starts_with(n));
        assert!(device <= region || silent_holds, "{}: {device} > {region}", case.name);
    }
}
