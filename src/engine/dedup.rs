//! Which messages were seen before (SPEC 7).
//!
//! Two memories, both part of every checkpoint:
//!
//! - *seen*: a record with a device time is a duplicate when topic, device, content and raw device time are those of a
//!   record seen before, whatever the DUP flag says. The last [`Limits::max_remembered`] are remembered, over all
//!   devices: what decides is one number for the whole gateway, and a small fleet is remembered for days.
//! - *unsettled*: without a device time equal readings are ordinary. Only a redelivery (DUP = 1) of content that was
//!   committed, and whose acknowledgement the broker may not have got, is a duplicate.
//!
//! [`Limits::max_remembered`]: crate::engine::settings::Limits::max_remembered

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::ids::Generation;
use crate::time::DeviceTime;

/// What a record is recognised by. 64 bits of XXH3, seeded by the store's first generation: with a quarter of a million
/// remembered, a new record is taken for a duplicate once in 10^13.
pub type Fingerprint = u64;

/// Passes a fingerprint through: it is a hash already.
#[derive(Clone, Copy, Debug, Default)]
pub struct PassThrough(u64);

impl Hasher for PassThrough {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = self.0.rotate_left(8) ^ u64::from(byte));
    }
    fn write_u64(&mut self, fingerprint: u64) {
        self.0 = fingerprint;
    }
}

type ByFingerprint = BuildHasherDefault<PassThrough>;

/// Recognises records.
#[derive(Clone, Copy, Debug)]
pub struct Recogniser {
    seed: u64,
}

impl Recogniser {
    /// A recogniser for a new store.
    pub fn new(generation: Generation) -> Self {
        Self::seeded(generation.0)
    }

    /// The recogniser of a memory that was made with this seed: it outlives the generation.
    pub fn seeded(seed: u64) -> Self {
        Self { seed }
    }

    /// What it was made with.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The fingerprint of a record.
    pub fn fingerprint(
        &self,
        topic: &str,
        device: &str,
        content: &[u8],
        time: Option<DeviceTime>,
    ) -> Fingerprint {
        // Chained, so that no part can pass for the end of another.
        let topic = xxh3_64_with_seed(topic.as_bytes(), self.seed);
        let device = xxh3_64_with_seed(device.as_bytes(), topic);
        let time = time.map_or(!device, |time| device ^ time.0.cast_unsigned().rotate_left(17));
        xxh3_64_with_seed(content, time)
    }
}

/// A log of numbers that grows at its end and is cut at its front, in the memory and in the store.
#[derive(Debug, Default)]
pub struct NumberLog {
    /// Position of the first number that is kept.
    first: u64,
    kept: VecDeque<u64>,
    /// Positions from here on are not in the store yet.
    stored_to: u64,
    /// Start positions of the segments in the store, oldest first.
    segments: VecDeque<u64>,
}

impl NumberLog {
    /// Numbers in one value of the store, so that a value stays under 4 KiB.
    pub const SEGMENT: usize = 500;

    fn end(&self) -> u64 {
        self.first + self.kept.len() as u64
    }

    fn push(&mut self, number: u64) {
        self.kept.push_back(number);
    }

    fn pop(&mut self) -> Option<u64> {
        let number = self.kept.pop_front()?;
        self.first += 1;
        Some(number)
    }

    /// What is new since the last call, as segments of the store to write, and those to delete.
    pub fn changes(&mut self) -> (Vec<(u64, Vec<u64>)>, Vec<u64>) {
        let from = self.stored_to.max(self.first);
        let skip = usize::try_from(from - self.first).unwrap_or(usize::MAX);
        let new: Vec<u64> = self.kept.iter().skip(skip).copied().collect();
        let write: Vec<_> = new
            .chunks(Self::SEGMENT)
            .zip((from..).step_by(Self::SEGMENT))
            .map(|(numbers, start)| (start, numbers.to_vec()))
            .collect();
        self.segments.extend(write.iter().map(|(start, _)| *start));
        self.stored_to = self.end();
        (write, self.cut_segments())
    }

    /// Writes all of it with the next changes, into a store that has nothing of it.
    pub fn store_again(&mut self) {
        self.segments.clear();
        self.stored_to = self.first;
    }

    fn cut_segments(&mut self) -> Vec<u64> {
        let mut cut = Vec::new();
        loop {
            let next = self.segments.get(1).copied().unwrap_or(self.stored_to);
            if self.segments.is_empty() || next > self.first {
                return cut;
            }
            cut.extend(self.segments.pop_front());
        }
    }

