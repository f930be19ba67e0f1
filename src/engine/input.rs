//! What goes into the engine.

/// One thing that happened. Each comes with the [`crate::time::Now`] at which it did.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A message was received.
    Publish(Publish<'a>),
    /// Time passed. A spurious tick changes nothing.
    Tick,
    /// The connection to the devices' broker changed.
    Ingress(Ingress),
    /// What the gateway's clock is worth changed. Where it was set too, that is told no later than by the `Now` that
    /// comes with this.
    Clock(crate::time::ClockStatus),
    /// Which boot of the machine this is: its monotonic time means nothing in another. Told before anything else.
    Boot(u128),
    /// A held message, as the store has it: see [`crate::engine::Engine::held_wanted`].
    Held {
        /// Its key.
        key: &'a [u8],
        /// What is there.
        value: &'a [u8],
    },
    /// There are no more held messages than came.
    HeldEnd,
    /// An operator no longer misses a device.
    Forget {
        /// Its region.
        region: &'a str,
        /// Its name.
        device: &'a str,
    },
    /// The input is at its end (replay): everything still open fires.
    End,
}

/// A message as it was received.
#[derive(Clone, Copy, Debug)]
pub struct Publish<'a> {
    /// Its topic.
    pub topic: Topic<'a>,
    /// Its payload.
    pub payload: &'a [u8],
    /// It was retained: history, not news.
    pub retain: bool,
    /// The broker says that it may have delivered it before.
    pub dup: bool,
}

/// Where a message came from.
#[derive(Clone, Copy, Debug)]
pub enum Topic<'a> {
    /// A topic, to be matched against the sources.
    Name(&'a str),
    /// A source by its index (replay of bare payloads); topic segments are empty.
    Source(usize),
}

/// What became of the connection to the devices' broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ingress {
    /// Connected and subscribed; what the broker had queued is still to come.
    Up,
    /// Everything that the broker had queued has been received and processed.
    CaughtUp,
    /// The connection is gone.
    Down,
    /// We were not there, as when the machine slept, and what came meanwhile is still to come.
    Absent,
    /// The broker will not deliver again what was in the checkpoint that returned this mark.
    AcksSettled {
        /// [`crate::engine::checkpoint::Checkpoint::mark`] of the last checkpoint whose messages it has let go.
        through: u64,
    },
}
