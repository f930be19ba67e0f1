//! The devices' broker: connection, what it grants, subscriptions, and the burst.

use std::time::Duration;

use rumqttc::QoS;

use super::greeting::{greet, is_out_of_reach, lifetime, nothing, quality, reason, spoken};
use super::session::Session;
use super::{Cause, Section, Time, Trial, burst, bytes, thousands};
use crate::agent;
use crate::config::Mode;
use crate::ingress::{self, IngressConfig};
use crate::mqtt::{Accepted, Broker, Version};

/// What mosquitto says that it is: retained.
const BROKER_VERSION: &str = "$SYS/broker/version";

/// How long that is waited for.
const BRIEFLY: Duration = Duration::from_secs(1);

impl Trial<'_> {
    /// The devices' broker, with the agent's own client id.
    pub(super) fn devices_broker(&self) -> Broker {
        agent::connection(&self.config.broker.link, &self.config.gateway)
    }

    pub(super) async fn devices(&self, time: &Time) -> Section {
        let mut section = Section::new("devices");
        if is_out_of_reach(&mut section, &self.config.broker.link) {
            return section;
        }
        let mut ingress = agent::ingress_config(self.config, &self.config.settings(Mode::Run));
        ingress.broker.client_id += &self.tag;
        ingress.broker.time = Some(time.after(crate::time::Span::ZERO));
        let wishes = ingress::wishes(&ingress);
        let greeted = greet(&mut section, &ingress.broker, &wishes).await;
        let Some((session, accepted)) = greeted else { return section };
        session.leave().await;
        if accepted.session_present {
            // Nobody ever had this client id: the broker goes by the user, and this was the agent's session. It asked for
            // the session as the agent does, so nothing of it is lost.
            section.unwise(
                "the broker gave this check the agent's own session (mosquitto: use_username_as_clientid), which \
                 interrupted the agent for a moment; nothing further is tried. Give the agent a user of its own there",
            );
            return section;
        }
        grants(&mut section, &ingress, &accepted);
        lifetime(&mut section, &ingress.broker, time).await;
        subscriptions(&mut section, &ingress, &accepted).await;
        burst::burst(&mut section, &ingress).await;
        forget(&ingress.broker).await;
        section
    }
}

/// Ends the session of this client id.
pub(super) async fn forget(broker: &Broker) {
    if let Ok((session, _)) = Session::open(broker, &nothing()).await {
        session.leave().await;
    }
}

fn grants(section: &mut Section, ingress: &IngressConfig, accepted: &Accepted) {
    quality(section, accepted);
    let window = thousands(ingress.in_flight.into());
    if ingress.broker.version == Version::V311 {
        section.good(format!(
            "in MQTT 3.1.1 a broker does not say what it grants; broker.in-flight counts on {window} messages on their \
             way (mosquitto: max_inflight_messages)"
        ));
        return;
    }
    let wanted = ingress.session_expiry;
    match accepted.session {
        Some(granted) if granted < wanted => section.unwise(format!(
            "the broker keeps the agent's session for {} only, and not for {}: what devices publish during a longer \
             stop is lost; raise its limit (mosquitto: persistent_client_expiration), or lower broker.session-expiry",
            spoken(granted),
            spoken(wanted)
        )),
        _ => {
            let largest = accepted.largest.map_or_else(
                || "of any size".to_owned(),
                |largest| format!("of up to {}", bytes(largest as u64)),
            );
            section.good(format!(
                "granted: the session is kept for {}, {window} messages on their way to us, packets {largest} from us",
                spoken(wanted)
            ));
        }
    }
}

async fn subscriptions(section: &mut Section, ingress: &IngressConfig, accepted: &Accepted) {
    let wild = ingress.filters.iter().find(|filter| filter.contains(['+', '#']));
    if let (true, Some(filter)) = (accepted.no_wildcards, wild) {
        let message = format!("the broker takes no filters with + and #, as {filter} is one");
        section.bad(Cause::Configuration, message);
        return;
    }
    let mut session = match Session::open(&ingress.broker, &nothing()).await {
        Ok((session, _)) => session,
        Err(error) => return section.broken("subscribing", &error),
    };
    if let Ok(Some(version)) = broker_version(&mut session).await {
        told_version(section, &version);
    } else {
        session = match Session::open(&ingress.broker, &nothing()).await {
            Ok((session, _)) => session,
            Err(error) => return section.broken("subscribing", &error),
        };
    }
    match session.subscribe(&ingress.filters).await {
        Ok(answers) => answered(section, &ingress.filters, &answers),
        Err(error) => return section.broken("subscribing", &error),
    }
    session.leave().await;
}

