//! Whether the broker keeps what it acknowledged for a session that is away.
//!
//! A session subscribes to a topic of its own and leaves. Another connection publishes to it, and the broker acknowledges
//! all of it. The session comes back and counts. mosquitto keeps 1,000 messages by default and drops the others without a
//! word, so more are sent; a thousand more are a few minutes of a fleet that a stop of the agent may well last.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use super::greeting::{nothing, reason};
use super::session::{PATIENCE, Session};
use super::{Section, thousands};
use crate::agent::covers;
use crate::ingress::IngressConfig;
use crate::mqtt::{Broker, LinkError, Verdict, Wishes};

/// Messages in the burst.
const MESSAGES: usize = 2_000;

/// Payload of each, in bytes: about a reading.
const LENGTH: usize = 64;

/// How long a broker that is asked in MQTT 5 keeps the session, if nobody takes it back.
const KEPT: Duration = Duration::from_secs(120);

/// How long publishing or hearing all of it may take.
const WHOLE: Duration = Duration::from_secs(20);

/// How long the last message may take to come before another is sent: one whose queue is full drops it.
const AGAIN: Duration = Duration::from_secs(2);

/// Below the agent's own probe, so that one rule of an access list allows both.
fn topic(client_id: &str) -> String {
    format!("tidegate/probe/{client_id}")
}

/// What came of it.
enum Heard {
    /// The access list does not let us publish, by this reason.
    MayNotPublish(String),
    /// What is published does not come back even while we listen.
    Nothing,
    /// So many were acknowledged; what is `None` was not kept at all.
    Counted { sent: usize, refused: Option<(usize, String)>, kept: bool, came: usize },
}

/// Tries it, unless the agent would hear it too.
pub(super) async fn burst(section: &mut Section, ingress: &IngressConfig) {
    let topic = topic(&ingress.broker.client_id);
    if let Some(filter) = ingress.filters.iter().find(|filter| covers(filter, &topic)) {
        section.unwise(format!(
            "burst: not tried, since {filter} would bring it to the agent too; whether the broker keeps enough for a \
             session that is away is not known: see max_queued_messages in config/mosquitto.conf"
        ));
        return;
    }
    match try_it(&ingress.broker, &topic).await {
        Ok(heard) => tell(section, &topic, &heard),
        Err(error) => section.broken("burst", &error),
    }
}

fn wishes(session: Option<Duration>) -> Wishes {
    let room = MESSAGES + 16;
    Wishes {
        session,
        receive_maximum: u16::try_from(room).ok(),
        packet_ids: 100,
        requests: room,
        ..nothing()
    }
}

async fn try_it(broker: &Broker, topic: &str) -> Result<Heard, LinkError> {
    let mut sender = broker.clone();
    sender.client_id += "-2";
    let (mut listening, _) = Session::open(broker, &wishes(Some(KEPT))).await?;
    listening.subscribe(&[topic.to_owned()]).await?;
    let (mut sending, _) = Session::open(&sender, &wishes(None)).await?;
    sending.allow(PATIENCE);
    let echo = sending.publish(topic, std::iter::once(b"echo".to_vec())).await?;
    if let Some(Verdict::NotNow(reason) | Verdict::Refused(reason)) = echo.into_iter().next() {
        return Ok(Heard::MayNotPublish(reason));
    }
    if listening.message(PATIENCE).await?.is_none() {
        return Ok(Heard::Nothing);
    }
    listening.leave().await;
    sending.allow(WHOLE);
    let verdicts = sending.publish(topic, (0..MESSAGES).map(numbered)).await?;
    let refused = refused(&verdicts);
    let sent = MESSAGES - refused.as_ref().map_or(0, |(count, _)| *count);
    let (listening, accepted) = Session::open(broker, &wishes(Some(KEPT))).await?;
    let kept = accepted.session_present;
    let came = if kept { count(listening, sending, topic).await? } else { 0 };
    Ok(Heard::Counted { sent, refused, kept, came })
}

fn numbered(number: usize) -> Vec<u8> {
    format!("{number:0LENGTH$}").into_bytes()
}

fn refused(verdicts: &[Verdict]) -> Option<(usize, String)> {
    let reasons = verdicts.iter().filter_map(|verdict| match verdict {
        Verdict::Taken => None,
        Verdict::NotNow(reason) | Verdict::Refused(reason) => Some(reason),
    });
    let first = reasons.clone().next()?.clone();
    Some((reasons.count(), first))
}

/// How many different ones come until one that was sent after them does. What the broker kept comes first.
async fn count(
    mut listening: Session,
    mut sending: Session,
    topic: &str,
) -> Result<usize, LinkError> {
    let mut came = BTreeSet::new();
    let until = Instant::now() + WHOLE;
    let mut published = None;
    while Instant::now() < until {
        if published.is_none_or(|at: Instant| at.elapsed() >= AGAIN) {
            sending.allow(PATIENCE);
            sending.publish(topic, std::iter::once(b"end".to_vec())).await?;
            published = Some(Instant::now());
        }
        match listening.message(AGAIN).await? {
            Some(message) if *message.payload == *b"end" => break,
            Some(message) => {
                came.extend(
                    std::str::from_utf8(&message.payload)
                        .ok()
                        .and_then(|text| text.parse::<usize>().ok()),
                );
            }
            // Whoever waited in vain cannot wait on.
            None => break,
        }
    }
    listening.leave().await;
    sending.leave().await;
    Ok(came.len())
}

fn tell(section: &mut Section, topic: &str, heard: &Heard) {
    let allow = format!(
        "allow this user to write and read {topic}, or tidegate/probe/#, in the broker's ACL"
    );
    match heard {
        Heard::MayNotPublish(name) => section.unwise(format!(
            "burst: not tried, since publishing to {topic} is not allowed: {}; {allow}: the agent needs the like to know \
             when it has caught up",
            reason(name)
        )),
        Heard::Nothing => section.unwise(format!(
            "burst: not tried, since what is published to {topic} does not come back: an access list seems to forbid it; \
             {allow}: the agent needs the like to know when it has caught up"
        )),
        Heard::Counted { sent, kept: false, .. } => section.unwise(format!(
            "burst: the broker acknowledged {} messages for a session that was away, and had forgotten the session when \
             it came back: what devices publish while the agent is stopped is lost; let it keep sessions (mosquitto: \
             persistent_client_expiration, as in config/mosquitto.conf)",
            thousands(*sent)
        )),
        Heard::Counted { refused: Some((count, name)), sent, came, .. } => section.unwise(format!(
            "burst: of {} messages for a session that was away the broker refused {}: {}, and {} came back; raise \
             max_queued_messages and max_queued_bytes as in config/mosquitto.conf",
            thousands(sent + count),
            thousands(*count),
            reason(name),
            thousands(*came)
        )),
        Heard::Counted { sent, came, .. } if came < sent => section.unwise(format!(
            "burst: the broker acknowledged {} messages for a session that was away, and {} came back: what devices \
             publish while the agent is stopped is lost without a word; in mosquitto set max_queued_messages (by default \
             1,000) and max_queued_bytes as in config/mosquitto.conf",
            thousands(*sent),
            thousands(*came)
        )),
        Heard::Counted { came, .. } => section.good(format!(
            "burst: {} messages were published for a session that was away, and all came back",
            thousands(*came)
        )),
    }
}
