//! A store that cannot be opened: repaired, or moved aside and rebuilt.
//!
//! 1. From its log alone, without sled's snapshots, which only shorten the replay of the log, and
//!    without its `conf`, which says what we know. A torn one of these is the usual reason for a
//!    store that does not open. Nothing is lost.
//! 2. Otherwise a new store is built next to the damaged one (`<path>.rebuilding`), with all that
//!    can still be read of the old one. When it is whole and durable, the old one is moved to
//!    `<path>.broken-<n>` and the new one into its place.
//!
//! A crash at any point leaves the damaged store in place, or the rebuilt one complete: an
//! interrupted rebuild is thrown away, unless the old store had been moved already.
//!
//! Not every damage shows. sled takes a log that is spoilt in its middle (by the medium; a crash
//! does not do this) for one that ends there, and the store goes back to an earlier commit.
//!
//! What is carried over is what the pages that are left hold. It need not be the state of one
//! moment, so the new store has a new generation: nothing it says contradicts what the old one
//! said.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ::sled::IVec;

use super::entry::Entry;
use super::error::StoreError;
use super::keys;
use super::sled::{OpenOptions, SledStore};
use super::trees::{Trees, snapshots, sync_parent};
use super::{Batch, Store};
use crate::ids::OutboxSeq;

/// How many damaged stores are kept; the oldest is removed for a further one.
pub const KEEP_BROKEN: usize = 3;

/// How often sled is let at a damaged store.
const SALVAGE_TRIES: u32 = 3;

/// An open store, and what had to be done for it.
pub struct Opened {
    /// The store.
    pub store: SledStore,
    /// What had to be done; `None` when all was well.
    pub recovered: Option<Recovered>,
}

/// What had to be done to open a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Where what was damaged is now.
    pub moved_to: PathBuf,
    /// What was wrong.
    pub cause: String,
    /// What is left of its contents.
    pub kept: Kept,
}

/// What is left of the contents of a damaged store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// All that its log holds; the store goes on as it was, its generation too.
    Everything,
    /// Some, in a new store with a new generation.
    Part {
        /// Values of the engine's state.
        state: u64,
        /// Outbox entries.
        outbox: u64,
    },
}

/// Opens the store at `path`, whatever state it is in.
///
/// # Errors
/// As [`SledStore::open`], damage excepted. Then nothing has been moved.
pub fn open(path: &Path, options: OpenOptions) -> Result<Opened, StoreError> {
    let path = &resolved(path);
    finish_interrupted(path).map_err(|error| StoreError::io(path, error))?;
    let damage = match SledStore::open(path, options) {
        Ok(store) => return Ok(Opened { store, recovered: None }),
        Err(error) if error.is_damage() => error,
        Err(error) => return Err(error),
    };
    match from_log_alone(path, options)? {
        Some(store) => {
            let moved_to = move_aside(&aside(path), path)?;
            let recovered =
                Recovered { moved_to, cause: damage.to_string(), kept: Kept::Everything };
            Ok(Opened { store, recovered: Some(recovered) })
        }
        None => rebuild(path, options, damage.to_string()),
    }
}

/// `path` without links and relative parts, so that names next to it can be formed.
fn resolved(path: &Path) -> PathBuf {
    let through_parent = || {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new(".")).canonicalize().ok()?;
        Some(parent.join(path.file_name()?))
    };
    path.canonicalize().ok().or_else(through_parent).unwrap_or_else(|| path.to_owned())
}

/// A name next to `path`.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Where the other files lie while the log is tried alone.
fn aside(path: &Path) -> PathBuf {
    path.join("aside")
}

fn rebuilding(path: &Path) -> PathBuf {
    beside(path, ".rebuilding")
}

/// Ends what a crash interrupted: a rebuilt store whose old one is gone takes its place, any other
/// is incomplete and thrown away.
fn finish_interrupted(path: &Path) -> io::Result<()> {
    let rebuilt = rebuilding(path);
    if !rebuilt.try_exists()? {
        return Ok(());
    }
    if path.try_exists()? {
        return fs::remove_dir_all(rebuilt);
    }
    fs::rename(rebuilt, path)?;
    sync_parent(path)
}

