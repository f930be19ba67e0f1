//! `tidegate record`: MQTT traffic into a file that `replay` reads.
//!
//! A recording is worth what its arrival times are. Until the clock is first good, messages are kept in memory, as the
//! agent holds them in its store; when each arrived is then worked out backwards. What arrived under a clock that is not
//! good all the same says so in its line.

use std::future::Future;
use std::io::{self, Write};
use std::pin::pin;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use crate::clock::{Clock, Keeper};
use crate::engine::gate::GateSettings;
use crate::ingress::{Ingress, IngressConfig, IngressEvent, Received};
use crate::replay::Recorded;
use crate::time::{ClockQuality, Now, Span};

/// What came of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// Messages written.
    pub messages: u64,
    /// How many of them arrived while nobody knew what time it was: their lines say so.
    pub undated: u64,
}

/// Writes every message as a line of a recording, until `shutdown` is done or `count` messages were taken in. They are
/// kept in memory until `clock` is good, within what `gate` says: so long, and so many bytes.
///
/// # Errors
/// The output cannot be written. A broker that is away is waited for.
pub async fn record(
    config: IngressConfig,
    clock: &Clock,
    gate: GateSettings,
    output: impl Write,
    count: Option<u64>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<Recording> {
    let mut shutdown = pin!(shutdown);
    let keeper = Keeper::start(clock);
    let clock_of_arrivals = clock.clone();
    let mut ingress = Ingress::start(config, move || clock_of_arrivals.now());
    let mut recorder = Recorder::new(clock, gate, output);
    recorder.look()?;
    while !recorder.is_done(count) {
        let waits = recorder.kept.is_some();
        let is_full = recorder.has(count);
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            () = keeper.changed() => recorder.look()?,
            () = sleep_until(recorder.until), if waits => recorder.give_up()?,
            event = ingress.next(), if !is_full => {
                if let Some(message) = news(event) {
                    let ack = message.ack;
                    recorder.take(message)?;
                    ingress.ack(vec![ack]);
                }
            }
        }
    }
    let recording = recorder.end()?;
    ingress.close().await;
    Ok(recording)
}

fn news(event: IngressEvent) -> Option<Received> {
    match event {
        IngressEvent::Message(message) => return Some(message),
        IngressEvent::Up { .. } => info!("connected"),
        IngressEvent::Refused { filters } => {
            warn!(?filters, "the broker refused to subscribe us");
        }
        IngressEvent::CaughtUp => info!("recording"),
        IngressEvent::Down { .. } | IngressEvent::Subscribed | IngressEvent::AcksSettled => {}
    }
    None
}

struct Recorder<'a, W> {
    clock: &'a Clock,
    output: W,
    /// Messages that wait for the time; `None` when nothing waits any more.
    kept: Option<Vec<Received>>,
    bytes: usize,
    quota: u64,
    /// How long they wait at most.
    until: Instant,
    written: Recording,
}

impl<'a, W: Write> Recorder<'a, W> {
    fn new(clock: &'a Clock, gate: GateSettings, output: W) -> Self {
        let GateSettings { sync_timeout: Span(patience), quota } = gate;
        let patience = Duration::from_millis(u64::try_from(patience).unwrap_or_default());
        let until = Instant::now() + patience;
        let (kept, written) = (Some(Vec::new()), Recording::default());
        let recorder = Self { clock, output, kept, bytes: 0, quota, until, written };
        if !recorder.is_good() {
            warn!(
                ?patience,
                "nobody says what time it is: messages are kept in memory until somebody does, and written then"
            );
        }
        recorder
    }

    fn is_good(&self) -> bool {
        // A holdover that is a minute off still dates a message: what it is worth for a window is asked in the replay.
        self.clock.status().is_good(Span::MAX)
    }

    fn has(&self, count: Option<u64>) -> bool {
        let kept = self.kept.as_ref().map_or(0, Vec::len) as u64;
        count.is_some_and(|count| self.written.messages + kept >= count)
    }

    fn is_done(&self, count: Option<u64>) -> bool {
        self.kept.is_none() && self.has(count)
    }

    /// The clock may be worth something now.
    fn look(&mut self) -> io::Result<()> {
        if self.is_good() { self.let_go() } else { Ok(()) }
    }

    fn give_up(&mut self) -> io::Result<()> {
        warn!(
            "nobody says what time it is: arrival times are those of a clock that is not good, and each line says so \
             (clock.servers, clock.trust-host)"
        );
        self.let_go()
    }

    fn take(&mut self, message: Received) -> io::Result<()> {
        let Some(kept) = &mut self.kept else {
            let now = message.arrival;
            return self.write(&message, now);
        };
        self.bytes += message.payload.len() + message.topic.len() + size_of::<Received>();
        kept.push(message);
        if self.bytes as u64 > self.quota { self.give_up() } else { Ok(()) }
    }

    /// Writes what was kept, by what the clock says now.
    fn let_go(&mut self) -> io::Result<()> {
        let now = self.clock.now();
        for message in self.kept.take().unwrap_or_default() {
            self.write(&message, now)?;
        }
        Ok(())
    }

    /// With the arrival that it has by a clock that shows `now`.
    fn write(&mut self, message: &Received, now: Now) -> io::Result<()> {
        let quality = Some(self.clock.status().quality).filter(|_| !self.is_good());
        let arrival = now.wall - (now.mono - message.arrival.mono);
        write_line(message, arrival.0, quality, &mut self.output)?;
        self.written.messages += 1;
        self.written.undated += u64::from(quality.is_some());
        Ok(())
    }

    fn end(mut self) -> io::Result<Recording> {
        self.let_go()?;
        self.output.flush()?;
        Ok(self.written)
    }
}

fn write_line(
    message: &Received,
    arrival: i64,
    clock: Option<ClockQuality>,
    output: &mut impl Write,
) -> io::Result<()> {
    let text = std::str::from_utf8(&message.payload).ok();
    let line = Recorded {
        topic: message.topic.as_str().into(),
        payload: text.map(Into::into),
        payload_b64: text.is_none().then(|| BASE64.encode(&message.payload).into()),
        retain: message.retain,
        dup: message.dup,
        arrival: Some(arrival),
        clock,
    };
    serde_json::to_writer(&mut *output, &line)?;
    output.write_all(b"\n")?;
    output.flush()
}