    /// Takes back a segment; they come in the order of their starts. `first` is where the log began. Says whether it
    /// follows on what came before. Where it does not, what comes after closes up, and has to be stored again.
    fn restore(&mut self, first: u64, start: u64, numbers: &[u64]) -> bool {
        let follows = match self.segments.is_empty() {
            true => start <= first,
            false => start == self.stored_to,
        };
        if self.segments.is_empty() {
            self.first = first.max(start);
        }
        self.segments.push_back(start);
        let skip = usize::try_from(self.first.saturating_sub(start)).unwrap_or(usize::MAX);
        self.kept.extend(numbers.iter().skip(skip));
        self.stored_to = start + numbers.len() as u64;
        follows
    }
}

/// Both memories.
#[derive(Debug)]
pub struct Dedup {
    capacity: usize,
    seen: HashSet<Fingerprint, ByFingerprint>,
    seen_log: NumberLog,
    unsettled: HashMap<Fingerprint, u32, ByFingerprint>,
    /// Those of them that came on this connection: the broker does not deliver them again on it.
    fresh: HashMap<Fingerprint, u32, ByFingerprint>,
    /// Position in the log of unsettled content at which this connection began.
    connected_at: u64,
    /// Redeliveries recognised on this connection.
    redelivered: HashMap<Fingerprint, u32, ByFingerprint>,
    unsettled_log: NumberLog,
}

/// Which of the two memories a segment belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Records with a device time.
    Seen,
    /// Content without one, not yet settled.
    Unsettled,
}

impl Dedup {
    /// Remembers up to `capacity` records of each kind.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            seen: HashSet::default(),
            seen_log: NumberLog::default(),
            unsettled: HashMap::default(),
            fresh: HashMap::default(),
            connected_at: 0,
            redelivered: HashMap::default(),
            unsettled_log: NumberLog::default(),
        }
    }

    /// Whether a record with a device time was seen before.
    pub fn is_seen(&self, fingerprint: Fingerprint) -> bool {
        self.seen.contains(&fingerprint)
    }

    /// Remembers a record with a device time; `false` when it was seen before.
    pub fn remember(&mut self, fingerprint: Fingerprint) -> bool {
        if !self.seen.insert(fingerprint) {
            return false;
        }
        self.seen_log.push(fingerprint);
        if self.seen_log.kept.len() > self.capacity
            && let Some(oldest) = self.seen_log.pop()
        {
            self.seen.remove(&oldest);
        }
        true
    }

    /// Whether a redelivery without a device time is of content that was used and may not be settled. One delivery on
    /// an earlier connection accounts for one redelivery per connection.
    pub fn is_redelivery(&mut self, fingerprint: Fingerprint) -> bool {
        let count = |of: &HashMap<Fingerprint, u32, ByFingerprint>| of.get(&fingerprint).copied();
        let Some(deliveries) = count(&self.unsettled) else { return false };
        let deliveries = deliveries.saturating_sub(count(&self.fresh).unwrap_or(0));
        let redelivered = self.redelivered.entry(fingerprint).or_default();
        *redelivered += 1;
        *redelivered <= deliveries
    }

    /// A new connection: the broker delivers again whatever it has no acknowledgement for.
    pub fn reconnected(&mut self) {
        self.redelivered.clear();
        self.fresh.clear();
        self.connected_at = self.unsettled_end();
    }

    /// Takes the place of a memory of the same content: the connection is the same, and so is what came on it.
    pub fn carry_on(&mut self, before: Self) {
        (self.fresh, self.connected_at) = (before.fresh, before.connected_at);
        self.redelivered = before.redelivered;
    }

    /// Remembers content without a device time until it is settled.
    pub fn remember_unsettled(&mut self, fingerprint: Fingerprint) {
        *self.unsettled.entry(fingerprint).or_default() += 1;
        *self.fresh.entry(fingerprint).or_default() += 1;
        self.unsettled_log.push(fingerprint);
        if self.unsettled_log.kept.len() > self.capacity {
            self.forget_oldest_unsettled();
        }
    }

    /// Position after the last unsettled content: what [`Self::settle`] takes.
    pub fn unsettled_end(&self) -> u64 {
        self.unsettled_log.end()
    }

    /// The broker will not deliver again what came before position `to`.
    pub fn settle(&mut self, to: u64) {
        while self.unsettled_log.first < to && !self.unsettled_log.kept.is_empty() {
            self.forget_oldest_unsettled();
        }
    }

    fn forget_oldest_unsettled(&mut self) {
        let is_fresh = self.unsettled_log.first >= self.connected_at;
        let Some(oldest) = self.unsettled_log.pop() else { return };
        take_one(&mut self.unsettled, oldest);
        if is_fresh {
            take_one(&mut self.fresh, oldest);
        }
    }

    /// The log behind a memory.
    pub fn log(&mut self, memory: Memory) -> &mut NumberLog {
        match memory {
            Memory::Seen => &mut self.seen_log,
            Memory::Unsettled => &mut self.unsettled_log,
        }
    }

    /// Where the logs begin, to be kept beside them.
    pub fn beginnings(&self) -> [u64; 2] {
        [self.seen_log.first, self.unsettled_log.first]
    }

    /// Takes back a segment; segments of one memory come in the order of their starts. Says whether none is missing
    /// before it.
    pub fn restore(&mut self, memory: Memory, first: u64, start: u64, numbers: &[u64]) -> bool {
        let log = self.log(memory);
        let had = log.kept.len();
        let follows = log.restore(first, start, numbers);
        let new: Vec<u64> = log.kept.iter().skip(had).copied().collect();
        match memory {
            Memory::Seen => self.seen.extend(new),
            Memory::Unsettled => new.into_iter().for_each(|n| {
                *self.unsettled.entry(n).or_default() += 1;
            }),
        }
        follows
    }
}

