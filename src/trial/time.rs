//! The time servers: what each says, and what follows from all of it.

use super::{Cause, Section, Shift};
use crate::clock::{Agreement, Heard, Inquiry, Refusal, Said, Settings, Source, inquire};
use crate::time::Span;

/// A host's clock that is off by more is told, in microseconds.
const OFF: i64 = 1_000_000;

/// The section, and how far the time is from that of the host.
pub(super) async fn section(settings: &Settings) -> (Section, Shift) {
    let inquiry = inquire(settings).await;
    let mut section = Section::new("time");
    for (at, heard) in inquiry.heard.iter().enumerate() {
        tell_server(&mut section, heard, is_outvoted(&inquiry, at));
    }
    (conclude(section, settings, &inquiry), shift(settings, &inquiry))
}

fn is_outvoted(inquiry: &Inquiry, server: usize) -> bool {
    matches!(&inquiry.agreement, Agreement::Majority { others, .. } if others.contains(&server))
}

fn shift(settings: &Settings, inquiry: &Inquiry) -> Shift {
    match inquiry.agreement {
        Agreement::Majority { ahead_us, .. } => Shift { by: Span(ahead_us / 1_000), known: true },
        _ => Shift { by: Span::ZERO, known: stands_in(settings, inquiry) },
    }
}

/// Whether the host's clock is good enough where nobody else says what time it is.
fn stands_in(settings: &Settings, inquiry: &Inquiry) -> bool {
    settings.source != Source::Sntp && (settings.trust_host || inquiry.host_bound_us.is_some())
}

fn tell_server(section: &mut Section, heard: &Heard, outvoted: bool) {
    let server = &heard.server;
    match &heard.said {
        Ok(said) if outvoted => section.unwise(format!(
            "{server}: {}: most others say otherwise, so it is not believed; leave it out",
            answer(said)
        )),
        Ok(said) => section.good(format!("{server}: {}", answer(said))),
        Err(refusal) => {
            section.unwise(format!("{server}: {} ({})", why(*refusal), refusal.as_str()));
        }
    }
}

fn answer(said: &Said) -> String {
    let Said { ahead_us, bound_us, stratum, .. } = said;
    format!("stratum {stratum}, the host's clock is {} (± {})", away(*ahead_us), span(*bound_us))
}

/// How a host's clock stands to one that is so far ahead of it.
fn away(ahead_us: i64) -> String {
    let side = if ahead_us < 0 { "ahead" } else { "behind" };
    format!("{} {side}", span(ahead_us.saturating_abs()))
}

fn span(us: i64) -> String {
    match us {
        ..10_000 => format!("{}.{} ms", us / 1_000, us % 1_000 / 100),
        10_000..10_000_000 => format!("{} ms", us / 1_000),
        10_000_000..7_200_000_000 => format!("{} s", us / 1_000_000),
        _ => format!("{} h", us / 3_600_000_000),
    }
}

fn why(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Name => "its name has no address; check it, and the DNS of this machine",
        Refusal::Network => "nothing can be sent to it; check the route of this machine to it",
        Refusal::Silent => {
            "no answer; UDP to its port may be closed on the way, or nobody is there"
        }
        Refusal::Unsynchronised => "it does not know the time itself; take another one",
        Refusal::KissRate | Refusal::KissDeny | Refusal::Kiss => {
            "it does not want to be asked; take another one"
        }
        Refusal::Distance | Refusal::RoundTrip | Refusal::Stratum => {
            "too far away to say what time it is; take a nearer one"
        }
        _ => "what came is no answer of a time server; check name and port",
    }
}

fn conclude(mut section: Section, settings: &Settings, inquiry: &Inquiry) -> Section {
    let asked = inquiry.heard.len();
    match &inquiry.agreement {
        _ if asked == 0 => alone(&mut section, settings, inquiry),
        Agreement::Majority { ahead_us, .. } if ahead_us.saturating_abs() > OFF => {
            section.unwise(format!(
                "the host's clock is {}: the agent goes by the servers, and everything else on this machine \
                 does not; have it kept (chrony, ntpd, systemd-timesyncd)",
                away(*ahead_us)
            ));
        }
        Agreement::Majority { others, .. } => {
            let answered = inquiry.heard.iter().filter(|heard| heard.said.is_ok()).count();
            section.good(format!("{} of {asked} servers agree", answered - others.len()));
        }
        Agreement::Disagreement => section.bad(
            Cause::Unreachable,
            "the time servers contradict each other and there is no majority: nobody is believed; name three or more",
        ),
        Agreement::Nobody if stands_in(settings, inquiry) => {
            section.unwise("no time server answers; the host's clock stands in for them");
        }
        Agreement::Nobody => section.bad(
            Cause::Unreachable,
            "no time server answers and nothing else says what time it is: the agent would hold all messages; see that names are \
             resolved and UDP port 123 is open, or set clock.trust-host = true if the host's clock is right",
        ),
    }
    section
}

fn alone(section: &mut Section, settings: &Settings, inquiry: &Inquiry) {
    match inquiry.host_bound_us {
        Some(bound) => section.good(format!("the host's clock is kept, to within {}", span(bound))),
        None if settings.trust_host => {
            section.good("the host's clock is trusted (clock.trust-host); its kernel says that nothing keeps it");
        }
        None => section.bad(
            Cause::Configuration,
            "nothing keeps the host's clock, and there is no time server: the agent would hold all messages; write \
             clock.servers, have the host's clock kept, or set clock.trust-host = true if it is right",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::Outcome;

    #[test]
    fn spans_are_told_in_units_that_fit() {
        for (us, told) in [
            (0, "0.0 ms"),
            (1_250, "1.2 ms"),
            (12_500, "12 ms"),
            (9_999_999, "9999 ms"),
            (75_000_000, "75 s"),
            (10_800_000_000, "3 h"),
        ] {
            assert_eq!(span(us), told);
        }
        assert_eq!(away(-1_000), "1.0 ms ahead");
    }

    #[test]
    fn a_host_that_nothing_keeps_is_told_as_what_the_agent_makes_of_it() {
        let outcome = |trust_host, servers: usize, host_bound_us, source| {
            let heard = |at: usize| Heard { server: at.to_string(), said: Err(Refusal::Silent) };
            let inquiry = Inquiry {
                heard: (0..servers).map(heard).collect(),
                agreement: Agreement::Nobody,
                host_bound_us,
            };
            let settings = Settings { trust_host, source, ..Settings::default() };
            let told = conclude(Section::new("time"), &settings, &inquiry);
            assert_eq!(told.lines.len(), 1);
            told.lines[0].outcome
        };
        let (unreachable, wrong) =
            (Outcome::Bad(Cause::Unreachable), Outcome::Bad(Cause::Configuration));
        assert_eq!(outcome(false, 0, Some(5), Source::Auto), Outcome::Good);
        assert_eq!(outcome(true, 0, None, Source::Auto), Outcome::Good);
        assert_eq!(outcome(false, 0, None, Source::Auto), wrong);
        assert_eq!(outcome(false, 1, None, Source::Auto), unreachable);
        assert_eq!(outcome(false, 1, Some(5), Source::Auto), Outcome::Unwise);
        assert_eq!(outcome(false, 1, Some(5), Source::Sntp), unreachable);
    }
}
