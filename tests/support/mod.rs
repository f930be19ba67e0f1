//! A real broker for tests, a link that can be cut, and plain clients.

#![allow(dead_code, unused_imports, unreachable_pub, reason = "each test binary uses a part of it")]
#![allow(clippy::disallowed_methods, reason = "tests have deadlines of their own")]

mod broker;
mod client;
mod faketime;
mod proxy;
mod time_server;

use std::time::Duration;

pub use broker::{Broker, free_port};
pub use client::{Login, Subscriber, publish, publish_as, publish_at};
pub use faketime::faketime;
pub use proxy::{Mode, Proxy};
pub use time_server::{Manner, PACKET, Seconds, TimeServer, kiss};

/// Awaits `future`, at most `seconds` long.
pub async fn within<T>(seconds: u64, future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(Duration::from_secs(seconds), future).await;
    waited.unwrap_or_else(|_| panic!("nothing happened within {seconds} s"))
}
