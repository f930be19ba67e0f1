//! The outgoing half of one connection: subscriptions, probes, acknowledgements.

use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::select;
use tokio::sync::mpsc;

use super::{AckToken, IngressConfig, Item, Outlet};
use crate::mqtt::{Client, Gone};

/// What the reader asks the writer to do.
#[derive(Debug)]
pub(super) enum Command {
    /// The connection stands: subscribe.
    Subscribe,
    /// Publish a probe with this content.
    Probe([u8; 8]),
    /// Acknowledge a probe.
    AckProbe(AckToken),
    /// The broker answered the request behind the acknowledgements.
    FenceAnswered,
}

/// Where the probes of a client go.
pub(super) fn probe_topic(client_id: &str) -> String {
    let one_level = client_id.replace(['+', '#', '/'], "_");
    format!("tidegate/probe/{one_level}")
}

pub(super) struct Writer<'a> {
    pub(super) config: &'a IngressConfig,
    pub(super) client: Client,
    pub(super) outlet: &'a Outlet,
    pub(super) tokens: &'a mut mpsc::UnboundedReceiver<Vec<AckToken>>,
    pub(super) epoch: u32,
    /// Acknowledgements of messages written on this connection.
    pub(super) written: &'a AtomicU64,
    /// How many of them the broker has read.
    pub(super) settled: u64,
    /// How many were written before the request whose answer is awaited.
    pub(super) fence: Option<u64>,
    /// The agent has left.
    pub(super) leaving: bool,
}

impl Writer<'_> {
    /// Serves both sides until the connection is dropped.
    pub(super) async fn run(mut self, mut commands: mpsc::UnboundedReceiver<Command>) -> ! {
        while self.step(&mut commands).await.is_ok() {}
        // The event loop does not take requests any more: the reader is about to say why.
        pending().await
    }

    async fn step(&mut self, commands: &mut mpsc::UnboundedReceiver<Command>) -> Result<(), Gone> {
        select! {
            Some(command) = commands.recv() => self.on_command(command).await?,
            tokens = self.tokens.recv(), if !self.leaving => match tokens {
                Some(tokens) => self.acknowledge(&tokens).await?,
                None => self.leaving = true,
            },
        }
        self.raise_fence().await
    }

    async fn on_command(&mut self, command: Command) -> Result<(), Gone> {
        match command {
            Command::Subscribe => self.subscribe().await,
            Command::Probe(nonce) => {
                let topic = probe_topic(&self.config.broker.client_id);
                self.client.publish(topic, nonce.to_vec()).await
            }
            Command::AckProbe(token) => self.client.ack(token.pkid, token.qos).await,
            Command::FenceAnswered => {
                self.on_fence_answered().await;
                Ok(())
            }
        }
    }

    /// Subscribes to all filters: the session may hold others. In MQTT 5 a rule for retained messages keeps the broker
    /// from sending them again to those that it already had.
    async fn subscribe(&mut self) -> Result<(), Gone> {
        for filter in &self.config.dropped_filters {
            self.client.unsubscribe(filter).await?;
        }
        let probe = probe_topic(&self.config.broker.client_id);
        self.client.subscribe(self.config.filters.iter().chain([&probe])).await
    }

    async fn acknowledge(&mut self, tokens: &[AckToken]) -> Result<(), Gone> {
        for token in tokens.iter().filter(|token| token.epoch == self.epoch) {
            self.client.ack(token.pkid, token.qos).await?;
            self.written.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Asks for an answer behind the acknowledgements, one at a time.
    ///
    /// Giving up a filter that we never had changes nothing and is answered in order. A ping would do
    /// as well, but the client library sends its own and takes a second one on the way for a dead
    /// link.
    async fn raise_fence(&mut self) -> Result<(), Gone> {
        let written = self.written.load(Ordering::Relaxed);
        if self.fence.is_some() {
            Ok(())
        } else if written > self.settled {
            self.fence = Some(written);
            self.client.unsubscribe("tidegate/fence").await
        } else if self.leaving {
            self.client.disconnect().await
        } else {
            Ok(())
        }
    }

    async fn on_fence_answered(&mut self) {
        let Some(given) = self.fence.take() else { return };
        self.settled = given;
        self.outlet.tell(Item::Settled { epoch: self.epoch, given }).await;
    }
}
