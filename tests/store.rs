//! The store on disk: what is committed is there after a reopen, what is wrong is said clearly.

#![cfg(feature = "shell")]
#![allow(clippy::disallowed_methods, reason = "deadlines of the test itself")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use tidegate::config::{Config, Mode};
use tidegate::engine::Engine;
use tidegate::engine::checkpoint::Checkpoint;
use tidegate::engine::effect::Effects;
use tidegate::engine::input::{Ingress, Input, Publish, Topic};
use tidegate::engine::loss::Loss;
use tidegate::engine::restore::Restorer;
use tidegate::event::{Class, Output};
use tidegate::ids::{Generation, OutboxSeq};
use tidegate::store::{
    Batch, Entry, Fault, Kept, MemoryDisk, OpenOptions, Opened, SledStore, Store, StoreError,
    Summary, recovery,
};
use tidegate::time::{ArrivalTime, ClockStatus, MonoTime, Now};

fn options(generation: u64) -> OpenOptions {
    OpenOptions { new_generation: Generation(generation), now: ArrivalTime(generation as i64) }
}

fn open(path: &Path) -> SledStore {
    SledStore::open(path, options(7)).unwrap()
}

fn open_error(path: &Path) -> StoreError {
    SledStore::open(path, options(7)).err().expect("it must not open")
}

fn put(key: &[u8], value: &[u8]) -> Batch {
    let changes = vec![(key.to_vec(), Some(value.to_vec()))];
    Batch { state: Checkpoint { changes, ..Checkpoint::default() }, ..Batch::default() }
}

fn entry(length: usize) -> Entry {
    let payload = (0..length).map(|at| (at / 7) as u8).collect();
    let (topic, queued) = ("t/1".into(), ArrivalTime(9_000));
    Entry { topic, payload, class: Class::Window, supersedes: Some(9), queued }
}

type Contents = (BTreeMap<Vec<u8>, Vec<u8>>, Vec<(OutboxSeq, Summary)>, Vec<Entry>, OutboxSeq);

fn contents(store: &dyn Store) -> Contents {
    let (mut state, mut outbox) = (BTreeMap::new(), Vec::new());
    let mut keys = Vec::new();
    let each = &mut |key: &[u8], value: &[u8]| {
        keys.push(key.to_vec());
        state.insert(key.to_vec(), value.to_vec());
    };
    store.load_state(each).unwrap();
    store.load_outbox(&mut |seq, summary| outbox.push((seq, summary))).unwrap();
    assert!(keys.is_sorted() && outbox.is_sorted_by_key(|(seq, _)| *seq));
    let entries = outbox.iter().map(|(seq, _)| store.read(*seq).unwrap().unwrap()).collect();
    (state, outbox, entries, store.next_seq())
}

#[test]
fn a_missing_directory_is_created_for_its_owner_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b");
    drop(open(&path));
    assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn generation_and_creation_time_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let store = SledStore::open(dir.path(), options(8)).unwrap();
    assert_eq!((store.generation(), store.created()), (Generation(7), ArrivalTime(7)));
}

#[test]
fn a_long_value_is_read_back_whole_and_leaves_nothing_when_it_shrinks() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let long: Vec<u8> = (0..50_000_u32).map(|at| at as u8).collect();
    for length in [50_000, 4_097, 4_096, 8_192, 0] {
        let _ = store.commit(&put(b"log", &long[..length])).unwrap();
        assert_eq!(contents(&store).0[&b"log"[..]], &long[..length]);
    }
    drop(store);
    assert_eq!(contents(&open(dir.path())).0[&b"log"[..]], b"");
}

#[test]
fn an_entry_of_256_kib_comes_back_whole_and_goes_whole() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let (seq, large) = (store.next_seq(), entry(256 * 1024));
    let batch = Batch { append: vec![(seq, large.clone())], ..Batch::default() };
    let _ = store.commit(&batch).unwrap();
    drop(store);
    let mut store = open(dir.path());
    assert_eq!(store.read(seq).unwrap(), Some(large));
    let _ = store.commit(&Batch { delete: vec![seq], ..Batch::default() }).unwrap();
    drop(store);
    let store = open(dir.path());
    assert_eq!(store.read(seq).unwrap(), None);
    assert!(store.next_seq() > seq, "numbers go on although the outbox is empty");
}

#[test]
fn a_store_in_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let _store = open(dir.path());
    assert!(matches!(open_error(dir.path()), StoreError::Locked { .. }));
}

