//! The store on disk.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::ops::Range;
use std::path::Path;

use super::entry::{Entry, Summary};
use super::error::StoreError;
use super::keys;
use super::trees::{Changes, Trees, Writes, sync_parent};
use super::{Batch, Receipt, Store, check_key, check_value};
use crate::ids::{Generation, OutboxSeq};
use crate::time::ArrivalTime;

/// Version of the layout that this release writes; it reads this one and older ones.
pub const FORMAT: u16 = 1;

/// File that says that the store was complete once.
const MARK: &str = "created";
const FIRST_SEQ: OutboxSeq = OutboxSeq(1);

/// What a store is given when it is created. One that exists keeps its own, unless it had to be
/// mended.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// The generation of a new life; what follows an older one is made greater than that.
    pub new_generation: Generation,
    /// The wall clock.
    pub now: ArrivalTime,
}

/// The store on disk: a directory with a sled database, owned by one process.
pub struct SledStore {
    trees: Trees,
    generation: Generation,
    created: ArrivalTime,
    next_seq: OutboxSeq,
    /// How many further chunks a value has, for those that have any: a shorter value removes them.
    state_spread: BTreeMap<Vec<u8>, u16>,
    outbox_spread: BTreeMap<OutboxSeq, u16>,
    poisoned: bool,
}

impl SledStore {
    /// Opens the store in directory `path`, which is created (mode 0700) if missing, and reads it
    /// through, so that damage is found now.
    ///
    /// # Errors
    /// Access to the path, a full disk, another process, a newer format, or damage.
    pub fn open(path: &Path, options: OpenOptions) -> Result<Self, StoreError> {
        let trees = Trees::open(path)?;
        let fresh = Self::check_format(&trees)?;
        let mut store = Self {
            trees,
            generation: options.new_generation,
            created: options.now,
            next_seq: FIRST_SEQ,
            state_spread: BTreeMap::new(),
            outbox_spread: BTreeMap::new(),
            poisoned: false,
        };
        if fresh {
            store.write_meta()?;
        } else {
            store.read_meta()?;
        }
        store.mark()?;
        store.read_through()?;
        Ok(store)
    }

    /// The directory it is in.
    pub fn path(&self) -> &Path {
        &self.trees.path
    }

    /// Begins a new life with what is there: some of it is lost, or it may have gone back in time. Windows that began
    /// before now may lack something.
    ///
    /// # Errors
    /// The disk is full or failing. The store must not be used then.
    pub fn renew(&mut self, options: OpenOptions) -> Result<(), StoreError> {
        (self.generation, self.created) =
            (options.new_generation.after(self.generation), options.now);
        self.write_meta()?;
        self.write_mark().map_err(|error| StoreError::io(self.path(), error))
    }

    /// The generation that the store in directory `path` had last, as far as the mark beside the database tells.
    pub(super) fn last_generation(path: &Path) -> Option<Generation> {
        let mark = std::fs::read_to_string(path.join(MARK)).ok()?;
        mark.strip_prefix("generation ")?.split(',').next().and_then(Generation::parse)
    }

    /// Raises the next sequence number, for entries carried over from a damaged store.
    pub(super) fn continue_from(&mut self, next_seq: OutboxSeq) -> Result<(), StoreError> {
        self.next_seq = self.next_seq.max(next_seq);
        self.write_meta()
    }

    /// Whether there is nothing in it yet.
    fn check_format(trees: &Trees) -> Result<bool, StoreError> {
        let path = &trees.path;
        let Some(bytes) = trees.get(&trees.meta, keys::FORMAT)? else {
            let untouched = trees.state.is_empty() && trees.outbox.is_empty();
            return match untouched && !path.join(MARK).exists() {
                true => Ok(true),
                false => Err(StoreError::corrupt(path, "its contents are gone")),
            };
        };
        let found = integer(path, "format", &bytes).map(u16::from_be_bytes)?;
        match found {
            0 => Err(StoreError::corrupt(path, "format version 0")),
            1..=FORMAT => Ok(false),
            _ => Err(StoreError::NewerFormat { path: path.clone(), found, supported: FORMAT }),
        }
    }

    /// Leaves a mark beside the database that it has contents: sled takes a file of zeros, or one
    /// cut to nothing, for a new database.
    fn mark(&self) -> Result<(), StoreError> {
        let written = self.path().join(MARK).try_exists().and_then(|exists| match exists {
            true => Ok(()),
            false => self.write_mark(),
        });
        written.map_err(|error| StoreError::io(self.path(), error))
    }

