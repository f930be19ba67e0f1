//! What can still be read of a damaged store, carried into a new one.
//!
//! A damaged page is a run of neighbouring keys. A tree is read up to it, then the first key is looked for from which it can
//! be read again, and so on behind each damage. What lies between two of them when its last page is one is not found.

use std::path::Path;

use ::sled::IVec;

use super::entry::Entry;
use super::error::StoreError;
use super::keys;
use super::recovery::Kept;
use super::sled::SledStore;
use super::trees::Trees;
use super::{Batch, Store};
use crate::ids::OutboxSeq;

/// How often sled is let at a damaged store.
const TRIES: u32 = 3;

/// Most damages of one tree that are gone round. Each costs some dozen looks at what is broken.
const MOST_DAMAGES: u32 = 64;

/// Longer than any key of a tree, in bytes.
const LONGEST: usize = keys::MAX_KEY + 8;

/// Carries what can be read of the store at `old` into the empty store `new`, and closes that.
pub(super) fn carry(old: Option<&Path>, new: SledStore) -> Result<Kept, StoreError> {
    let mut carrier = Carrier::new(new);
    // What cannot be opened at all is left behind whole. Each try of sled's mends something first.
    if let Some(old) = old.and_then(|old| (0..TRIES).find_map(|_| Trees::open(old).ok())) {
        carrier.carry(&old)?;
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
        let state = |from: &[u8]| old.range(&old.state, from.to_vec()..);
        sweep(state, &[keys::STATE_HEAD], |key, head| self.carry_state(old, key, head))?;
        let outbox = |from: &[u8]| old.range(&old.outbox, from.to_vec()..);
        sweep(outbox, &[], |key, head| self.carry_entry(old, key, head))
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

/// Visits the keys of a tree that begin with `prefix` and can be read; `range` gives those from a key on.
fn sweep<I: Iterator<Item = Result<(IVec, IVec), StoreError>>>(
    range: impl Fn(&[u8]) -> I,
    prefix: &[u8],
    mut each: impl FnMut(&IVec, &IVec) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    // Behind the prefix nothing is wanted, so it need not be readable.
    let reads = |from: &[u8]| {
        !from.starts_with(prefix) || range(from).next().is_none_or(|item| item.is_ok())
    };
    let mut from = prefix.to_vec();
    for _ in 0..MOST_DAMAGES {
        let mut is_whole = true;
        for item in range(&from) {
            let Ok((key, value)) = item else {
                is_whole = false;
                break;
            };
            if !key.starts_with(prefix) {
                break;
            }
            each(&key, &value)?;
            from = [&key, &[0][..]].concat();
        }
        if is_whole {
            break;
        }
        match least_after(&from, reads) {
            Some(readable) => from = readable,
            None => break,
        }
    }
    Ok(())
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
    use proptest::prelude::*;

    /// Keys of a tree, ten to a page; a page of which one is spoilt cannot be read.
    fn swept(prefix: u8, spoilt: &[u32]) -> Vec<u32> {
        let key = |number: u32| [&[prefix][..], &number.to_be_bytes()].concat();
        let range = |from: &[u8]| {
            let from = from.to_vec();
            let page = (0..300).rev().find(|&number| key(number) <= from).unwrap_or(0) / 10 * 10;
            let lost = move |number: u32| spoilt.iter().any(|spoilt| spoilt / 10 == number / 10);
            let items = (page..300).filter(move |&number| key(number) >= from || lost(number));
            items.map(move |number| match lost(number) {
                true => Err(StoreError::corrupt("store".as_ref(), "spoilt")),
                false => Ok((IVec::from(key(number)), IVec::from(&[]))),
            })
        };
        let mut seen = Vec::new();
        let number = |key: &IVec| u32::from_be_bytes(key[1..].try_into().unwrap());
        sweep(range, &[prefix], |key, _| {
            seen.push(number(key));
            Ok(())
        })
        .unwrap();
        seen
    }

    #[test]
    fn what_lies_before_between_and_behind_damaged_pages_is_carried_over() {
        let whole: Vec<_> = (0..300).collect();
        assert_eq!(swept(0, &[]), whole);
        let without = |pages: &[u32]| -> Vec<_> {
            whole.iter().copied().filter(|number| !pages.contains(&(number / 10))).collect()
        };
        assert_eq!(swept(0, &[105]), without(&[10]));
        assert_eq!(swept(7, &[0, 105, 119, 200]), without(&[0, 10, 11, 20]));
    }

    #[test]
    fn a_spoilt_last_page_costs_what_is_behind_the_first_one() {
        assert_eq!(swept(0, &[295]), (0..290).collect::<Vec<_>>());
        assert_eq!(swept(0, &[105, 295]), (0..100).collect::<Vec<_>>());
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
