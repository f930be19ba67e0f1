//! What can still be read of a damaged store, carried into a new one.
//!
//! A damaged page is a run of neighbouring keys. A tree is read up to it, then the first key is looked for from which it can
//! be read again, and so on behind each damage. What lies between two of them when its last page is one is not found.

use ::sled::{IVec, Tree};

use super::entry::Entry;
use super::error::StoreError;
use super::keys;
use super::recovery::Kept;
use super::sled::SledStore;
use super::trees::Trees;
use super::{Batch, Store};
use crate::ids::OutboxSeq;

/// Most damages of one tree that are gone round. Each costs some dozen looks at what is broken.
const MOST_DAMAGES: u32 = 64;

/// Longer than any key of a tree, in bytes.
const LONGEST: usize = keys::MAX_KEY + 8;

/// Carries what can be read of `old` into the empty store `new`, and closes that.
pub(super) fn carry(old: Option<&Trees>, new: SledStore) -> Result<Kept, StoreError> {
    let mut carrier = Carrier::new(new);
    if let Some(old) = old {
        carrier.carry(old)?;
    }
    carrier.finish()
}

/// In batches of bounded size.
struct Carrier {
    new: SledStore,
    batch: Batch,
    /// About how long the batch is.
    bytes: usize,
    state: u64,
    outbox: u64,
}

impl Carrier {
    const BATCH: usize = 256 * 1024;

    fn new(new: SledStore) -> Self {
        Self { new, batch: Batch::default(), bytes: 0, state: 0, outbox: 0 }
    }

    fn carry(&mut self, old: &Trees) -> Result<(), StoreError> {
        let next_seq = old.get(&old.meta, keys::NEXT_SEQ).ok().flatten();
        if let Some(Ok(bytes)) = next_seq.map(|bytes| bytes.as_ref().try_into()) {
            self.new.continue_from(OutboxSeq(u64::from_be_bytes(bytes)))?;
        }
        self.sweep(old, &old.state, &[keys::STATE_HEAD], Self::carry_state)?;
        self.sweep(old, &old.outbox, &[], Self::carry_entry)
    }

    /// Visits the keys of a tree that begin with `prefix`, except the damaged ones.
    fn sweep(
        &mut self,
        old: &Trees,
        tree: &Tree,
        prefix: &[u8],
        carry: impl Fn(&mut Self, &Trees, &IVec, &IVec) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let reads = |from: &[u8]| old.walk(tree.range(from..), |_, _| false).is_ok();
        let mut from = prefix.to_vec();
        for _ in 0..MOST_DAMAGES {
            let mut failed = Ok(());
            let walked = old.walk(tree.range(from.clone()..), |key, head| {
                if !key.starts_with(prefix) {
                    return false;
                }
                from = [key, &[0][..]].concat();
                failed = carry(self, old, key, head);
                failed.is_ok()
            });
            failed?;
            let Err(_damage) = walked else { break };
            match least_after(&from, reads) {
                Some(readable) => from = readable,
                None => break,
            }
        }
        Ok(())
    }

    fn carry_state(&mut self, old: &Trees, key: &IVec, head: &IVec) -> Result<(), StoreError> {
        let key = &key[1..];
        let Ok((_, value)) = old.join(&old.state, head, |index| keys::state_chunk(key, index))
        else {
            return Ok(());
        };
        self.state += 1;
        self.bytes += key.len() + value.len();
        self.batch.state.changes.push((key.to_vec(), Some(value)));
        self.commit_if_over(Self::BATCH)
    }

    fn carry_entry(&mut self, old: &Trees, key: &IVec, head: &IVec) -> Result<(), StoreError> {
        let Some(seq) = keys::outbox_seq(key) else { return Ok(()) };
        let value = old.join(&old.outbox, head, |index| keys::outbox_chunk(seq, index));
        let Some(entry) = value.ok().and_then(|(_, bytes)| Entry::decode(&bytes)) else {
            return Ok(());
        };
        self.outbox += 1;
        self.bytes += entry.summary().size as usize;
        self.batch.append.push((seq, entry));
        self.commit_if_over(Self::BATCH)
    }

    fn commit_if_over(&mut self, limit: usize) -> Result<(), StoreError> {
        if self.bytes <= limit {
            return Ok(());
        }
        self.bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        self.new.commit(&batch).map(drop)
    }

    /// Commits the rest and closes the new store.
    fn finish(mut self) -> Result<Kept, StoreError> {
        self.commit_if_over(0)?;
        Ok(Kept::Part { state: self.state, outbox: self.outbox })
    }
}