    fn write_mark(&self) -> std::io::Result<()> {
        let text = format!("generation {}, at {} ms\n", self.generation, self.created.0);
        let mark = self.path().join(MARK);
        let mut file = File::create(&mark)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        sync_parent(&mark)
    }

    fn write_meta(&mut self) -> Result<(), StoreError> {
        let meta = vec![
            (keys::FORMAT.to_vec(), Some(FORMAT.to_be_bytes().to_vec())),
            (keys::GENERATION.to_vec(), Some(self.generation.0.to_be_bytes().to_vec())),
            (keys::CREATED.to_vec(), Some(self.created.0.to_be_bytes().to_vec())),
            (keys::NEXT_SEQ.to_vec(), Some(self.next_seq.0.to_be_bytes().to_vec())),
        ];
        self.trees.write(&Changes { meta, ..Changes::default() })
    }

    fn read_meta(&mut self) -> Result<(), StoreError> {
        self.generation = Generation(u64::from_be_bytes(self.meta(keys::GENERATION)?));
        self.created = ArrivalTime(i64::from_be_bytes(self.meta(keys::CREATED)?));
        self.next_seq = OutboxSeq(u64::from_be_bytes(self.meta(keys::NEXT_SEQ)?));
        Ok(())
    }

    fn meta<const N: usize>(&self, key: &[u8]) -> Result<[u8; N], StoreError> {
        let name = String::from_utf8_lossy(key);
        match self.trees.get(&self.trees.meta, key)? {
            Some(bytes) => integer(&self.trees.path, &name, &bytes),
            None => Err(StoreError::corrupt(&self.trees.path, format!("no {name}"))),
        }
    }

    /// Reads every page, learns which values are spread, and checks that their chunks are there.
    fn read_through(&mut self) -> Result<(), StoreError> {
        let mut spread = BTreeMap::new();
        self.each_state(|key, further, _| {
            if further > 0 {
                spread.insert(key.to_vec(), further);
            }
        })?;
        self.state_spread = spread;
        let (mut spread, mut next_seq) = (BTreeMap::new(), self.next_seq);
        self.each_entry(|seq, further, _| {
            next_seq = next_seq.max(OutboxSeq(seq.0.saturating_add(1)));
            if further > 0 {
                spread.insert(seq, further);
            }
        })?;
        self.outbox_spread = spread;
        self.next_seq = next_seq;
        self.outbox_spread.keys().try_for_each(|&seq| self.read(seq).map(drop))
    }

    fn each_state(&self, mut each: impl FnMut(&[u8], u16, &[u8])) -> Result<(), StoreError> {
        let Self { trees, .. } = self;
        trees.scan(&trees.state, &[keys::STATE_HEAD], |key, head| {
            let key = &key[1..];
            let (further, value) =
                trees.join(&trees.state, head, |index| keys::state_chunk(key, index))?;
            each(key, further, &value);
            Ok(())
        })
    }

    fn each_entry(&self, mut each: impl FnMut(OutboxSeq, u16, Summary)) -> Result<(), StoreError> {
        let Self { trees, .. } = self;
        trees.scan(&trees.outbox, &[], |key, head| {
            let Some(seq) = keys::outbox_seq(key) else { return Ok(()) };
            let parsed = keys::parse_head(head)
                .and_then(|(further, first)| Some((further, Summary::decode(first)?)));
            let (further, summary) = parsed.ok_or_else(|| no_entry(&trees.path, seq))?;
            each(seq, further, summary);
            Ok(())
        })
    }

    fn check_usable(&self) -> Result<(), StoreError> {
        if self.poisoned { Err(StoreError::Poisoned) } else { Ok(()) }
    }

    /// Lays out a batch as changes of the trees.
    fn plan(&mut self, batch: &Batch) -> Result<Changes, StoreError> {
        let mut changes = Changes::default();
        for (key, value) in &batch.state.changes {
            self.plan_state(key, value.as_deref(), &mut changes.state)?;
        }
        for (seq, entry) in &batch.append {
            self.plan_entry(*seq, Some(&entry.encode()), &mut changes.outbox)?;
        }
        for seq in &batch.delete {
            self.plan_entry(*seq, None, &mut changes.outbox)?;
        }
        if let Some(end) = batch.append_end().filter(|&end| end > self.next_seq) {
            self.next_seq = end;
            changes.meta.push((keys::NEXT_SEQ.to_vec(), Some(end.0.to_be_bytes().to_vec())));
        }
        Ok(changes)
    }

