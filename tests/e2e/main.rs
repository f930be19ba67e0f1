//! Device topics in, right hours out: the real binary between two real mosquittos.
//!
//! Event time is decoupled from arrival, so hours of data of a fleet are published in seconds. What comes out upstream
//! is compared with what a naive reference makes of the same messages (`reference`), whatever happened in between.
//! `TIDEGATE_LONG=1` kills more often.

#![allow(clippy::disallowed_methods, reason = "tests have deadlines of their own")]
#![allow(missing_docs, unreachable_pub, reason = "tests are sentences")]

#[allow(dead_code, reason = "other tests use it too")]
mod agent;
mod bad_input;
mod central;
#[path = "../support/contract.rs"]
mod contract;
mod dark;
mod every_kind;
mod fleet;
mod kills;
mod leaving;
mod losses;
mod memory;
mod notify;
mod outages;
mod presence;
mod readme;
mod reference;
mod reload;
mod setup;
mod starts;
mod status;
#[path = "../support/mod.rs"]
mod support;
mod time;
mod whole_run;
