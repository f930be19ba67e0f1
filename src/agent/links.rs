//! From the configuration to the two connections.

use std::path::PathBuf;

use super::AgentError;
use super::observed::VERSION;
use crate::config::{Broker, Config, Link, Login, Upstream};
use crate::egress::EgressConfig;
use crate::engine::settings::Settings;
use crate::ingress::IngressConfig;
use crate::mqtt::{self, Credentials};
use crate::status::message;
use crate::status::socket::usual_places;

/// How to listen to the devices' broker, for all sources of `settings`.
///
/// # Errors
/// The password file cannot be read.
pub fn ingress_config(broker: &Broker, settings: &Settings) -> Result<IngressConfig, AgentError> {
    let sources = &settings.sources;
    let filters = sources.iter().flat_map(|source| source.profile.filters().iter().cloned());
    Ok(IngressConfig {
        broker: connection(&broker.link)?,
        filters: filters.collect(),
        dropped_filters: Vec::new(),
        in_flight: broker.link.in_flight,
        max_payload: broker.max_payload,
        session_expiry: broker.session_expiry,
    })
}

/// How to publish to the central broker, in this generation.
pub(super) fn egress_config(
    upstream: &Upstream,
    generation: &str,
) -> Result<EgressConfig, AgentError> {
    Ok(EgressConfig {
        will: Some((message::TOPIC.to_owned(), message::lost(generation, VERSION))),
        broker: connection(&upstream.link)?,
        in_flight: upstream.link.in_flight,
        prefix: upstream.prefix.clone(),
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

fn connection(link: &Link) -> Result<mqtt::Broker, AgentError> {
    Ok(mqtt::Broker {
        host: link.host.clone(),
        port: link.port,
        client_id: link.client_id.clone(),
        credentials: credentials(link.login.as_ref())?,
        keep_alive: link.keep_alive,
    })
}

fn credentials(login: Option<&Login>) -> Result<Option<Credentials>, AgentError> {
    let Some(login) = login else { return Ok(None) };
    let password = login
        .password()
        .map_err(|source| AgentError::Password { user: login.user.clone(), source })?;
    Ok(Some(Credentials { user: login.user.clone(), password: password.unwrap_or_default() }))
}
