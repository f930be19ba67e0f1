//! What the benches share: processes, brokers, meters, and what the kernel counts of them.

#![allow(dead_code, unreachable_pub, reason = "each bench uses its part")]

pub mod agent;
pub mod broker;
pub mod meters;
pub mod publisher;

use std::fs;
use std::path::PathBuf;

/// An argument that asks for the short form.
pub fn quick() -> bool {
    std::env::args().any(|argument| argument == "--quick")
}

/// A number from the environment, else `full`, or `short` in the quick form.
pub fn size(variable: &str, full: u64, short: u64) -> u64 {
    let default = if quick() { short } else { full };
    std::env::var(variable).map_or(default, |text| text.parse().expect("a whole number"))
}

/// A directory for files of benches, on a real disk.
pub fn directory() -> tempfile::TempDir {
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    tempfile::Builder::new()
        .prefix("bench-")
        .tempdir_in(root)
        .expect("the target directory is writable")
}

/// The agent: the release build of this tree, or what `TIDEGATE` names, to compare with another one.
pub fn binary() -> PathBuf {
    std::env::var_os("TIDEGATE")
        .map_or_else(|| env!("CARGO_BIN_EXE_tidegate").into(), PathBuf::from)
}

/// The middle of `values`; the mean of the two in the middle when they are even.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

/// The value below which a share of the others lies.
pub fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (values.len() as f64 * share).ceil() as usize;
    values.get(at.clamp(1, values.len().max(1)) - 1).copied().unwrap_or(f64::NAN)
}

/// `/proc/PID/stat` counts in these, on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

fn stat(pid: &str) -> Vec<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process is there");
    let fields = text.rsplit(')').next().expect("its name ends").split_ascii_whitespace();
    fields.map(|field| field.parse().unwrap_or(0)).collect()
}

/// User and system time of a process, all its threads, in seconds.
pub fn cpu(pid: u32) -> f64 {
    let stat = stat(&pid.to_string());
    (stat[11] + stat[12]) as f64 / TICKS_PER_SECOND
}

/// The same of this process.
pub fn own_cpu() -> f64 {
    cpu(std::process::id())
}

/// The same of the children that this process has waited for.
pub fn waited_cpu() -> f64 {
    let stat = stat("self");
    (stat[13] + stat[14]) as f64 / TICKS_PER_SECOND
}

/// A line of a file in `/proc/PID` that reads `key: number …`.
pub fn proc_number(pid: u32, file: &str, key: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).expect("the process is there");
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let number = line.and_then(|rest| rest.split_ascii_whitespace().next());
    number.and_then(|number| number.parse().ok()).expect("a number")
}
