//! From the configuration to the two connections.

use crate::config::{Config, Link};
use crate::egress::EgressConfig;
use crate::engine::settings::Settings;
use crate::ingress::IngressConfig;
use crate::mqtt;

/// How to listen to the devices' broker, for all sources of `settings`.
pub fn ingress_config(config: &Config, settings: &Settings) -> IngressConfig {
    let broker = &config.broker;
    let sources = &settings.sources;
    let filters = sources.iter().flat_map(|source| source.profile.filters().iter().cloned());
    IngressConfig {
        broker: connection(&broker.link, &config.gateway),
        filters: filters.collect(),
        dropped_filters: Vec::new(),
        in_flight: broker.link.in_flight,
        max_payload: broker.max_payload,
        session_expiry: broker.session_expiry,
    }
}

/// How to publish to the central broker.
pub(super) fn egress_config(config: &Config) -> EgressConfig {
    let upstream = &config.upstream;
    EgressConfig {
        broker: connection(&upstream.link, &config.gateway),
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

fn connection(link: &Link, gateway: &str) -> mqtt::Broker {
    mqtt::Broker {
        host: link.host.clone(),
        port: link.port,
        version: link.version,
        tls: link.tls.clone(),
        client_id: link.client_id.clone(),
        gateway: gateway.to_owned(),
        credentials: link.credentials.clone(),
        keep_alive: link.keep_alive,
    }
}
