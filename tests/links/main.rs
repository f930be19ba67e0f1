//! Both connections as an operator meets them: the agent as a process, and real mosquittos.

#![allow(clippy::disallowed_methods, reason = "tests have deadlines of their own")]
#![allow(missing_docs, unreachable_pub, reason = "tests are sentences, and share modules")]

#[path = "../e2e/agent.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod agent;
mod authority;
#[path = "../support/mod.rs"]
mod support;
mod tls;
mod twins;
