//! The gateway's clock: against time servers that lie, that are silent and that are real, in this process where that
//! shows the same, and as an agent on a host whose clock is wrong.

#![allow(clippy::disallowed_methods, reason = "tests have deadlines of their own")]
#![allow(missing_docs, unreachable_pub, reason = "tests are sentences, and share modules")]

#[path = "../e2e/agent.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod agent;
#[path = "../links/authority.rs"]
mod authority;
#[path = "../e2e/central.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod central;
#[path = "../support/contract.rs"]
mod contract;
mod day;
mod fleet;
#[path = "../model/gateway.rs"]
#[allow(dead_code, unused_imports, reason = "a part of it is used")]
mod gateway;
mod hosts;
#[path = "../reference/mod.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod reference;
mod servers;
#[path = "../support/mod.rs"]
mod support;
