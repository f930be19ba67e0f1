//! A store in memory that fails when it is told to: for simulation and tests.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::{Arc, Mutex, MutexGuard};

use super::entry::{Entry, Summary};
use super::error::StoreError;
use super::{Batch, Receipt, Store, check_key, check_value};
use crate::ids::{Generation, OutboxSeq};
use crate::time::ArrivalTime;

/// What survives when the process does not: hand it to the next [`MemoryStore`].
#[derive(Clone, Debug)]
pub struct MemoryDisk(Arc<Mutex<Disk>>);

#[derive(Debug)]
struct Disk {
    generation: Generation,
    created: ArrivalTime,
    next_seq: OutboxSeq,
    state: BTreeMap<Vec<u8>, Vec<u8>>,
    outbox: BTreeMap<OutboxSeq, Entry>,
    commits: u64,
    fault: Option<(u64, Fault)>,
}

/// How a commit fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing of the batch is on the disk.
    BeforeApplying,
    /// All of it is.
    AfterApplying,
}

impl MemoryDisk {
    /// An empty disk.
    pub fn new(generation: Generation, created: ArrivalTime) -> Self {
        Self(Arc::new(Mutex::new(Disk {
            generation,
            created,
            next_seq: OutboxSeq(1),
            state: BTreeMap::new(),
            outbox: BTreeMap::new(),
            commits: 0,
            fault: None,
        })))
    }

    /// Opens the store that is on it. Earlier ones on the same disk must be gone, as with a process
    /// that ended; nothing checks it.
    pub fn open(&self) -> MemoryStore {
        MemoryStore { disk: self.clone(), poisoned: false }
    }

    /// Makes the `nth` commit from now fail (1 is the next one), once.
    pub fn fail_commit(&self, nth: u64, fault: Fault) {
        let mut disk = self.lock();
        disk.fault = Some((disk.commits + nth, fault));
    }

    /// Commits so far, failed ones included.
    pub fn commits(&self) -> u64 {
        self.lock().commits
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().expect("no holder of the lock panics")
    }
}

impl Disk {
    /// The fault of the commit that begins now.
    fn begin_commit(&mut self) -> Option<Fault> {
        self.commits += 1;
        let commits = self.commits;
        self.fault.take_if(|(nth, _)| *nth == commits).map(|(_, fault)| fault)
    }

    fn apply(&mut self, batch: &Batch) {
        for (key, value) in &batch.state.changes {
            match value {
                Some(value) => self.state.insert(key.clone(), value.clone()),
                None => self.state.remove(key),
            };
        }
        self.outbox.extend(batch.append.iter().cloned());
        for seq in &batch.delete {
            self.outbox.remove(seq);
        }
        self.next_seq = self.next_seq.max(batch.append_end().unwrap_or(self.next_seq));
    }
}

/// A store on a [`MemoryDisk`].
#[derive(Debug)]
pub struct MemoryStore {
    disk: MemoryDisk,
    poisoned: bool,
}

impl MemoryStore {
    fn disk(&self) -> Result<MutexGuard<'_, Disk>, StoreError> {
        if self.poisoned { Err(StoreError::Poisoned) } else { Ok(self.disk.lock()) }
    }
}

impl Store for MemoryStore {
    fn generation(&self) -> Generation {
        self.disk.lock().generation
    }

    fn created(&self) -> ArrivalTime {
        self.disk.lock().created
    }

    fn load_state(&self, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), StoreError> {
        // A copy, so that `each` may panic without spoiling the lock.
        let state = self.disk()?.state.clone();
        state.iter().for_each(|(key, value)| each(key, value));
        Ok(())
    }

    fn scan_state(
        &self,
        keys: Range<&[u8]>,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let disk = self.disk()?;
        let found =
            disk.state.range::<[u8], _>((Bound::Included(keys.start), Bound::Excluded(keys.end)));
        let found: Vec<_> = found.map(|(key, value)| (key.clone(), value.clone())).collect();
        drop(disk);
        let _ = found.iter().all(|(key, value)| each(key, value));
        Ok(())
    }

    fn load_outbox(&self, each: &mut dyn FnMut(OutboxSeq, Summary)) -> Result<(), StoreError> {
        let outbox = self.disk()?.outbox.clone();
        outbox.iter().for_each(|(&seq, entry)| each(seq, entry.summary()));
        Ok(())
    }

    fn next_seq(&self) -> OutboxSeq {
        self.disk.lock().next_seq
    }

    fn read(&self, seq: OutboxSeq) -> Result<Option<Entry>, StoreError> {
        Ok(self.disk()?.outbox.get(&seq).cloned())
    }

    fn commit(&mut self, batch: &Batch) -> Result<Receipt, StoreError> {
        let mut disk = self.disk()?;
        let fault = disk.begin_commit();
        let refused = check(batch).err();
        if refused.is_none() && fault != Some(Fault::BeforeApplying) {
            disk.apply(batch);
        }
        drop(disk);
        match refused.or(fault.map(|_| StoreError::Injected)) {
            Some(error) => {
                self.poisoned = true;
                Err(error)
            }
            None => Ok(Receipt::of(batch)),
        }
    }
}

/// What the store on disk refuses is refused here too.
fn check(batch: &Batch) -> Result<(), StoreError> {
    batch.state.changes.iter().try_for_each(|(key, value)| {
        check_key(key)?;
        check_value(value.as_deref())
    })
}
