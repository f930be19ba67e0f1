//! What both MQTT sides share: whom to connect to and how, why a connection ended, how long to wait then.
//!
//! Each connection has a client and an event loop of its own, and both are dropped when it ends. A
//! client library that carries state from one connection into the next acknowledges the wrong
//! messages and loses pending ones; nothing that is thrown away can do that.

mod accepted;
mod client;
mod dated;
mod error;
mod fault;
mod files;
mod retry;
mod tls;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::debug;

pub(crate) use self::accepted::Accepted;
pub(crate) use self::client::{Client, Event, Events, Gone, Message, Verdict, Will, Wishes, open};
pub use self::dated::Dated;
pub use self::error::LinkError;
pub use self::files::{Credentials, FileName};
pub(crate) use self::retry::Retry;
pub use self::tls::{ClientIdentity, Tls};

/// How long a connection may take to be accepted.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A version of MQTT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// MQTT 5.
    V5,
    /// MQTT 3.1.1.
    V311,
}

impl Version {
    /// As it is written in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V5 => "5",
            Self::V311 => "3.1.1",
        }
    }
}

/// A broker, and who we are to it.
#[derive(Clone, Debug)]
pub struct Broker {
    /// Host name or address; an IPv6 address with or without its brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Which MQTT to speak.
    pub version: Version,
    /// How to speak TLS; plain TCP without.
    pub tls: Option<Tls>,
    /// Client id. Two clients with one id throw each other out, so it must be this gateway's alone.
    pub client_id: String,
    /// The gateway that the client id was made for, for the log.
    pub gateway: String,
    /// User name and password, where the broker asks for them.
    pub credentials: Option<Credentials>,
    /// Longest silence on the connection, 5 s to 18 h. A dead link is noticed within 1.5 of it.
    pub keep_alive: Duration,
    /// The time by which certificates are judged; the host's without.
    pub time: Option<Dated>,
    /// Told when another attempt is worth while at once.
    pub hurry: Arc<Notify>,
}

/// What a connection needs of the files of a [`Broker`], as they were a moment ago.
pub(crate) struct Access {
    login: Option<(String, String)>,
    tls: Option<Arc<rustls::ClientConfig>>,
}

impl Broker {
    /// A broker without TLS and credentials, with a keep-alive of 30 s.
    pub fn new(version: Version, host: &str, port: u16, client_id: &str) -> Self {
        Self {
            host: host.into(),
            port,
            version,
            tls: None,
            client_id: client_id.into(),
            gateway: client_id.into(),
            credentials: None,
            keep_alive: Duration::from_secs(30),
            time: None,
            hurry: Arc::default(),
        }
    }

    /// Waits before the next attempt, or until that is worth while.
    pub(crate) async fn pause(&self, pause: Duration) {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.hurry.notified() => {}
        }
    }

    /// Why there is no connection, in the light of what our clock is worth.
    pub(crate) fn dated(&self, error: LinkError) -> LinkError {
        match &self.time {
            Some(time) => time.judge(error),
            None => error,
        }
    }

    /// The host without brackets: the client library appends `:port`, resolves that, and takes it for the name in the
    /// certificate.
    pub(crate) fn bare_host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    /// `mqtts://host:port`.
    pub(crate) fn address(&self) -> String {
        let scheme = if self.tls.is_some() { "mqtts" } else { "mqtt" };
        let host = self.bare_host();
        let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
        format!("{scheme}://{open}{host}{close}:{}", self.port)
    }

    /// The keep-alive inside what the protocol and the client library can do.
    pub(crate) fn keep_alive(&self) -> Duration {
        self.keep_alive.clamp(Duration::from_secs(5), Duration::from_secs(u16::MAX.into()))
    }

    /// Reads the files as they are now, on a thread that may block.
    fn access(&self) -> Result<Access, LinkError> {
        let login = self.credentials.as_ref().map(|credentials| {
            let password = credentials.password().map_err(|error| LinkError::File {
                option: "password-file",
                problem: format!("cannot be read: {error}"),
            });
            Ok((credentials.user.clone(), password?))
        });
        let tls = self.tls.as_ref().map(|tls| tls.configure(self.time.clone()));
        Ok(Access { login: login.transpose()?, tls: tls.transpose()? })
    }
}

/// Shown in logs: `mqtts://host:port as id`.
impl fmt::Display for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} as {}", self.address(), self.client_id)
    }
}

/// A spawned task that ends with its owner.
#[derive(Debug)]
pub(crate) struct Task(JoinHandle<()>);

impl Task {
    pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(future))
    }

    /// Waits for the task to end by itself, at most for `patience`.
    pub(crate) async fn ended(mut self, patience: Duration) {
        if tokio::time::timeout(patience, &mut self.0).await.is_err() {
            debug!("left without saying goodbye");
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_address_has_brackets_where_it_is_shown_and_none_where_it_is_used() {
        for host in ["::1", "[::1]"] {
            let broker = Broker::new(Version::V5, host, 1883, "gw");
            assert_eq!(broker.bare_host(), "::1");
            assert_eq!(broker.to_string(), "mqtt://[::1]:1883 as gw");
        }
    }
}
