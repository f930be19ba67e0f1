//! What comes out of the engine.

use crate::event::{Class, Output};

/// What the engine wants to be said, in order. State is not here: it is collected by
/// [`crate::engine::Engine::checkpoint`], so that many messages of one device cost one write.
#[derive(Debug, Default)]
pub struct Effects {
    /// Outputs, in the order in which they came about.
    pub outputs: Vec<Output>,
    /// Something among them cannot wait for the commit interval.
    pub urgent: bool,
}

impl Effects {
    /// Adds an output.
    pub fn push(&mut self, output: Output) {
        self.urgent |= matches!(output.class(), Class::Alert | Class::Presence);
        self.outputs.push(output);
    }
}
