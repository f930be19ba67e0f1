//! The store against kills, damage, full disks and missing permissions.
//!
//! Children are this executable again, told by environment variables what to be.

#![cfg(feature = "shell")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

#[path = "support/batches.rs"]
mod batches;

use std::env;
use std::fs::{self, OpenOptions as FileOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use tidegate::event::Class;
use tidegate::ids::{Generation, OutboxSeq};
use tidegate::store::recovery::{self, Kept, Opened};
use tidegate::store::{Batch, Entry, OpenOptions, SledStore, Store, StoreError};
use tidegate::time::ArrivalTime;

use batches::{DEADLINE, batch, open, options, outbox, whole_count};

const STORE: &str = "TIDEGATE_TEST_STORE";

fn commit_up_to(path: &Path, last: u64) {
    let mut store = open(path).unwrap().store;
    for count in whole_count(&store) + 1..=last {
        let _ = store.commit(&batch(count)).unwrap();
    }
}

/// A child that runs one of the tests named `child_…` on a store.
struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    fn start(mut command: Command, path: &Path) -> Self {
        command.env(STORE, path).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            let lines = output.lines().map_while(Result::ok);
            lines.take_while(|line| sender.send(line.clone()).is_ok()).for_each(drop);
        });
        Self { child, lines }
    }

    fn of_this(name: &str) -> Command {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", name, "--nocapture", "--ignored"]);
        command
    }

    /// The next number that it said was committed.
    fn next_committed(&self) -> u64 {
        loop {
            let line = self.lines.recv_timeout(DEADLINE).expect("it goes on committing");
            if let Some(count) = line.strip_prefix("committed ") {
                return count.parse().unwrap();
            }
        }
    }

    /// Kills it with SIGKILL; returns the last number that it said was committed.
    fn kill(mut self) -> Option<u64> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let rest =
            self.lines.iter().filter_map(|line| line.strip_prefix("committed ")?.parse().ok());
        rest.last()
    }
}

#[test]
#[ignore = "a child of nothing_acknowledged_is_lost_and_no_batch_is_halved_by_kill_9"]
fn child_commits_until_killed() {
    let Some(path) = env::var_os(STORE).map(PathBuf::from) else { return };
    println!("\nopening");
    let Opened { mut store, recovered } = recovery::open(&path, options()).unwrap();
    assert_eq!(recovered, None);
    for count in whole_count(&store) + 1.. {
        let _ = store.commit(&batch(count)).unwrap();
        println!("committed {count}");
        std::io::stdout().flush().unwrap();
    }
}

#[test]
fn nothing_acknowledged_is_lost_and_no_batch_is_halved_by_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let mut random = fastrand::Rng::with_seed(0x7469_6465);
    let (mut acknowledged, mut ahead) = (0, 0);
    for kill in 0..40 {
        let process = Process::start(Process::of_this("child_commits_until_killed"), &path);
        let heard = if kill % 4 == 3 {
            // In the middle of opening.
            while process.lines.recv_timeout(DEADLINE).expect("it opens") != "opening" {}
            0
        } else {
            (1..random.u32(1..40)).for_each(|_| _ = process.next_committed());
            process.next_committed()
        };
        // A random moment of what it does next; it goes on meanwhile.
        let moment = Duration::from_micros(random.u64(0..4_000));
        let heard = process.lines.recv_timeout(moment).ok().map_or(heard, |line| {
            line.strip_prefix("committed ").map_or(heard, |count| count.parse().unwrap())
        });
        acknowledged = process.kill().unwrap_or(0).max(heard).max(acknowledged);
        let Opened { store, recovered } = open(&path).unwrap();
        assert_eq!(recovered, None, "kill {kill}");
        assert_eq!(store.generation(), Generation(7));
        let count = whole_count(&store);
        assert!(count >= acknowledged, "kill {kill}: {acknowledged} acknowledged, {count} there");
        ahead += count - acknowledged;
        acknowledged = count;
    }
    println!("{acknowledged} commits survived; {ahead} were durable and not yet told of");
}

