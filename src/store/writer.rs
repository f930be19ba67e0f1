//! Which program wrote a store last, in a file beside the database.
//!
//! A store of a newer program must not be opened: not everything that is new in it can be told from damage, and damage is
//! moved aside. So the file is looked at before the database is, and it is written before the first commit. It is plain
//! text, so that an installer can look, too, before it puts an older program in the place of a newer one:
//!
//! ```text
//! tidegate 0.1.0, store format 1, records 2
//! ```

use std::fs;
use std::io;
use std::path::Path;

use super::error::StoreError;
use super::sled::FORMAT;
use super::trees::replace;
use crate::engine::snapshot::VERSION;

/// The file's name.
const FILE: &str = "written-by";

/// What a program writes into stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// Its version, such as `0.1.0`.
    pub program: String,
    /// Format of its stores.
    pub format: u16,
    /// Version of the engine's records in them.
    pub records: u8,
}

impl Writer {
    /// This program.
    pub fn this() -> Self {
        Self { program: env!("CARGO_PKG_VERSION").into(), format: FORMAT, records: VERSION }
    }

    fn parse(text: &str) -> Option<Self> {
        let (program, rest) =
            text.trim_end().strip_prefix("tidegate ")?.split_once(", store format ")?;
        let (format, records) = rest.split_once(", records ")?;
        let (format, records) = (format.parse().ok()?, records.parse().ok()?);
        Some(Self { program: program.into(), format, records })
    }

    /// Who wrote the store in directory `path`, as far as that is known.
    fn of(path: &Path) -> Option<Self> {
        Self::parse(&fs::read_to_string(path.join(FILE)).ok()?)
    }
}

impl std::fmt::Display for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { program, format, records } = self;
        write!(f, "tidegate {program}, store format {format}, records {records}")
    }
}

/// Refuses the store in directory `path` if it was written by a program whose stores this one cannot read.
///
/// # Errors
/// [`StoreError::Newer`].
pub fn refuse_newer(path: &Path) -> Result<(), StoreError> {
    match Writer::of(path) {
        Some(writer) if writer.format > FORMAT || writer.records > VERSION => {
            let (path, this) = (path.to_owned(), Writer::this());
            Err(StoreError::Newer { path, writer: Box::new(writer), this: Box::new(this) })
        }
        _ => Ok(()),
    }
}

/// Notes that this program writes the store in directory `path`: before it does.
///
/// # Errors
/// The disk is full or failing.
pub fn note(path: &Path) -> Result<(), StoreError> {
    let this = Writer::this();
    if Writer::of(path).as_ref() == Some(&this) {
        return Ok(());
    }
    let written: io::Result<()> = replace(&path.join(FILE), format!("{this}\n").as_bytes());
    written.map_err(|error| StoreError::io(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> tempfile::TempDir {
        let store = tempfile::tempdir().unwrap();
        fs::write(store.path().join(FILE), text).unwrap();
        store
    }

    #[test]
    fn what_is_noted_is_read_again() {
        let store = tempfile::tempdir().unwrap();
        assert_eq!(Writer::of(store.path()), None);
        note(store.path()).unwrap();
        assert_eq!(Writer::of(store.path()), Some(Writer::this()));
        assert!(refuse_newer(store.path()).is_ok());
        let older = written("tidegate 0.0.9, store format 0, records 1\n");
        note(older.path()).unwrap();
        assert_eq!(Writer::of(older.path()), Some(Writer::this()), "it is ours from now on");
    }

    #[test]
    fn a_store_of_a_newer_program_is_refused_and_the_program_is_named() {
        let next =
            |format, records| format!("tidegate 9.8.7, store format {format}, records {records}\n");
        for text in [next(FORMAT + 1, VERSION), next(FORMAT, VERSION + 1)] {
            let refused = refuse_newer(written(&text).path()).expect_err(&text).to_string();
            for told in [text.trim_end(), "install tidegate 9.8.7 again", env!("CARGO_PKG_VERSION")]
            {
                assert!(refused.contains(told), "{told:?} is not in {refused}");
            }
        }
        assert!(
            refuse_newer(written(&next(FORMAT, VERSION)).path()).is_ok(),
            "its stores are ours"
        );
    }

    #[test]
    fn what_cannot_be_read_refuses_nothing() {
        for text in
            ["", "tidegate", "tidegate 9, store format x, records 9", "tidegate 9, records 9"]
        {
            assert!(refuse_newer(written(text).path()).is_ok(), "{text:?}");
        }
    }
}
