//! The files of a store: a sled database in a directory, opened with care and written durably.
//!
//! Everything that must be known about sled 0.34 is here:
//! - `flush` is not durable (see the [module](super)): [`Trees::write`] adds our own `fdatasync`.
//! - A snapshot left half-written by a crash or a full disk (`snap.*.generating`) is taken for a
//!   whole one at the next open, which then fails for ever: such files are removed first. A full
//!   disk is found out before sled is let in.
//! - It may panic on damaged files, at open and when a page is first read: panics become
//!   [`StoreError::Corrupt`].
//! - It lets go of its lock a moment after it is closed: an open waits for that.
//! - Its own flusher would wake the disk twice a second: it is off.
//! - It keeps pages that it has replaced for as long as nobody looks at it: see `free_old_pages`.
//! - To go backwards through a tree (`rev`, `last`) brings a constant of 1 MiB into the program: nothing here does.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::iter;
use std::ops::RangeBounds;
use std::os::unix::fs::DirBuilderExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use ::sled::transaction::{TransactionError, Transactional, TransactionalTree};
use ::sled::{Db, IVec, Tree};

use super::error::StoreError;
use super::keys;
use super::log::Log;
use crate::phase::{Phase, reach};

/// Bytes of pages that sled keeps in memory.
const CACHE: u64 = 8 * 1024 * 1024;
/// Bytes that must be free for an open: snapshot, first segments, directory entries.
const ROOM: usize = 1024 * 1024;

/// How often, and how long each time, a lock is waited for: one second in all.
const LOCK_TRIES: u32 = 50;
const LOCK_WAIT: Duration = Duration::from_millis(20);

/// Changes of one tree: `None` removes the key.
pub(super) type Writes = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// Changes of all trees.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) state: Writes,
    pub(super) outbox: Writes,
    pub(super) meta: Writes,
}

impl Changes {
    fn len(&self) -> usize {
        self.state.len() + self.outbox.len() + self.meta.len()
    }
}

/// The open database.
pub(super) struct Trees {
    pub(super) path: PathBuf,
    pub(super) state: Tree,
    pub(super) outbox: Tree,
    pub(super) meta: Tree,
    db: Db,
    log: Log,
}

impl Trees {
    /// Opens the database in directory `path`; both are created if missing.
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        prepare(path)?;
        let db = open_unlocked(path)?;
        let [state, outbox, meta] = guarded(path, || {
            let trees = [db.open_tree("state")?, db.open_tree("outbox")?, db.open_tree("meta")?];
            db.flush()?;
            Ok(trees)
        })?;
        let log = Log::new(sync_once(path)?);
        Ok(Self { path: path.to_owned(), state, outbox, meta, db, log })
    }

    /// Writes all changes or none, and returns when they are on the disk.
    pub(super) fn write(&mut self, changes: &Changes) -> Result<(), StoreError> {
        guarded(&self.path, || {
            (&self.state, &self.outbox, &self.meta)
                .transaction(|(state, outbox, meta)| {
                    apply(state, &changes.state)?;
                    apply(outbox, &changes.outbox)?;
                    apply(meta, &changes.meta)
                })
                .map_err(storage)?;
            reach(Phase::Committing);
            self.db.flush()
        })?;
        free_old_pages(changes.len());
        self.log.sync().map_err(|error| StoreError::io(&self.path, error))
    }

    /// The value of a key.
    pub(super) fn get(&self, tree: &Tree, key: &[u8]) -> Result<Option<IVec>, StoreError> {
        guarded(&self.path, || tree.get(key))
    }

    /// A whole value from its head and its further chunks, and how many of these there are.
    pub(super) fn join(
        &self,
        tree: &Tree,
        head: &IVec,
        chunk_key: impl Fn(u16) -> Vec<u8>,
    ) -> Result<(u16, Vec<u8>), StoreError> {
        let (further, first) = keys::parse_head(head)
            .ok_or_else(|| StoreError::corrupt(&self.path, "a value without a head"))?;
        let mut value = first.to_vec();
        for index in 1..=further {
            let chunk = self.get(tree, &chunk_key(index))?;
            let chunk = chunk.ok_or_else(|| {
                StoreError::corrupt(&self.path, format!("chunk {index} of {further} is missing"))
            })?;
            value.extend_from_slice(&chunk);
        }
        Ok((further, value))
    }

    /// The keys and values of a range of `tree`, in order; an error where a damage is met.
    pub(super) fn range<'a, K: AsRef<[u8]>, R: RangeBounds<K>>(
        &'a self,
        tree: &Tree,
        keys: R,
    ) -> impl Iterator<Item = Result<(IVec, IVec), StoreError>> + use<'a, K, R> {
        let mut items = tree.range(keys);
        iter::from_fn(move || guarded(&self.path, || items.next().transpose()).transpose())
    }

    /// Calls `each` with the keys and values of `tree` that begin with `prefix`, in order.
    pub(super) fn scan(
        &self,
        tree: &Tree,
        prefix: &[u8],
        mut each: impl FnMut(&IVec, &IVec) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        for item in self.range(tree, prefix..) {
            let (key, value) = item?;
            if !key.starts_with(prefix) {
                break;
            }
            each(&key, &value)?;
        }
        Ok(())
    }
}