#[test]
fn a_store_that_another_process_has_open_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let process = Process::start(Process::of_this("child_commits_until_killed"), &path);
    process.next_committed();
    assert!(matches!(open(&path), Err(StoreError::Locked { .. })));
    process.next_committed();
    process.kill();
    assert!(whole_count(&open(&path).unwrap().store) >= 2);
}

#[test]
fn a_snapshot_half_written_by_a_crash_does_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    commit_up_to(&path, 5);
    fs::write(path.join("snap.0000000000FFFFFF.generating"), b"half").unwrap();
    let Opened { store, recovered } = open(&path).unwrap();
    assert_eq!((recovered, whole_count(&store)), (None, 5));
}

#[test]
fn a_damaged_snapshot_is_moved_away_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    commit_up_to(&path, 5);
    drop(open(&path).unwrap());
    let snapshot = fs::read_dir(&path).unwrap().map(|file| file.unwrap().path());
    let snapshot = snapshot.into_iter().find(|file| file.to_string_lossy().contains("/snap."));
    fs::write(snapshot.expect("a snapshot is written at open"), b"nonsense of some length")
        .unwrap();
    let Opened { store, recovered } = open(&path).unwrap();
    let recovered = recovered.expect("it did not open as it was");
    assert_eq!(recovered.kept, Kept::Log);
    assert!(recovered.moved_to.ends_with("store.broken-1"));
    assert_eq!(whole_count(&store), 5);
}

/// What is done to the files of a store.
type Damage = fn(&Path);

fn overwrite(path: &Path, from: f64, to: f64, byte: impl Fn(usize) -> u8) {
    let file = FileOptions::new().write(true).open(path.join("db")).unwrap();
    let length = file.metadata().unwrap().len() as f64;
    let (from, to) = ((length * from) as usize, (length * to) as usize);
    let bytes: Vec<u8> = (from..to).map(byte).collect();
    file.write_all_at(&bytes, from as u64).unwrap();
}

fn truncate(file: &Path, share: f64) {
    let file = FileOptions::new().write(true).open(file).unwrap();
    let length = file.metadata().unwrap().len() as f64;
    file.set_len((length * share) as u64).unwrap();
}

const DAMAGES: [(&str, Damage); 9] = [
    ("db cut in half", |path| truncate(&path.join("db"), 0.5)),
    ("db cut to almost nothing", |path| truncate(&path.join("db"), 0.01)),
    ("db empty", |path| truncate(&path.join("db"), 0.0)),
    ("db zeroed", |path| overwrite(path, 0.0, 1.0, |_| 0)),
    ("db garbage", |path| overwrite(path, 0.0, 1.0, |at| (at * 31 % 251) as u8)),
    ("db garbage at the start", |path| overwrite(path, 0.0, 0.1, |at| (at * 31 % 251) as u8)),
    ("db garbage inside", |path| overwrite(path, 0.4, 0.6, |at| (at * 31 % 251) as u8)),
    ("conf garbage", |path| fs::write(path.join("conf"), [b'?'; 40]).unwrap()),
    ("conf empty", |path| fs::write(path.join("conf"), b"").unwrap()),
];

#[test]
fn a_damaged_store_is_moved_aside_and_rebuilt_with_what_can_be_read() {
    for (name, damage) in DAMAGES {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        commit_up_to(&path, 400);
        damage(&path);
        deaths_until_it_works(name, &path);
    }
}

#[test]
fn a_torn_conf_is_moved_away_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    commit_up_to(&path, 5);
    fs::write(path.join("conf"), [b'?'; 40]).unwrap();
    let Opened { store, recovered } = open(&path).unwrap();
    assert_eq!(recovered.map(|recovered| recovered.kept), Some(Kept::Log));
    assert_eq!(whole_count(&store), 5);
}

