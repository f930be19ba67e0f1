//! A disk whose power can be cut: a file system in this process's memory that knows what was synced.
//!
//! The rules are those of a journal with ordered metadata, such as ext4's: a sync of anything makes all names so far
//! last; contents last when their own file was synced. Of what was written since, a power cut may leave anything.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyStatfs, ReplyWrite,
    Request, TimeOrNow, WriteFlags,
};
use tempfile::TempDir;

const BLOCK: usize = 4096;
const BLOCKS: u64 = 1 << 20;
/// Nothing may be believed for longer: the kernel asks each time.
const TTL: Duration = Duration::ZERO;

/// What changed a file since it was synced.
#[derive(Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Resize(usize),
}

impl Change {
    fn apply(&self, data: &mut Vec<u8>) {
        match self {
            Self::Resize(size) => data.resize(*size, 0),
            Self::Write(at, bytes) => {
                data.resize(data.len().max(at + bytes.len()), 0);
                data[*at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
    }

    /// In pieces that a disk writes whole.
    fn blocks(&self) -> Vec<Self> {
        let Self::Write(at, bytes) = self else { return vec![self.clone()] };
        let (mut at, mut rest, mut blocks) = (*at, &bytes[..], Vec::new());
        while !rest.is_empty() {
            let (block, others) = rest.split_at((BLOCK - at % BLOCK).min(rest.len()));
            blocks.push(Self::Write(at, block.to_vec()));
            (at, rest) = (at + block.len(), others);
        }
        blocks
    }
}

#[derive(Clone, Default)]
struct File {
    data: Vec<u8>,
    synced: Vec<u8>,
    changes: Vec<Change>,
}

impl File {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.data);
        self.changes.push(change);
    }

    fn sync(&mut self) {
        self.synced.clone_from(&self.data);
        self.changes.clear();
    }
}

type Directory = BTreeMap<OsString, u64>;

/// What a power cut leaves of what was not synced.
#[derive(Clone, Copy, Debug)]
pub enum Left {
    Nothing,
    All,
    /// What was written first.
    Beginning,
    /// Each block or not.
    Blocks,
}

impl Left {
    pub const EACH: [Self; 4] = [Self::Nothing, Self::All, Self::Beginning, Self::Blocks];

    fn of(self, file: &File, rng: &mut Rng) -> File {
        let mut blocks: Vec<_> = file.changes.iter().flat_map(Change::blocks).collect();
        match self {
            Self::Nothing => blocks.clear(),
            Self::All => {}
            Self::Beginning => blocks.truncate(rng.usize(0..=blocks.len())),
            Self::Blocks => blocks.retain(|_| rng.bool()),
        }
        let mut data = file.synced.clone();
        blocks.iter().for_each(|block| block.apply(&mut data));
        File { synced: data.clone(), data, changes: Vec::new() }
    }
}

/// What is on the disk.
#[derive(Clone)]
pub struct Contents {
    files: BTreeMap<u64, File>,
    directories: BTreeMap<u64, Directory>,
    /// Directories as they were at the last sync of anything.
    lasting: BTreeMap<u64, Directory>,
    /// What the next new thing is called.
    next: u64,
    /// Writes and syncs so far.
    operations: u64,
    /// Whether syncs fail, which leaves what was written since the last one in doubt.
    sync_fails: bool,
    /// How many writes more there is room for.
    room: u64,
}

impl Default for Contents {
    fn default() -> Self {
        let root = BTreeMap::from([(INodeNo::ROOT.0, Directory::new())]);
        Self {
            files: BTreeMap::new(),
            directories: root.clone(),
            lasting: root,
            next: INodeNo::ROOT.0 + 1,
            operations: 0,
            sync_fails: false,
            room: u64::MAX,
        }
    }
}

impl Contents {
    /// What is there when the power is back.
    pub fn after_a_power_cut(&self, left: Left, rng: &mut Rng) -> Self {
        let files = self.files.iter().map(|(&inode, file)| (inode, left.of(file, rng))).collect();
        Self {
            files,
            directories: self.lasting.clone(),
            sync_fails: false,
            room: u64::MAX,
            ..self.clone()
        }
    }

    fn attributes(&self, inode: u64) -> Option<FileAttr> {
        let (kind, size) = match self.files.get(&inode) {
            Some(file) => (FileType::RegularFile, file.data.len() as u64),
            None => self.directories.get(&inode).map(|_| (FileType::Directory, 0))?,
        };
        Some(FileAttr {
            ino: INodeNo(inode),
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm: if kind == FileType::Directory { 0o700 } else { 0o600 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: BLOCK as u32,
            flags: 0,
        })
    }

    fn names(&mut self, directory: INodeNo) -> Result<&mut Directory, Errno> {
        self.directories.get_mut(&directory.0).ok_or(Errno::ENOENT)
    }

    fn find(&self, parent: INodeNo, name: &OsStr) -> Result<u64, Errno> {
        let names = self.directories.get(&parent.0).ok_or(Errno::ENOENT)?;
        names.get(name).copied().ok_or(Errno::ENOENT)
    }

    fn add(&mut self, parent: INodeNo, name: &OsStr) -> Result<u64, Errno> {
        let inode = self.next;
        self.names(parent)?.insert(name.to_owned(), inode);
        self.next += 1;
        Ok(inode)
    }

    fn remove(&mut self, parent: INodeNo, name: &OsStr) -> Result<(), Errno> {
        self.names(parent)?.remove(name).map(drop).ok_or(Errno::ENOENT)
    }

    fn change(&mut self, inode: INodeNo, change: Change) -> Result<(), Errno> {
        self.room = self.room.checked_sub(1).ok_or(Errno::ENOSPC)?;
        self.files.get_mut(&inode.0).ok_or(Errno::ENOENT)?.change(change);
        Ok(())
    }

    fn sync(&mut self, inode: INodeNo) -> Result<(), Errno> {
        if self.sync_fails {
            return Err(Errno::EIO);
        }
        self.lasting.clone_from(&self.directories);
        if let Some(file) = self.files.get_mut(&inode.0) {
            file.sync();
        }
        Ok(())
    }
}

/// Called before each write and each sync, with how many there were.
pub type Watch = Box<dyn FnMut(u64, &Contents) + Send>;

struct Inside {
    contents: Contents,
    watch: Watch,
}

/// A mounted disk. It is unmounted with its owner.
pub struct Disk {
    inside: Arc<Mutex<Inside>>,
    session: Option<BackgroundSession>,
    dir: TempDir,
}

impl Disk {
    /// The error is that of the mount.
    pub fn mount(contents: Contents, watch: Watch) -> std::io::Result<Self> {
        let dir = tempfile::tempdir()?;
        let inside = Arc::new(Mutex::new(Inside { contents, watch }));
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("tidegate-test".into()), MountOption::RW];
        let session = fuser::spawn_mount(Files(inside.clone()), dir.path(), &config)?;
        Ok(Self { inside, session: Some(session), dir })
    }

