//! Texts at random: what devices write, changed in a few places. A short run each time, a long one with `TIDEGATE_LONG`.

use tidegate::time::Span;
use tidegate::wire::profile::{TimeFormat, TimeFormatName};
use tidegate::wire::timestamp::{Reading, Stamp, Zone, read};

const SEEDS: &[&str] = &[
    "1795971610",
    "1795971610.481932",
    "-1795971610481",
    "1795971630481932117",
    "1.795971e9",
    "2026-11-29T18:00:20+0100",
    "2026-10-25 02:30:00.417",
    "20260329T023000,5Z",
    "29/11/2026 18:01:10",
    "261025023000S",
    "3T04:12:09",
    "@2.184210s",
    "2016-12-31T23:59:60Z",
    "9999-12-31T23:59:59.999999999-23:59",
    "0000-01-01T00:00",
];

const PIECES: &[&str] =
    &["0", "9", "-", "+", ":", ".", ",", "T", " ", "Z", "e", "W", "/", "é", "\0"];

/// xorshift64*
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let drawn = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(drawn).expect("31 bits") % end
    }

    fn text(&mut self, text: &mut String) {
        text.clear();
        text.push_str(SEEDS[self.below(SEEDS.len())]);
        for _ in 0..self.below(6) {
            let places: Vec<usize> =
                text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let at = places[self.below(places.len())];
            match self.below(4) {
                0 => text.truncate(at),
                1 => text.insert_str(at, SEEDS[self.below(SEEDS.len())]),
                2 => text.insert_str(at, PIECES[self.below(PIECES.len())]),
                _ if at < text.len() => drop(text.remove(at)),
                _ => {}
            }
        }
    }
}

fn formats() -> Vec<TimeFormat> {
    let zones = ["Europe/Amsterdam", "Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Apia"];
    let zones = || [None].into_iter().chain(zones.map(Zone::named));
    let names = TimeFormatName::ALL.into_iter();
    names.flat_map(|(_, name)| zones().filter_map(move |zone| name.with(zone).ok())).collect()
}

fn holds(text: &str, format: &TimeFormat, reading: Reading) {
    let right = match reading.stamp {
        Stamp::At(_) => !matches!(format, TimeFormat::UptimeS | TimeFormat::UptimeMs),
        Stamp::Repeated { earlier, later } => {
            earlier < later && later - earlier <= Span::from_hours(24)
        }
        Stamp::Skipped { at, change } => at >= change && at - change <= Span::from_hours(24),
        Stamp::Uptime(span) => span >= Span::ZERO,
        Stamp::Undeclared | Stamp::Unusable => false,
    };
    assert!(right, "{text:?} as {format:?}: {reading:?}");
    assert_eq!(reading.unit.is_some(), matches!(format, TimeFormat::Auto(_)), "{text:?}");
    assert_eq!(read(&format!(" {text}\n"), format), Some(reading), "{text:?} as {format:?}");
}

#[test]
fn no_text_panics_and_what_is_read_makes_sense() {
    let count = if std::env::var_os("TIDEGATE_LONG").is_some() { 5_000_000 } else { 20_000 };
    let (formats, mut random, mut text) = (formats(), Random(0x7469_6465), String::new());
    let mut readings = 0;
    for _ in 0..count {
        random.text(&mut text);
        for format in &formats {
            if let Some(reading) = read(&text, format) {
                holds(&text, format, reading);
                readings += 1;
            }
        }
    }
    println!("{count} texts, {} formats each, {readings} times", formats.len());
    assert!(readings > count, "only {readings} of {count} texts were times at all");
}