#[test]
fn a_bounded_number_of_damaged_stores_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    for _ in 0..recovery::KEEP_BROKEN + 2 {
        drop(open(&path).unwrap());
        truncate(&path.join("db"), 0.0);
    }
    drop(open(&path).unwrap());
    let mut left: Vec<_> =
        fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["store", "store.broken-3", "store.broken-4", "store.broken-5"]);
}

#[test]
fn a_rebuild_cut_short_by_a_crash_is_finished_or_thrown_away() {
    let dir = tempfile::tempdir().unwrap();
    let (path, rebuilding) = (dir.path().join("store"), dir.path().join("store.rebuilding"));
    commit_up_to(&rebuilding, 3);
    assert_eq!(whole_count(&open(&path).unwrap().store), 3, "the old one was moved already");
    commit_up_to(&rebuilding, 2);
    assert_eq!(whole_count(&open(&path).unwrap().store), 3, "the old one is still there");
    assert!(!rebuilding.exists());
}

#[test]
#[ignore = "a child of a_directory_without_permission_is_said_to_be_so"]
fn child_tells_why_it_cannot_open() {
    let Some(path) = env::var_os(STORE).map(PathBuf::from) else { return };
    let error = SledStore::open(&path, options()).err().unwrap();
    println!("\nerror {error}");
}

#[test]
fn a_directory_without_permission_is_said_to_be_so() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let readable = dir.path().join("readable");
    commit_up_to(&readable, 1);
    fs::set_permissions(&readable, fs::Permissions::from_mode(0o555)).unwrap();
    // Root is not bound by permissions: become somebody else.
    let as_nobody = |path: &Path| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command.arg(env::current_exe().unwrap());
        command.args(["--exact", "child_tells_why_it_cannot_open", "--nocapture", "--ignored"]);
        let output = command.env(STORE, path).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().find_map(|line| Some(line.strip_prefix("error ")?.to_owned()))
    };
    if as_nobody(Path::new("/dev/null")).is_none() {
        eprintln!("skipped: cannot become another user");
        return;
    }
    for path in [dir.path().join("missing"), readable] {
        let error = as_nobody(&path).expect("it says why");
        assert!(error.contains("permission denied"), "{}: {error}", path.display());
    }
}

/// A file system of its own in memory, unmounted at the end.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` where mounting is not allowed.
    fn mount(at: &Path, options: &str) -> Option<Self> {
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(at).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success()).then(|| Self(at.to_owned()))
    }

    fn remount(&self, options: &str) {
        let mut command = Command::new("mount");
        command.args(["-o", &format!("remount,{options}")]).arg(&self.0);
        assert!(command.status().unwrap().success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_fails_the_commit_and_loses_nothing_that_was_committed() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(dir.path(), "size=8m") else {
        eprintln!("skipped: cannot mount");
        return;
    };
    let path = dir.path().join("store");
    let mut store = open(&path).unwrap().store;
    let fill = |seq: OutboxSeq| {
        let payload = vec![b'x'; 100_000];
        let (topic, queued) = ("t".into(), ArrivalTime(1_000));
        let entry = Entry { topic, payload, class: Class::Late, supersedes: None, queued };
        Batch { append: vec![(seq, entry)], ..Batch::default() }
    };
    let error = loop {
        if let Err(error) = store.commit(&fill(store.next_seq())) {
            break error;
        }
    };
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error:?}");
    assert!(matches!(store.commit(&Batch::default()), Err(StoreError::Poisoned)));
    let committed = store.next_seq().0 - 2;
    drop(store);
    let error = open(&path).err().expect("there is no room to open it");
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error:?}");
    disk.remount("size=32m");
    let Opened { store, recovered } = open(&path).unwrap();
    assert_eq!(recovered, None);
    assert!(outbox(&store).len() as u64 >= committed);
}