/// The least key above `damaged` that `reads`, where all above it do; `None` where the last key does not.
fn least_after(damaged: &[u8], reads: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    let bytes: [u8; 256] = std::array::from_fn(|byte| byte as u8);
    let is_readable = |key: &[u8]| key > damaged && reads(key);
    // It is behind the prefix, and begins with that or is the next after all that do: then it was found before.
    let (mut prefix, mut found) = (Vec::new(), None);
    while prefix.len() < LONGEST && is_readable(&[&prefix[..], &[u8::MAX; LONGEST]].concat()) {
        let longer = |byte: u8| [&prefix[..], &[byte]].concat();
        let least = bytes.partition_point(|&byte| !is_readable(&longer(byte)));
        if let Some(&byte) = bytes.get(least) {
            found = Some(longer(byte));
        }
        match least.checked_sub(1) {
            Some(greatest) => prefix.push(bytes[greatest]),
            None => break,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Generation;
    use crate::store::Checkpoint;
    use crate::store::sled::OpenOptions;

    use crate::time::ArrivalTime;
    use proptest::prelude::*;
    use std::{fs, path::Path};

    const KEYS: u32 = 3_000;

    fn store(path: &Path) -> SledStore {
        let new_generation = Generation(7);
        SledStore::open(path, OpenOptions { new_generation, now: ArrivalTime(1) }).unwrap()
    }

    fn value(key: u32) -> Vec<u8> {
        format!("<value {key:06}>").repeat(16).into_bytes()
    }

    /// Spoils the bytes of the value of `key`, wherever in the log they are.
    fn spoil(path: &Path, key: u32) {
        let mut log = fs::read(path.join("db")).unwrap();
        let value = value(key);
        let mut spoilt = 0;
        for at in 0..log.len() - value.len() {
            if log[at..].starts_with(&value) {
                log[at] ^= 0xff;
                spoilt += 1;
            }
        }
        assert!(spoilt > 0, "{key}");
        fs::write(path.join("db"), log).unwrap();
    }

    #[test]
    fn what_lies_before_between_and_behind_damaged_pages_is_carried_over() {
        let dir = tempfile::tempdir().unwrap();
        let (broken, new) = (dir.path().join("broken"), dir.path().join("new"));
        let mut old = store(&broken);
        let changes = (0..KEYS).map(|key| (key.to_be_bytes().to_vec(), Some(value(key))));
        let state = Checkpoint { changes: changes.collect(), ..Default::default() };
        let _ = old.commit(&Batch { state, ..Batch::default() }).unwrap();
        drop(old);
        // Its snapshot is written at the next open; without one the log would end at the damage.
        drop(store(&broken));
        let spoilt = [1_000, 2_000];
        spoilt.iter().for_each(|&key| spoil(&broken, key));

        let kept = carry(Some(&Trees::open(&broken).unwrap()), store(&new)).unwrap();
        let mut carried = Vec::new();
        let each = &mut |key: &[u8], bytes: &[u8]| {
            carried.push(u32::from_be_bytes(key.try_into().unwrap()));
            assert_eq!(bytes, value(*carried.last().unwrap()));
        };
        store(&new).load_state(each).unwrap();
        assert_eq!(kept, Kept::Part { state: carried.len() as u64, outbox: 0 });
        let lost: Vec<_> = (0..KEYS).filter(|key| !carried.contains(key)).collect();
        let mut runs: Vec<_> = lost.chunk_by(|one, next| one + 1 == *next).collect();
        runs.retain(|run| run.len() < 100);
        assert_eq!(runs.len(), 2, "{} of {KEYS} are lost", lost.len());
        for (run, key) in runs.iter().zip(spoilt) {
            assert!(run.contains(&key), "{run:?}");
        }
    }

    fn key() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(prop_oneof![Just(0), Just(1), Just(255), any::<u8>()], 1..6)
    }

    proptest! {
        #[test]
        fn the_least_key_behind_a_damage_is_found_whatever_it_is(damaged in key(), bound in key()) {
            prop_assume!(damaged < bound);
            let asked = std::cell::Cell::new(0);
            let found = least_after(&damaged, |key| {
                asked.set(asked.get() + 1);
                key >= &bound[..]
            });
            prop_assert_eq!(found, Some(bound.clone()));
            prop_assert!(asked.get() <= 10 * (bound.len() + 1));
        }
    }

    #[test]
    fn where_nothing_can_be_read_nothing_is_found() {
        assert_eq!(least_after(&[7, 7], |_| false), None);
        assert_eq!(least_after(&[], |_| true), Some(vec![0]), "the least key that is not empty");
    }
}
