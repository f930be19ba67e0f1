//! The devices of an agent that is stopped, from its store.

use super::AgentError;
use super::opening::{commit_now, read_store};
use crate::config::Config;
use crate::engine::effect::Effects;
use crate::engine::overview::DeviceView;
use crate::store::{Entry, Outbox, Store};
use crate::time::Now;
use crate::wire::encode::{Identity, encode};

/// All devices that the store knows.
///
/// # Errors
/// There is no store, or it cannot be used: an agent that runs has it to itself.
pub fn list(config: &Config, now: Now) -> Result<Vec<DeviceView>, AgentError> {
    let (_, engine) = read_store(config, now)?;
    Ok(engine.device_views().collect())
}

/// Forgets a device; the centre is told when the agent runs again. Says whether there was one to forget.
///
/// # Errors
/// As of [`list`].
pub fn forget(config: &Config, now: Now, region: &str, device: &str) -> Result<bool, AgentError> {
    let (mut store, mut engine) = read_store(config, now)?;
    let mut outbox = Outbox::load(&store, config.store.outbox_quota)?;
    let mut effects = Effects::default();
    let was_there = engine.forget(region, device, now, &mut effects);
    let gateway = config.gateway.as_str().into();
    let identity = Identity { gateway, generation: store.generation() };
    for output in effects.outputs {
        let encoded = encode(&output, &identity, config.upstream.fields);
        outbox.append(Entry {
            topic: encoded.topic,
            payload: encoded.payload,
            class: encoded.class,
            supersedes: encoded.supersedes,
            queued: now.wall,
        });
    }
    commit_now(&mut store, &mut engine, &mut outbox)?;
    Ok(was_there)
}