/// Lets go of the memory of pages that a transaction of so many writes has replaced.
///
/// sled replaces a page for every write and leaves the old one to crossbeam-epoch, which frees a few whenever somebody
/// looks at the database. Hardly anybody does here, and a burst would pile up tens of megabytes.
fn free_old_pages(writes: usize) {
    // A call frees up to 512 pieces, a write leaves a handful; the first calls only advance the epoch.
    for _ in 0..3 + writes / 64 {
        crossbeam_epoch::pin().flush();
    }
}

/// Opens the database, waiting a little for its lock: sled's threads may still hold that of a
/// database that this process has just closed.
fn open_unlocked(path: &Path) -> Result<Db, StoreError> {
    let config = ::sled::Config::new().path(path).cache_capacity(CACHE).flush_every_ms(None);
    for _ in 0..LOCK_TRIES {
        match guarded(path, || config.open()) {
            Err(StoreError::Locked { .. }) => thread::park_timeout(LOCK_WAIT),
            other => return other,
        }
    }
    guarded(path, || config.open())
}

fn apply(
    tree: &TransactionalTree,
    writes: &Writes,
) -> Result<(), ::sled::transaction::ConflictableTransactionError<()>> {
    for (key, value) in writes {
        match value {
            Some(value) => tree.insert(key.as_slice(), value.as_slice())?,
            None => tree.remove(key.as_slice())?,
        };
    }
    Ok(())
}

fn storage(error: TransactionError<()>) -> ::sled::Error {
    match error {
        TransactionError::Storage(error) => error,
        TransactionError::Abort(()) => unreachable!("no transaction of ours aborts"),
    }
}

/// Runs `work` of sled's; its panics are damage of the store at `path`.
fn guarded<T>(
    path: &Path,
    work: impl FnOnce() -> Result<T, ::sled::Error>,
) -> Result<T, StoreError> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|error| StoreError::sled(path, error)),
        Err(panic) => Err(StoreError::corrupt(path, panic_text(&*panic))),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("sled panicked: {}", text.unwrap_or("without a message"))
}

/// Makes `path` a directory that sled can be let into.
fn prepare(path: &Path) -> Result<(), StoreError> {
    let io = |error| StoreError::io(path, error);
    match fs::metadata(path) {
        Ok(found) if !found.is_dir() => {
            return Err(StoreError::NotADirectory { path: path.to_owned() });
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io)?;
        }
        Err(error) => return Err(io(error)),
    }
    remove_half_snapshots(path).map_err(io)?;
    find_room(path).map_err(io)
}

fn remove_half_snapshots(path: &Path) -> io::Result<()> {
    for snapshot in snapshots(path)? {
        if snapshot.extension().is_some_and(|extension| extension == "generating") {
            fs::remove_file(snapshot)?;
        }
    }
    Ok(())
}

/// sled's snapshots in `path`, half-written ones included.
pub(super) fn snapshots(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for file in fs::read_dir(path)? {
        let file = file?;
        if file.file_name().as_encoded_bytes().starts_with(b"snap.") {
            found.push(file.path());
        }
    }
    Ok(found)
}

/// Fails as a write of sled's would, but does no harm.
fn find_room(path: &Path) -> io::Result<()> {
    let probe = path.join("room");
    let written = File::create(&probe).and_then(|mut file| file.write_all(&vec![0; ROOM]));
    fs::remove_file(&probe).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })?;
    written
}

/// Syncs what sled wrote at open and never again; returns a descriptor of its log.
fn sync_once(path: &Path) -> Result<File, StoreError> {
    let sync = |path: &Path| {
        let opened = File::options().read(true).write(path.is_file()).open(path);
        let file = opened.map_err(|error| StoreError::io(path, error))?;
        file.sync_all().map_err(|error| StoreError::io(path, error))?;
        Ok(file)
    };
    sync(&path.join("conf"))?;
    for snapshot in snapshots(path).map_err(|error| StoreError::io(path, error))? {
        sync(&snapshot)?;
    }
    let log = sync(&path.join("db"))?;
    sync(path)?;
    sync_parent(path).map_err(|error| StoreError::io(path, error))?;
    Ok(log)
}

/// Writes the file at `path`: all of `content`, or what was there before, whenever the power goes.
pub(super) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    sync_parent(path)
}

/// Makes the directory entry of `path` durable.
pub(super) fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}
