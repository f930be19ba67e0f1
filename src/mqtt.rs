//! What both MQTT sides share: whom to connect to, why a connection ended, how long to wait then.
//!
//! Each connection has a client and an event loop of its own, and both are dropped when it ends. A
//! client library that carries state from one connection into the next acknowledges the wrong
//! messages and loses pending ones; nothing that is thrown away can do that.

use std::fmt;
use std::io;
use std::time::Duration;

use rumqttc::v5;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{debug, info, warn};

/// How long a connection may take to be accepted.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A broker, and who we are to it.
#[derive(Clone, Debug)]
pub struct Broker {
    /// Host name or address; an IPv6 address with or without its brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Client id. Two clients with one id throw each other out, so it must be this gateway's alone.
    pub client_id: String,
    /// User name and password, where the broker asks for them.
    pub credentials: Option<Credentials>,
    /// Longest silence on the connection, 5 s to 18 h. A dead link is noticed within 1.5 of it.
    pub keep_alive: Duration,
}

impl Broker {
    /// A broker without credentials, with a keep-alive of 30 s.
    pub fn new(host: &str, port: u16, client_id: &str) -> Self {
        Self {
            host: host.into(),
            port,
            client_id: client_id.into(),
            credentials: None,
            keep_alive: Duration::from_secs(30),
        }
    }

    /// The host as the client library wants it: it appends `:port` and resolves that.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') && !self.host.starts_with('[') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        }
    }

    /// The keep-alive inside what the protocol and the client library can do.
    pub(crate) fn keep_alive(&self) -> Duration {
        self.keep_alive.clamp(Duration::from_secs(5), Duration::from_secs(u16::MAX.into()))
    }
}

/// Shown in logs: `mqtt://host:port as id`.
impl fmt::Display for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mqtt://{}:{} as {}", self.authority(), self.port, self.client_id)
    }
}

/// User name and password. The password is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// User name.
    pub user: String,
    /// Password.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// No connection could be made.
    #[error("cannot be reached: {0}")]
    Unreachable(String),
    /// The broker does not let us in.
    #[error("user name or password refused")]
    NotAuthorised,
    /// The broker refused the connection for another reason.
    #[error("connection refused: {0}")]
    Refused(String),
    /// Another client connected with our client id.
    #[error("another client connected with the same client id")]
    TakenOver,
    /// The broker closed the connection without a word.
    #[error("closed by the broker")]
    Closed,
    /// It did so again and again, soon after letting us in. MQTT 3.1.1 has no other way to say that
    /// another client took over, and mosquitto 2.0.11 does not say it in MQTT 5 either.
    #[error("closed by the broker again and again")]
    KeepsClosing,
    /// The connection broke.
    #[error("connection lost: {0}")]
    Lost(String),
    /// Nothing came from the broker, not even an answer to a ping.
    #[error("nothing heard for {0:?}")]
    Silent(Duration),
    /// We did not take what the broker sent.
    #[error("messages could not be taken for {0:?}")]
    Stalled(Duration),
    /// The broker takes publishes and acknowledges none.
    #[error("no publish acknowledged for {0:?}")]
    Unacknowledged(Duration),
    /// The other side does not speak the protocol as we do.
    #[error("protocol error: {0}")]
    Protocol(String),
}

impl LinkError {
    /// What an operator can do about it, where there is something to do.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Unreachable(_) => Some("check host and port, and that the broker runs"),
            Self::NotAuthorised => {
                Some("check user name and password, and the broker's password_file and ACL")
            }
            Self::TakenOver => Some("give every gateway a client id of its own"),
            Self::KeepsClosing => {
                Some("another client may have the same client id; the broker's log says why")
            }
            Self::Refused(_) => Some("the broker's log says why"),
            Self::Unacknowledged(_) => Some("the broker's log says why it holds publishes back"),
            Self::Protocol(_) => {
                Some("check that an MQTT broker listens on that port, without TLS")
            }
            Self::Closed | Self::Lost(_) | Self::Silent(_) | Self::Stalled(_) => None,
        }
    }
}

impl LinkError {
    /// An established connection broke. One that is closed while we write ends in a reset.
    fn broken(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Lost(error.to_string()),
        }
    }
}

