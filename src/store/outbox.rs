//! What waits to be sent: an index in memory over the entries in the store.
//!
//! The index knows numbers, sizes and classes; payloads stay on the disk and are read when they are
//! sent. An entry is in one of these states, and moves right:
//!
//! ```text
//!   appended ─ drained into a batch ─ committed ─ in flight ─ acknowledged (gone)
//!                                        ↑             │
//!                                        └── rewind ───┘
//! ```
//!
//! - Only committed entries are sent: what is sent and then forgotten in a crash could be decided
//!   differently the next time. Numbers only grow, so one bound (`durable_end`) tells them apart;
//!   it moves only by the [`Receipt`] of a commit.
//! - They are sent in order of their numbers, so what is in flight is what lies below one bound
//!   (`unsent`). What is in flight is neither replaced nor evicted.
//! - An entry that is not in flight is replaced by a newer revision of the same thing.
//! - When the quota is exceeded the least valuable class goes first, and in it the oldest. That may
//!   be the new entry itself.
//!
//! After a failed commit the outbox is as worthless as the store: load it again.

use std::collections::BTreeMap;

use super::entry::{CLASSES, Entry, Summary};
use super::error::StoreError;
use super::{Batch, Receipt, Store};
use crate::engine::checkpoint::Checkpoint;
use crate::event::Class;
use crate::ids::OutboxSeq;
use crate::time::ArrivalTime;

/// What an entry costs besides its bytes: keys, and its place in memory (53 bytes, 81 where it
/// supersedes).
const OVERHEAD: u64 = 96;

/// The outbox. Every operation takes time logarithmic in the number of entries.
#[derive(Debug)]
pub struct Outbox {
    quota: u64,
    bytes: u64,
    /// Entries below are in flight or gone.
    unsent: u64,
    /// Entries below are committed.
    durable_end: u64,
    /// The number of the next entry.
    next: u64,
    in_flight: usize,
    classes: [BTreeMap<u64, Slot>; CLASSES.len()],
    /// The newest entry about a thing (see [`Entry::supersedes`]), while it is there.
    newest: BTreeMap<u64, u64>,
    evicted: [u64; CLASSES.len()],
    /// Appended, in no batch yet.
    append: BTreeMap<OutboxSeq, Entry>,
    /// In the store, to be deleted.
    delete: Vec<OutboxSeq>,
}

/// One entry, small: there may be hundreds of thousands.
#[derive(Clone, Copy, Debug)]
struct Slot {
    size: u32,
    /// The two halves of a number (0: none), which whole would be padded.
    supersedes: [u32; 2],
    /// When it was appended, in seconds since the epoch; 0 where nobody knows.
    queued: u32,
}

/// What became of an entry and of others on its account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Its number.
    pub seq: OutboxSeq,
    /// The unsent revision that it replaced.
    pub superseded: Option<OutboxSeq>,
    /// What had to go; the new entry itself may be among them.
    pub evicted: Vec<(OutboxSeq, Class)>,
}

/// What the next batch must hold so that the store follows the outbox.
#[must_use = "changes that are drained and not committed are lost"]
#[derive(Debug, Default, PartialEq)]
pub struct Changes {
    /// New entries, in order.
    pub append: Vec<(OutboxSeq, Entry)>,
    /// Entries acknowledged, replaced or evicted.
    pub delete: Vec<OutboxSeq>,
}

impl Changes {
    /// The batch that commits them together with the engine's state.
    pub fn with_state(self, state: Checkpoint) -> Batch {
        Batch { state, append: self.append, delete: self.delete }
    }
}

