//! What outlives a stop, and how soon something is noticed: allowed as it is written, and regretted later.

use std::path::Path;
use std::time::Duration;

use super::finding::{Finding, KeyPath};
use super::values::spoken;
use super::{Config, Link};
use crate::time::Span;

/// Places that a restart of the machine empties.
const VOLATILE: [&str; 5] = ["/tmp", "/run", "/var/run", "/dev/shm", "/var/volatile"];

/// A day, which an outage may well last.
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Commits that follow each other faster than this gather nothing.
const SECOND: Duration = Duration::from_secs(1);

/// A lag of five minutes is to be noticed (SPEC 10), and so is a dead link.
const NOTICED: Duration = Duration::from_secs(300);

impl Config {
    /// In the order of the sections.
    pub(super) fn practice(&self) -> impl Iterator<Item = Finding> {
        let brokers = [("broker", &self.broker.link), ("upstream", &self.upstream.link)];
        let dead_links = brokers.map(|(table, link)| self.dead_link(table, link));
        let others = [
            self.short_session(),
            self.session_beyond_the_past(),
            self.volatile_store(),
            self.commits_without_end(),
            self.rare_watermarks(),
        ];
        dead_links.into_iter().chain(others).flatten()
    }

    fn dead_link(&self, table: &str, link: &Link) -> Option<Finding> {
        (link.keep_alive > NOTICED).then(|| {
            let message = "a dead link is noticed only after one and a half times as long, and until then nothing \
                           moves on it; write 30s to 5m";
            self.warn(&KeyPath::top(table).key("keep-alive"), message)
        })
    }

    fn short_session(&self) -> Option<Finding> {
        let path = KeyPath::dotted("broker.session-expiry");
        (self.broker.session_expiry < DAY).then(|| {
            let message = "after this the broker forgets what it kept for the agent: what devices publish during a \
                           longer stop is lost; write a day or more";
            self.warn(&path, message)
        })
    }

    /// What the broker keeps for longer is refused when it comes.
    fn session_beyond_the_past(&self) -> Option<Finding> {
        let path = KeyPath::dotted("broker.session-expiry");
        let limit = self.engine.policies.default.past_limit;
        let kept = Span(i64::try_from(self.broker.session_expiry.as_millis()).unwrap_or(i64::MAX));
        (kept > limit && self.layers.has(&path)).then(|| {
            let message = format!(
                "longer than past-limit ({}): what the broker kept for longer than that is quarantined when it comes; \
                 set past-limit to at least as long as this",
                spoken(limit)
            );
            self.warn(&path, message)
        })
    }

    fn volatile_store(&self) -> Option<Finding> {
        let volatile = VOLATILE.iter().any(|place| self.store.path.starts_with(Path::new(place)));
        volatile.then(|| {
            let message = "emptied when the machine restarts: open windows, watermarks and results that wait are lost \
                           with it; write a directory on a disk: \"/var/lib/tidegate\"";
            self.warn(&KeyPath::dotted("store.path"), message)
        })
    }

    fn commits_without_end(&self) -> Option<Finding> {
        (self.store.commit_interval < SECOND).then(|| {
            let message = "each commit writes about 12 KB and 2.4 times what changed, and at worst there is one for each message, \
                           which wears flash; events and alerts are committed at once anyway: write 10s";
            self.warn(&KeyPath::dotted("store.commit-interval"), message)
        })
    }

    fn rare_watermarks(&self) -> Option<Finding> {
        let path = KeyPath::dotted("watermarks.publish-interval");
        let noticed = Span(i64::try_from(NOTICED.as_millis()).unwrap_or(i64::MAX));
        (self.engine.watermark_interval > noticed).then(|| {
            let message = "the centre sees a watermark that stands still no sooner than this; a lag of 5 minutes is to \
                           warn, one of 10 is critical: write 1m to 5m";
            self.warn(&path, message)
        })
    }
}
