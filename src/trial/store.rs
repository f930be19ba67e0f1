//! The directory of the store, and the socket: whether they can be made and written, by whom, and how much room there is.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Access, StatVfs, StatVfsMountFlags, access, statfs, statvfs};
use tokio::time::timeout;

use super::user::{Service, User};
use super::{Cause, Section, bytes};
use crate::agent::status_places;
use crate::config::Config;
use crate::status::asking::{AskError, ask_at};
use crate::store::writer;

/// What the store takes besides what waits in it, and what the file system needs to go on.
const ROOM: u64 = 32 << 20;

/// With less than this the store cannot be opened or soon fails.
const LEAST: u64 = 8 << 20;

/// Fewer free entries than this, and files of the store may find no place.
const ENTRIES: u64 = 1_000;

/// A file system in memory (`TMPFS_MAGIC`, `RAMFS_MAGIC` of `linux/magic.h`).
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// How long a running agent may take to say how it is.
const PATIENCE: Duration = Duration::from_secs(3);

/// Whether `path` can be used as a store.
pub(super) fn section(config: &Config, service: &Service) -> Section {
    let mut section = Section::new("store");
    let path = &config.store.path;
    let there = match nearest(path) {
        Ok(there) => there,
        Err(found) => {
            section.lines.push(found.line());
            return section;
        }
    };
    if !writable(&mut section, path, there, service) {
        return section;
    }
    if let Err(newer) = writer::refuse_newer(path) {
        section.bad(Cause::Configuration, newer.to_string());
    }
    if let Some(process) = service.process {
        let user = service.user.map(User::name).unwrap_or_default();
        section.good(format!("an agent runs on it (process {process}, {user})"));
    }
    match statvfs(there) {
        Ok(found) => room(&mut section, config, &found),
        Err(error) => section.unwise(format!("{}: its room is not known: {error}", path.display())),
    }
    #[allow(
        clippy::cast_sign_loss,
        clippy::unnecessary_cast,
        reason = "its type depends on the target"
    )]
    let kind = statfs(there).map(|found| found.f_type as u64 & 0xffff_ffff);
    if kind.is_ok_and(|kind| IN_MEMORY.contains(&kind)) {
        let message = "it is in memory: what waits and what is open is lost when the machine restarts; write a directory on \
                       a disk";
        section.unwise(format!("{}: {message}", path.display()));
    }
    section
}

/// Why a path is of no use.
struct Useless {
    cause: Cause,
    text: String,
}

impl Useless {
    fn line(self) -> super::Line {
        let outcome = super::Outcome::Bad(self.cause);
        super::Line { section: "store", outcome, text: self.text }
    }
}

/// The path itself, or the directory in which it would be made.
fn nearest(path: &Path) -> Result<&Path, Useless> {
    let at = |part: &Path, what: &str| format!("{}: {what}", part.display());
    for part in
        path.ancestors().map(|part| if part.as_os_str().is_empty() { Path::new(".") } else { part })
    {
        match fs::metadata(part) {
            Ok(found) if found.is_dir() => return Ok(part),
            Ok(_) => {
                let what = "not a directory; write another store.path";
                return Err(Useless { cause: Cause::Configuration, text: at(part, what) });
            }
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {}
                io::ErrorKind::PermissionDenied => {
                    let what = "may not be looked at by this user; check as root, or as the user of the service";
                    return Err(Useless { cause: Cause::Forbidden, text: at(part, what) });
                }
                _ => {
                    return Err(Useless {
                        cause: Cause::Unreachable,
                        text: at(part, &error.to_string()),
                    });
                }
            },
        }
    }
    Err(Useless { cause: Cause::Configuration, text: at(path, "no part of it exists") })
}

