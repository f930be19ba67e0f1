//! A status for people: aligned, and in colour where that is wanted.

use std::fmt::Write as _;

use chrono::DateTime;

use crate::status::health::spoken;
use crate::status::{Configuration, Example, Level, Link, LinkState, Status, Timekeeping};

/// Width of the words at the left.
const LEFT: usize = 12;

/// Writes it. Ages are those at the moment at which it was true.
pub fn table(status: &Status, colour: bool) -> String {
    let mut table = Table { text: String::new(), colour, at: status.at };
    table.head(status);
    table.row("devices'", &table.link(&status.broker, "not committed"));
    table.row("central", &table.link(&status.upstream, "not acknowledged"));
    table.store_and_outbox(status);
    table.regions(status);
    table.devices(status);
    table.held(status);
    table.refusals(status);
    table.examples("unmatched", &status.unmatched);
    table.examples("refused", &status.refused);
    table.books(status);
    table.text
}

struct Table {
    text: String,
    colour: bool,
    at: i64,
}

impl Table {
    fn row(&mut self, left: &str, right: &str) {
        // Writing into a text does not fail.
        let _ = writeln!(self.text, "{left:<LEFT$}{right}");
    }

    fn painted(&self, level: Level, text: &str) -> String {
        let colour = match level {
            Level::Ok => 32,
            Level::Degraded => 33,
            Level::Failing => 31,
        };
        if self.colour { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn ago(&self, time: Option<i64>) -> String {
        time.map_or_else(|| "never".to_owned(), |time| format!("{} ago", spoken(self.at - time)))
    }

    fn head(&mut self, status: &Status) {
        let Status { gateway, version, generation, since, .. } = status;
        let up = spoken(self.at - since);
        let gateway = plain(gateway);
        self.row(
            "gateway",
            &format!("{gateway}, tidegate {version}, up {up}, generation {generation}"),
        );
        self.configuration(&status.configuration);
        let level = status.health.level;
        self.row("health", &self.painted(level, &level.to_string()));
        for reason in &status.health.reasons {
            let level = self.painted(reason.level, &format!("{:<8}", reason.level.to_string()));
            self.row("", &format!("{level}  {}", plain(&reason.text)));
            self.row("", &format!("          {}", plain(&reason.remedy)));
        }
        let quality = status
            .clock
            .map_or_else(String::new, |quality| format!("{quality:?}, ").to_lowercase());
        self.row("clock", &format!("{quality}{}", moment(self.at)));
        self.timekeeping(&status.timekeeping);
    }

    fn configuration(&mut self, configuration: &Configuration) {
        let refused = configuration.refused_at.map_or_else(String::new, |at| {
            format!("; a later one was refused {}", self.ago(Some(at)))
        });
        let loaded = self.ago(Some(configuration.loaded));
        self.row("configured", &format!("{loaded}{refused}"));
    }

    fn timekeeping(&mut self, time: &Timekeeping) {
        if let (Some(reference), Some(age)) = (&time.reference, time.age) {
            let offset = time.offset_us.unwrap_or_default();
            let bound = time.bound.map_or_else(|| "unknown".to_owned(), spoken);
            let taken = format!(
                "from {} {} ago, corrected by {} us, now off by {bound} at most",
                plain(reference),
                spoken(age),
                offset
            );
            self.row("", &taken);
        }
        let refused: Vec<_> =
            time.refused.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        if !refused.is_empty() {
            self.row("", &format!("refused answers: {}", refused.join(", ")));
        }
    }

    fn link(&self, link: &Link, waiting: &str) -> String {
        let (level, state) = match link.state {
            LinkState::Away => (Level::Failing, "away"),
            LinkState::CatchingUp => (Level::Degraded, "catching up"),
            LinkState::Connected => (Level::Ok, "connected"),
        };
        let state = self.painted(level, state);
        let lasted = spoken(self.at - link.since);
        let waits = match link.in_flight {
            0 => String::new(),
            waits => format!(", {waits} {waiting}"),
        };
        format!("{state} for {lasted}, {}{waits}", plain(&link.address))
    }

    fn store_and_outbox(&mut self, status: &Status) {
        let took = status.store.commit_took.map_or_else(String::new, |ms| format!(" in {ms} ms"));
        let last = self.ago(status.store.last_commit);
        self.row("store", &format!("{}, last commit {last}{took}", plain(&status.store.path)));
        let outbox = &status.outbox;
        let oldest = match outbox.entries {
            0 => String::new(),
            _ => format!(
                ", the oldest {}",
                outbox.oldest.map_or("of unknown age".into(), |at| self.ago(Some(at)))
            ),
        };
        let evicted = match outbox.evicted {
            0 => String::new(),
            evicted => format!(", {evicted} had to go"),
        };
        let (bytes, quota) = (size(outbox.bytes), size(outbox.quota));
        self.row(
            "outbox",
            &format!(
                "{}, {bytes} of {quota}{oldest}{evicted}",
                counted(outbox.entries as u64, "message")
            ),
        );
    }

    fn regions(&mut self, status: &Status) {
        self.row(
            "watermark",
            &status.watermark.map_or_else(|| "none published yet".to_owned(), moment),
        );
        let names: Vec<String> =
            status.regions.iter().map(|region| plain(&region.region)).collect();
        let width = names.iter().map(|name| name.chars().count()).max().unwrap_or_default();
        for (name, region) in names.iter().zip(&status.regions) {
            let (watermark, lag) = match (region.watermark, region.lag) {
                (Some(watermark), Some(lag)) => (moment(watermark), spoken(lag)),
                _ => ("has not spoken".to_owned(), "-".to_owned()),
            };
            let usual = spoken(region.usual_lag);
            let idle = if region.idle { ", idle" } else { "" };
            let devices = counted(region.devices as u64, "device");
            self.row("", &format!(
                "{name:<width$}  {watermark:<23}  lag {lag:<14}  usual up to {usual:<12}  {devices}{idle}"
            ));
        }
        let left_out = status.region_count.saturating_sub(status.regions.len());
        if left_out > 0 {
            self.row("", &format!("and {left_out} more, which lag less"));
        }
    }

    fn devices(&mut self, status: &Status) {
        let devices = status.devices;
        self.row(
            "devices",
            &format!(
                "{} known: {} active, {} idle, {} following the clock, {} without a time",
                devices.known,
                devices.active,
                devices.idle,
                devices.following,
                devices.without_time
            ),
        );
        let states = [
            (devices.online, "online"),
            (devices.suspect, "suspect"),
            (devices.offline, "offline"),
            (devices.flapping, "flapping"),
            (devices.never_seen, "never seen"),
            (devices.forgotten, "forgotten"),
        ];
        let states = states.iter().filter(|(count, _)| *count > 0);
        let told: Vec<_> = states.map(|(count, state)| format!("{count} {state}")).collect();
        if !told.is_empty() {
            self.row("", &told.join(", "));
        }
    }

    fn held(&mut self, status: &Status) {
        let held = &status.held;
        if held.since.is_none() && held.messages == 0 {
            return;
        }
        let oldest = held
            .oldest
            .map_or_else(String::new, |at| format!(", the oldest {}", self.ago(Some(at))));
        let why = match held.since {
            Some(_) => "until the clock is good",
            None => "being processed",
        };
        let messages = counted(held.messages, "message");
        self.row("held", &format!("{messages}, {}{oldest}: {why}", size(held.bytes)));
    }

    fn refusals(&mut self, status: &Status) {
        let books = &status.books;
        self.row("late", &books.late.to_string());
        let by_reason = |reasons: &[(&str, u64)]| {
            let some = reasons.iter().filter(|(_, count)| *count > 0);
            let some: Vec<_> = some.map(|(name, count)| format!("{count} {name}")).collect();
            if some.is_empty() { String::new() } else { format!(": {}", some.join(", ")) }
        };
        let quarantined = [
            ("future", books.future),
            ("past", books.past),
            ("no-time", books.no_time),
            ("other-source", books.other_source),
        ];
        let malformed = [("syntax", books.syntax), ("empty", books.empty), ("shape", books.shape)];
        self.row("quarantined", &format!("{}{}", books.quarantined, by_reason(&quarantined)));
        self.row("malformed", &format!("{}{}", books.malformed, by_reason(&malformed)));
    }

    fn examples(&mut self, left: &str, examples: &[Example]) {
        let mut left = left;
        for Example { reason, topic, count, last } in examples {
            let reason = reason.as_ref().map_or_else(String::new, |reason| format!("{reason} "));
            let ago = self.ago(*last);
            self.row(
                left,
                &format!("{reason}{}  {}, last {ago}", plain(topic), counted(*count, "time")),
            );
            left = "";
        }
    }

    fn books(&mut self, status: &Status) {
        let mut left = "books";
        for (name, count) in status.books.columns() {
            self.row(left, &format!("{name:<17}{count:>12}"));
            left = "";
        }
    }
}

/// What others named, without what could move the cursor.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => plain.extend(c.escape_default()),
            false => plain.push(c),
        }
    }
    plain
}

