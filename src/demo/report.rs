//! Injected against reported: the ledger of the fleet beside what the centre was told.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::fleet::{Device, Kind};
use super::ledger::{Cell, Ledger, Tally};
use super::observer::Observed;

/// Differences that are listed one by one.
const LISTED: usize = 12;

/// How the demonstration ended.
#[derive(Debug)]
pub struct Report {
    seed: u64,
    outage: Duration,
    hours: usize,
    messages: u64,
    received: u64,
    corrections: u64,
    /// Meters that were told to be offline, how often in all, and meters that are online in the end.
    presence: (usize, u64, usize),
    rows: Vec<(String, Row)>,
    differences: Vec<String>,
}

/// What became of the readings of one kind of meter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Row {
    injected: Tally,
    copies: u64,
    in_hours: Tally,
    late: Tally,
    refused: Tally,
}

impl Row {
    /// Each reading is in an hour, late, or refused.
    fn reported(&self) -> Tally {
        let mut sum = self.in_hours;
        sum += self.late;
        sum += self.refused;
        sum
    }

    fn add(&mut self, other: Self) {
        self.injected += other.injected;
        self.copies += other.copies;
        self.in_hours += other.in_hours;
        self.late += other.late;
        self.refused += other.refused;
    }
}

impl Report {
    pub(super) fn new(
        seed: u64,
        outage: Duration,
        devices: &[Device],
        ledger: &Ledger,
        observed: &Observed,
    ) -> Self {
        let cells = cells(devices, ledger, observed);
        let mut differences = observed.wrong.clone();
        differences.extend(cells.iter().filter_map(|(cell, row)| difference(cell, row)));
        differences.extend(stamped(devices, observed));
        differences.extend(regions(observed));
        Self {
            seed,
            outage,
            hours: observed.hours.len(),
            messages: ledger.messages,
            received: observed.messages,
            corrections: observed.corrections,
            presence: presence(observed),
            rows: rows(devices, ledger, &cells),
            differences,
        }
    }

    /// Whether every reading that was injected was reported, and nothing else.
    pub fn is_equal(&self) -> bool {
        self.differences.is_empty()
    }

    /// What differs, in words.
    pub fn differences(&self) -> &[String] {
        &self.differences
    }

    /// What to leave the process with: 0 when all is equal, else 1.
    pub fn exit_code(&self) -> u8 {
        u8::from(!self.is_equal())
    }
}

fn presence(observed: &Observed) -> (usize, u64, usize) {
    let online = observed.presence.values().filter(|(_, state)| state == "online").count();
    (observed.offline.len(), observed.offline.values().sum(), online)
}

/// Every meter and hour that either side knows.
fn cells(devices: &[Device], ledger: &Ledger, observed: &Observed) -> BTreeMap<Cell, Row> {
    let is_unset =
        |name: &str| devices.iter().any(|device| device.name == name && device.kind == Kind::Unset);
    // Such readings are in the hour in which they arrived, which the fleet cannot know.
    let cell = |(name, hour): &Cell| (name.clone(), hour.filter(|_| !is_unset(name)));
    let mut cells: BTreeMap<Cell, Row> = BTreeMap::new();
    for (at, tally) in &ledger.cells {
        cells.entry(cell(at)).or_default().injected += *tally;
    }
    for ((name, start), hour) in &observed.hours {
        cells.entry(cell(&(name.clone(), Some(*start)))).or_default().in_hours += hour.tally;
    }
    for (at, tally) in &observed.late {
        cells.entry(cell(at)).or_default().late += *tally;
    }
    for (at, tally) in &observed.refused {
        cells.entry(cell(at)).or_default().refused += *tally;
    }
    cells
}

fn difference((name, hour): &Cell, row: &Row) -> Option<String> {
    let reported = row.reported();
    let Tally { readings, watts } = row.injected;
    (reported != row.injected).then(|| {
        let hour = hour.map_or_else(|| "all hours".to_owned(), of_day);
        format!(
            "{name}, {hour}: injected {readings} readings of {watts} W in all, reported {} of {} W",
            reported.readings, reported.watts
        )
    })
}

