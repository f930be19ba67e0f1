//! The devices that the agent knows: asked of it at its socket, or of the store of one that is stopped.

use std::fs;

use super::opening::{commit_now, read_store};
use super::{AgentError, Session};
use crate::config::Config;
use crate::engine::Engine;
use crate::engine::effect::Effects;
use crate::engine::input::Input;
use crate::status::question::{Answer, Ask, PAGE, Page};
use crate::status::socket::Request;
use crate::store::{Entry, Outbox, Store, StoreError, ownership};
use crate::time::Now;
use crate::wire::encode::{Identity, encode};

impl Session<'_> {
    /// Answers. What is forgotten is on the disk before that is said.
    pub(super) async fn on_asked(&mut self, request: Request) -> Result<(), StoreError> {
        if let Some(meant) = request.ask.store() {
            let own = store_name(&self.config);
            if meant != own {
                request.answer(&Answer::OtherStore(own));
                return Ok(());
            }
        }
        match &request.ask {
            Ask::Status {} => request.status(&self.status()),
            Ask::Devices { .. } | Ask::Device { .. } => {
                let answer = read(&self.engine, &request.ask, PAGE);
                request.answer(&answer);
            }
            Ask::Forget { region, device, .. } => {
                let is_missed = is_missed(&self.engine, region, device);
                if is_missed {
                    self.handle(Input::Forget { region, device }, self.clock.now());
                    self.commit().await?;
                }
                request.answer(&Answer::Forgotten(is_missed));
            }
        }
        Ok(())
    }
}

/// Which store it is, whatever it is called by.
pub fn store_name(config: &Config) -> String {
    let path = &config.store.path;
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
    real.to_string_lossy().into_owned()
}

/// The same answer from the store of an agent that is stopped. What is forgotten is told when it runs again.
///
/// # Errors
/// There is no store, or it cannot be used: an agent that runs has it to itself.
pub fn answer_from_store(config: &Config, now: Now, ask: &Ask) -> Result<Answer, AgentError> {
    let answer = from_store(config, now, ask);
    // Even where it could not be answered.
    let given = ownership::give_back(&config.store.path);
    let answer = answer?;
    given?;
    Ok(answer)
}

fn from_store(config: &Config, now: Now, ask: &Ask) -> Result<Answer, AgentError> {
    let (mut store, mut engine) = read_store(config, now)?;
    let Ask::Forget { region, device, .. } = ask else {
        return Ok(read(&engine, ask, usize::MAX));
    };
    if !is_missed(&engine, region, device) {
        return Ok(Answer::Forgotten(false));
    }
    let mut outbox = Outbox::load(&store, config.store.outbox_quota)?;
    let mut effects = Effects::default();
    engine.handle(Input::Forget { region, device }, now, &mut effects);
    let gateway = config.gateway.as_str().into();
    let identity = Identity { gateway, generation: store.generation() };
    for output in effects.outputs {
        let encoded = encode(&output, &identity, config.upstream.fields);
        outbox.append(Entry::of(encoded, now.wall));
    }
    commit_now(&mut store, &mut engine, &mut outbox)?;
    Ok(Answer::Forgotten(true))
}

fn is_missed(engine: &Engine, region: &str, device: &str) -> bool {
    engine.device_view(region, device).is_some_and(|view| view.is_missed)
}

/// At most so many of the devices that were asked for.
fn read(engine: &Engine, ask: &Ask, most: usize) -> Answer {
    let page = match ask {
        Ask::Devices { from, .. } => {
            let devices: Vec<_> = engine.device_views(*from).take(most).map(Into::into).collect();
            let next = from.saturating_add(devices.len());
            Page { devices, next: Some(next).filter(|next| *next < engine.device_count()) }
        }
        Ask::Device { region, device, .. } => {
            let found = engine.device_view(region, device);
            Page { devices: found.into_iter().map(Into::into).collect(), next: None }
        }
        Ask::Status {} | Ask::Forget { .. } => Page::default(),
    };
    Answer::Devices(page)
}
