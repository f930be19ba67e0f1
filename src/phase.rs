//! Points at which a test holds the agent still, to kill it there (feature `phases`; nothing without it).
//!
//! `TIDEGATE_HOLD_AT=committed:3` holds at the third time that a commit is durable and nothing of it is acknowledged:
//! the process says `holding at committed` on standard error and waits for its end. `TIDEGATE_HOLD_AT=committed:3:500`
//! goes on after 500 ms.

/// A point in the life of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The store is open and the engine restored; nothing is connected.
    Recovering,
    /// A message was handled and is not committed.
    Receiving,
    /// A transaction was applied and is not durable.
    Committing,
    /// A batch is durable and nothing of it is acknowledged.
    Committed,
    /// An output was acknowledged by the central broker and is still in the outbox.
    Published,
}

/// The process is at `phase`.
#[cfg(not(feature = "phases"))]
#[inline]
pub fn reach(_phase: Phase) {}

/// The process is at `phase`: holds still if it was asked to.
#[cfg(feature = "phases")]
pub fn reach(phase: Phase) {
    use std::sync::atomic::{AtomicU32, Ordering};
    static REACHED: [AtomicU32; 5] = [const { AtomicU32::new(0) }; 5];
    let Ok(wanted) = std::env::var("TIDEGATE_HOLD_AT") else { return };
    let (name, times) = wanted.split_once(':').unwrap_or((&wanted, "1"));
    let (times, millis) = times.split_once(':').unwrap_or((times, ""));
    let here = format!("{phase:?}").to_lowercase();
    if name != here {
        return;
    }
    let count = REACHED[phase as usize].fetch_add(1, Ordering::Relaxed) + 1;
    if Ok(count) == times.parse() {
        eprintln!("holding at {here}");
        match millis.parse() {
            // Nobody unparks it.
            Ok(millis) => std::thread::park_timeout(std::time::Duration::from_millis(millis)),
            Err(_) => loop {
                std::thread::park();
            },
        }
    }
}