    fn plan_state(
        &mut self,
        key: &[u8],
        value: Option<&[u8]>,
        writes: &mut Writes,
    ) -> Result<(), StoreError> {
        check_key(key)?;
        check_value(value)?;
        let before = self.state_spread.remove(key).unwrap_or(0);
        let chunk = |index| keys::state_chunk(key, index);
        let further = lay_out(value, keys::state_head(key), chunk, before, writes);
        if further > 0 {
            self.state_spread.insert(key.to_vec(), further);
        }
        Ok(())
    }

    fn plan_entry(
        &mut self,
        seq: OutboxSeq,
        value: Option<&[u8]>,
        writes: &mut Writes,
    ) -> Result<(), StoreError> {
        check_value(value)?;
        let before = self.outbox_spread.remove(&seq).unwrap_or(0);
        let chunk = |index| keys::outbox_chunk(seq, index);
        let further = lay_out(value, keys::outbox_head(seq), chunk, before, writes);
        if further > 0 {
            self.outbox_spread.insert(seq, further);
        }
        Ok(())
    }
}

impl Store for SledStore {
    fn generation(&self) -> Generation {
        self.generation
    }

    fn created(&self) -> ArrivalTime {
        self.created
    }

    fn load_state(&self, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), StoreError> {
        self.check_usable()?;
        self.each_state(|key, _, value| each(key, value))
    }

    fn scan_state(
        &self,
        keys: Range<&[u8]>,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        self.check_usable()?;
        let Self { trees, .. } = self;
        let heads = keys::state_head(keys.start)..keys::state_head(keys.end);
        for item in trees.range(&trees.state, heads) {
            let (key, head) = item?;
            let key = &key[1..];
            let chunk = |index| keys::state_chunk(key, index);
            let (_, value) = trees.join(&trees.state, &head, chunk)?;
            if !each(key, &value) {
                break;
            }
        }
        Ok(())
    }

    fn load_outbox(&self, each: &mut dyn FnMut(OutboxSeq, Summary)) -> Result<(), StoreError> {
        self.check_usable()?;
        self.each_entry(|seq, _, summary| each(seq, summary))
    }

    fn next_seq(&self) -> OutboxSeq {
        self.next_seq
    }

    fn read(&self, seq: OutboxSeq) -> Result<Option<Entry>, StoreError> {
        self.check_usable()?;
        let Self { trees, .. } = self;
        let Some(head) = trees.get(&trees.outbox, &keys::outbox_head(seq))? else {
            return Ok(None);
        };
        let chunk = |index| keys::outbox_chunk(seq, index);
        let (_, bytes) = trees.join(&trees.outbox, &head, chunk)?;
        Entry::decode(&bytes).map(Some).ok_or_else(|| no_entry(&trees.path, seq))
    }

    fn commit(&mut self, batch: &Batch) -> Result<Receipt, StoreError> {
        self.check_usable()?;
        if !batch.is_empty() {
            self.poisoned = true;
            let changes = self.plan(batch)?;
            self.trees.write(&changes)?;
            self.poisoned = false;
        }
        Ok(Receipt::of(batch))
    }
}

/// Adds the writes that lay `value` out over its head and further chunks, where `before` further
/// chunks lay before; returns how many do now.
fn lay_out(
    value: Option<&[u8]>,
    head_key: Vec<u8>,
    chunk_key: impl Fn(u16) -> Vec<u8>,
    before: u16,
    writes: &mut Writes,
) -> u16 {
    let mut further = 0;
    let head = value.map(|value| {
        let (head, chunks) = keys::split(value);
        for chunk in chunks {
            further += 1;
            writes.push((chunk_key(further), Some(chunk.to_vec())));
        }
        head
    });
    writes.push((head_key, head));
    let left_over = (1..=before).skip(usize::from(further));
    writes.extend(left_over.map(|index| (chunk_key(index), None)));
    further
}

fn integer<const N: usize>(path: &Path, name: &str, bytes: &[u8]) -> Result<[u8; N], StoreError> {
    bytes.try_into().map_err(|_| StoreError::corrupt(path, format!("{name} has no {N} bytes")))
}

fn no_entry(path: &Path, seq: OutboxSeq) -> StoreError {
    StoreError::corrupt(path, format!("outbox entry {} makes no sense", seq.0))
}
