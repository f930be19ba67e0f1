//! The outbox against a model that is too simple to be wrong, and its store.

#![cfg(feature = "shell")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidegate::engine::checkpoint::Checkpoint;
use tidegate::event::Class;
use tidegate::ids::{Generation, OutboxSeq};
use tidegate::store::{Entry, MemoryDisk, MemoryStore, Outbox, Receipt, Store};
use tidegate::time::ArrivalTime;

const CLASSES: [Class; 7] = [
    Class::Malformed,
    Class::Quarantined,
    Class::Late,
    Class::Watermark,
    Class::Window,
    Class::Alert,
    Class::Presence,
];

fn disk() -> MemoryDisk {
    MemoryDisk::new(Generation(1), ArrivalTime(1))
}

fn entry(class: Class, length: usize, supersedes: Option<u64>) -> Entry {
    let queued = ArrivalTime(1_000);
    Entry { topic: "t".into(), payload: vec![b'x'; length], class, supersedes, queued }
}

/// What an entry counts against the quota.
fn cost(length: usize) -> u64 {
    length as u64 + 119
}

fn commit(outbox: &mut Outbox, store: &mut MemoryStore) -> Receipt {
    let batch = outbox.drain_changes().with_state(Checkpoint::default());
    store.commit(&batch).unwrap()
}

fn committed(outbox: &mut Outbox, store: &mut MemoryStore) {
    let receipt = commit(outbox, store);
    outbox.committed(receipt);
}

#[test]
fn the_oldest_entry_is_known_across_classes_and_a_restart() {
    let mut store = disk().open();
    let mut outbox = Outbox::load(&store, 10_000).unwrap();
    assert_eq!(outbox.oldest(), None);
    let times = [(Class::Window, 5_999), (Class::Late, 7_000), (Class::Alert, 6_000)];
    let seqs = times.map(|(class, at)| {
        outbox.append(Entry { queued: ArrivalTime(at), ..entry(class, 10, None) }).seq
    });
    committed(&mut outbox, &mut store);
    assert_eq!(outbox.oldest(), Some(ArrivalTime(5_000)));
    let mut outbox = Outbox::load(&store, 10_000).unwrap();
    assert_eq!(outbox.oldest(), Some(ArrivalTime(5_000)));
    outbox.acked(seqs[0]);
    assert_eq!(outbox.oldest(), Some(ArrivalTime(7_000)), "the oldest, not the earliest");
}

#[test]
fn an_entry_is_sent_only_after_its_commit() {
    let mut store = disk().open();
    let mut outbox = Outbox::load(&store, 10_000).unwrap();
    let first = outbox.append(entry(Class::Late, 10, None)).seq;
    assert_eq!(outbox.next_to_send(), None);
    let receipt = commit(&mut outbox, &mut store);
    let second = outbox.append(entry(Class::Late, 10, None)).seq;
    assert_eq!(outbox.next_to_send(), None, "the receipt has not come yet");
    outbox.committed(receipt);
    assert_eq!(outbox.next_to_send(), Some(first));
    assert_eq!(outbox.next_to_send(), None, "{second:?} came after the batch");
}

#[test]
fn a_lost_connection_sends_again_what_was_not_acknowledged_in_order() {
    let mut store = disk().open();
    let mut outbox = Outbox::load(&store, 10_000).unwrap();
    let seqs: Vec<_> =
        CLASSES.iter().rev().map(|class| outbox.append(entry(*class, 1, None)).seq).collect();
    committed(&mut outbox, &mut store);
    for seq in &seqs[..4] {
        assert_eq!(outbox.next_to_send(), Some(*seq));
    }
    assert!(outbox.acked(seqs[1]) && !outbox.acked(seqs[1]));
    assert_eq!(outbox.in_flight(), 3);
    outbox.rewind();
    assert_eq!(outbox.in_flight(), 0);
    let again: Vec<_> = std::iter::from_fn(|| outbox.next_to_send()).collect();
    assert_eq!(again, [&seqs[..1], &seqs[2..]].concat());
}

#[test]
fn an_unsent_revision_is_replaced_and_one_in_flight_is_not() {
    let mut store = disk().open();
    let mut outbox = Outbox::load(&store, 10_000).unwrap();
    let append = |outbox: &mut Outbox| outbox.append(entry(Class::Window, 1, Some(5)));
    let first = append(&mut outbox).seq;
    let second = append(&mut outbox);
    assert_eq!(second.superseded, Some(first));
    committed(&mut outbox, &mut store);
    assert_eq!(store.read(first).unwrap(), None, "it never reached the store");
    assert_eq!(outbox.next_to_send(), Some(second.seq));
    assert_eq!(append(&mut outbox).superseded, None);
    assert_eq!(outbox.len(), 2);
}

