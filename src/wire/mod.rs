//! Bytes to data and back: pure, total, without state. No input panics.

pub mod decode;
pub mod encode;
pub mod fields;
pub mod pointer;
pub mod profile;
mod record;
pub mod reference;
mod result;
mod scalar;
pub mod scan;
pub mod status;
pub mod timestamp;
pub mod topic;
