//! What outlives the process: the engine's state and the outbox, committed together.
//!
//! # What is durable when
//!
//! A [`Batch`] is everything that one stretch of messages caused: changed state, outputs to be
//! sent, outputs that were sent. [`Store::commit`] returns after all of it is on the disk, and a
//! crash at any point leaves either all of it or none. Only then may the agent acknowledge the
//! messages and send the outputs; the [`Receipt`] is what lets the [`Outbox`] hand them out.
//!
//! ```text
//!   engine decides ─ 1 transaction over the trees ─ 2 sled flush ─ 3 fdatasync(db) ─ 4 acknowledge
//! ```
//!
//! | crash | what a restart finds | what happens |
//! |---|---|---|
//! | before 1 ends | the state before the batch | the broker delivers again, nothing was sent |
//! | between 1 and 3 | all of the batch, or nothing | the same, or the copies are duplicates |
//! | between 3 and 4 | all of the batch | the same |
//! | after a sending, before its delete | the entry | it is sent again under the same identity |
//!
//! Step 3 is ours because sled 0.34 hands its log to the kernel with `sync_file_range`, which
//! neither writes the file's size nor empties the disk's write cache: after `flush` alone a power
//! cut loses batches or leaves a file that does not open. For the same reason the `conf` file and
//! the directory entries are synced once after every open.
//!
//! # What the trees hold
//!
//! `state` (keys and values of the engine, opaque here), `outbox` (by sequence number), `meta`
//! (format version, generation, when the store was created, the next sequence number). They are
//! updated by one transaction; one batch per tree would not be atomic together. One tree with one
//! batch writes a tenth less, but under the larger load below its file grew to 498 MB in 3,000
//! commits, while that of the three trees stays at 5 MB. Values longer than 4 KiB are spread over
//! several keys ([`keys`]): sled puts a page longer than a quarter of its segment into a file of
//! its own that it never syncs, a leaf holds up to 17 items, and 17 × 4 KiB stays below.
//!
//! # What it writes
//!
//! Bytes that reach the device, ext4's journal included:
//!
//! | commit | contents | written |
//! |---|---|---|
//! | 17 messages of 100 devices, 136 bytes of duplicate memory | 2.8 KB | 18 KB |
//! | the same, 4 KB of duplicate memory | 6.8 KB | 26 KB |
//! | 5,000 messages of 1,000 devices, 40 KB of duplicate memory | 191 KB | 0.52 MB |
//! | the same, no duplicate memory | 151 KB | 0.37 MB |
//!
//! with a record of 40 bytes and one of 90 for each device heard of, and one of 300 for all.
//! Entries of 250 bytes, 2,000 waiting, a million in all: the file stays below 8 MB.
//!
//! # When something fails
//!
//! After a failed commit nobody knows which of the two states is on the disk, and sled goes on
//! showing data that is not there. The store is *poisoned*: every later call fails with
//! [`StoreError::Poisoned`]. Drop it, open it again and restore the engine from it; carrying on
//! from memory would acknowledge what was never written. A store that cannot be opened is repaired
//! or moved aside and rebuilt by [`recovery`].

pub mod entry;
pub mod error;
pub mod keys;
mod log;
pub mod memory;
pub mod outbox;
pub mod ownership;
pub mod recovery;
mod salvage;
pub mod sled;
pub mod subscriptions;
mod trees;
pub mod writer;

pub use self::entry::{Entry, Summary};
pub use self::error::StoreError;
pub use self::memory::{Fault, MemoryDisk, MemoryStore};
pub use self::outbox::{Appended, Changes, Outbox};
pub use self::recovery::{Kept, Opened, Recovered};
pub use self::sled::{OpenOptions, SledStore};
pub use self::subscriptions::Subscriptions;

use std::ops::Range;

use crate::engine::checkpoint::Checkpoint;
use crate::ids::{Generation, OutboxSeq};
use crate::time::ArrivalTime;

/// What one commit makes durable: all of it or none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Changes of the engine's state.
    pub state: Checkpoint,
    /// New outbox entries, in order of their numbers.
    pub append: Vec<(OutboxSeq, Entry)>,
    /// Outbox entries that are done with. Deleting one that is not there is no error.
    pub delete: Vec<OutboxSeq>,
}

impl Batch {
    /// One past the highest number it appends.
    fn append_end(&self) -> Option<OutboxSeq> {
        self.append.iter().map(|(seq, _)| OutboxSeq(seq.0.saturating_add(1))).max()
    }

    /// Whether there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.state.changes.is_empty() && self.append.is_empty() && self.delete.is_empty()
    }
}

/// Proof that a batch is durable. Only a store makes one; [`Outbox::committed`] takes it.
#[must_use = "without it the outbox does not send what was committed"]
#[derive(Debug, PartialEq, Eq)]
pub struct Receipt {
    /// One past the highest entry that the batch appended.
    appended_end: Option<OutboxSeq>,
}

impl Receipt {
    fn of(batch: &Batch) -> Self {
        Self { appended_end: batch.append_end() }
    }
}

/// Where state and outbox are kept. Not shared: one agent owns it.
pub trait Store: Send {
    /// The life of this store, drawn when it was created.
    fn generation(&self) -> Generation;

    /// When it was created: windows that began before are partial.
    fn created(&self) -> ArrivalTime;

    /// Calls `each` with every key and value of the engine's state, in ascending order of keys.
    ///
    /// # Errors
    /// The store is poisoned, damaged, or the disk cannot be read.
    fn load_state(&self, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), StoreError>;

    /// Calls `each` with the keys and values of the engine's state that lie in `keys`, in ascending order, until it
    /// returns false: a part of what may be too much to be read at once.
    ///
    /// # Errors
    /// As [`Self::load_state`].
    fn scan_state(
        &self,
        keys: Range<&[u8]>,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError>;

    /// Calls `each` with every outbox entry, payloads left out, in ascending order of numbers.
    ///
    /// # Errors
    /// As [`Self::load_state`].
    fn load_outbox(&self, each: &mut dyn FnMut(OutboxSeq, Summary)) -> Result<(), StoreError>;

    /// The number that the next appended entry gets; higher than any committed so far.
    fn next_seq(&self) -> OutboxSeq;

    /// Reads one outbox entry whole; `None` if it is not (or no longer) there.
    ///
    /// # Errors
    /// As [`Self::load_state`].
    fn read(&self, seq: OutboxSeq) -> Result<Option<Entry>, StoreError>;

    /// Makes `batch` durable: all of it, or none of it and the store is poisoned.
    ///
    /// # Errors
    /// The disk is full or failing, or the store is poisoned. Nothing of it may be acknowledged.
    fn commit(&mut self, batch: &Batch) -> Result<Receipt, StoreError>;
}

fn check_key(key: &[u8]) -> Result<(), StoreError> {
    let (length, limit) = (key.len(), keys::MAX_KEY);
    if length > limit { Err(StoreError::KeyTooLong { length, limit }) } else { Ok(()) }
}

fn check_value(value: Option<&[u8]>) -> Result<(), StoreError> {
    let (length, limit) = (value.map_or(0, <[u8]>::len), keys::MAX_VALUE);
    if length > limit { Err(StoreError::ValueTooLong { length, limit }) } else { Ok(()) }
}
