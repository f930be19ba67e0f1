//! One connection after the other, and what is on its way on each.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::{BESIDE, EgressConfig, EgressEvent, Item, LARGEST, Link, OVERHEAD};
use crate::ids::OutboxSeq;
use crate::mqtt::{self, CONNECT_TIMEOUT, Event, Events, LinkError, Retry, Verdict, Will, Wishes};

/// How long publishes may stay without any PUBACK before the connection is made anew.
const UNACKNOWLEDGED: Duration = Duration::from_secs(120);

/// Largest packet that the broker may send us; it has nothing to send but acknowledgements.
const INCOMING: usize = 10 << 10;

/// The output task: connects, again and again, until the agent leaves.
pub(super) async fn run(config: EgressConfig, outlet: mpsc::Sender<Item>) {
    let mut retry = Retry::new("egress", &config.broker);
    loop {
        let Err(error) = connection(&config, &outlet, &mut retry).await else { return };
        let (error, pause) = retry.down(config.broker.dated(error));
        tell(&outlet, EgressEvent::Down { error }).await;
        config.broker.pause(pause).await;
    }
}

/// One connection, from the first packet to the last. `Ok` when we took leave.
async fn connection(
    config: &EgressConfig,
    outlet: &mpsc::Sender<Item>,
    retry: &mut Retry,
) -> Result<(), LinkError> {
    let (client, mut events) = mqtt::open(&config.broker, &wishes(config)).await?;
    let (given, sent) = mpsc::unbounded_channel();
    let mut unused = Some((client, given));
    let mut flight = Flight::new(sent, config.broker.keep_alive());
    loop {
        match flight.poll(&mut events).await? {
            Event::Accepted(accepted) => {
                retry.up();
                let (client, given) = unused.take().expect("a connection is accepted once");
                flight.keep_to(events.keep_alive());
                // Nobody takes it when we are leaving.
                let _leaving = outlet.send(Item::Up(Link::new(client, given, accepted))).await;
            }
            Event::Answered { pkid, verdict } => {
                let seq = flight.land(pkid)?;
                match verdict {
                    Verdict::Taken => tell(outlet, EgressEvent::Acked(seq)).await,
                    Verdict::NotNow(reason) => return Err(LinkError::MayNotPublish(reason)),
                    Verdict::Refused(reason) => return Err(LinkError::PublishRefused(reason)),
                }
            }
            Event::Published(pkid) => flight.take_off(pkid),
            Event::Left => return Ok(()),
            _ => {}
        }
    }
}

async fn tell(outlet: &mpsc::Sender<Item>, event: EgressEvent) {
    // Nobody takes it when we are leaving.
    let _leaving = outlet.send(Item::Event(event)).await;
}

fn wishes(config: &EgressConfig) -> Wishes {
    Wishes {
        session: None,
        receive_maximum: None,
        incoming: INCOMING,
        outgoing: LARGEST + OVERHEAD,
        // The library numbers publishes from 1 to this and stops when a number is still in use. Eight windows of
        // numbers let a PUBACK come late without holding up the others.
        packet_ids: config.in_flight.max(1).saturating_mul(8),
        requests: config.window() + BESIDE,
        will: config.will.as_ref().map(|(topic, payload)| Will {
            topic: config.full_topic(topic),
            payload: payload.clone(),
        }),
    }
}

/// What is on its way on one connection, and how long nothing has come back.
struct Flight {
    /// Entries given to the client, whose packet id is not known yet.
    given: mpsc::UnboundedReceiver<OutboxSeq>,
    unacknowledged: BTreeMap<u16, OutboxSeq>,
    keep_alive: Duration,
    /// When the link counts as dead, unless something comes.
    silent_at: Instant,
    /// When the broker counts as stuck, unless a PUBACK comes. Holds while there are publishes.
    stuck_at: Instant,
}

impl Flight {
    fn new(given: mpsc::UnboundedReceiver<OutboxSeq>, keep_alive: Duration) -> Self {
        let now = Instant::now();
        Self {
            given,
            unacknowledged: BTreeMap::new(),
            keep_alive,
            silent_at: now + CONNECT_TIMEOUT * 2,
            stuck_at: now,
        }
    }