    /// Where a store lies on it.
    pub fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    /// From now on nothing that is written reaches the disk for sure, and it says so.
    pub fn fail_syncs(&self) {
        self.inside.lock().unwrap().contents.sync_fails = true;
    }

    /// Nothing fails any more.
    pub fn mend(&self) {
        let contents = &mut self.inside.lock().unwrap().contents;
        (contents.sync_fails, contents.room) = (false, u64::MAX);
    }

    /// So many writes more fit.
    pub fn leave_room_for(&self, writes: u64) {
        self.inside.lock().unwrap().contents.room = writes;
    }

    pub fn contents(&self) -> Contents {
        self.inside.lock().unwrap().contents.clone()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            let _ = session.umount_and_join();
        }
    }
}

/// What the kernel asks.
struct Files(Arc<Mutex<Inside>>);

impl Files {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().expect("no panic inside")
    }

    /// For a write or a sync.
    fn watched(&self) -> MutexGuard<'_, Inside> {
        let mut inside = self.lock();
        inside.contents.operations += 1;
        let Inside { contents, watch } = &mut *inside;
        watch(contents.operations, contents);
        inside
    }
}

fn entry(contents: &Contents, found: Result<u64, Errno>, reply: ReplyEntry) {
    match found.and_then(|inode| contents.attributes(inode).ok_or(Errno::ENOENT)) {
        Ok(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
        Err(error) => reply.error(error),
    }
}

fn done(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for Files {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let inside = self.lock();
        entry(&inside.contents, inside.contents.find(parent, name), reply);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.lock().contents.attributes(inode.0) {
            Some(attributes) => reply.attr(&TTL, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let contents = &mut self.lock().contents;
        let resized =
            size.map_or(Ok(()), |size| contents.change(inode, Change::Resize(size as usize)));
        match resized.and_then(|()| contents.attributes(inode.0).ok_or(Errno::ENOENT)) {
            Ok(attributes) => reply.attr(&TTL, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        let contents = &mut self.lock().contents;
        let added = contents.add(parent, name);
        if let Ok(inode) = added {
            contents.directories.insert(inode, Directory::new());
        }
        entry(contents, added, reply);
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let contents = &mut self.lock().contents;
        match contents.add(parent, name) {
            Ok(inode) => {
                contents.files.insert(inode, File::default());
                let attributes = contents.attributes(inode).expect("it was just made");
                let (handle, flags) = (FileHandle(0), FopenFlags::empty());
                reply.created(&TTL, &attributes, Generation(0), handle, flags);
            }
            Err(error) => reply.error(error),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(self.lock().contents.remove(parent, name), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let contents = &mut self.lock().contents;
        let empty = contents.find(parent, name).and_then(|inode| {
            let names = contents.names(INodeNo(inode))?;
            if names.is_empty() { Ok(()) } else { Err(Errno::ENOTEMPTY) }
        });
        done(empty.and_then(|()| contents.remove(parent, name)), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let contents = &mut self.lock().contents;
        let moved = contents.find(parent, name).and_then(|inode| {
            contents.remove(parent, name)?;
            contents.names(new_parent)?.insert(new_name.to_owned(), inode);
            Ok(())
        });
        done(moved, reply);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let inside = self.lock();
        let Some(file) = inside.contents.files.get(&inode.0) else {
            return reply.error(Errno::ENOENT);
        };
        let from = file.data.len().min(offset as usize);
        let to = file.data.len().min(from + size as usize);
        reply.data(&file.data[from..to]);
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let change = Change::Write(offset as usize, data.to_vec());
        match self.watched().contents.change(inode, change) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        done(self.watched().contents.sync(inode), reply);
    }

    fn fsyncdir(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        done(self.watched().contents.sync(inode), reply);
    }

    fn readdir(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let inside = self.lock();
        let names = inside.contents.directories.get(&inode.0).into_iter().flatten();
        for (at, (name, &inode)) in (1..).zip(names).skip(offset as usize) {
            let kind = inside.contents.attributes(inode).expect("it has a name").kind;
            if reply.add(INodeNo(inode), at, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let size = BLOCK as u32;
        reply.statfs(BLOCKS, BLOCKS, BLOCKS, BLOCKS, BLOCKS, size, 255, size);
    }
}
