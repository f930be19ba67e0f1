//! What is allowed but unwise, with the reason.

use super::{Config, Finding};

impl Config {
    /// What practice advises against.
    pub fn warnings(&self) -> Vec<Finding> {
        Vec::new()
    }
}
