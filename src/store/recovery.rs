//! A store that cannot be opened: repaired, or moved aside and rebuilt.
//!
//! 1. From its log alone, without sled's snapshots, which only shorten the replay of the log, and
//!    without its `conf`, which says what we know. A torn one of these costs nothing then.
//! 2. Otherwise a new store is built next to the damaged one (`<path>.rebuilding`), with all that
//!    can still be read of the old one. When it is whole and durable, the old one is moved to
//!    `<path>.broken-<n>` and the new one into its place.
//!
//! A crash at any point leaves the damaged store in place, or the rebuilt one complete: an
//! interrupted rebuild is thrown away, unless the old store had been moved already.
//!
//! A mended store need not hold the last commits, and what is carried over need not be the state of
//! one moment. So both have a new generation: nothing they say contradicts what was said before.
//!
//! sled may also never come back from a damaged store: its pages can form a loop, which it walks
//! until memory is exhausted, or a thread of its own panics and no store opens in this process any
//! more. So opens that began and did not end are counted beside the database. After
//! [`UNFINISHED_OPENS`] of them the store is moved aside without another look; nothing of it is
//! carried over.
//!
//! Not every damage shows. sled takes a log that is cut short or spoilt in its middle (by the
//! medium or by hand; the crash of a process or of the machine does not do this) for one that ends
//! there: the store goes back to an earlier commit and says nothing. Of 300 logs cut at random
//! places 96 did so, and 11 of these were found damaged at the open after that, when a commit made
//! in between was lost; of 300 with 0.4 % overwritten 91 went back. There is no telling; a commit
//! counter outside the log would cost a write for each commit.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::StoreError;
use super::sled::{OpenOptions, SledStore};
use super::trees::{snapshots, sync_parent};
use super::{salvage, writer};

/// How many damaged stores are kept; the oldest is removed for a further one.
pub const KEEP_BROKEN: usize = 3;

/// So many opens in a row that never ended, and the store is not touched again.
pub const UNFINISHED_OPENS: u32 = 3;

/// File in the store that counts opens which began and did not end.
const OPENING: &str = "opening";

/// How long an open may take beside what goes with the length of the store.
const LONGEST_OPEN: Duration = Duration::from_secs(300);

/// What is read of a store in a second at least, the medium being slow and the store read several times to mend it.
const SLOWEST: u64 = 1 << 20;

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

/// What is left of the contents of a damaged store. Its generation is new in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// What its log holds: everything if only other files were damaged, which cannot be told.
    Log,
    /// Some, in a new store.
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
    writer::refuse_newer(path)?;
    let unfinished = begin_open(path).map_err(|error| StoreError::io(path, error))?;
    if unfinished >= UNFINISHED_OPENS {
        let cause = format!("{}: damaged: {unfinished} opens did not end", path.display());
        return rebuild(path, options, cause, Salvage::Nothing);
    }
    let opened = open_or_mend(path, options);
    // A stopped engine ends with the process: the open counts as one that did not end.
    if !matches!(opened, Err(StoreError::Stopped { .. })) {
        end_open(path).map_err(|error| StoreError::io(path, error))?;
    }
    opened
}

/// How long [`open`] takes at the most with the store at `path`, mending it included. What takes longer does not end.
pub fn longest_open(path: &Path) -> Duration {
    let files = fs::read_dir(path).into_iter().flatten().flatten();
    let bytes: u64 = files.filter_map(|file| file.metadata().ok()).map(|data| data.len()).sum();
    LONGEST_OPEN + Duration::from_secs(bytes / SLOWEST)
}

fn open_or_mend(path: &Path, options: OpenOptions) -> Result<Opened, StoreError> {
    let damage = match SledStore::open(path, options) {
        Ok(store) => return Ok(Opened { store, recovered: None }),
        Err(error) if error.is_damage() => error,
        Err(error) => return Err(error),
    };
    match from_log_alone(path, options)? {
        Some(store) => {
            let moved_to = move_aside(&aside(path), path)?;
            let recovered = Recovered { moved_to, cause: damage.to_string(), kept: Kept::Log };
            Ok(Opened { store, recovered: Some(recovered) })
        }
        None => rebuild(path, options, damage.to_string(), Salvage::Readable),
    }
}