#[test]
fn a_file_in_the_way_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(open_error(&file), StoreError::NotADirectory { .. }));
    assert!(matches!(open_error(&file.join("below")), StoreError::NotADirectory { .. }));
    let text = recovery::open(&file, options(1)).err().unwrap().to_string();
    assert!(text.contains("not a directory"), "{text}");
}

#[test]
fn after_a_failed_commit_every_call_fails_until_it_is_reopened() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let too_long = put(&[0; 2_000], b"");
    assert!(matches!(store.commit(&too_long), Err(StoreError::KeyTooLong { .. })));
    assert_poisoned(&mut store);
    drop(store);
    let _ = open(dir.path()).commit(&put(b"key", b"value")).unwrap();
}

fn assert_poisoned(store: &mut dyn Store) {
    let poisoned = |error| matches!(error, StoreError::Poisoned);
    assert!(store.commit(&put(b"key", b"")).is_err_and(poisoned));
    assert!(store.commit(&Batch::default()).is_err_and(poisoned));
    assert!(store.load_state(&mut |_, _| ()).is_err_and(poisoned));
    assert!(store.load_outbox(&mut |_, _| ()).is_err_and(poisoned));
    assert!(store.read(OutboxSeq(1)).is_err_and(poisoned));
}

#[test]
fn an_injected_fault_fails_one_commit_before_or_after_applying_it() {
    let disk = MemoryDisk::new(Generation(1), ArrivalTime(1));
    for (fault, there) in [(Fault::BeforeApplying, false), (Fault::AfterApplying, true)] {
        let mut store = disk.open();
        disk.fail_commit(2, fault);
        let _ = store.commit(&put(b"first", b"")).unwrap();
        assert!(matches!(store.commit(&put(b"second", b"")), Err(StoreError::Injected)));
        assert_poisoned(&mut store);
        let mut store = disk.open();
        assert_eq!(contents(&store).0.contains_key(&b"second"[..]), there);
        let _ = store.commit(&put(b"third", b"")).unwrap();
    }
}

/// Changes the files of a closed store behind its back.
fn tamper(path: &Path, tree: &str, change: impl FnOnce(&sled::Tree)) {
    let deadline = Instant::now() + Duration::from_secs(10);
    let db = loop {
        // sled lets go of its lock a moment after it is closed.
        match sled::open(path) {
            Err(error) if Instant::now() > deadline => panic!("{error}"),
            Err(_) => thread::yield_now(),
            Ok(db) => break db,
        }
    };
    change(&db.open_tree(tree).unwrap());
    db.flush().unwrap();
}

#[test]
fn a_newer_format_is_refused_and_nothing_is_moved() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    drop(open(&path));
    tamper(&path, "meta", |meta| drop(meta.insert("format", &[0, 2]).unwrap()));
    let error = recovery::open(&path, options(8)).err().expect("it is refused");
    assert!(matches!(error, StoreError::NewerFormat { found: 2, supported: 1, .. }), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_store_that_a_newer_program_noted_is_not_taken_for_a_damaged_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    drop(open(&path));
    fs::write(path.join("written-by"), "tidegate 9.8.7, store format 9, records 1\n").unwrap();
    // Another database altogether.
    fs::write(path.join("db"), b"tree".repeat(4_096)).unwrap();
    let files = || fs::read_dir(&path).unwrap().count();
    let before = files();
    let error = recovery::open(&path, options(8)).err().expect("it is refused");
    assert!(matches!(error, StoreError::Newer { .. }), "{error}");
    assert_eq!((files(), fs::read_dir(dir.path()).unwrap().count()), (before, 1));
}

#[test]
fn what_is_whole_in_a_damaged_store_is_carried_over_to_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let mut store = open(&path);
    for key in 0..100_u8 {
        let mut batch = put(&[key], &[key; 9_000]);
        batch.append.push((store.next_seq(), entry(usize::from(key) * 100)));
        let _ = store.commit(&batch).unwrap();
    }
    let _ = store.commit(&Batch { delete: vec![OutboxSeq(100)], ..Batch::default() }).unwrap();
    let (mut state, outbox, entries, next_seq) = contents(&store);
    drop(store);
    tamper(&path, "state", |tree| drop(tree.remove([1, 50, 0, 2]).unwrap()));
    let Opened { store, recovered } = recovery::open(&path, options(8)).unwrap();
    let recovered = recovered.unwrap();
    assert_eq!(recovered.kept, Kept::Part { state: 99, outbox: 99 });
    assert!(recovered.cause.contains("chunk 2 of 2 is missing"), "{}", recovered.cause);
    assert_eq!(recovered.moved_to, path.canonicalize().unwrap().with_extension("broken-1"));
    state.remove(&[50][..]);
    assert_eq!(contents(&store), (state, outbox, entries, next_seq));
    assert_eq!(store.generation(), Generation(8), "nothing it says contradicts the old one");
}

