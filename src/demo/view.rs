//! What is shown while it runs: a table that stays in its place on a terminal, a line now and then elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::Instant;

use super::fleet::Device;
use super::ledger::{Cell, Ledger, Tally};
use super::observer::Observed;
use super::report::of_day;
use crate::time::ArrivalTime;

/// Hours that fit beside the meters.
const HOURS: usize = 5;
const BETWEEN_LINES: Duration = Duration::from_secs(5);

/// Where it is shown.
pub(super) enum View {
    Table(ProgressBar),
    Lines { next: Instant },
    Nothing,
}

/// What there is to show.
pub(super) struct Scene<'a> {
    pub(super) now: ArrivalTime,
    pub(super) doing: &'a str,
    pub(super) link_open: bool,
    pub(super) devices: &'a [Device],
    pub(super) ledger: &'a Ledger,
    pub(super) observed: &'a Observed,
}

impl View {
    /// A table where standard error is a terminal, else lines.
    pub(super) fn open() -> Self {
        if !io::stderr().is_terminal() {
            return Self::Lines { next: Instant::now() };
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
        let style = ProgressStyle::with_template("{msg}");
        Self::Table(bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner())))
    }

    /// Shows how things are.
    pub(super) fn show(&mut self, scene: &Scene<'_>) {
        match self {
            Self::Table(bar) => bar.set_message(scene.table()),
            Self::Lines { next } => {
                let now = Instant::now();
                if *next <= now {
                    *next = now + BETWEEN_LINES;
                    eprintln!("{}", scene.line());
                }
            }
            Self::Nothing => {}
        }
    }

    /// Leaves what it showed last.
    pub(super) fn close(&self) {
        if let Self::Table(bar) = self {
            bar.abandon();
            eprintln!("\n");
        }
    }
}

impl Scene<'_> {
    fn link(&self) -> &'static str {
        if self.link_open { "up" } else { "CUT" }
    }

    fn headline(&self) -> String {
        format!("{}  {}, link to the centre {}", of_day(self.now.0), self.doing, self.link())
    }

    fn progress(&self) -> String {
        let readings: u64 = self.ledger.cells.values().map(|tally| tally.readings).sum();
        let Observed { hours, corrections, .. } = self.observed;
        format!(
            "{readings} readings sent; {} hours and {corrections} corrections came",
            hours.len()
        )
    }

    fn line(&self) -> String {
        format!("{}; {}", self.headline(), self.progress())
    }

    /// A row for each meter: its readings in each hour that was reported, `*` where it was corrected.
    fn table(&self) -> String {
        let hours: BTreeSet<i64> = self.observed.hours.keys().map(|(_, start)| *start).collect();
        let hours: Vec<i64> = hours.into_iter().rev().take(HOURS).rev().collect();
        let (late, refused) = (by_device(&self.observed.late), by_device(&self.observed.refused));
        let row = |text: String, hours: &[String], late: &str, refused: &str| {
            let hour = |column: usize| hours.get(column).map_or("", String::as_str);
            let columns = (0..HOURS).map(|column| format!("{:>7}", hour(column)));
            format!("\n{text:<29}{}{late:>6}{refused:>9}", columns.collect::<String>())
        };
        let names: Vec<_> = hours.iter().map(|hour| format!("{} ", of_day(*hour))).collect();
        let mut text = format!("{}\n{}", self.headline(), self.progress());
        text += &row("hour from (* corrected)".into(), &names, "late", "refused");
        for device in self.devices {
            let readings: Vec<_> = hours.iter().map(|hour| self.readings(device, *hour)).collect();
            let count = |sums: &BTreeMap<&str, u64>| {
                sums.get(device.name.as_str()).map_or_else(String::new, ToString::to_string)
            };
            let name = format!("{:<11}{}", device.name, device.kind);
            text += &row(name, &readings, &count(&late), &count(&refused));
        }
        text
    }

    fn readings(&self, device: &Device, hour: i64) -> String {
        let hour = self.observed.hours.get(&(device.name.clone(), hour));
        hour.map_or_else(String::new, |hour| {
            let mark = if hour.revision > 0 { '*' } else { ' ' };
            format!("{}{mark}", hour.tally.readings)
        })
    }
}

fn by_device(cells: &BTreeMap<Cell, Tally>) -> BTreeMap<&str, u64> {
    let mut sums = BTreeMap::new();
    for ((name, _), tally) in cells {
        *sums.entry(name.as_str()).or_default() += tally.readings;
    }
    sums
}
