//! What the store keeps of the engine: opaque keys and values.

/// Changes of the engine's state since the last checkpoint, to be committed in one atomic transaction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checkpoint {
    /// Keys with their new values; `None` deletes. A key occurs once.
    pub changes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// To be handed back in [`crate::engine::input::Ingress::AcksSettled`] once the broker has confirmed the
    /// acknowledgements that followed this checkpoint.
    pub mark: u64,
}
