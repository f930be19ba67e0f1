//! As whom the agent runs, and as whom it is checked: two things, where root checks and a service runs.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Users that systemd makes up for services with `DynamicUser=`.
const DYNAMIC: std::ops::RangeInclusive<u32> = 61_184..=65_519;

/// A user and his first group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl User {
    /// The one that this process runs as.
    pub(super) fn me() -> Option<Self> {
        Self::of(Path::new("/proc/self"))
    }

    /// The owner of a file, or of a process.
    fn of(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        Some(Self { uid: found.uid(), gid: found.gid() })
    }

    /// Whether the bits of a file allow him this (4 reading, 2 writing, 1 searching), short of further groups of his.
    pub(super) fn may(self, file: &fs::Metadata, bits: u32) -> bool {
        let shift = match self {
            Self { uid: 0, .. } => return true,
            Self { uid, .. } if uid == file.uid() => 6,
            Self { gid, .. } if gid == file.gid() => 3,
            _ => 0,
        };
        (file.mode() >> shift) & bits == bits
    }

    pub(super) fn name(self) -> String {
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let mut named = users.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            (fields.nth(1)?.parse() == Ok(self.uid)).then(|| name.to_owned())
        });
        named.next().unwrap_or_else(|| match DYNAMIC.contains(&self.uid) {
            true => format!("a dynamic user ({})", self.uid),
            false => format!("user {}", self.uid),
        })
    }
}

/// The agent on this machine, as far as its store tells.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Service {
    /// The process that has the store open.
    pub(super) process: Option<u32>,
    /// As whom it runs, or ran last.
    pub(super) user: Option<User>,
}

impl Service {
    /// By who has the store at this path open; else by its owner.
    pub(super) fn find(store: &Path) -> Self {
        let process = holder(&store.join("db"));
        let user = process.and_then(|pid| User::of(Path::new(&format!("/proc/{pid}"))));
        Self { process, user: user.or_else(|| User::of(store)) }
    }

    /// The user, where he is another one than who checks.
    pub(super) fn other(&self) -> Option<User> {
        let me = User::me()?;
        self.user.filter(|user| user.uid != me.uid)
    }
}

/// The process that holds a lock on a file, which the kernel lists: to try the lock would be in its way.
fn holder(file: &Path) -> Option<u32> {
    let inode = fs::metadata(file).ok()?.ino().to_string();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    // 1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF
    locks.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip_while(|field| *field != "FLOCK").skip(3);
        let (process, place) = (fields.next()?, fields.next()?);
        let found = place.rsplit(':').next() == Some(inode.as_str());
        found.then(|| process.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_a_user_may_is_read_from_the_bits() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let set = |mode| {
            fs::set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
            fs::metadata(file.path()).unwrap()
        };
        let me = User::me().unwrap();
        let stranger = User { uid: 4_000_001, gid: 4_000_001 };
        let kin = User { gid: me.gid, ..stranger };
        assert!(!stranger.may(&set(0o640), 4) && kin.may(&set(0o640), 4));
        assert!(stranger.may(&set(0o644), 4) && !kin.may(&set(0o604), 4));
        assert!(User { uid: 0, gid: 0 }.may(&set(0o000), 7));
    }

    #[test]
    fn who_holds_a_lock_is_found_without_trying_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(holder(file.path()), None);
        let held = file.reopen().unwrap();
        rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
        assert_eq!(holder(file.path()), Some(std::process::id()));
    }

    #[test]
    fn users_are_called_by_their_names() {
        assert_eq!(User { uid: 0, gid: 0 }.name(), "root");
        assert_eq!(User { uid: 61_184, gid: 1 }.name(), "a dynamic user (61184)");
        assert_eq!(User { uid: 4_000_001, gid: 1 }.name(), "user 4000001");
    }
}