#[test]
fn a_store_that_may_have_gone_back_begins_a_new_life_and_what_began_before_is_partial() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let _ = open(&path).commit(&put(b"key", b"value")).unwrap();
    fs::write(path.join("conf"), [b'?'; 40]).unwrap();
    let Opened { store, recovered } = recovery::open(&path, options(8)).unwrap();
    assert_eq!(recovered.unwrap().kept, Kept::Log);
    assert_eq!((store.generation(), store.created()), (Generation(8), ArrivalTime(8)));
    drop(store);
    let store = SledStore::open(&path, options(9)).unwrap();
    assert_eq!((store.generation(), store.created()), (Generation(8), ArrivalTime(8)));
}

const METERS: &str = r#"
gateway.id = "gw"
[[source]]
name = "meters"
topic = "m/{region}/{device}"
time = { from = "/ts", as = "epoch_ms" }
heartbeat = { from = "/beat", equals = true }
metric = [{ name = "power", from = "/power", aggregates = ["sum"] }]
"#;
const NOON: i64 = 1_795_953_600_000;
const HOUR: i64 = 3_600_000;

/// Three devices, one message each; returns what is told.
fn hear(engine: &mut Engine, time: i64, field: &str) -> Vec<Output> {
    let now = Now { wall: ArrivalTime(time), mono: MonoTime(time - NOON) };
    let mut effects = Effects::default();
    engine.handle(Input::Clock(ClockStatus::EXACT), now, &mut effects);
    engine.handle(Input::Ingress(Ingress::CaughtUp), now, &mut effects);
    for device in 0..3 {
        let topic = format!("m/north/m-{device}");
        let payload = format!(r#"{{"ts":{time},{field}}}"#);
        let (topic, payload) = (Topic::Name(&topic), payload.as_bytes());
        let publish = Publish { topic, payload, retain: false, dup: false };
        engine.handle(Input::Publish(publish), now, &mut effects);
    }
    engine.books().balance();
    effects.outputs
}

fn commit_state(store: &mut SledStore, engine: &mut Engine) {
    let batch = Batch { state: engine.checkpoint(), ..Batch::default() };
    let _ = store.commit(&batch).unwrap();
}

fn restore(store: &SledStore, config: &Config) -> (Engine, Vec<Loss>) {
    let settings = config.settings(Mode::Run);
    let mut restorer = Restorer::new(settings, store.generation(), store.created());
    store.load_state(&mut |key, value| restorer.take(key, value).unwrap()).unwrap();
    let losses = restorer.losses();
    (restorer.finish(), losses)
}

#[test]
fn a_device_that_a_damaged_store_lost_is_left_out_and_the_others_are_carried_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let config = Config::from_toml(METERS).unwrap_or_else(|errors| panic!("{errors}"));
    let mut store = SledStore::open(&path, options(7)).unwrap();
    let (mut engine, losses) = restore(&store, &config);
    assert_eq!(losses, []);
    hear(&mut engine, NOON + 1, r#""power":1.5"#);
    commit_state(&mut store, &mut engine);
    drop(store);
    let identity_of_the_second = [0, 4, 0, 0, 0, 1];
    tamper(&path, "state", |tree| {
        assert!(tree.insert(identity_of_the_second, b"?").unwrap().is_some());
    });

    let mended = OpenOptions { new_generation: Generation(8), now: ArrivalTime(NOON + 2) };
    let Opened { mut store, recovered } = recovery::open(&path, mended).unwrap();
    assert!(matches!(recovered.unwrap().kept, Kept::Part { .. }));
    let (mut engine, losses) = restore(&store, &config);
    assert_eq!(losses, [Loss::Device("number 1".into())]);
    assert_eq!((engine.generation(), engine.books().lost), (Generation(8), 1));
    commit_state(&mut store, &mut engine);
    hear(&mut engine, NOON + 1, r#""power":1.5"#);
    assert_eq!(engine.books().duplicate, 3, "the memory outlives the generation");
    let told = hear(&mut engine, NOON + HOUR, r#""beat":true"#);
    let hours = told.iter().filter_map(|output| match output {
        Output::Window(it) => Some((it.device.as_str(), it.firing.samples, it.firing.partial)),
        _ => None,
    });
    let partial = true; // the hour began before this store did
    assert_eq!(hours.collect::<Vec<_>>(), [("m-0", 1, partial), ("m-2", 1, partial)]);
    commit_state(&mut store, &mut engine);
    let (engine, losses) = restore(&store, &config);
    assert_eq!((engine.device_count(), losses), (3, vec![]));
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, usize),
    Remove(u8),
    Append(usize),
    Delete(usize),
    Commit,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let length = prop_oneof![3 => 0..300_usize, 1 => 4_000..20_000_usize];
    prop_oneof![
        4 => (0..6_u8, length.clone()).prop_map(|(key, length)| Step::Put(key, length)),
        2 => (0..6_u8).prop_map(Step::Remove),
        3 => length.prop_map(Step::Append),
        2 => (0..8_usize).prop_map(Step::Delete),
        3 => Just(Step::Commit),
        1 => Just(Step::Reopen),
    ]
}

/// Adds a step to a batch; a key occurs once in it.
fn plan(step: &Step, batch: &mut Batch, next: &mut u64) {
    let mut change = |key: u8, value| {
        let key = vec![0; key.into()];
        batch.state.changes.retain(|(other, _)| *other != key);
        batch.state.changes.push((key, value));
    };
    match *step {
        Step::Put(key, length) => change(key, Some(entry(length).payload)),
        Step::Remove(key) => change(key, None),
        Step::Append(length) => {
            batch.append.push((OutboxSeq(*next), entry(length)));
            *next += 1;
        }
        Step::Delete(back) => batch.delete.push(OutboxSeq(next.saturating_sub(back as u64 + 3))),
        Step::Commit | Step::Reopen => {}
    }
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_store_on_disk_holds_what_the_one_in_memory_holds(
        steps in prop::collection::vec(step(), 1..40)
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut model = MemoryDisk::new(Generation(7), ArrivalTime(7)).open();
        let mut store = open(dir.path());
        let (mut batch, mut next) = (Batch::default(), 1);
        for step in &steps {
            plan(step, &mut batch, &mut next);
            if matches!(step, Step::Commit) {
                let batch = std::mem::take(&mut batch);
                prop_assert_eq!(store.commit(&batch).unwrap(), model.commit(&batch).unwrap());
                prop_assert_eq!(contents(&store), contents(&model));
            }
            if matches!(step, Step::Reopen) {
                drop(store);
                store = open(dir.path());
                prop_assert_eq!(contents(&store), contents(&model));
            }
        }
    }
}

#[test]
fn a_range_of_keys_is_read_in_order_and_only_as_far_as_asked() {
    let dir = tempfile::tempdir().unwrap();
    let disk = MemoryDisk::new(Generation(7), ArrivalTime(7));
    let stores: [Box<dyn Store>; 2] = [Box::new(open(dir.path())), Box::new(disk.open())];
    for mut store in stores {
        let keys = [&[10, 9][..], &[11], &[11, 1], &[11, 2], &[11, 255, 255], &[12], &[255]];
        let value = |key: &[u8]| [key, &[7; 9_000]].concat();
        let changes = keys.iter().map(|key| (key.to_vec(), Some(value(key)))).collect();
        let state = Checkpoint { changes, ..Checkpoint::default() };
        let _ = store.commit(&Batch { state, ..Batch::default() }).unwrap();
        for (from, asked, expected) in
            [(&[11][..], 9, 1..5), (&[11, 1, 0], 9, 3..5), (&[11], 2, 1..3)]
        {
            let mut found = Vec::new();
            let each = &mut |key: &[u8], it: &[u8]| {
                assert_eq!(it, value(key));
                found.push(key.to_vec());
                found.len() < asked
            };
            store.scan_state(from..&[12], each).unwrap();
            assert_eq!(found, keys[expected]);
        }
    }
}

/// Ten meters that say what they used, in the minute after noon, to an agent that does not know the time.
fn dark_minute(store: &mut dyn Store, config: &Config) {
    let mut engine = restored(store, config);
    let now = |ms: i64| Now { wall: ArrivalTime(ms), mono: MonoTime(ms) };
    let mut effects = Effects::default();
    engine.handle(Input::Boot(9), now(0), &mut effects);
    for at in 0..60 {
        let topic = format!("m/north/m-{}", at % 10);
        let payload = if at < 30 {
            format!(r#"{{"ts":{},"power":1}}"#, NOON + at * 1_000)
        } else {
            format!(r#"{{"power":{at}}}"#)
        };
        let (topic, payload) = (Topic::Name(&topic), payload.as_bytes());
        let publish = Publish { topic, payload, retain: false, dup: false };
        engine.handle(Input::Publish(publish), now(at * 1_000), &mut effects);
    }
    assert!(effects.outputs.is_empty() && engine.books().held == 60);
    let _ = store.commit(&Batch { state: engine.checkpoint(), ..Batch::default() }).unwrap();
}

fn restored(store: &dyn Store, config: &Config) -> Engine {
    let settings = config.settings(Mode::Run);
    let mut restorer = Restorer::new(settings, store.generation(), store.created());
    store.load_state(&mut |key, value| restorer.take(key, value).unwrap()).unwrap();
    assert_eq!(restorer.losses(), []);
    restorer.finish()
}

/// The time is known. Goes through what is held, seven messages in a commit; fails where the store does, and says how
/// many commits it made.
fn light(store: &mut dyn Store, config: &Config) -> Result<(Engine, u32), StoreError> {
    let mut engine = restored(store, config);
    let now = Now { wall: ArrivalTime(NOON + 70_000), mono: MonoTime(70_000) };
    let (mut effects, mut commits) = (Effects::default(), 0);
    engine.handle(Input::Boot(9), now, &mut effects);
    engine.handle(Input::Clock(ClockStatus::EXACT), now, &mut effects);
    while let Some(wanted) = engine.held_wanted() {
        let mut found = Vec::new();
        store.scan_state(&wanted.start..&wanted.end, &mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            found.len() < 7
        })?;
        for (key, value) in &found {
            engine.handle(Input::Held { key, value }, now, &mut effects);
            engine.books().balance();
        }
        if found.len() < 7 {
            engine.handle(Input::HeldEnd, now, &mut effects);
        }
        let _ = store.commit(&Batch { state: engine.checkpoint(), ..Batch::default() })?;
        commits += 1;
    }
    Ok((engine, commits))
}

fn all_is_there(engine: &Engine, store: &dyn Store) {
    let books = engine.books();
    assert_eq!((books.received, books.decoded, books.held), (60, 60, 0));
    assert_eq!((books.aggregated, books.stamped, books.duplicate), (60, 30, 0));
    let mut left = 0;
    store
        .scan_state(&[11]..&[12], &mut |_, _| {
            left += 1;
            true
        })
        .unwrap();
    assert_eq!(left, 0, "nothing of it is left in the store");
}

#[test]
fn a_crash_at_any_commit_while_held_messages_are_processed_loses_none_and_counts_none_twice() {
    let config = Config::from_toml(METERS).unwrap_or_else(|errors| panic!("{errors}"));
    let disk = || {
        let disk = MemoryDisk::new(Generation(7), ArrivalTime(7));
        dark_minute(&mut disk.open(), &config);
        disk
    };
    let steady = disk();
    let (engine, commits) = light(&mut steady.open(), &config).unwrap();
    all_is_there(&engine, &steady.open());
    assert!(commits > 8);
    for nth in 1..=u64::from(commits) {
        for fault in [Fault::BeforeApplying, Fault::AfterApplying] {
            let disk = disk();
            disk.fail_commit(nth, fault);
            assert!(light(&mut disk.open(), &config).is_err());
            let (engine, _) = light(&mut disk.open(), &config).unwrap();
            all_is_there(&engine, &disk.open());
        }
    }
}

#[test]
fn what_is_held_on_disk_survives_a_reopen_and_a_mended_store() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let config = Config::from_toml(METERS).unwrap_or_else(|errors| panic!("{errors}"));
    dark_minute(&mut open(&path), &config);
    fs::write(path.join("conf"), [b'?'; 40]).unwrap();
    let Opened { mut store, recovered } = recovery::open(&path, options(8)).unwrap();
    assert!(recovered.is_some());
    let (engine, _) = light(&mut store, &config).unwrap();
    all_is_there(&engine, &store);
}
