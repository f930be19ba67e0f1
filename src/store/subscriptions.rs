//! What the devices' broker may be subscribed to for us, written down beside the database.
//!
//! A persistent session keeps its subscriptions: a filter that has left the configuration would bring messages for
//! ever. So filters are written down before they are subscribed, and struck out when those that are no longer wanted
//! have been given up. Where that cannot be written it is said, and the agent goes on without.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use tracing::warn;

use super::trees::replace;

const FILE: &str = "subscriptions.json";

/// The filters that are written down, and those that are wanted.
#[derive(Debug)]
pub struct Subscriptions {
    path: PathBuf,
    written: BTreeSet<String>,
    wanted: BTreeSet<String>,
}

impl Subscriptions {
    /// Those of the store in this directory, now that these filters are wanted.
    pub fn open(store: &Path, wanted: &[String]) -> Self {
        let path = store.join(FILE);
        let written = read(&path).unwrap_or_else(|error| {
            warn!(path = %path.display(), %error, "filters of before are not known, and not given up");
            BTreeSet::new()
        });
        let mut open = Self { path, written, wanted: wanted.iter().cloned().collect() };
        open.write(open.written.union(&open.wanted).cloned().collect());
        open
    }

    /// Filters that are to be given up.
    pub fn dropped(&self) -> Vec<String> {
        self.written.difference(&self.wanted).cloned().collect()
    }

    /// All of [`Self::dropped`] were given up.
    pub fn settle(&mut self) {
        self.write(self.wanted.clone());
    }

    fn write(&mut self, filters: BTreeSet<String>) {
        if filters == self.written {
            return;
        }
        let text = serde_json::to_vec(&filters).map_err(io::Error::from);
        match text.and_then(|text| replace(&self.path, &text)) {
            Ok(()) => self.written = filters,
            Err(error) => {
                warn!(path = %self.path.display(), %error, "what is subscribed is not written down");
            }
        }
    }
}

fn read(path: &Path) -> io::Result<BTreeSet<String>> {
    match fs::read(path) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filters(of: &[&str]) -> Vec<String> {
        of.iter().map(|&filter| filter.to_owned()).collect()
    }

    #[test]
    fn what_is_no_longer_wanted_is_dropped_until_it_is_settled() {
        let store = tempfile::tempdir().unwrap();
        let open = |wanted: &[&str]| Subscriptions::open(store.path(), &filters(wanted));
        assert_eq!(open(&["a/+", "b"]).dropped(), filters(&[]), "there was nothing before");
        assert_eq!(open(&["b", "c"]).dropped(), ["a/+"]);
        assert_eq!(open(&["c"]).dropped(), ["a/+", "b"], "the agent ended before it settled");
        let mut settled = open(&["c"]);
        settled.settle();
        assert_eq!(settled.dropped(), filters(&[]));
        assert_eq!(open(&["c", "b"]).dropped(), filters(&[]), "wanted again");
    }

    #[test]
    fn a_file_that_cannot_be_read_drops_nothing_and_is_written_anew() {
        let store = tempfile::tempdir().unwrap();
        fs::write(store.path().join(FILE), "[\"a\"").unwrap();
        assert_eq!(Subscriptions::open(store.path(), &filters(&["b"])).dropped(), filters(&[]));
        assert_eq!(Subscriptions::open(store.path(), &filters(&[])).dropped(), ["b"]);
    }
}
