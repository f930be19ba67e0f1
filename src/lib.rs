//! tidegate: an event-time gateway agent.
//!
//! Device topics in, right hours out, nothing lost on the way. A pure engine decides everything; thin shells around it
//! do what it says (`ARCHITECTURE.md`):
//!
//! ```text
//! wait for one thing → engine.handle(input, now, &mut effects) → store.commit(effects) → acknowledge, publish
//! ```
//!
//! # Layers
//!
//! A module imports strictly lower layers (`tests/layering.rs` keeps it so).
//!
//! | layer | modules | |
//! |---|---|---|
//! | L4 | `main` `cli` `agent` `config` `demo` | wires everything |
//! | L3 | `ingress` `egress` `store` `status` `clock` `heap` `notify` `telemetry` | shells; never import each other |
//! | L3 | `mqtt` | what `ingress` and `egress` share; theirs alone to import |
//! | L2 | [`engine`] | the product: no async, no I/O |
//! | L1 | [`wire`] | bytes ⇄ data; pure and total |
//! | L0 | [`time`] [`ids`] [`event`] | data and arithmetic |
//!
//! The core (L0 to L2) builds without the I/O crates: `--no-default-features`.

pub mod event;
pub mod ids;
pub mod time;

pub mod wire;

pub mod engine;

#[cfg(feature = "shell")]
pub mod clock;
#[cfg(feature = "shell")]
pub mod egress;
#[cfg(feature = "shell")]
pub mod heap;
#[cfg(feature = "shell")]
pub mod ingress;
#[cfg(feature = "shell")]
pub mod mqtt;
#[cfg(feature = "shell")]
pub mod notify;
#[cfg(feature = "shell")]
pub mod status;
#[cfg(feature = "shell")]
pub mod store;
#[cfg(feature = "shell")]
pub mod telemetry;

#[cfg(feature = "shell")]
pub mod agent;
#[cfg(feature = "shell")]
pub mod cli;
#[cfg(feature = "shell")]
pub mod config;
#[cfg(feature = "demo")]
pub mod demo;
#[cfg(feature = "shell")]
pub mod phase;
#[cfg(feature = "shell")]
pub mod record;
#[cfg(feature = "shell")]
pub mod replay;