#[test]
fn the_least_valuable_class_goes_first_and_the_oldest_of_it() {
    let store = disk().open();
    let mut outbox = Outbox::load(&store, 3 * cost(100)).unwrap();
    let presence = outbox.append(entry(Class::Presence, 100, None)).seq;
    let late = outbox.append(entry(Class::Late, 100, None)).seq;
    let later = outbox.append(entry(Class::Late, 100, None)).seq;
    let window = outbox.append(entry(Class::Window, 100, None));
    assert_eq!(window.evicted, [(late, Class::Late)]);
    let malformed = outbox.append(entry(Class::Malformed, 100, None));
    assert_eq!(malformed.evicted, [(malformed.seq, Class::Malformed)], "itself");
    assert_eq!((outbox.evicted_of(Class::Late), outbox.evicted_of(Class::Malformed)), (1, 1));
    let lowered = outbox.set_quota(cost(100));
    assert_eq!(lowered, [(later, Class::Late), (window.seq, Class::Window)]);
    assert!(outbox.acked(presence) && outbox.is_empty());
}

#[test]
fn an_entry_larger_than_the_quota_drives_nobody_else_out() {
    let store = disk().open();
    let mut outbox = Outbox::load(&store, 500).unwrap();
    let _small = outbox.append(entry(Class::Malformed, 1, None));
    let large = outbox.append(entry(Class::Presence, 1_000, None));
    assert_eq!(large.evicted, [(large.seq, Class::Presence)]);
    assert_eq!(outbox.len(), 1);
}

#[test]
fn a_lower_quota_at_a_restart_evicts() {
    let disk = disk();
    let mut store = disk.open();
    let mut outbox = Outbox::load(&store, 10_000).unwrap();
    for class in CLASSES {
        outbox.append(entry(class, 100, None));
    }
    committed(&mut outbox, &mut store);
    let mut store = disk.open();
    let mut outbox = Outbox::load(&store, 2 * cost(100)).unwrap();
    assert_eq!((outbox.len(), outbox.len_of(Class::Presence)), (2, 1));
    committed(&mut outbox, &mut store);
    let mut left = 0;
    store.load_outbox(&mut |_, _| left += 1).unwrap();
    assert_eq!(left, 2);
}

/// One entry of the model, and all that is known of it.
#[derive(Clone, Debug)]
struct Known {
    seq: OutboxSeq,
    entry: Entry,
    in_flight: bool,
    durable: bool,
}

/// A list in order; everything is found by looking through it.
#[derive(Clone, Debug, Default)]
struct Model {
    entries: Vec<Known>,
    newest: BTreeMap<u64, OutboxSeq>,
    quota: u64,
}

impl Model {
    fn bytes(&self) -> u64 {
        self.entries.iter().map(|known| cost(known.entry.payload.len())).sum()
    }

    fn take(&mut self, seq: OutboxSeq) -> Option<Known> {
        let at = self.entries.iter().position(|known| known.seq == seq)?;
        Some(self.entries.remove(at))
    }

    fn append(&mut self, seq: OutboxSeq, entry: &Entry) -> (Option<OutboxSeq>, Vec<OutboxSeq>) {
        let older = entry.supersedes.and_then(|key| self.newest.insert(key, seq));
        let older = older.filter(|&older| {
            self.entries.iter().any(|known| known.seq == older && !known.in_flight)
        });
        older.map(|older| self.take(older));
        if cost(entry.payload.len()) > self.quota {
            return (older, [vec![seq], self.evict()].concat());
        }
        let entry = entry.clone();
        self.entries.push(Known { seq, entry, in_flight: false, durable: false });
        (older, self.evict())
    }

    fn evict(&mut self) -> Vec<OutboxSeq> {
        let mut evicted = Vec::new();
        while self.bytes() > self.quota {
            let candidates = self.entries.iter().filter(|known| !known.in_flight);
            let Some(least) = candidates.min_by_key(|known| (known.entry.class, known.seq)) else {
                break;
            };
            evicted.push(least.seq);
            self.take(least.seq);
        }
        evicted
    }

    fn next_to_send(&mut self) -> Option<OutboxSeq> {
        // Nothing overtakes: what is in flight is older than what is not.
        let next = self.entries.iter_mut().find(|known| !known.in_flight && known.durable)?;
        next.in_flight = true;
        Some(next.seq)
    }

