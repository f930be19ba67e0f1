//! `tidegate check --connect` as an operator meets it: against real mosquittos, good ones and such as ship, time servers
//! that lie, and stores that cannot be.

#![allow(clippy::disallowed_methods, reason = "tests have deadlines of their own")]
#![allow(missing_docs, unreachable_pub, reason = "tests are sentences, and share modules")]

#[path = "../e2e/agent.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod agent;
#[path = "../links/authority.rs"]
mod authority;
mod brokers;
mod machine;
mod place;
#[path = "../support/mod.rs"]
mod support;