fn take_one(copies: &mut HashMap<Fingerprint, u32, ByFingerprint>, of: Fingerprint) {
    if let Some(left) = copies.get_mut(&of) {
        *left -= 1;
        if *left == 0 {
            copies.remove(&of);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn topic_device_content_and_raw_time_all_tell_records_apart() {
        let of = Recogniser::new(Generation(7));
        let one = of.fingerprint("a/b", "m", b"{}", Some(DeviceTime(1)));
        assert_eq!(one, of.fingerprint("a/b", "m", b"{}", Some(DeviceTime(1))));
        assert_ne!(one, of.fingerprint("a/", "bm", b"{}", Some(DeviceTime(1))));
        assert_ne!(one, of.fingerprint("a/b", "", b"m{}", Some(DeviceTime(1))));
        assert_ne!(one, of.fingerprint("a/b", "m", b"{}", Some(DeviceTime(2))));
        assert_ne!(one, of.fingerprint("a/b", "m", b"{}", None));
        assert_ne!(
            one,
            Recogniser::new(Generation(8)).fingerprint("a/b", "m", b"{}", Some(DeviceTime(1)))
        );
    }

    #[test]
    fn the_oldest_is_forgotten_first() {
        let mut dedup = Dedup::new(2);
        assert!(dedup.remember(1) && dedup.remember(2) && dedup.remember(3));
        assert!(!dedup.is_seen(1));
        assert!(!dedup.remember(2) && !dedup.remember(3) && dedup.remember(1));
    }

    #[test]
    fn one_delivery_accounts_for_one_redelivery_per_connection() {
        let mut dedup = Dedup::new(9);
        dedup.remember_unsettled(5);
        dedup.remember_unsettled(5);
        dedup.reconnected();
        assert!(dedup.is_redelivery(5) && dedup.is_redelivery(5));
        assert!(!dedup.is_redelivery(5));
        dedup.reconnected();
        assert!(dedup.is_redelivery(5), "the acknowledgement of the redelivery may be lost too");
    }

    #[test]
    fn equal_readings_that_a_crash_lost_are_both_taken_when_they_are_delivered_again() {
        let mut dedup = Dedup::new(9);
        dedup.reconnected();
        for _ in 0..2 {
            assert!(!dedup.is_redelivery(5));
            dedup.remember_unsettled(5);
        }
        dedup.reconnected();
        assert!(dedup.is_redelivery(5) && dedup.is_redelivery(5), "both were taken meanwhile");
    }

    #[test]
    fn settled_content_may_come_again() {
        let mut dedup = Dedup::new(9);
        dedup.remember_unsettled(5);
        let end = dedup.unsettled_end();
        dedup.remember_unsettled(6);
        dedup.settle(end);
        dedup.reconnected();
        assert!(!dedup.is_redelivery(5));
        assert!(dedup.is_redelivery(6));
    }

    fn apply(store: &mut BTreeMap<u64, Vec<u64>>, log: &mut NumberLog) {
        let (write, cut) = log.changes();
        store.extend(write);
        for start in cut {
            assert!(store.remove(&start).is_some(), "deletes only what was written");
        }
    }

    proptest! {
        #[test]
        fn a_restored_memory_is_the_memory(
            batches in proptest::collection::vec(proptest::collection::vec(0..60_u64, 0..30), 0..12), capacity in 1..40_usize,
        ) {
            let mut dedup = Dedup::new(capacity);
            let mut store = BTreeMap::new();
            for batch in batches {
                for number in batch {
                    dedup.remember(number);
                }
                apply(&mut store, dedup.log(Memory::Seen));
                let mut restored = Dedup::new(capacity);
                for (start, numbers) in &store {
                    let first = dedup.beginnings()[0];
                    prop_assert!(restored.restore(Memory::Seen, first, *start, numbers));
                }
                prop_assert_eq!(&restored.seen_log.kept, &dedup.seen_log.kept);
                prop_assert_eq!(&restored.seen, &dedup.seen);
                prop_assert!(store.values().map(Vec::len).sum::<usize>() <= capacity + 30 + NumberLog::SEGMENT);
            }
        }
    }
}