impl Outbox {
    /// The outbox of `store`, nothing in flight, held below `quota` bytes.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn load(store: &dyn Store, quota: u64) -> Result<Self, StoreError> {
        let mut outbox = Self::empty(store.next_seq(), quota);
        store.load_outbox(&mut |seq, summary| outbox.insert(seq, summary))?;
        outbox.evict();
        Ok(outbox)
    }

    fn empty(next: OutboxSeq, quota: u64) -> Self {
        Self {
            quota,
            bytes: 0,
            unsent: 0,
            durable_end: next.0,
            next: next.0,
            in_flight: 0,
            classes: Default::default(),
            newest: BTreeMap::new(),
            evicted: [0; CLASSES.len()],
            append: BTreeMap::new(),
            delete: Vec::new(),
        }
    }

    /// Takes an entry in. It is sent once the batch it goes into is committed.
    pub fn append(&mut self, entry: Entry) -> Appended {
        let seq = OutboxSeq(self.next);
        self.next += 1;
        let summary = entry.summary();
        let superseded = summary.supersedes.and_then(|key| self.supersede(key));
        self.insert(seq, summary);
        self.append.insert(seq, entry);
        let evicted = self.make_room(seq, summary);
        Appended { seq, superseded, evicted }
    }

    /// The oldest entry that is committed and not in flight; it is in flight from now on. Read it
    /// from the store and hand it to the client.
    pub fn next_to_send(&mut self) -> Option<OutboxSeq> {
        let waiting = self.unsent..self.durable_end.max(self.unsent);
        let first = |slots: &BTreeMap<u64, Slot>| slots.range(waiting.clone()).next().map(first);
        let seq = self.classes.iter().filter_map(first).min()?;
        self.unsent = seq + 1;
        self.in_flight += 1;
        Some(OutboxSeq(seq))
    }

    /// Ends an entry: its own acknowledgement came, or it was refused for good. Returns whether it
    /// was there; a second acknowledgement is no error.
    pub fn acked(&mut self, seq: OutboxSeq) -> bool {
        let found = CLASSES.into_iter().find(|&class| self.slots(class).contains_key(&seq.0));
        if let Some(class) = found {
            self.in_flight -= usize::from(seq.0 < self.unsent);
            self.remove(seq.0, class);
        }
        found.is_some()
    }

    /// The connection is lost: what was in flight is to be sent again, from the oldest. Where that
    /// is more than the quota, the next [`Self::append`] evicts.
    pub fn rewind(&mut self) {
        self.unsent = 0;
        self.in_flight = 0;
    }

    /// Holds the outbox below `quota` bytes from now on, and returns what has to go for it.
    pub fn set_quota(&mut self, quota: u64) -> Vec<(OutboxSeq, Class)> {
        self.quota = quota;
        self.evict()
    }

    /// Whether the store has something to be told.
    pub fn has_changes(&self) -> bool {
        !self.append.is_empty() || !self.delete.is_empty()
    }

    /// Entries that the next batch appends or deletes.
    pub fn changes(&self) -> usize {
        self.append.len() + self.delete.len()
    }

    /// Takes what has changed since the last time, for the next batch.
    pub fn drain_changes(&mut self) -> Changes {
        let append = std::mem::take(&mut self.append).into_iter().collect();
        Changes { append, delete: std::mem::take(&mut self.delete) }
    }

    /// The batch of this receipt is durable: what it appended may be sent.
    #[expect(clippy::needless_pass_by_value, reason = "a receipt is used once")]
    pub fn committed(&mut self, receipt: Receipt) {
        let end = receipt.appended_end.map_or(0, |end| end.0);
        self.durable_end = self.durable_end.max(end);
    }

    /// Entries in it.
    pub fn len(&self) -> usize {
        self.classes.iter().map(BTreeMap::len).sum()
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// When the oldest entry was appended. `None` where there is none, or nobody knows.
    pub fn oldest(&self) -> Option<ArrivalTime> {
        let oldest = |slots: &BTreeMap<u64, Slot>| {
            slots.first_key_value().map(|(seq, slot)| (*seq, slot.queued))
        };
        let (_, queued) = self.classes.iter().filter_map(oldest).min()?;
        (queued != 0).then_some(ArrivalTime(i64::from(queued) * 1_000))
    }

    /// What it may hold, in bytes.
    pub fn quota(&self) -> u64 {
        self.quota
    }

    /// What counts against the quota, in bytes: topics, payloads, and 118 bytes for each entry.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Entries handed out and not acknowledged.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Entries of one class.
    pub fn len_of(&self, class: Class) -> usize {
        self.slots(class).len()
    }

    /// Entries of one class evicted since the outbox was loaded.
    pub fn evicted_of(&self, class: Class) -> u64 {
        self.evicted[class as usize]
    }

    /// Entries evicted since the outbox was loaded.
    pub fn evicted(&self) -> u64 {
        self.evicted.iter().sum()
    }

    fn slots(&self, class: Class) -> &BTreeMap<u64, Slot> {
        &self.classes[class as usize]
    }

    fn insert(&mut self, seq: OutboxSeq, summary: Summary) {
        let Summary { size, class, supersedes, queued } = summary;
        let key = supersedes.unwrap_or(0);
        if key != 0 {
            self.newest.insert(key, seq.0);
        }
        self.bytes += u64::from(size) + OVERHEAD;
        self.classes[class as usize].insert(seq.0, Slot::new(size, key, queued));
    }

    /// Removes the newest entry about `key` unless it is in flight.
    fn supersede(&mut self, key: u64) -> Option<OutboxSeq> {
        let seq = *self.newest.get(&key)?;
        let unsent = seq >= self.unsent;
        let class = CLASSES.into_iter().find(|&class| self.slots(class).contains_key(&seq))?;
        unsent.then(|| self.remove(seq, class))
    }

    fn make_room(&mut self, seq: OutboxSeq, new: Summary) -> Vec<(OutboxSeq, Class)> {
        let mut evicted = Vec::new();
        if u64::from(new.size) + OVERHEAD > self.quota {
            // It fits into no outbox: nothing else has to go for it.
            self.evicted[new.class as usize] += 1;
            evicted.push((self.remove(seq.0, new.class), new.class));
        }
        evicted.extend(self.evict());
        evicted
    }

    fn evict(&mut self) -> Vec<(OutboxSeq, Class)> {
        let mut evicted = Vec::new();
        while self.bytes > self.quota {
            let Some((seq, class)) = self.least_valuable() else { break };
            self.evicted[class as usize] += 1;
            evicted.push((self.remove(seq, class), class));
        }
        evicted
    }

    fn least_valuable(&self) -> Option<(u64, Class)> {
        let oldest = |class| self.slots(class).range(self.unsent..).next().map(first);
        CLASSES.into_iter().find_map(|class| Some((oldest(class)?, class)))
    }

    /// Takes an entry out, and out of the store with the next batch.
    fn remove(&mut self, seq: u64, class: Class) -> OutboxSeq {
        let slot = self.classes[class as usize].remove(&seq).expect("the caller found it");
        self.bytes -= u64::from(slot.size) + OVERHEAD;
        if self.newest.get(&slot.key()) == Some(&seq) {
            self.newest.remove(&slot.key());
        }
        let seq = OutboxSeq(seq);
        if self.append.remove(&seq).is_none() {
            self.delete.push(seq);
        }
        seq
    }
}

impl Slot {
    fn new(size: u32, key: u64, queued: u32) -> Self {
        Self { size, supersedes: [(key >> 32) as u32, key as u32], queued }
    }

    fn key(self) -> u64 {
        u64::from(self.supersedes[0]) << 32 | u64::from(self.supersedes[1])
    }
}

fn first((seq, _): (&u64, &Slot)) -> u64 {
    *seq
}
