//! The store and the power: what was acknowledged is there after a cut at any moment, whatever the disk had not yet
//! written, and after a disk that failed.

#![cfg(feature = "shell")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]
#![allow(missing_docs, unreachable_pub, reason = "tests are sentences")]

#[path = "../support/batches.rs"]
mod batches;
mod disk;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fastrand::Rng;
use tidegate::ids::Generation;
use tidegate::store::recovery::Opened;
use tidegate::store::{Batch, Store, StoreError};

use batches::{batch, open, whole_count};
use disk::{Contents, Disk, Left, Watch};

/// `None`, and why, where no file system can be mounted.
fn mounted(contents: Contents, watch: Watch) -> Option<Disk> {
    let mounted = Disk::mount(contents, watch);
    if let Err(error) = &mounted {
        eprintln!("skipped: no file system can be mounted through /dev/fuse: {error}");
    }
    mounted.ok()
}

fn unwatched() -> Watch {
    Box::new(|_, _| {})
}

/// How far a store on this disk is, all of it whole. It goes on from there.
fn carries_on(contents: Contents, at_least: u64, what: &str) {
    let disk = mounted(contents, unwatched()).expect("one was mounted already");
    let Opened { mut store, recovered } = open(&disk.store()).unwrap();
    let count = whole_count(&store);
    assert!(count >= at_least, "{what}: {at_least} acknowledged, {count} there");
    // Before the first acknowledgement there is nothing to lose.
    if at_least > 0 {
        assert_eq!(recovered, None, "{what}");
        assert_eq!(store.generation(), Generation(7), "{what}");
    }
    let _ = store.commit(&batch(count + 1)).unwrap();
    drop(store);
    assert_eq!(whole_count(&open(&disk.store()).unwrap().store), count + 1, "{what}");
}

/// The disk at a moment, with what had been acknowledged.
type Moment = (u64, u64, Contents);

/// Commits so often, in two lives; the disk at some moments between.
fn moments(commits: u64, rng: &mut Rng) -> Option<Vec<Moment>> {
    let acknowledged = Arc::new(AtomicU64::new(0));
    let moments: Arc<Mutex<Vec<Moment>>> = Arc::default();
    let (mut next, mut draw, seen) = (1, rng.fork(), (acknowledged.clone(), moments.clone()));
    let watch = move |operation, contents: &Contents| {
        if operation == next {
            let (acknowledged, moments) = &seen;
            let count = acknowledged.load(Ordering::SeqCst);
            moments.lock().unwrap().push((operation, count, contents.clone()));
            next += draw.u64(1..20);
        }
    };
    let disk = mounted(Contents::default(), Box::new(watch))?;
    for until in [commits / 2, commits] {
        let mut store = open(&disk.store()).unwrap().store;
        for count in whole_count(&store) + 1..=until {
            let _ = store.commit(&batch(count)).unwrap();
            acknowledged.store(count, Ordering::SeqCst);
        }
    }
    let moments = std::mem::take(&mut *moments.lock().unwrap());
    Some(moments)
}

#[test]
fn whenever_the_power_is_cut_nothing_acknowledged_is_lost() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = Rng::with_seed(seed);
    let commits = if std::env::var_os("TIDEGATE_LONG").is_some() { 400 } else { 40 };
    let Some(moments) = moments(commits, &mut rng) else { return };
    assert!(moments.iter().filter(|(_, acknowledged, _)| *acknowledged > 0).count() > 5);
    for (operation, acknowledged, contents) in &moments {
        for left in Left::EACH {
            let what =
                format!("cut before operation {operation}, of what was not synced: {left:?}");
            carries_on(contents.after_a_power_cut(left, &mut rng), *acknowledged, &what);
        }
    }
    println!("{} cuts", moments.len() * Left::EACH.len());
}

/// A store with ten commits on a disk that then fails; the power goes, too.
fn fails(fail: impl Fn(&Disk), is_expected: impl Fn(&StoreError) -> bool) {
    let Some(disk) = mounted(Contents::default(), unwatched()) else { return };
    let mut store = open(&disk.store()).unwrap().store;
    commit(&mut store, 1..=10).unwrap();
    fail(&disk);
    let (failed, next) = (commit(&mut store, 11..=100), store.commit(&Batch::default()));
    let contents = disk.contents();
    // sled panics where it cannot sync while it is dropped.
    disk.mend();
    drop((store, disk));
    let error = failed.expect_err("the disk has failed");
    assert!(is_expected(&error), "{error:?}");
    assert!(matches!(next, Err(StoreError::Poisoned)));
    let mut rng = Rng::with_seed(1);
    for left in Left::EACH {
        let what = format!("{error:?}, of what was not synced: {left:?}");
        carries_on(contents.after_a_power_cut(left, &mut rng), 10, &what);
    }
}

fn commit(store: &mut impl Store, counts: std::ops::RangeInclusive<u64>) -> Result<(), StoreError> {
    counts.into_iter().try_for_each(|count| store.commit(&batch(count)).map(drop))
}

#[test]
fn a_disk_that_does_not_sync_fails_the_commit() {
    fails(Disk::fail_syncs, |error| matches!(error, StoreError::Io { .. }));
}

#[test]
fn a_disk_that_is_full_in_the_middle_of_a_commit_fails_it() {
    for writes in 0..3 {
        fails(
            |disk| disk.leave_room_for(writes),
            |error| matches!(error, StoreError::DiskFull { .. }),
        );
    }
}