/// Where nothing comes the session can be used no more.
async fn broker_version(session: &mut Session) -> Result<Option<String>, crate::mqtt::LinkError> {
    session.subscribe(&[BROKER_VERSION.to_owned()]).await?;
    let message = session.message(BRIEFLY).await?.filter(|message| message.topic == BROKER_VERSION);
    Ok(message.map(|message| String::from_utf8_lossy(&message.payload).into_owned()))
}

/// Versions that lose what comes while the agent is stopped, where listeners have settings of their own.
fn told_version(section: &mut Section, version: &str) {
    let release =
        version.strip_prefix("mosquitto version 2.0.").and_then(|patch| patch.parse().ok());
    match release {
        Some(12..=18_u8) => section.unwise(format!(
            "the broker is {version}: from 2.0.12 to 2.0.18 it loses what comes for a session that is away, where \
             per_listener_settings is true (mosquitto issue 2618); update it, or leave that setting out"
        )),
        _ => section.good(format!("the broker is {version}")),
    }
}

fn answered(section: &mut Section, filters: &[String], answers: &[Result<QoS, String>]) {
    let unanswered = Err("no answer".to_owned());
    let mut taken = Vec::new();
    for (filter, answer) in filters.iter().zip(answers.iter().chain(std::iter::repeat(&unanswered)))
    {
        match answer {
            Ok(QoS::AtMostOnce) => section.unwise(format!(
                "{filter}: subscribed at QoS 0 only: what is under way when the agent stops is lost; let the broker grant \
                 QoS 1"
            )),
            Ok(_) => taken.push(filter.as_str()),
            Err(name) => section.bad(
                Cause::Forbidden,
                format!(
                    "{filter}: subscription refused: {}; allow this client to read it, in the broker's ACL",
                    reason(name)
                ),
            ),
        }
    }
    if !taken.is_empty() {
        section.good(format!("subscribed at QoS 1 to {}", taken.join(" ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::Outcome;

    fn of(tell: impl FnOnce(&mut Section)) -> Vec<(Outcome, String)> {
        let mut section = Section::new("devices");
        tell(&mut section);
        section.lines.into_iter().map(|line| (line.outcome, line.text)).collect()
    }

    #[test]
    fn versions_that_lose_messages_are_warned_of() {
        for (version, outcome) in [
            ("mosquitto version 2.0.11", Outcome::Good),
            ("mosquitto version 2.0.12", Outcome::Unwise),
            ("mosquitto version 2.0.18", Outcome::Unwise),
            ("mosquitto version 2.0.19", Outcome::Good),
            ("mosquitto version 2.1.15", Outcome::Good),
        ] {
            assert_eq!(of(|section| told_version(section, version))[0].0, outcome, "{version}");
        }
    }

    #[test]
    fn each_filter_is_told_by_what_was_granted() {
        let filters = ["a/+", "b", "c", "d"].map(str::to_owned);
        let answers = [Ok(QoS::AtLeastOnce), Ok(QoS::AtMostOnce), Err("NotAuthorized".to_owned())];
        let told = of(|section| answered(section, &filters, &answers));
        let outcomes: Vec<_> = told.iter().map(|(outcome, _)| *outcome).collect();
        let refused = Outcome::Bad(Cause::Forbidden);
        assert_eq!(outcomes, [Outcome::Unwise, refused, refused, Outcome::Good]);
        assert!(
            told[1].1.contains("c: subscription refused: NotAuthorized (0x87)"),
            "{}",
            told[1].1
        );
        assert!(told[2].1.contains("d: subscription refused: no answer"), "{}", told[2].1);
        assert!(told[3].1.ends_with("to a/+"), "{}", told[3].1);
    }

    #[test]
    fn a_broker_that_keeps_the_session_for_less_than_asked_is_warned_of() {
        let broker = Broker::new(Version::V5, "a", 1883, "gw");
        let ingress = IngressConfig::new(broker, Vec::new());
        let told = |session| {
            let accepted = Accepted { session, ..Accepted::default() };
            of(|section| grants(section, &ingress, &accepted))[0].clone()
        };
        let (outcome, text) = told(Some(Duration::from_secs(3_600)));
        assert_eq!(outcome, Outcome::Unwise);
        assert!(text.contains("for 1 h only, and not for 7 d"), "{text}");
        for session in [None, Some(ingress.session_expiry)] {
            assert_eq!(told(session).0, Outcome::Good);
        }
        let poor = Accepted { quality: Some(0), ..Accepted::default() };
        let told = of(|section| grants(section, &ingress, &poor));
        assert_eq!(told[0].0, Outcome::Bad(Cause::Configuration));
    }
}
