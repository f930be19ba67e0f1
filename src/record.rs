//! `tidegate record`: MQTT traffic into a file that `replay` reads.

use std::future::Future;
use std::io::{self, Write};
use std::pin::pin;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use tracing::{info, warn};

use crate::clock::Clock;
use crate::ingress::{Ingress, IngressConfig, IngressEvent, Received};
use crate::replay::Recorded;

/// Writes every message as a line of a recording, until `shutdown` is done or `count` messages were written. Returns
/// how many were.
///
/// # Errors
/// The output cannot be written. A broker that is away is waited for.
pub async fn record(
    config: IngressConfig,
    mut output: impl Write,
    count: Option<u64>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<u64> {
    let mut shutdown = pin!(shutdown);
    let clock = Clock::start();
    let mut ingress = Ingress::start(config, move || clock.now());
    let mut written = 0;
    while count.is_none_or(|count| written < count) {
        let event = tokio::select! {
            biased;
            () = &mut shutdown => break,
            event = ingress.next() => event,
        };
        match event {
            IngressEvent::Message(message) => {
                write_line(&message, &mut output)?;
                written += 1;
                ingress.ack(vec![message.ack]);
            }
            IngressEvent::Up { .. } => info!("connected"),
            IngressEvent::Refused { filters } => {
                warn!(?filters, "the broker refused to subscribe us");
            }
            IngressEvent::Down { .. } | IngressEvent::CaughtUp | IngressEvent::AcksSettled => {}
        }
    }
    output.flush()?;
    ingress.close().await;
    Ok(written)
}

fn write_line(message: &Received, output: &mut impl Write) -> io::Result<()> {
    let text = std::str::from_utf8(&message.payload).ok();
    let line = Recorded {
        topic: message.topic.as_str().into(),
        payload: text.map(Into::into),
        payload_b64: text.is_none().then(|| BASE64.encode(&message.payload).into()),
        retain: message.retain,
        dup: message.dup,
        arrival: Some(message.arrival.wall.0),
    };
    serde_json::to_writer(&mut *output, &line)?;
    output.write_all(b"\n")?;
    output.flush()
}
