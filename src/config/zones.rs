//! Names of time zones, and what somebody meant who wrote none.

use super::explain::{nearest, nearest_within};
use crate::wire::timestamp::Zone;

/// A zone that is written so, or what to write instead.
pub(super) fn zone(text: &str) -> Result<Zone, String> {
    Zone::named(text).ok_or_else(|| format!("no time zone is called `{text}`; {}", remedy(text)))
}

fn remedy(text: &str) -> String {
    if let Some(offset) = Offset::read(text) {
        return offset.remedy();
    }
    let upper = text.to_ascii_uppercase();
    if let Some((_, place)) = ABBREVIATIONS.iter().find(|(short, _)| *short == upper) {
        return format!(
            "an abbreviation, which says one half of the year only and means several zones; name the \
             place: \"{place}\""
        );
    }
    match zone_like(text) {
        Some(zone) => format!("did you mean `{zone}`?"),
        None => "write the name of a time zone such as \"Europe/Amsterdam\"".to_owned(),
    }
}

/// The zone whose last part is `text`, or else the one that is written most like it.
fn zone_like(text: &str) -> Option<&'static str> {
    let place = text.trim().replace(' ', "_").to_lowercase();
    if place.is_empty() {
        return None;
    }
    // Zones in Etc are no places.
    let city = |zone: &'static str| {
        let (area, city) = zone.rsplit_once('/')?;
        (area != "Etc").then(|| (city.to_lowercase(), zone))
    };
    let cities: Vec<_> = Zone::names().filter_map(city).collect();
    let named = |place: &str| cities.iter().find(|(city, _)| city == place).map(|(_, zone)| *zone);
    let alike = || nearest_within(&place, cities.iter().map(|(city, _)| city.as_str()), CITY);
    match place.contains('/') {
        false => named(&place).or_else(|| named(alike()?)),
        true => nearest(text, Zone::names()),
    }
}

/// How like a city's name has to be to another. A few letters are like many.
const CITY: f64 = 0.75;

/// What people write who think of their own clock, and a place where it is right.
const ABBREVIATIONS: [(&str, &str); 36] = [
    ("CEST", "Europe/Berlin"),
    ("MEZ", "Europe/Berlin"),
    ("MESZ", "Europe/Berlin"),
    ("BST", "Europe/London"),
    ("WEST", "Europe/Lisbon"),
    ("EEST", "Europe/Athens"),
    ("MSK", "Europe/Moscow"),
    ("TRT", "Europe/Istanbul"),
    ("EDT", "America/New_York"),
    ("CST", "America/Chicago"),
    ("CDT", "America/Chicago"),
    ("MDT", "America/Denver"),
    ("PST", "America/Los_Angeles"),
    ("PDT", "America/Los_Angeles"),
    ("AKST", "America/Anchorage"),
    ("AKDT", "America/Anchorage"),
    ("BRT", "America/Sao_Paulo"),
    ("ART", "America/Argentina/Buenos_Aires"),
    ("IST", "Asia/Kolkata"),
    ("PKT", "Asia/Karachi"),
    ("GST", "Asia/Dubai"),
    ("SGT", "Asia/Singapore"),
    ("HKT", "Asia/Hong_Kong"),
    ("JST", "Asia/Tokyo"),
    ("KST", "Asia/Seoul"),
    ("AWST", "Australia/Perth"),
    ("ACST", "Australia/Adelaide"),
    ("ACDT", "Australia/Adelaide"),
    ("AEST", "Australia/Sydney"),
    ("AEDT", "Australia/Sydney"),
    ("NZST", "Pacific/Auckland"),
    ("NZDT", "Pacific/Auckland"),
    ("SAST", "Africa/Johannesburg"),
    ("CAT", "Africa/Maputo"),
    ("EAT", "Africa/Nairobi"),
    ("WAT", "Africa/Lagos"),
];

/// A fixed distance from UTC: `UTC+1`, `+01:00`, `GMT-0530`.
#[derive(Debug, PartialEq, Eq)]
struct Offset {
    /// East of UTC.
    hours: i8,
    whole: bool,
}

impl Offset {
    fn read(text: &str) -> Option<Self> {
        let upper = text.trim().to_ascii_uppercase();
        let rest = ["UTC", "GMT", "Z"].iter().find_map(|name| upper.strip_prefix(name));
        let rest = rest.unwrap_or(&upper).trim_start();
        let sign = match rest.chars().next()? {
            '+' => 1,
            '-' => -1,
            _ => return None,
        };
        let digits = rest[1..].replace(':', "");
        if digits.is_empty() || digits.len() > 4 || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let (hours, minutes) =
            if digits.len() > 2 { digits.split_at(digits.len() - 2) } else { (&*digits, "0") };
        let (hours, minutes): (i8, u8) = (hours.parse().ok()?, minutes.parse().ok()?);
        (hours <= 14).then_some(Self { hours: sign * hours, whole: minutes == 0 })
    }

    fn remedy(&self) -> String {
        let place =
            "an offset is no place, and knows no summer time; name the place: \"Europe/Amsterdam\"";
        // The names of the database count west of Greenwich.
        let fixed = match self.hours {
            0 => "UTC".to_owned(),
            hours => format!("Etc/GMT{:+}", -hours),
        };
        match self.whole && Zone::named(&fixed).is_some() {
            true => format!("{place}; for a clock that is never changed \"{fixed}\" is the same"),
            false => place.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> String {
        zone(text).expect_err(text)
    }

    #[test]
    fn an_offset_is_led_to_a_place_or_to_the_same_offset_in_the_words_of_the_database() {
        for (text, fixed) in [
            ("UTC+1", "\"Etc/GMT-1\""),
            ("+01:00", "\"Etc/GMT-1\""),
            ("GMT-0500", "\"Etc/GMT+5\""),
            ("utc +02", "\"Etc/GMT-2\""),
            ("+00:00", "\"UTC\""),
        ] {
            assert!(told(text).contains(fixed) && told(text).contains("place"), "{}", told(text));
            assert!(Zone::named(fixed.trim_matches('"')).is_some(), "{fixed} is a zone");
        }
        assert!(!told("+05:30").contains("Etc/"), "no zone is called so");
        assert!(told("UTC+25").contains("write the name"), "{}", told("UTC+25"));
    }

    #[test]
    fn an_abbreviation_is_led_to_a_place_and_no_other_abbreviation() {
        for (short, place) in ABBREVIATIONS {
            assert!(Zone::named(place).is_some(), "{place}");
            assert!(Zone::named(short).is_none(), "{short} is a zone itself");
            assert!(told(short).contains(&format!("\"{place}\"")), "{}", told(short));
        }
        assert!(told("cest").contains("\"Europe/Berlin\""));
    }

    #[test]
    fn a_slip_is_led_to_the_zone_that_was_meant_and_nonsense_to_none() {
        for (slip, zone) in [
            ("Amsterdam", "Europe/Amsterdam"),
            ("Amsterdm", "Europe/Amsterdam"),
            ("new york", "America/New_York"),
            ("Europe/Amsterdm", "Europe/Amsterdam"),
            ("Europe/Berln", "Europe/Berlin"),
        ] {
            assert!(told(slip).ends_with(&format!("did you mean `{zone}`?")), "{}", told(slip));
        }
        for nonsense in ["XST", "local", "", "UTC1", "summer"] {
            assert!(told(nonsense).contains("write the name"), "{}", told(nonsense));
        }
    }
}
