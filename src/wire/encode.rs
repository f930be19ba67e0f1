//! From outputs to topics and JSON (SPEC 8).
