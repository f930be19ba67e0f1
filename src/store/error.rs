//! What can go wrong with a store, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::writer::Writer;

/// Why a store cannot be opened, read or written.
#[derive(Debug, Error)]
pub enum StoreError {
    /// There is something else at the path.
    #[error("{path}: not a directory; the store needs a directory of its own")]
    NotADirectory {
        /// The store, or the part of its path that is in the way.
        path: PathBuf,
    },
    /// The file system or its permissions refuse.
    #[error("{path}: permission denied; the directory must be writable by the agent's user")]
    PermissionDenied {
        /// The store.
        path: PathBuf,
    },
    /// Mounted read-only, often by the kernel after errors of the medium.
    #[error("{path}: the file system is read-only; see the kernel log for errors of the medium")]
    ReadOnly {
        /// The store.
        path: PathBuf,
    },
    /// No space, or over a disk quota.
    #[error("{path}: no space left on the device; make room, or give the outbox a smaller quota")]
    DiskFull {
        /// The store.
        path: PathBuf,
    },
    /// Another process has it open.
    #[error("{path}: in use by another process; is another tidegate running?")]
    Locked {
        /// The store.
        path: PathBuf,
    },
    /// Written by a newer release.
    #[error(
        "{path}: store format {found}, this release reads up to {supported}; \
         install the newer release again, or move the directory away to start afresh"
    )]
    NewerFormat {
        /// The store.
        path: PathBuf,
        /// Format in the store.
        found: u16,
        /// Highest format that is read.
        supported: u16,
    },
    /// Written by a program whose stores this one cannot read; it has left a note of that.
    #[error(
        "{path}: written by {writer}; this is {this}: \
         install tidegate {} again, or move the directory away to start afresh",
        writer.program
    )]
    Newer {
        /// The store.
        path: PathBuf,
        /// Who wrote it.
        writer: Box<Writer>,
        /// This program.
        this: Box<Writer>,
    },
    /// What is on the disk makes no sense.
    #[error("{path}: damaged: {detail}")]
    Corrupt {
        /// The store.
        path: PathBuf,
        /// What was met.
        detail: String,
    },
    /// A thread of sled's own panicked; it serves nobody in this process any more.
    #[error("{path}: the database engine has stopped ({detail}); the process must be restarted")]
    Stopped {
        /// The store.
        path: PathBuf,
        /// What sled said.
        detail: String,
    },
    /// The disk failed.
    #[error("{path}: {source}")]
    Io {
        /// The store, or the file in it.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A key of the engine's state is too long for a page.
    #[error("a state key of {length} bytes; at most {limit} are stored")]
    KeyTooLong {
        /// Its length in bytes.
        length: usize,
        /// [`super::keys::MAX_KEY`].
        limit: usize,
    },
    /// A value is too long to be stored.
    #[error("a value of {length} bytes; at most {limit} are stored")]
    ValueTooLong {
        /// Its length in bytes.
        length: usize,
        /// [`super::keys::MAX_VALUE`].
        limit: usize,
    },
    /// An earlier commit failed.
    #[error("an earlier commit failed; close the store and open it again")]
    Poisoned,
    /// A fault that a simulation asked for.
    #[error("injected fault")]
    Injected,
}

impl StoreError {
    /// Whether what is on the disk is the trouble, not access to it: [`super::recovery`] can help.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Corrupt { .. })
    }

    /// Whether a newer program wrote the store: it cannot be used by this one, however often it is tried.
    pub fn is_newer(&self) -> bool {
        matches!(self, Self::NewerFormat { .. } | Self::Newer { .. })
    }

    /// What the system said of `path`.
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        use io::ErrorKind as Kind;
        let path = path.to_owned();
        match source.kind() {
            Kind::PermissionDenied => Self::PermissionDenied { path },
            Kind::ReadOnlyFilesystem => Self::ReadOnly { path },
            Kind::StorageFull | Kind::QuotaExceeded => Self::DiskFull { path },
            Kind::NotADirectory => Self::NotADirectory { path },
            _ => Self::Io { path, source },
        }
    }

    /// What sled said of the store at `path`.
    pub(super) fn sled(path: &Path, error: ::sled::Error) -> Self {
        match error {
            ::sled::Error::Io(source) if source.to_string().contains("could not acquire lock") => {
                Self::Locked { path: path.to_owned() }
            }
            ::sled::Error::Io(source) if is_nonsense(&source) => {
                Self::corrupt(path, source.to_string())
            }
            ::sled::Error::Io(source) => Self::io(path, source),
            // Not damage: the store may be whole, and nothing can be opened in its place either.
            ::sled::Error::ReportableBug(detail) if detail.contains("IO thread") => {
                Self::Stopped { path: path.to_owned(), detail }
            }
            other => Self::corrupt(path, other.to_string()),
        }
    }

    pub(super) fn corrupt(path: &Path, detail: impl Into<String>) -> Self {
        Self::Corrupt { path: path.to_owned(), detail: detail.into() }
    }
}

/// Whether an error was made up on reading bytes that make no sense, and not given by the system.
fn is_nonsense(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    let made_up = error.raw_os_error().is_none();
    made_up
        && matches!(
            error.kind(),
            Kind::Other | Kind::InvalidData | Kind::InvalidInput | Kind::UnexpectedEof
        )
}
