//! Opening the store, and the engine as it left it.

use std::time::Duration;

use tracing::error;

use super::AgentError;
use crate::config::{Config, Mode};
use crate::engine::Engine;
use crate::engine::loss::Loss;
use crate::engine::restore::{RestoreError, Restorer};
use crate::engine::settings::Settings;
use crate::ids::Generation;
use crate::notify::Notify;
use crate::store::{OpenOptions, Opened, Outbox, SledStore, Store, StoreError, recovery, writer};
use crate::time::Now;

/// What the service manager is told meanwhile.
const RECOVERING: &str = "recovering the store";

/// Things lost that are named one by one.
const NAMED: usize = 20;

/// The store, and the engine restored from it. What cannot be read is moved aside or left out, and said.
///
/// # Errors
/// The store cannot be used, or does not go with this version or configuration.
pub(super) fn open_store(
    config: &Config,
    now: Now,
    notify: &mut Notify,
) -> Result<(SledStore, Engine), AgentError> {
    notify.step(recovery::longest_open(&config.store.path), RECOVERING);
    let (mut store, mut restorer, options) =
        restorer(config, now, &mut |records| notify.restored(records))?;
    let losses = restorer.losses();
    if !losses.is_empty() {
        tell(&losses);
        // On the disk before anything is said: no result of before is contradicted, whatever happens next.
        store.renew(options)?;
        restorer.begin_again(store.generation(), store.created());
    }
    notify.step(Duration::ZERO, RECOVERING);
    Ok((store, restorer.finish()))
}

/// The same of an agent that does not run. What is damaged is left to the next start.
///
/// # Errors
/// Also where something is lost.
pub(super) fn read_store(config: &Config, now: Now) -> Result<(SledStore, Engine), AgentError> {
    let (store, restorer, _) = restorer(config, now, &mut |_| ())?;
    let losses = restorer.losses();
    if !losses.is_empty() {
        return Err(AgentError::Damaged(config.store.path.display().to_string()));
    }
    Ok((store, restorer.finish()))
}

fn restorer(
    config: &Config,
    now: Now,
    taken: &mut dyn FnMut(u64),
) -> Result<(SledStore, Restorer, OpenOptions), AgentError> {
    let new_generation = Generation::new(now.wall, fastrand::u16(..));
    let options = OpenOptions { new_generation, now: now.wall };
    let Opened { store, recovered } = recovery::open(&config.store.path, options)?;
    if let Some(recovered) = recovered {
        error!(?recovered, "the store was damaged");
    }
    let restorer = read(&store, config.settings(Mode::Run), taken)?.map_err(|source| {
        let path = config.store.path.display().to_string();
        AgentError::Restore { path, source }
    })?;
    writer::note(store.path())?;
    Ok((store, restorer, options))
}

/// The state of a store under these settings, or why they do not go with it.
fn read(
    store: &SledStore,
    settings: Settings,
    taken: &mut dyn FnMut(u64),
) -> Result<Result<Restorer, RestoreError>, StoreError> {
    let mut restorer = Restorer::new(settings, store.generation(), store.created());
    let (mut wrong, mut records) = (None, 0);
    store.load_state(&mut |key, value| {
        if wrong.is_none() {
            wrong = restorer.take(key, value).err();
        }
        records += 1;
        taken(records);
    })?;
    Ok(wrong.map_or(Ok(restorer), Err))
}

/// An engine from a store that is open and in use, under other settings; or why there is none.
///
/// # Errors
/// The store cannot be read.
pub(super) fn restore_again(
    store: &SledStore,
    settings: Settings,
) -> Result<Result<Engine, String>, StoreError> {
    let restorer = match read(store, settings, &mut |_| ())? {
        Ok(restorer) => restorer,
        Err(refused) => return Ok(Err(refused.to_string())),
    };
    if let Some(loss) = restorer.losses().first() {
        let lost = format!(
            "{loss}, would be lost: restart the agent, which carries on without, under a new generation"
        );
        return Ok(Err(lost));
    }
    Ok(Ok(restorer.finish()))
}

fn tell(losses: &[Loss]) {
    for loss in losses.iter().take(NAMED) {
        error!(%loss, "the store has lost something");
    }
    error!(lost = losses.len(), "the store is carried on with the rest, under a new generation");
}

/// Commits what the engine and the outbox have to say.
pub(super) fn commit_now(
    store: &mut SledStore,
    engine: &mut Engine,
    outbox: &mut Outbox,
) -> Result<(), StoreError> {
    let batch = outbox.drain_changes().with_state(engine.checkpoint());
    if !batch.is_empty() {
        outbox.committed(store.commit(&batch)?);
    }
    Ok(())
}