fn counted(count: u64, thing: &str) -> String {
    let more = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{more}")
}

fn moment(ms: i64) -> String {
    DateTime::from_timestamp_millis(ms)
        .map_or_else(|| format!("{ms} ms"), |time| time.format("%Y-%m-%d %H:%M:%S UTC").to_string())
}

pub(super) fn size(bytes: u64) -> String {
    bytesize::ByteSize::b(bytes).display().iec().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{Region, health};

    fn status() -> Status {
        let mut status = Status {
            gateway: "gw".into(),
            at: 1_795_953_600_000,
            since: 1_795_953_600_000 - 61_000,
            configuration: Configuration {
                loaded: 1_795_953_600_000 - 50_000,
                refused_at: Some(1_795_953_600_000 - 7_000),
                refused: Some("gateway.id".into()),
            },
            regions: vec![Region {
                region: "no\u{1b}[2Jrth".into(),
                watermark: Some(1_795_953_480_000),
                lag: Some(120_000),
                usual_lag: 420_000,
                devices: 3,
                idle: false,
            }],
            region_count: 4,
            ..Status::default()
        };
        status.health = health::judge(&status);
        status
    }

    #[test]
    fn every_part_is_told_and_nothing_moves_the_cursor() {
        let text = table(&status(), false);
        for expected in [
            "gateway     gw, tidegate",
            "up 1 min 1 s",
            "configured  50 s ago; a later one was refused 7 s ago",
            "health      failing",
            "refused 7 s ago: gateway.id",
            "2026-11-29 11:58:00 UTC  lag 2 min 0 s",
            "and 3 more",
            "books       received",
        ] {
            assert!(text.contains(expected), "{expected:?} is not in\n{text}");
        }
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn colour_is_only_where_it_is_wanted() {
        assert!(table(&status(), true).contains("\u{1b}[31mfailing\u{1b}[0m"));
    }
}