    fn restart(&mut self) {
        self.newest.clear();
        for known in &mut self.entries {
            known.in_flight = false;
            if let Some(key) = known.entry.supersedes {
                self.newest.insert(key, known.seq);
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Append(usize, usize, Option<u64>),
    Send,
    Ack(usize),
    Rewind,
    Commit,
    Quota(u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..7_usize, 0..400_usize, prop::option::of(1..4_u64))
            .prop_map(|(class, length, key)| Step::Append(class, length, key)),
        4 => Just(Step::Send),
        3 => (0..4_usize).prop_map(Step::Ack),
        1 => Just(Step::Rewind),
        3 => Just(Step::Commit),
        1 => (300..3_000_u64).prop_map(Step::Quota),
        1 => Just(Step::Restart),
    ]
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() }
}

struct World {
    disk: MemoryDisk,
    store: MemoryStore,
    outbox: Outbox,
    model: Model,
    /// The model when the last commit was made.
    durable: Model,
}

impl World {
    fn new() -> Self {
        let disk = disk();
        let store = disk.open();
        let outbox = Outbox::load(&store, 2_000).unwrap();
        let model = Model { quota: 2_000, ..Model::default() };
        Self { disk, store, outbox, durable: model.clone(), model }
    }

    fn take(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Append(class, length, key) => {
                let entry = entry(CLASSES[class], length, key);
                let appended = self.outbox.append(entry.clone());
                let evicted = appended.evicted.iter().map(|(seq, _)| *seq).collect();
                let expected = self.model.append(appended.seq, &entry);
                prop_assert_eq!((appended.superseded, evicted), expected);
                let entries = &self.model.entries;
                let all_in_flight = entries.iter().all(|known| known.in_flight);
                prop_assert!(self.outbox.bytes() <= self.model.quota || all_in_flight);
            }
            Step::Send => {
                let seq = self.outbox.next_to_send();
                prop_assert_eq!(seq, self.model.next_to_send());
                if let Some(seq) = seq {
                    let stored = self.store.read(seq).unwrap();
                    prop_assert!(stored.is_some(), "only what is committed is sent");
                }
            }
            Step::Ack(nth) => {
                let in_flight = self.model.entries.iter().filter(|known| known.in_flight);
                let seq = in_flight.map(|known| known.seq).nth(nth);
                if let Some(seq) = seq {
                    prop_assert!(self.outbox.acked(seq));
                    self.model.take(seq);
                }
            }
            Step::Rewind => {
                self.outbox.rewind();
                self.model.entries.iter_mut().for_each(|known| known.in_flight = false);
            }
            Step::Commit => self.commit()?,
            Step::Quota(quota) => {
                let evicted = self.outbox.set_quota(quota);
                self.model.quota = quota;
                let evicted: Vec<_> = evicted.iter().map(|(seq, _)| *seq).collect();
                prop_assert_eq!(evicted, self.model.evict());
            }
            Step::Restart => {
                self.store = self.disk.open();
                self.durable.quota = self.model.quota;
                self.model = self.durable.clone();
                self.model.restart();
                self.outbox = Outbox::load(&self.store, self.model.quota).unwrap();
                self.model.evict();
            }
        }
        self.check()
    }

    fn commit(&mut self) -> Result<(), TestCaseError> {
        committed(&mut self.outbox, &mut self.store);
        prop_assert!(!self.outbox.has_changes());
        self.model.entries.iter_mut().for_each(|known| known.durable = true);
        self.durable = self.model.clone();
        let mut stored = Vec::new();
        self.store.load_outbox(&mut |seq, summary| stored.push((seq, summary))).unwrap();
        let entries = self.model.entries.iter();
        let expected: Vec<_> = entries.map(|known| (known.seq, known.entry.summary())).collect();
        prop_assert_eq!(stored, expected);
        Ok(())
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let entries = &self.model.entries;
        prop_assert_eq!(self.outbox.len(), entries.len());
        prop_assert_eq!(self.outbox.bytes(), self.model.bytes());
        let in_flight = entries.iter().filter(|known| known.in_flight).count();
        prop_assert_eq!(self.outbox.in_flight(), in_flight);
        Ok(())
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_outbox_and_its_store_do_what_a_simple_list_does(
        steps in prop::collection::vec(step(), 1..120)
    ) {
        let mut world = World::new();
        for step in &steps {
            world.take(step)?;
        }
    }
}
