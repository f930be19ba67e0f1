//! sled's log file, as far as it is ours: made durable after each commit, and given room before it needs it.
//!
//! A file that grows by a few kilobytes with every commit costs more in the file system's journal than in the file:
//! its size, its blocks and the map of free blocks change each time. Measured on ext4, a small commit wrote 16 KB of
//! its own and 20 KB of journal. Blocks that are reserved ahead, a few megabytes at once, take that to 12 KB.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

/// Bytes that are reserved at once.
const ROOM: u64 = 4 << 20;
/// More is reserved when less than this is left.
const LEAST: u64 = 512 << 10;

/// The log file.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    /// Size of the file up to which blocks are reserved.
    reserved: u64,
    /// Size of the file when that was found out.
    size: u64,
}

impl Log {
    /// A file that is open for reading and writing.
    pub(super) fn new(file: File) -> Self {
        Self { file, reserved: 0, size: 0 }
    }

    /// Returns when all that was written is on the disk.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.make_room();
        self.file.sync_data()
    }

    /// Keeps room behind the end of the file. It only saves writes: where there is none to be had, commits go on.
    fn make_room(&mut self) {
        let Ok(size) = self.file.metadata().map(|metadata| metadata.size()) else { return };
        // What is reserved goes when the file is cut.
        if size < self.size {
            self.reserved = size;
        }
        self.size = size;
        if self.reserved < size + LEAST {
            self.reserved = size + ROOM;
            let _saves_nothing = reserve(&self.file, size, ROOM);
        }
    }
}

/// Reserves blocks for `length` bytes from `offset` on, without making the file longer.
#[expect(unsafe_code, reason = "the standard library cannot reserve blocks")]
fn reserve(file: &File, offset: u64, length: u64) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let (Ok(offset), Ok(length)) = (i64::try_from(offset), i64::try_from(length)) else {
        return Err(io::ErrorKind::FileTooLarge.into());
    };
    // SAFETY: the descriptor is open for as long as `file` is borrowed; no memory is handed over.
    let result =
        unsafe { libc::fallocate64(file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, offset, length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn room_is_made_behind_the_end_and_again_when_it_is_used_up_or_cut_off() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut log = Log::new(file.reopen().unwrap());
        let mut writer = file.reopen().unwrap();
        if let Err(error) = reserve(&log.file, 0, 4096) {
            println!("skipped: this file system reserves nothing: {error}");
            return;
        }
        let mut reserves = |size: u64, behind: u64| {
            log.sync().unwrap();
            let metadata = log.file.metadata().unwrap();
            assert_eq!(metadata.size(), size, "that of what was written");
            let blocks = metadata.blocks() * 512;
            assert!(blocks >= size + behind, "{blocks} bytes for {size}");
        };
        reserves(0, ROOM);
        writer.write_all(&vec![1; 1 << 20]).unwrap();
        reserves(1 << 20, ROOM - (1 << 20));
        writer.write_all(&vec![1; 3 << 20]).unwrap();
        reserves(4 << 20, ROOM);
        writer.set_len(1 << 20).unwrap();
        reserves(1 << 20, ROOM);
    }
}
