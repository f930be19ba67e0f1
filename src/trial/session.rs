//! One connection that does a few things in a row, each within a time limit.

use std::collections::VecDeque;
use std::time::Duration;

use rumqttc::QoS;
use tokio::time::{Instant, timeout_at};

use crate::mqtt::{
    self, Accepted, Broker, Client, Event, Events, LinkError, Message, Verdict, Wishes,
};

/// How long a broker may take for one thing.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// A session at a broker.
pub(super) struct Session {
    client: Client,
    events: Events,
    deadline: Instant,
    /// Messages that came while something else was waited for.
    came: VecDeque<Message>,
}

impl Session {
    /// Connects; what the broker grants comes with it.
    ///
    /// # Errors
    /// It does not let us in, or not in time.
    pub(super) async fn open(
        broker: &Broker,
        wishes: &Wishes,
    ) -> Result<(Self, Accepted), LinkError> {
        let (client, events) = mqtt::open(broker, wishes).await?;
        let mut session = Self { client, events, deadline: Instant::now(), came: VecDeque::new() };
        session.allow(PATIENCE);
        loop {
            match session.next().await {
                Ok(Event::Accepted(accepted)) => return Ok((session, accepted)),
                Ok(_) => {}
                Err(LinkError::Silent(_)) => {
                    return Err(LinkError::Unreachable(format!("no answer within {PATIENCE:?}")));
                }
                Err(error) => return Err(broker.dated(error)),
            }
        }
    }

    /// What follows may take so long.
    pub(super) fn allow(&mut self, patience: Duration) {
        self.deadline = Instant::now() + patience;
    }

    /// The next event, until the time is up: then this is over, too.
    async fn next(&mut self) -> Result<Event, LinkError> {
        match timeout_at(self.deadline, self.events.poll()).await {
            Ok(event) => event,
            Err(_) => Err(LinkError::Silent(PATIENCE)),
        }
    }

    /// Subscribes at QoS 1, and says for each filter what the broker answered.
    pub(super) async fn subscribe(
        &mut self,
        filters: &[String],
    ) -> Result<Vec<Result<QoS, String>>, LinkError> {
        self.allow(PATIENCE);
        // There is room for a request: who waits for an answer asks for nothing else.
        self.client.subscribe(filters.iter()).await.map_err(|_| LinkError::Closed)?;
        loop {
            match self.next().await? {
                Event::Subscribed(answers) => return Ok(answers),
                Event::Message(message) => self.came.push_back(message),
                _ => {}
            }
        }
    }

    /// Publishes at QoS 1, all at once, and says what the broker answered. There must be room for as many requests.
    pub(super) async fn publish(
        &mut self,
        topic: &str,
        payloads: impl Iterator<Item = Vec<u8>>,
    ) -> Result<Vec<Verdict>, LinkError> {
        let mut left = 0_usize;
        for payload in payloads {
            self.client
                .try_publish(topic.to_owned(), false, payload)
                .map_err(|_| LinkError::Closed)?;
            left += 1;
        }
        let mut verdicts = Vec::with_capacity(left);
        while verdicts.len() < left {
            match self.next().await? {
                Event::Answered { verdict, .. } => verdicts.push(verdict),
                Event::Message(message) => self.came.push_back(message),
                _ => {}
            }
        }
        Ok(verdicts)
    }

    /// The next message, acknowledged; `None` when none comes for so long. The connection can be used no more then.
    ///
    /// # Errors
    /// The connection broke.
    pub(super) async fn message(
        &mut self,
        patience: Duration,
    ) -> Result<Option<Message>, LinkError> {
        self.allow(patience);
        let message = loop {
            if let Some(message) = self.came.pop_front() {
                break message;
            }
            match self.next().await {
                Ok(Event::Message(message)) => break message,
                Ok(_) => {}
                Err(LinkError::Silent(_)) => return Ok(None),
                Err(error) => return Err(error),
            }
        };
        if message.qos != QoS::AtMostOnce {
            self.client.ack(message.pkid, message.qos).await.map_err(|_| LinkError::Closed)?;
        }
        Ok(Some(message))
    }

    /// Takes leave. Nobody is told if that does not work: the connection ends all the same.
    pub(super) async fn leave(mut self) {
        self.allow(PATIENCE);
        if self.client.try_disconnect().is_err() {
            return;
        }
        // Acknowledgements are written before it.
        while !matches!(self.next().await, Ok(Event::Left) | Err(_)) {}
    }
}