#[test]
fn a_read_only_file_system_is_said_to_be_so() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(dir.path(), "size=8m") else {
        eprintln!("skipped: cannot mount");
        return;
    };
    let path = dir.path().join("store");
    drop(open(&path).unwrap());
    disk.remount("ro");
    for path in [path, dir.path().join("missing")] {
        let error = open(&path).err().expect("it cannot be written");
        assert!(matches!(error, StoreError::ReadOnly { .. }), "{error:?}");
    }
}

#[test]
#[ignore = "a child of the tests of damage"]
fn child_opens_what_is_damaged() {
    let Some(path) = env::var_os(STORE).map(PathBuf::from) else { return };
    let Opened { mut store, recovered } = recovery::open(&path, options()).unwrap();
    if let Some(recovered) = recovered {
        assert!(recovered.moved_to.is_dir());
        assert!(recovered.cause.contains("damaged"));
    }
    let seq = store.next_seq();
    let next = Batch { append: vec![(seq, batch(1).append[0].1.clone())], ..Batch::default() };
    let _ = store.commit(&next).unwrap();
    let generation = store.generation();
    drop(store);
    let again = OpenOptions { new_generation: Generation(8), ..options() };
    let Opened { store, recovered } = recovery::open(&path, again).unwrap();
    // sled may find only now that a log is cut, and then the commit is lost: see `recovery`.
    match recovered {
        None => assert!(store.read(seq).unwrap().is_some(), "lost in silence"),
        Some(_) => assert_ne!(store.generation(), generation),
    }
}

/// Starts a process on a damaged store, and again as systemd would when it dies or hangs, until one
/// opens it, commits, and has the commit after a reopen (or says that it was damaged once more).
/// Returns how many died.
fn deaths_until_it_works(name: &str, path: &Path) -> u32 {
    // sled can walk a loop of pages until memory is exhausted; not that of this machine.
    let limited = r#"ulimit -v 2000000; exec "$0" "$@""#;
    for deaths in 0..=recovery::UNFINISHED_OPENS + 1 {
        let mut command = Command::new("sh");
        command.args(["-c", limited]).arg(env::current_exe().unwrap());
        command.args(["--exact", "child_opens_what_is_damaged", "--nocapture", "--ignored"]);
        command.env(STORE, path).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut errors = child.stderr.take().unwrap();
        let (sender, ended) = channel();
        thread::spawn(move || {
            let mut text = String::new();
            let _ = errors.read_to_string(&mut text);
            let _ = sender.send(text);
        });
        let text = ended.recv_timeout(Duration::from_secs(60)).unwrap_or_default();
        let _ = child.kill();
        match child.wait().unwrap().code() {
            Some(0) => return deaths,
            Some(code) => panic!("{name}: exit {code}\n{text}"),
            None => {}
        }
    }
    panic!("{name}: every start dies");
}

/// Copies the files of a closed store.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for file in fs::read_dir(from).unwrap().map(Result::unwrap) {
        if file.file_type().unwrap().is_file() {
            fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
}

#[test]
fn damage_anywhere_leaves_a_store_that_opens_and_loses_nothing_more_in_silence() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    commit_up_to(&whole, 400);
    let mut random = fastrand::Rng::with_seed(2);
    let rounds = env::var("TIDEGATE_TEST_ROUNDS").map_or(40, |rounds| rounds.parse().unwrap());
    let mut died = 0;
    for round in 0..rounds {
        let path = dir.path().join(format!("store-{round}"));
        copy(&whole, &path);
        let (at, seed) = (random.f64(), random.usize(1..200));
        match round % 4 {
            0 => truncate(&path.join("db"), at),
            _ => overwrite(&path, at, (at + 0.004).min(1.0), |at| (at * seed % 251) as u8),
        }
        died += u32::from(deaths_until_it_works(&round.to_string(), &path) > 0);
        fs::remove_dir_all(&path).unwrap();
    }
    println!("{died} of {rounds} stores took more than one start");
}
