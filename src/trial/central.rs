//! The central broker: connection, what it grants, and whether it takes a publish.

use super::greeting::{greet, is_out_of_reach, lifetime, nothing, quality, reason};
use super::session::PATIENCE;
use super::{Cause, Section, Time, Trial, bytes};
use crate::agent;
use crate::egress::LARGEST;
use crate::mqtt::{Accepted, LinkError, Verdict, Version};
use crate::time::Span;

/// Says that it is no result, and which contract it would belong to.
const PAYLOAD: &[u8] = br#"{"schema":1}"#;

impl Trial<'_> {
    pub(super) async fn central(&self, time: &Time) -> Section {
        let mut section = Section::new("central");
        let upstream = &self.config.upstream;
        if is_out_of_reach(&mut section, &upstream.link) {
            return section;
        }
        let mut broker = agent::connection(&upstream.link, &self.config.gateway);
        broker.client_id += &self.tag;
        broker.time = Some(time.after(Span::ZERO));
        let greeted = greet(&mut section, &broker, &nothing()).await;
        let Some((mut session, accepted)) = greeted else { return section };
        grants(&mut section, &accepted);
        let topic = format!("{}/check", upstream.prefix);
        session.allow(PATIENCE);
        match session.publish(&topic, std::iter::once(PAYLOAD.to_vec())).await {
            Ok(verdicts) => published(&mut section, &topic, broker.version, &verdicts),
            Err(error) => not_published(&mut section, &topic, &error),
        }
        session.leave().await;
        lifetime(&mut section, &broker, time).await;
        section
    }
}

fn grants(section: &mut Section, accepted: &Accepted) {
    quality(section, accepted);
    if accepted.no_retain {
        let message = "the broker takes no retained messages, and so neither the agent's status nor its last will; let it \
                       take them, or set version = \"3.1.1\" if it ignores the flag there";
        section.bad(Cause::Configuration, message);
    }
    if let Some(largest) = accepted.largest.filter(|largest| *largest < LARGEST) {
        section.unwise(format!(
            "the broker takes packets of up to {} only: a larger output, such as a late record with a long payload, is \
             dropped; raise its limit to {}",
            bytes(largest as u64),
            bytes(LARGEST as u64)
        ));
    }
}

fn published(section: &mut Section, topic: &str, version: Version, verdicts: &[Verdict]) {
    match verdicts.first() {
        Some(Verdict::NotNow(name) | Verdict::Refused(name)) => section.bad(
            Cause::Forbidden,
            format!(
                "publishing to {topic} is not allowed: {}; allow this client to write everything below upstream.prefix, in \
                 the broker's ACL",
                reason(name)
            ),
        ),
        _ => {
            let doubt = match version {
                Version::V5 => "",
                Version::V311 => " (in MQTT 3.1.1 a broker acknowledges also what it does not allow, and throws it away)",
            };
            section.good(format!("{topic}: published at QoS 1 and acknowledged{doubt}"));
        }
    }
}

/// Some brokers close the connection over what they do not allow, without a word.
fn not_published(section: &mut Section, topic: &str, error: &LinkError) {
    let what = format!("publishing to {topic}");
    match error.is_closing() {
        true => section.bad(
            Cause::Forbidden,
            format!(
                "{what}: {error}, as some brokers do over what they do not allow; allow this client to write everything \
                 below upstream.prefix, in the broker's ACL"
            ),
        ),
        false => section.broken(&what, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::Outcome;

    #[test]
    fn a_broker_that_cannot_take_what_the_agent_publishes_is_told() {
        let outcomes = |accepted| {
            let mut section = Section::new("central");
            grants(&mut section, &accepted);
            section.lines.iter().map(|line| line.outcome).collect::<Vec<_>>()
        };
        let bad = Outcome::Bad(Cause::Configuration);
        assert_eq!(outcomes(Accepted::default()), []);
        assert_eq!(outcomes(Accepted { no_retain: true, ..Accepted::default() }), [bad]);
        assert_eq!(outcomes(Accepted { quality: Some(0), ..Accepted::default() }), [bad]);
        assert_eq!(outcomes(Accepted { quality: Some(1), ..Accepted::default() }), []);
        let small = Accepted { largest: Some(64 << 10), ..Accepted::default() };
        assert_eq!(outcomes(small), [Outcome::Unwise]);
        assert_eq!(outcomes(Accepted { largest: Some(LARGEST), ..Accepted::default() }), []);
    }

    #[test]
    fn a_broker_that_closes_over_a_publish_does_not_allow_it() {
        let outcome = |error| {
            let mut section = Section::new("central");
            not_published(&mut section, "a/check", &error);
            section.lines[0].outcome
        };
        assert_eq!(outcome(LinkError::Closed), Outcome::Bad(Cause::Forbidden));
        let silent = LinkError::Silent(PATIENCE);
        assert_eq!(outcome(silent), Outcome::Bad(Cause::Unreachable));
    }
}
