//! Batches for a store whose every state can be told to be whole, and how far a store with them is.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]
#![allow(unreachable_pub, reason = "each test binary has it to itself")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use tidegate::engine::checkpoint::Checkpoint;
use tidegate::event::Class;
use tidegate::ids::{Generation, OutboxSeq};
use tidegate::store::recovery::{self, Opened};
use tidegate::store::{Batch, Entry, OpenOptions, Store, StoreError};
use tidegate::time::ArrivalTime;

/// For whatever must end.
pub const DEADLINE: Duration = Duration::from_secs(120);

pub fn options() -> OpenOptions {
    OpenOptions { new_generation: Generation(7), now: ArrivalTime(7) }
}

/// Opens a store on a thread of its own, so that one that hangs fails the test.
pub fn open(path: &Path) -> Result<Opened, StoreError> {
    let (sender, receiver) = channel();
    let path = path.to_owned();
    thread::spawn(move || drop(sender.send(Box::new(recovery::open(&path, options())))));
    *receiver.recv_timeout(DEADLINE).expect("opening ends, well or not")
}

/// The batch that brings everything to `count`: 20 short values, a long one of changing length, the
/// newest of ten outbox entries.
pub fn batch(count: u64) -> Batch {
    let bytes = count.to_be_bytes();
    let mut changes: Vec<_> =
        (0..20_u8).map(|key| (vec![key], Some(bytes.repeat(30 + usize::from(key))))).collect();
    changes.push((b"long".to_vec(), Some(bytes.repeat(1 + 600 * (count as usize % 5)))));
    let payload = bytes.repeat(1 + 300 * (count as usize % 7));
    let (topic, queued) = ("t".into(), ArrivalTime(1_000));
    let entry = Entry { topic, payload, class: Class::Window, supersedes: None, queued };
    Batch {
        state: Checkpoint { changes, ..Checkpoint::default() },
        append: vec![(OutboxSeq(count), entry)],
        delete: count.checked_sub(10).map(OutboxSeq).into_iter().collect(),
    }
}

pub fn state(store: &dyn Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut state = BTreeMap::new();
    let each = &mut |key: &[u8], value: &[u8]| drop(state.insert(key.to_vec(), value.to_vec()));
    store.load_state(each).unwrap();
    state
}

pub fn outbox(store: &dyn Store) -> Vec<OutboxSeq> {
    let mut outbox = Vec::new();
    store.load_outbox(&mut |seq, _| outbox.push(seq)).unwrap();
    outbox
}

/// How far the store is, after checking that all of it is exactly there.
pub fn whole_count(store: &dyn Store) -> u64 {
    let state = state(store);
    let Some(value) = state.get(&b"long"[..]) else {
        assert!(state.is_empty() && outbox(store).is_empty(), "half a batch");
        return 0;
    };
    let count = u64::from_be_bytes(value[..8].try_into().unwrap());
    let expected = batch(count).state.changes;
    assert!(expected.iter().all(|(key, value)| state.get(key) == value.as_ref()), "half a batch");
    let numbers: Vec<_> = (count.saturating_sub(9).max(1)..=count).map(OutboxSeq).collect();
    assert_eq!(outbox(store), numbers, "half a batch");
    for seq in numbers {
        assert_eq!(store.read(seq).unwrap().as_ref(), Some(&batch(seq.0).append[0].1));
    }
    count
}
