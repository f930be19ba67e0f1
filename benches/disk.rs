//! Bytes that reach the disk, at full speed and in a quiet place.
//!
//! The store has a disk of its own: an ext4 image on a loop device (needs root), whose counter of written sectors
//! nobody else moves. `write_bytes` of the agent stands beside it; the file system's journal is not in that.
//!
//! `SECONDS` of the fast run (120), `MINUTES` of the quiet one (6) and `FASTER` (1: by how much interval, rate and
//! windows of the quiet run are sped up) in the environment; `--quick` for a short form, sped up.

#![allow(
    clippy::disallowed_methods,
    reason = "a bench measures real time and waits for real processes"
)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::agent::Agent;
use common::broker::Broker;
use common::publisher::{now_ms, publish};

fn main() {
    println!(
        "{:<34}{:>10}{:>9}{:>14}{:>14}{:>12}",
        "", "messages", "commits", "disk B/msg", "process B/msg", "goal"
    );
    if std::env::var_os("QUIET_ONLY").is_none() {
        fast();
    }
    quiet();
}

/// 1,000 messages a second of 1,000 devices.
fn fast() {
    let seconds = common::size("SECONDS", 120, 20);
    // Memory of duplicates full, log of the store round once: as it is after days.
    let warm_up = common::size("WARM_UP", 400_000, 50_000);
    let run = Run {
        devices: 1_000,
        messages: 1_000 * seconds,
        rate: 1_000.0,
        warm_up,
        more: "[[window]]\nname = \"hour\"\nsize = \"1h\"".into(),
    };
    let written = run.measure();
    let per_message = |bytes: u64| bytes as f64 / run.messages as f64;
    println!(
        "{:<34}{:>10}{:>9}{:>14.0}{:>14.0}{:>12}",
        "1,000/s of 1,000 devices",
        run.messages,
        written.commits,
        per_message(written.disk),
        per_message(written.process),
        "≤ 400 B"
    );
}

/// 100 messages a minute of 100 devices.
fn quiet() {
    let faster = common::size("FASTER", 1, 10);
    let messages = 100 * common::size("MINUTES", 6, 6);
    let millis = |of: u64| of * 1_000 / faster;
    let run = Run {
        devices: 100,
        messages,
        rate: faster as f64 * 100.0 / 60.0,
        warm_up: common::size("QUIET_WARM_UP", 2_000, 2_000),
        more: format!(
            "store.commit-interval = \"{}ms\"\nwatermarks.publish-interval = \"{}ms\"\n\
             [[window]]\nname = \"hour\"\nsize = \"{}ms\"",
            millis(10),
            millis(60),
            millis(3_600)
        ),
    };
    let written = run.measure();
    let per_message = |bytes: u64| bytes as f64 / messages as f64;
    println!(
        "{:<34}{messages:>10}{:>9}{:>14.0}{:>14.0}",
        "100/min of 100 devices",
        written.commits,
        per_message(written.disk),
        per_message(written.process)
    );
    let a_day = |bytes: u64| per_message(bytes) * 100.0 * 60.0 * 24.0 / 1e6;
    println!(
        "{:<34}{:>10}{:>9}{:>11.0} MB{:>11.0} MB{:>12}",
        format!("  a day of it ({faster} × faster)"),
        144_000,
        8_640,
        a_day(written.disk),
        a_day(written.process),
        "≤ 300 MB"
    );
}

struct Run {
    devices: u64,
    messages: u64,
    rate: f64,
    warm_up: u64,
    more: String,
}

struct Written {
    disk: u64,
    process: u64,
    commits: usize,
}

impl Run {
    fn measure(&self) -> Written {
        let directory = common::directory();
        let directory = directory.path();
        let disk = Disk::mount(directory);
        let (broker, central) =
            (Broker::start(directory, "devices"), Broker::start(directory, "central"));
        let mut agent =
            Agent::start(directory, &disk.mounted.join("store"), &broker, &central, &self.more);
        publish(broker.port, self.warm_up, self.devices, f64::INFINITY, |_| now_ms());
        agent.wait_until_committed(self.warm_up);
        std::thread::sleep(Duration::from_secs(2));
        let (disk_before, process_before, commits) =
            (disk.written(), written_by(&agent), agent.commits.len());
        publish(broker.port, self.messages, self.devices, self.rate, |_| now_ms());
        agent.wait_until_committed(self.warm_up + self.messages);
        Written {
            process: written_by(&agent) - process_before,
            disk: disk.written() - disk_before,
            commits: agent.commits.len() - commits,
        }
    }
}

fn written_by(agent: &Agent) -> u64 {
    common::proc_number(agent.pid(), "io", "write_bytes")
}

/// An ext4 image on a loop device, gone when dropped.
struct Disk {
    device: String,
    mounted: PathBuf,
}

impl Disk {
    fn mount(directory: &Path) -> Self {
        let (image, mounted) = (directory.join("disk.img"), directory.join("disk"));
        fs::create_dir(&mounted).expect("writable");
        fs::File::create(&image).and_then(|file| file.set_len(512 << 20)).expect("room");
        let image = image.display().to_string();
        // Tables are written now, not lazily in the background of the measurement.
        run("mkfs.ext4", &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", &image]);
        let device = run("losetup", &["--find", "--show", &image]).trim().to_owned();
        let disk = Self { device, mounted };
        let options = std::env::var("MOUNT").unwrap_or_else(|_| "noatime".into());
        run("mount", &["-o", &options, &disk.device, &disk.mounted.display().to_string()]);
        disk
    }

    /// Bytes written to the device so far, all that is on its way included.
    fn written(&self) -> u64 {
        run("sync", &["-f", &self.mounted.display().to_string()]);
        let name = self.device.rsplit('/').next().expect("a name");
        let stat = fs::read_to_string(format!("/sys/block/{name}/stat")).expect("it is there");
        let sectors = stat.split_ascii_whitespace().nth(6).expect("the seventh");
        sectors.parse::<u64>().expect("a number") * 512
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        run("umount", &[&self.mounted.display().to_string()]);
        run("losetup", &["--detach", &self.device]);
    }
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("it is installed");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?} (needs root): {error}");
    String::from_utf8(output.stdout).expect("text")
}
