//! Whose the files of a store are.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

use super::error::StoreError;

/// What root has made in the store of another user becomes that user's, who could not write it otherwise.
///
/// # Errors
/// A file cannot be looked at or given away.
pub fn give_back(store: &Path) -> Result<(), StoreError> {
    give_to_owner(store).map_err(|error| StoreError::io(store, error))
}

fn give_to_owner(store: &Path) -> io::Result<()> {
    let owner = fs::metadata(store)?;
    for entry in fs::read_dir(store)? {
        let entry = entry?;
        let found = entry.metadata()?;
        if found.uid() != owner.uid() {
            chown(entry.path(), Some(owner.uid()), Some(owner.gid()))?;
        }
        if found.is_dir() {
            give_to_owner(&entry.path())?;
        }
    }
    Ok(())
}