/// A reading carries its arrival time exactly when its clock was never set.
fn stamped<'a>(devices: &'a [Device], observed: &'a Observed) -> impl Iterator<Item = String> {
    observed.hours.iter().filter_map(|((name, start), hour)| {
        let device = devices.iter().find(|device| device.name == *name);
        let unset = device.is_some_and(|device| device.kind == Kind::Unset);
        let expected = if unset { hour.tally.readings } else { 0 };
        (hour.stamped != expected).then(|| {
            let hour_name = of_day(*start);
            format!("{name}, {hour_name}: {} readings stamped, not {expected}", hour.stamped)
        })
    })
}

/// A region is the sum of its meters.
fn regions(observed: &Observed) -> impl Iterator<Item = String> {
    let mut expected: BTreeMap<(&str, i64), Tally> = BTreeMap::new();
    for ((name, start), hour) in &observed.hours {
        let region = name.split('/').next().unwrap_or_default();
        *expected.entry((region, *start)).or_default() += hour.tally;
    }
    for (region, start) in observed.regions.keys() {
        expected.entry((region, *start)).or_default();
    }
    expected.into_iter().filter_map(|((region, start), expected)| {
        let reported = observed.regions.get(&(region.to_owned(), start));
        let reported = reported.map_or_else(Tally::default, |hour| hour.tally);
        (reported != expected).then(|| {
            format!(
                "region {region}, {}: {} readings of {} W in all; its meters have {} of {} W",
                of_day(start),
                reported.readings,
                reported.watts,
                expected.readings,
                expected.watts
            )
        })
    })
}

fn rows(devices: &[Device], ledger: &Ledger, cells: &BTreeMap<Cell, Row>) -> Vec<(String, Row)> {
    let mut all = Row::default();
    let mut rows: Vec<_> = Kind::ALL
        .into_iter()
        .map(|kind| {
            let mut sum =
                Row { copies: ledger.copies.get(&kind).copied().unwrap_or(0), ..Row::default() };
            for ((name, _), row) in cells {
                if devices.iter().any(|device| device.name == *name && device.kind == kind) {
                    sum.add(*row);
                }
            }
            all.add(sum);
            (kind.to_string(), sum)
        })
        .collect();
    rows.push(("all".to_owned(), all));
    rows
}

/// `06:00`, of a time in UTC.
pub(super) fn of_day(time: i64) -> String {
    let minutes = time.div_euclid(60_000).rem_euclid(24 * 60);
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:16}{:>10}{:>46}", "", "injected", "reported to the centre")?;
        writeln!(
            f,
            "{:16}{:>10}{:>8}{:>11}{:>8}{:>9}{:>10}",
            "meters", "readings", "copies", "in hours", "late", "refused", "together"
        )?;
        for (name, row) in &self.rows {
            let (injected, reported) = (row.injected, row.reported());
            writeln!(
                f,
                "{name:16}{:10}{:8}{:11}{:8}{:9}{:10}  {}",
                injected.readings,
                row.copies,
                row.in_hours.readings,
                row.late.readings,
                row.refused.readings,
                reported.readings,
                mark(injected == reported)
            )?;
        }
        if let Some((_, all)) = self.rows.last() {
            let (injected, reported) = (all.injected.watts, all.reported().watts);
            let mark = mark(injected == reported);
            writeln!(f, "{:16}{injected:10}{reported:46}  {mark}", "sum of power, W")?;
        }
        writeln!(
            f,
            "\nSeed {}: {} messages from the meters, {} to the centre; {} hours, corrected {} times.\n\
             The link to the centre was cut for {:.1} s.",
            self.seed,
            self.messages,
            self.received,
            self.hours,
            self.corrections,
            self.outage.as_secs_f64(),
        )?;
        let (meters, times, online) = self.presence;
        writeln!(f, "Meters told offline: {meters}, {times} times; online in the end: {online}.")?;
        for difference in self.differences.iter().take(LISTED) {
            writeln!(f, "differs: {difference}")?;
        }
        match self.differences.len() {
            0 => write!(f, "Every reading is in one place: none is lost, none counts twice."),
            1 => write!(f, "1 difference."),
            more if more > LISTED => write!(f, "{more} differences, {LISTED} of them listed."),
            more => write!(f, "{more} differences."),
        }
    }
}

