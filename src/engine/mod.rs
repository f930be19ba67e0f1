//! The product: event time, windows, roll-ups, counts. Synchronous, deterministic, without I/O.
//!
//! The engine reads no clock, no file, no socket and no random source: the same inputs give the same outputs, live, in
//! a replay and in a simulation.

pub mod checkpoint;
pub mod input;
pub mod settings;