impl From<v5::ConnectionError> for LinkError {
    fn from(error: v5::ConnectionError) -> Self {
        use v5::mqttbytes::v5::{ConnectReturnCode as Code, DisconnectReasonCode};
        use v5::{ConnectionError as Error, StateError};
        match error {
            Error::Io(error) => Self::Unreachable(error.to_string()),
            Error::Timeout(_) => Self::Unreachable("no answer".into()),
            Error::ConnectionRefused(Code::BadUserNamePassword | Code::NotAuthorized) => {
                Self::NotAuthorised
            }
            Error::ConnectionRefused(code) => Self::Refused(format!("{code:?}")),
            Error::MqttState(StateError::ServerDisconnect { reason_code, reason_string }) => {
                match (reason_code, reason_string) {
                    (DisconnectReasonCode::SessionTakenOver, _) => Self::TakenOver,
                    (code, None) => Self::Lost(format!("{code:?}")),
                    (code, Some(text)) => Self::Lost(format!("{code:?}, {text}")),
                }
            }
            Error::MqttState(StateError::ConnectionAborted) => Self::Closed,
            Error::MqttState(StateError::Deserialization(v5::mqttbytes::Error::Io(error))) => {
                Self::broken(&error)
            }
            Error::MqttState(error @ StateError::Deserialization(_)) => {
                Self::Protocol(error.to_string())
            }
            Error::NotConnAck(_) => Self::Protocol("not a CONNACK".into()),
            error => Self::Lost(error.to_string()),
        }
    }
}

impl From<rumqttc::ConnectionError> for LinkError {
    fn from(error: rumqttc::ConnectionError) -> Self {
        use rumqttc::{ConnectReturnCode as Code, ConnectionError as Error, StateError};
        match error {
            Error::Io(error) => Self::Unreachable(error.to_string()),
            Error::NetworkTimeout => Self::Unreachable("no answer".into()),
            Error::ConnectionRefused(Code::BadUserNamePassword | Code::NotAuthorized) => {
                Self::NotAuthorised
            }
            Error::ConnectionRefused(code) => Self::Refused(format!("{code:?}")),
            Error::MqttState(StateError::ConnectionAborted) => Self::Closed,
            Error::MqttState(StateError::Deserialization(rumqttc::Error::Io(error))) => {
                Self::broken(&error)
            }
            Error::MqttState(error @ StateError::Deserialization(_)) => {
                Self::Protocol(error.to_string())
            }
            Error::NotConnAck(_) => Self::Protocol("not a CONNACK".into()),
            error => Self::Lost(error.to_string()),
        }
    }
}

/// The pauses between connections of one side, and what the log says about them.
///
/// The pause starts at 1 s and doubles to 60 s, each shortened by up to a half at random so that a
/// fleet does not come back in step. It starts again at 1 s after a connection that held for 10 s. A
/// session that another client took over, or seems to have, is left alone for minutes: two clients
/// with one id would otherwise throw each other out for ever.
#[derive(Debug)]
pub(crate) struct Retry {
    side: &'static str,
    broker: String,
    pause: Duration,
    up_since: Option<Instant>,
    /// How many connections in a row the broker closed before they held.
    closings: u32,
    told: Option<LinkError>,
}

impl Retry {
    const FIRST: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_secs(60);
    const TAKEN_OVER: Duration = Duration::from_secs(240);
    const HELD: Duration = Duration::from_secs(10);
    const CLOSINGS: u32 = 5;

    pub(crate) fn new(side: &'static str, broker: &Broker) -> Self {
        let broker = broker.to_string();
        Self { side, broker, pause: Self::FIRST, up_since: None, closings: 0, told: None }
    }

    /// A connection was accepted.
    pub(crate) fn up(&mut self) {
        self.up_since = Some(Instant::now());
        self.told = None;
        info!(broker = %self.broker, "{} connected", self.side);
    }

    /// A connection ended or could not be made. Returns why, in the light of those before it, and how
    /// long to wait. Says so once per error.
    pub(crate) fn down(&mut self, error: LinkError) -> (LinkError, Duration) {
        let held = self.up_since.take().map(|since| since.elapsed());
        let error = self.judge(error, held);
        let pause = self.next_pause(&error, held.unwrap_or_default());
        self.tell(&error, pause);
        (error, pause)
    }