/// Notes that an open begins; returns how many before it did not end. It need not survive a power
/// cut, and so is not synced.
fn begin_open(path: &Path) -> io::Result<u32> {
    if !path.is_dir() {
        return Ok(0);
    }
    let note = path.join(OPENING);
    let unfinished = match fs::read_to_string(&note) {
        Ok(text) => text.trim().parse().unwrap_or(1),
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    fs::write(note, format!("{}\n", unfinished + 1))?;
    Ok(unfinished)
}

/// Notes that the open ended, well or not.
fn end_open(path: &Path) -> io::Result<()> {
    match fs::remove_file(path.join(OPENING)) {
        Err(error)
            if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Err(error)
        }
        _ => Ok(()),
    }
}

/// What is tried to be kept of a store that is rebuilt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Salvage {
    Readable,
    /// It is not even opened.
    Nothing,
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
        Ok(mut store) => {
            store.renew(options)?;
            Ok(Some(store))
        }
        Err(error) if error.is_damage() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Builds a new store beside the damaged one and puts it in its place.
fn rebuild(
    path: &Path,
    mut options: OpenOptions,
    cause: String,
    salvage: Salvage,
) -> Result<Opened, StoreError> {
    let rebuilt = rebuilding(path);
    if let Some(last) = SledStore::last_generation(path) {
        options.new_generation = options.new_generation.after(last);
    }
    let new = SledStore::open(&rebuilt, options)?;
    let old = (salvage == Salvage::Readable).then_some(path);
    let kept = salvage::carry(old, new)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Generation;
    use crate::store::Store as _;
    use crate::time::ArrivalTime;

    fn open_with(path: &Path, generation: u64) -> Opened {
        let new_generation = Generation(generation);
        open(path, OpenOptions { new_generation, now: ArrivalTime(1) }).unwrap()
    }

    #[test]
    fn opens_that_do_not_end_are_counted_and_one_that_ends_forgets_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("store");
        drop(open_with(&path, 1));
        for unfinished in 0..UNFINISHED_OPENS - 1 {
            assert_eq!(begin_open(&path).unwrap(), unfinished);
        }
        let opened = open_with(&path, 2);
        assert_eq!((opened.recovered, opened.store.generation()), (None, Generation(1)));
        assert_eq!(begin_open(&path).unwrap(), 0);
    }

    #[test]
    fn a_store_whose_opens_never_end_is_moved_aside_without_another_look() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("store");
        drop(open_with(&path, 1));
        let before = fs::read(path.join("db")).unwrap();
        for _ in 0..UNFINISHED_OPENS {
            begin_open(&path).unwrap();
        }
        let Opened { store, recovered } = open_with(&path, 2);
        let recovered = recovered.unwrap();
        assert_eq!(recovered.kept, Kept::Part { state: 0, outbox: 0 });
        assert!(recovered.cause.contains("3 opens did not end"), "{}", recovered.cause);
        assert_eq!(fs::read(recovered.moved_to.join("db")).unwrap(), before);
        assert_eq!(store.generation(), Generation(2));
        drop(store);
        assert_eq!(open_with(&path, 3).recovered, None, "the new one starts at zero");
    }

    #[test]
    fn a_rebuilt_store_is_the_newer_one_although_the_clock_was_set_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        drop(open_with(&path, 9));
        for after in [10, 11] {
            for _ in 0..UNFINISHED_OPENS {
                begin_open(&path).unwrap();
            }
            let Opened { mut store, .. } = open_with(&path, 2);
            assert_eq!(store.generation(), Generation(after));
            let options = OpenOptions { new_generation: Generation(2), now: ArrivalTime(1) };
            if after == 11 {
                store.renew(options).unwrap();
                assert_eq!(store.generation(), Generation(12), "renewed in place");
                assert_eq!(SledStore::last_generation(&path), Some(Generation(12)));
            }
        }
    }
}
