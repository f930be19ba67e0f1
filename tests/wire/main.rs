//! The upstream contract: `docs/wire.md` and `docs/schema` against each other and against what is published.
//!
//! What a real run publishes is held to the schemas too, in all tests of `e2e`, and so are the golden replays.

#![allow(missing_docs, reason = "tests are sentences")]

mod consumer;
#[path = "../support/contract.rs"]
mod contract;
mod document;
mod schema;
mod size;