    /// `held` is how long the connection had been accepted, if it had.
    fn judge(&mut self, error: LinkError, held: Option<Duration>) -> LinkError {
        let at_once = error == LinkError::Closed && held.is_some_and(|held| held < Self::HELD);
        self.closings = if at_once { self.closings + 1 } else { 0 };
        if self.closings >= Self::CLOSINGS { LinkError::KeepsClosing } else { error }
    }

    fn next_pause(&mut self, error: &LinkError, held: Duration) -> Duration {
        if held >= Self::HELD {
            self.pause = Self::FIRST;
        }
        let base = match error {
            LinkError::TakenOver | LinkError::KeepsClosing => Self::TAKEN_OVER,
            _ => {
                let doubled = (self.pause * 2).min(Self::LONGEST);
                std::mem::replace(&mut self.pause, doubled)
            }
        };
        base.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    fn tell(&mut self, error: &LinkError, pause: Duration) {
        if self.told.as_ref() == Some(error) {
            debug!(broker = %self.broker, ?pause, "{} still down: {error}", self.side);
            return;
        }
        let remedy = error.remedy().unwrap_or("it will be tried again");
        warn!(broker = %self.broker, ?pause, "{} down: {error}; {remedy}", self.side);
        self.told = Some(error.clone());
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

    fn retry() -> Retry {
        Retry::new("ingress", &Broker::new("localhost", 1883, "gw"))
    }

    fn lost() -> LinkError {
        LinkError::Lost("closed".into())
    }

    #[test]
    fn pauses_double_from_one_second_to_a_minute_and_are_shortened_by_at_most_a_half() {
        let mut retry = retry();
        for base in [1, 2, 4, 8, 16, 32, 60, 60, 60].map(Duration::from_secs) {
            let pause = retry.next_pause(&lost(), Duration::ZERO);
            assert!(pause >= base / 2 && pause <= base, "{pause:?} of {base:?}");
        }
    }

    #[test]
    fn only_a_connection_that_held_starts_the_pauses_again() {
        let mut retry = retry();
        for _ in 0..6 {
            retry.next_pause(&lost(), Duration::ZERO);
        }
        let thrown_out_at_once = retry.next_pause(&lost(), Duration::from_secs(9));
        assert!(thrown_out_at_once >= Duration::from_secs(30));
        assert!(retry.next_pause(&lost(), Duration::from_secs(10)) <= Duration::from_secs(1));
    }

    #[test]
    fn a_taken_over_session_is_left_alone_for_minutes() {
        let pause = retry().next_pause(&LinkError::TakenOver, Duration::from_secs(3_600));
        assert!(pause >= Duration::from_secs(120));
    }

    #[test]
    fn a_broker_that_closes_again_and_again_is_left_alone_for_minutes() {
        let mut retry = retry();
        let mut closed = |held| retry.judge(LinkError::Closed, held);
        let at_once = Some(Duration::from_secs(3));
        for _ in 0..4 {
            assert_eq!(closed(at_once), LinkError::Closed);
        }
        assert_eq!(closed(at_once), LinkError::KeepsClosing);
        assert_eq!(closed(Some(Duration::from_secs(10))), LinkError::Closed, "it held");
        assert_eq!(closed(None), LinkError::Closed, "it was not let in");
        assert_eq!(closed(at_once), LinkError::Closed);
        let pause = retry.next_pause(&LinkError::KeepsClosing, Duration::ZERO);
        assert!(pause >= Duration::from_secs(120));
    }

    #[test]
    fn an_ipv6_address_gets_its_brackets_and_a_password_is_never_shown() {
        let mut broker = Broker::new("::1", 1883, "gw");
        assert_eq!(broker.authority(), "[::1]");
        broker.host = "[::1]".into();
        assert_eq!(broker.authority(), "[::1]");
        broker.credentials = Some(Credentials { user: "gw".into(), password: "secret".into() });
        assert!(!format!("{broker:?}{broker}").contains("secret"));
    }
}
