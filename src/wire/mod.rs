//! Bytes to data and back: pure, total, without state. No input panics.

pub mod decode;
pub mod encode;
pub mod profile;
pub mod timestamp;
pub mod topic;
