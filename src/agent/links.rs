//! From the configuration to the two connections.

use super::AgentError;
use crate::config::{Broker, Link, Login, Upstream};
use crate::egress::EgressConfig;
use crate::engine::settings::Settings;
use crate::ingress::IngressConfig;
use crate::mqtt::{self, Credentials};

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

/// How to publish to the central broker.
pub(super) fn egress_config(upstream: &Upstream) -> Result<EgressConfig, AgentError> {
    Ok(EgressConfig {
        broker: connection(&upstream.link)?,
        in_flight: upstream.link.in_flight,
        prefix: upstream.prefix.clone(),
    })
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