/// Tries the store with nothing but its log; `None` if that is the trouble.
fn from_log_alone(path: &Path, options: OpenOptions) -> Result<Option<SledStore>, StoreError> {
    let moved = snapshots(path).and_then(|mut files| {
        files.extend(Some(path.join("conf")).filter(|conf| conf.exists()));
        fs::create_dir_all(aside(path))?;
        let into = |file: &PathBuf| aside(path).join(file.file_name().unwrap_or_default());
        files.iter().try_for_each(|file| fs::rename(file, into(file)))
    });
    moved.map_err(|error| StoreError::io(path, error))?;
    match SledStore::open(path, options) {
        Ok(store) => Ok(Some(store)),
        Err(error) if error.is_damage() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Builds a new store beside the damaged one and puts it in its place.
fn rebuild(path: &Path, options: OpenOptions, cause: String) -> Result<Opened, StoreError> {
    let rebuilt = rebuilding(path);
    let mut carrier = Carrier::new(SledStore::open(&rebuilt, options)?);
    // What cannot be opened at all is left behind whole. Each try of sled's mends something first.
    if let Some(old) = (0..SALVAGE_TRIES).find_map(|_| Trees::open(path).ok()) {
        carrier.carry(&old)?;
    }
    let kept = carrier.finish()?;
    let moved_to = move_aside(path, path)?;
    fs::rename(&rebuilt, path)
        .and_then(|()| sync_parent(path))
        .map_err(|error| StoreError::io(path, error))?;
    let store = SledStore::open(path, options)?;
    Ok(Opened { store, recovered: Some(Recovered { moved_to, cause, kept }) })
}

/// Moves `what` to the next free `<path>.broken-<n>`, and removes the oldest of these beyond
/// [`KEEP_BROKEN`].
fn move_aside(what: &Path, path: &Path) -> Result<PathBuf, StoreError> {
    let moved = broken_numbers(path).and_then(|numbers| {
        let name = |number: u32| beside(path, &format!(".broken-{number}"));
        let surplus = (numbers.len() + 1).saturating_sub(KEEP_BROKEN);
        numbers[..surplus].iter().try_for_each(|&number| fs::remove_dir_all(name(number)))?;
        let target = name(numbers.last().map_or(1, |last| last + 1));
        fs::rename(what, &target)?;
        sync_parent(path)?;
        Ok(target)
    });
    moved.map_err(|error| StoreError::io(path, error))
}

/// Numbers of the damaged stores beside `path`, ascending.
fn broken_numbers(path: &Path) -> io::Result<Vec<u32>> {
    let prefix = beside(path, ".broken-");
    let prefix = prefix.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut numbers = Vec::new();
    for file in fs::read_dir(path.parent().unwrap_or(Path::new("/")))? {
        let name = file?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(&prefix));
        numbers.extend(number.and_then(|number| number.parse::<u32>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Carries what can be read of a damaged store into a new one, in batches of bounded size.
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

    /// Visits a tree from its start up to the first damage, then from its end down to it.
    fn sweep(
        &mut self,
        old: &Trees,
        tree: &::sled::Tree,
        prefix: &[u8],
        carry: impl Fn(&mut Self, &Trees, &IVec, &IVec) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut reached = None;
        let mut failed = Ok(());
        let upward = old.walk(tree.scan_prefix(prefix), |key, head| {
            reached = Some(key.clone());
            failed = carry(self, old, key, head);
            failed.is_ok()
        });
        failed?;
        if upward.is_ok() {
            return Ok(());
        }
        let mut failed = Ok(());
        let _damage_again = old.walk(tree.scan_prefix(prefix).rev(), |key, head| {
            if Some(key) <= reached.as_ref() {
                return false;
            }
            failed = carry(self, old, key, head);
            failed.is_ok()
        });
        failed
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