/// Whether it can be written by who will: the service where that is another user, which root can tell, else this one.
fn writable(section: &mut Section, path: &Path, there: &Path, service: &Service) -> bool {
    let shown = path.display();
    let read_only =
        statvfs(there).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY));
    if read_only {
        section.bad(
            Cause::Forbidden,
            format!(
                "{shown}: the file system is read-only; see the kernel log for errors of the medium"
            ),
        );
        return false;
    }
    let exists = there == path;
    let other = service.other().filter(|_| exists);
    let allowed = match (other, fs::metadata(there)) {
        (Some(user), Ok(found)) => user.may(&found, 3),
        _ => access(there, Access::WRITE_OK | Access::EXEC_OK).is_ok(),
    };
    let user = other.or_else(User::me).map(User::name).unwrap_or_default();
    let made = if exists { "" } else { " does not exist, and" };
    if !allowed {
        let what = if exists { "be written" } else { "be made" };
        section.bad(
            Cause::Forbidden,
            format!("{shown}:{made} cannot {what} by {user}; chown it to the user of the service, or name another"),
        );
        return false;
    }
    let what = if exists { "can be written" } else { "can be made" };
    section.good(format!("{shown}:{made} {what} by {user}{}", as_whom(other)).replace(":  ", ": "));
    true
}

/// Root may do everything, which says nothing of the service.
fn as_whom(other: Option<User>) -> String {
    let me = User::me().map(|me| me.uid);
    match (me, other) {
        (Some(0), None) => {
            "; the service may be another user: `systemd-run --pipe --wait -p User=…` checks as that one".to_owned()
        }
        (_, Some(_)) => ", as whom the agent runs".to_owned(),
        _ => String::new(),
    }
}

fn room(section: &mut Section, config: &Config, found: &StatVfs) {
    let path = config.store.path.display();
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    // What was full once leaves a file of up to twice its size.
    let quotas = config.store.outbox_quota.saturating_add(config.gate.quota);
    let most = quotas.saturating_mul(2).saturating_add(ROOM);
    let needed = most.saturating_sub(size(&config.store.path));
    if free < LEAST {
        section.bad(
            Cause::Unreachable,
            format!(
                "{path}: {} are free: the store cannot work with less than {}; make room",
                bytes(free),
                bytes(LEAST)
            ),
        );
    } else if free < needed {
        section.unwise(format!(
            "{path}: {} are free, and the store may come to need {} more (twice store.outbox-quota and clock.hold-quota, and \
             {}): make room, or lower the quotas, so that they are met before the disk is full",
            bytes(free),
            bytes(needed),
            bytes(ROOM)
        ));
    } else {
        section.good(format!(
            "{path}: {} are free, of which it may come to need {}",
            bytes(free),
            bytes(needed)
        ));
    }
    // Some file systems have no limit, and say that they have none at all.
    if found.f_files > 0 && found.f_favail < ENTRIES {
        section.unwise(format!(
            "{path}: the file system has room for {} more files only (df -i); remove some",
            found.f_favail
        ));
    }
}

/// What the store takes now.
fn size(path: &Path) -> u64 {
    let files = fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
    files.filter_map(|file| file.metadata().ok()).map(|file| file.blocks() * 512).sum()
}

/// Whether `tidegate status` finds somebody, or could.
pub(super) async fn status_section(config: &Config) -> Section {
    let mut section = Section::new("status");
    let places = status_places(config);
    let Some(place) = places.first() else {
        section.good("turned off: `tidegate status` cannot ask the agent (status.enabled)");
        return section;
    };
    match timeout(PATIENCE, ask_at(&places)).await {
        Ok(Ok((status, _))) => {
            section.good(format!("the agent answers, and is {}", status.health.level));
        }
        Ok(Err(AskError::Nobody(_))) => nobody(&mut section, config, place),
        Ok(Err(error)) => section.unwise(error.to_string()),
        Err(_) => {
            section.unwise(format!("{}: the agent is there and does not answer", place.display()));
        }
    }
    section
}

