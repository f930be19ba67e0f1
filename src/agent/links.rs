//! From the configuration to the two connections.

use std::path::PathBuf;
use std::sync::Arc;

use super::observed::VERSION;
use crate::clock::Clock;
use crate::config::{Config, Link};
use crate::egress::EgressConfig;
use crate::engine::settings::Settings;
use crate::ingress::IngressConfig;
use crate::mqtt;
use crate::status::message;
use crate::status::socket::usual_places;
use crate::time::Span;

/// How to listen to the devices' broker, for all sources of `settings`.
pub fn ingress_config(config: &Config, settings: &Settings) -> IngressConfig {
    let broker = &config.broker;
    let sources = &settings.sources;
    let mut filters: Vec<String> =
        sources.iter().flat_map(|source| source.profile.filters().iter().cloned()).collect();
    for status in sources.iter().flat_map(|source| &source.statuses) {
        let filter = status.filter();
        // A broker may deliver once for each filter.
        if !filters.iter().any(|wide| covers(wide, &filter)) {
            filters.push(filter);
        }
    }
    IngressConfig {
        broker: connection(&broker.link, &config.gateway),
        filters,
        dropped_filters: Vec::new(),
        in_flight: broker.link.in_flight,
        max_payload: broker.max_payload,
        session_expiry: broker.session_expiry,
    }
}

/// Whether a filter delivers all that another does.
pub(crate) fn covers(wide: &str, narrow: &str) -> bool {
    let (mut wide, mut narrow) = (wide.split('/'), narrow.split('/'));
    loop {
        match (wide.next(), narrow.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some("+"), Some(level)) if level != "#" => {}
            (Some(level), Some(other)) if level == other => {}
            _ => return false,
        }
    }
}

/// How to publish to the central broker, in this generation.
pub(super) fn egress_config(config: &Config, clock: &Clock, generation: &str) -> EgressConfig {
    let upstream = &config.upstream;
    let mut broker = connection(&upstream.link, &config.gateway);
    date(&mut broker, clock);
    EgressConfig {
        will: Some((message::TOPIC.to_owned(), message::lost(generation, VERSION))),
        broker,
        in_flight: upstream.link.in_flight,
        prefix: upstream.prefix.clone(),
    }
}

/// Both connections, for people: whom to connect to, as whom, and how.
pub fn connections(config: &Config) -> [String; 2] {
    let sides = [("devices", &config.broker.link), ("central", &config.upstream.link)];
    sides.map(|(name, link)| {
        let broker = connection(link, &config.gateway);
        format!("{name}: {broker}, MQTT {}", broker.version.as_str())
    })
}

/// Where the agent can be asked how it is; nowhere if the configuration says so.
pub fn status_places(config: &Config) -> Vec<PathBuf> {
    match &config.status.socket {
        _ if !config.status.enabled => Vec::new(),
        Some(socket) => vec![socket.clone()],
        None => usual_places(),
    }
}

/// Certificates are judged by the gateway's clock.
pub(super) fn date(broker: &mut mqtt::Broker, clock: &Clock) {
    let clock = clock.clone();
    broker.time =
        Some(mqtt::Dated::by(move || (clock.now().wall, clock.status().is_good(Span::MAX))));
}

/// A broker, and who the agent is to it.
pub(crate) fn connection(link: &Link, gateway: &str) -> mqtt::Broker {
    mqtt::Broker {
        host: link.host.clone(),
        port: link.port,
        version: link.version,
        tls: link.tls.clone(),
        client_id: link.client_id.clone(),
        gateway: gateway.to_owned(),
        credentials: link.credentials.clone(),
        keep_alive: link.keep_alive,
        time: None,
        hurry: Arc::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::covers;

    #[test]
    fn a_filter_covers_what_it_delivers_all_of() {
        for (wide, narrow) in
            [("m/+/+/+", "m/+/+/status"), ("m/#", "m/a/b"), ("m/#", "m"), ("a", "a")]
        {
            assert!(covers(wide, narrow), "{wide} {narrow}");
        }
        for (wide, narrow) in
            [("m/+/+", "m/+/+/status"), ("m/+", "m/#"), ("m/a", "m/+"), ("a/b", "a")]
        {
            assert!(!covers(wide, narrow), "{wide} {narrow}");
        }
    }
}
