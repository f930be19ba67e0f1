//! Passwords, keys and certificates: who may read them, and until when they are good.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::greeting::NOTICE;
use super::user::Service;
use super::{Cause, Section, Time, certificate};
use crate::config::Config;
use crate::mqtt::FileName;
use crate::time::ArrivalTime;

/// Everybody.
const OTHERS: u32 = 0o007;

pub(super) fn section(config: &Config, service: &Service, time: &Time) -> Section {
    let mut section = Section::new("files");
    for (table, link) in [("broker", &config.broker.link), ("upstream", &config.upstream.link)] {
        for (key, file) in link.files() {
            let option = format!("{table}.{key}");
            look(&mut section, &option, file, service, time.now());
        }
    }
    section
}

fn look(section: &mut Section, option: &str, file: &FileName, service: &Service, now: ArrivalTime) {
    if !file.is_within_reach() {
        section.good(format!(
            "{option}: a credential of the service, which cannot be looked at from here"
        ));
        return;
    }
    let Ok(path) = file.path() else { return };
    let shown = path.display();
    let content = match file.read() {
        Ok(content) => content,
        Err(error) => {
            section.bad(Cause::Forbidden, format!("{option}: {shown} cannot be read: {error}"));
            return;
        }
    };
    let before = section.lines.len();
    if let Ok(found) = fs::metadata(&path) {
        let secret = option.ends_with("password-file") || option.ends_with("key-file");
        if secret && found.permissions().mode() & OTHERS != 0 {
            section.unwise(format!(
                "{option}: {shown} can be read by everybody on this machine; chmod o= {shown}"
            ));
        }
        if let Some(user) = service.other().filter(|user| !user.may(&found, 4)) {
            section.unwise(format!(
                "{option}: {shown} cannot be read by {}, as whom the agent runs; chown or chgrp it to him, or hand it over \
                 as a credential of the unit (LoadCredential=)",
                user.name()
            ));
        }
    }
    let ends = match option.ends_with("cert-file") || option.ends_with("ca-file") {
        true => certificate::ends(&content),
        false => Vec::new(),
    };
    expiry(section, option, &ends, now);
    if section.lines.len() == before {
        section.good(format!("{option}: {shown} can be read{}", until(&ends)));
    }
}

fn until(ends: &[ArrivalTime]) -> String {
    ends.iter().min().map(|end| format!(", good until {}", day(*end))).unwrap_or_default()
}

/// Of several authorities each may be the one that counts.
fn expiry(section: &mut Section, option: &str, ends: &[ArrivalTime], now: ArrivalTime) {
    let (Some(first), Some(last)) = (ends.iter().min(), ends.iter().max()) else { return };
    // The first one of a chain is ours, and the others go with it.
    let all = if option.ends_with("cert-file") { first } else { last };
    if *all <= now {
        let message = format!("{option}: expired on {}; renew it", day(*all));
        section.bad(Cause::Configuration, message);
    } else if *first <= now {
        section.unwise(format!("{option}: one of its certificates expired on {}", day(*first)));
    } else if *first <= now + NOTICE {
        section.unwise(format!("{option}: expires on {}; renew it before", day(*first)));
    }
}

fn day(time: ArrivalTime) -> String {
    let day = chrono::DateTime::from_timestamp_millis(time.0);
    day.map_or_else(|| "an unknown day".to_owned(), |day| day.format("%Y-%m-%d").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Span;
    use crate::trial::Outcome;

    #[test]
    fn a_certificate_is_told_a_month_before_its_end() {
        let (now, day) = (ArrivalTime(1_750_000_000_000), Span::from_hours(24));
        let told = |option: &str, days: &[i64]| {
            let mut section = Section::new("files");
            let ends: Vec<_> = days.iter().map(|days| now + Span(days * day.0)).collect();
            expiry(&mut section, option, &ends, now);
            section.lines.first().map(|line| line.outcome)
        };
        let bad = Some(Outcome::Bad(Cause::Configuration));
        assert_eq!(told("upstream.cert-file", &[31]), None);
        assert_eq!(told("upstream.cert-file", &[29]), Some(Outcome::Unwise));
        assert_eq!(told("upstream.cert-file", &[-1, 99]), bad);
        assert_eq!(told("upstream.ca-file", &[-1, 99]), Some(Outcome::Unwise));
        assert_eq!(told("upstream.ca-file", &[-1]), bad);
        assert_eq!(told("upstream.ca-file", &[]), None);
    }
}