fn nobody(section: &mut Section, config: &Config, place: &Path) {
    let directory = place.parent().unwrap_or(Path::new("."));
    let shown = place.display();
    match access(directory, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => section.good(format!("{shown}: no agent runs; the socket can be made there")),
        Err(_) if config.status.socket.is_none() => section.good(format!(
            "{shown}: no agent runs; a service makes the directory when it starts (RuntimeDirectory=tidegate)"
        )),
        Err(error) => section.unwise(format!(
            "{shown}: the socket cannot be made there by this user: {error}; `tidegate status` would find nobody. Make \
             the directory, or leave status.socket out"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::Outcome;
    use tempfile::TempDir;

    fn config(store: &Path, more: &str) -> Config {
        let toml = format!("store.path = {store:?}\n{more}");
        Config::from_toml(&toml).unwrap_or_else(|errors| panic!("{errors}"))
    }

    fn told(store: &Path, more: &str) -> Vec<super::super::Line> {
        section(&config(store, more), &Service::find(store)).lines
    }

    #[test]
    fn a_store_can_be_there_or_be_made_and_not_below_a_file() {
        let dir = TempDir::new().unwrap();
        let lines = told(dir.path(), "");
        assert!(lines[0].text.contains("can be written by"), "{}", lines[0]);
        let lines = told(&dir.path().join("a/b"), "");
        assert!(lines[0].text.contains("does not exist, and can be made by"), "{}", lines[0]);
        assert!(!dir.path().join("a").exists(), "nothing is made");
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        for store in [file.clone(), file.join("below")] {
            let lines = told(&store, "");
            assert_eq!(lines.len(), 1);
            assert_eq!(lines[0].outcome, Outcome::Bad(Cause::Configuration), "{}", lines[0]);
            assert!(lines[0].text.contains("file: not a directory"), "{}", lines[0]);
        }
    }

    #[test]
    fn a_file_system_that_is_read_only_is_told_even_to_root() {
        let Some(mounted) = read_only() else {
            println!("skipped: no file system is mounted read-only here");
            return;
        };
        let lines = told(&mounted, "");
        assert_eq!(lines[0].outcome, Outcome::Bad(Cause::Forbidden), "{}", lines[0]);
        assert!(lines[0].text.contains("read-only"), "{}", lines[0]);
    }

    fn read_only() -> Option<std::path::PathBuf> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let mut places = mounts.lines().filter_map(|line| {
            let fields: Vec<_> = line.split(' ').collect();
            fields[3].split(',').any(|option| option == "ro").then(|| fields[1].into())
        });
        places.find(|place: &std::path::PathBuf| place.is_dir())
    }

    #[test]
    fn quotas_larger_than_the_disk_are_warned_of() {
        let dir = TempDir::new().unwrap();
        let lines = told(dir.path(), "store.outbox-quota = \"1024 GiB\"\n");
        let unwise: Vec<_> = lines.iter().filter(|line| line.text.contains("are free")).collect();
        assert_eq!(unwise.len(), 1);
        assert_eq!(unwise[0].outcome, Outcome::Unwise, "{}", unwise[0]);
        assert!(unwise[0].text.contains("2.0 TiB more"), "{}", unwise[0]);
    }

    #[test]
    fn too_little_room_for_any_store_is_a_failure_and_so_is_a_directory_without_entries_a_warning()
    {
        let dir = TempDir::new().unwrap();
        let config = config(dir.path(), "");
        let outcomes = |free: u64, entries: u64| {
            let mut found = statvfs(dir.path()).unwrap();
            (found.f_frsize, found.f_bavail) = (1, free);
            (found.f_files, found.f_favail) = (10_000, entries);
            let mut section = Section::new("store");
            room(&mut section, &config, &found);
            section.lines.iter().map(|line| line.outcome).collect::<Vec<_>>()
        };
        let most = 2 * (config.store.outbox_quota + config.gate.quota) + ROOM;
        assert_eq!(outcomes(most, ENTRIES), [Outcome::Good]);
        assert_eq!(outcomes(most - 1, ENTRIES), [Outcome::Unwise]);
        assert_eq!(outcomes(LEAST - 1, ENTRIES), [Outcome::Bad(Cause::Unreachable)]);
        assert_eq!(outcomes(most, ENTRIES - 1), [Outcome::Good, Outcome::Unwise]);
    }
}