    /// The next event, or why there is no point in waiting for it. The future of the event loop is
    /// then dropped, and so must the event loop be.
    async fn poll(&mut self, events: &mut Events) -> Result<Event, LinkError> {
        let Ok(event) = timeout_at(self.deadline(), events.poll()).await else {
            return Err(self.overdue());
        };
        let event = event?;
        if event.is_incoming() {
            self.silent_at = Instant::now() + self.patience();
        }
        Ok(event)
    }

    /// The connection has this keep-alive: in MQTT 5 the broker may ask for another one.
    fn keep_to(&mut self, keep_alive: Duration) {
        self.keep_alive = keep_alive;
        self.silent_at = Instant::now() + self.patience();
    }

    fn deadline(&self) -> Instant {
        match self.unacknowledged.is_empty() {
            true => self.silent_at,
            false => self.silent_at.min(self.stuck_at),
        }
    }

    fn patience(&self) -> Duration {
        self.keep_alive.mul_f32(1.5)
    }

    fn overdue(&self) -> LinkError {
        if self.silent_at <= Instant::now() {
            LinkError::Silent(self.patience())
        } else {
            LinkError::Unacknowledged(UNACKNOWLEDGED)
        }
    }

    /// A publish was written: the oldest given one has this packet id.
    fn take_off(&mut self, pkid: u16) {
        let seq =
            self.given.try_recv().expect("an entry is noted before it is given to the client");
        if self.unacknowledged.is_empty() {
            self.stuck_at = Instant::now() + UNACKNOWLEDGED;
        }
        let before = self.unacknowledged.insert(pkid, seq);
        assert_eq!(before, None, "packet id {pkid} was given to {seq:?} while in use");
    }

    /// A PUBACK came for this packet id.
    fn land(&mut self, pkid: u16) -> Result<OutboxSeq, LinkError> {
        self.stuck_at = Instant::now() + UNACKNOWLEDGED;
        let seq = self.unacknowledged.remove(&pkid);
        seq.ok_or_else(|| LinkError::Protocol(format!("PUBACK for {pkid}, which is not in use")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight() -> (mpsc::UnboundedSender<OutboxSeq>, Flight) {
        let (given, sent) = mpsc::unbounded_channel();
        (given, Flight::new(sent, Duration::from_secs(30)))
    }

    #[test]
    fn entries_get_packet_ids_in_the_order_given_and_land_on_their_own_puback() {
        let (given, mut flight) = flight();
        for seq in 1..=3 {
            given.send(OutboxSeq(seq)).unwrap();
            flight.take_off(u16::try_from(seq).unwrap() + 6);
        }
        assert_eq!(flight.land(8), Ok(OutboxSeq(2)));
        assert_eq!(flight.land(7), Ok(OutboxSeq(1)));
        assert_eq!(flight.land(9), Ok(OutboxSeq(3)));
        assert!(flight.land(9).is_err());
    }

    #[test]
    fn a_packet_id_is_free_again_once_its_publish_has_landed() {
        let (given, mut flight) = flight();
        given.send(OutboxSeq(1)).unwrap();
        given.send(OutboxSeq(2)).unwrap();
        flight.take_off(1);
        assert_eq!(flight.land(1), Ok(OutboxSeq(1)));
        flight.take_off(1);
        assert_eq!(flight.land(1), Ok(OutboxSeq(2)));
    }

    #[test]
    fn a_broker_that_acknowledges_nothing_is_given_up_only_while_it_owes_something() {
        let (given, mut flight) = flight();
        flight.silent_at = Instant::now() + UNACKNOWLEDGED * 2;
        assert_eq!(flight.deadline(), flight.silent_at);
        given.send(OutboxSeq(1)).unwrap();
        flight.take_off(1);
        assert_eq!(flight.deadline(), flight.stuck_at);
        assert_eq!(flight.overdue(), LinkError::Unacknowledged(UNACKNOWLEDGED));
        flight.land(1).unwrap();
        assert_eq!(flight.deadline(), flight.silent_at);
    }
}