fn mark(equal: bool) -> &'static str {
    if equal { "=" } else { "differs" }
}

#[cfg(test)]
mod tests {
    use super::super::fleet::{Content, Fleet};
    use super::*;
    use crate::time::ArrivalTime;

    /// Both sides of a day in which all goes well.
    fn good() -> (Fleet, Ledger, Observed) {
        let mut fleet = Fleet::new(1, ArrivalTime(0));
        let (mut ledger, mut observed) = (Ledger::default(), Observed::new("t"));
        let mut hours: BTreeMap<(String, i64), (u64, u64, u64)> = BTreeMap::new();
        for _ in 0..120 {
            for sending in fleet.minute(false) {
                let device = &fleet.devices[sending.device];
                ledger.write(device, sending.content);
                let Content::Reading(reading) = sending.content else { continue };
                let hour = super::super::ledger::hour_of(reading.stamp);
                let region = device.name.split('/').next().unwrap();
                for of in [&*device.name, region] {
                    let sums = hours.entry((of.to_owned(), hour)).or_default();
                    *sums = (sums.0 + 1, sums.1 + reading.power, sums.2);
                    sums.2 += u64::from(device.kind == Kind::Unset);
                }
            }
        }
        for ((name, start), (samples, watts, stamped)) in hours {
            let kind = if name.contains('/') { "window" } else { "region" };
            let text = format!(
                r#"{{"start":{start},"revision":0,"samples":{samples},"stamped":{stamped},"metrics":{{"power":{{"count":{samples},"sum":{watts}}}}}}}"#
            );
            observed.take(&format!("t/{kind}/hour/{name}"), text.as_bytes());
        }
        (fleet, ledger, observed)
    }

    fn differences(spoil: impl Fn(&mut Observed)) -> Vec<String> {
        let (fleet, ledger, mut observed) = good();
        spoil(&mut observed);
        let report = Report::new(1, Duration::ZERO, &fleet.devices, &ledger, &observed);
        assert_eq!(report.is_equal(), report.exit_code() == 0);
        report.differences().to_vec()
    }

    #[test]
    fn what_is_equal_has_no_difference() {
        assert_eq!(differences(|_| {}), Vec::<String>::new());
    }

    #[test]
    fn each_thing_that_can_go_wrong_is_a_difference() {
        let key = || ("north/m-1".to_owned(), 0);
        let hour = |observed: &mut Observed, spoil: fn(&mut super::super::observer::Hour)| {
            spoil(observed.hours.get_mut(&key()).unwrap());
        };
        let one = Tally { readings: 1, watts: 1 };
        let cell = || ("north/m-1".to_owned(), Some(0));
        // An hour that is wrong differs from the ledger and from its region.
        assert_eq!(differences(|o| hour(o, |hour| hour.tally.readings += 1)).len(), 2);
        assert_eq!(differences(|o| hour(o, |hour| hour.tally.watts -= 1)).len(), 2);
        assert_eq!(differences(|o| o.hours.retain(|at, _| *at != key())).len(), 2);
        assert_eq!(differences(|o| hour(o, |hour| hour.stamped = 1)).len(), 1);
        assert_eq!(
            differences(|o| o.regions.retain(|at, _| at.0 == "north" || at.1 != 0)).len(),
            1
        );
        assert_eq!(differences(|o| *o.late.entry(cell()).or_default() += one).len(), 1);
        assert_eq!(differences(|o| *o.refused.entry(cell()).or_default() += one).len(), 1);
        assert_eq!(differences(|o| o.wrong.push("unreadable".into())).len(), 1);
    }
}
