//! From the errors of the two clients to ours. They differ in their types, not in what happens.

use std::io;

use rumqttc::{self as v4, TlsError, v5};

use super::error::LinkError;
use super::{Version, tls};

/// What both clients can run into.
enum Fault {
    /// While the connection was made.
    Connecting(io::Error),
    /// While TLS was agreed on.
    Handshake(io::Error),
    /// Later.
    Io(io::Error),
    /// The other side closed, and nothing was left to read.
    Aborted,
    NoAnswer,
    /// It is plain already.
    Plain(LinkError),
}

/// What is known of the connection that broke.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene {
    pub(super) tls: bool,
    /// We have a certificate to show.
    pub(super) certificate: bool,
    /// The broker had let us in.
    pub(super) accepted: bool,
}

impl Scene {
    pub(super) fn judge_v5(self, error: v5::ConnectionError) -> LinkError {
        self.judge(of_v5(error))
    }

    pub(super) fn judge_v4(self, error: v4::ConnectionError) -> LinkError {
        self.judge(of_v4(error))
    }

    fn judge(self, fault: Fault) -> LinkError {
        match fault {
            Fault::Plain(error) => error,
            Fault::NoAnswer => LinkError::Unreachable("no answer".into()),
            Fault::Aborted => self.closed(),
            Fault::Connecting(error) => LinkError::Unreachable(error.to_string()),
            Fault::Handshake(error) => self.io(&error, LinkError::NotTls),
            Fault::Io(error) => self.io(&error, self.closed()),
        }
    }

    /// One that is closed while we write ends in a reset.
    fn io(self, error: &io::Error, closed: LinkError) -> LinkError {
        use io::ErrorKind as Kind;
        if let Some(error) = tls::inside(error) {
            return tls::judge(error, self.certificate);
        }
        match error.kind() {
            Kind::ConnectionReset | Kind::BrokenPipe | Kind::UnexpectedEof => closed,
            _ => LinkError::Lost(error.to_string()),
        }
    }

    /// TLS 1.3 lets us finish before the broker has looked at our certificate. It then closes, and whether its alert
    /// comes through before that is a matter of luck.
    fn closed(self) -> LinkError {
        match self {
            Self { accepted: true, .. } => LinkError::Closed,
            Self { tls: true, certificate, .. } => {
                LinkError::ClientCertificate { sent: certificate }
            }
            Self { tls: false, .. } => LinkError::ClosedEarly,
        }
    }
}

fn of_tls(error: TlsError) -> Fault {
    match error {
        TlsError::Io(error) => Fault::Handshake(error),
        TlsError::DNSName(_) => Fault::Plain(LinkError::Unreachable("not a host name".into())),
        error => Fault::Plain(LinkError::Tls(error.to_string())),
    }
}

fn of_v5(error: v5::ConnectionError) -> Fault {
    use v5::mqttbytes::Error as Packet;
    use v5::mqttbytes::v5::{ConnectReturnCode as Code, DisconnectReasonCode};
    use v5::{ConnectionError as Error, StateError};
    Fault::Plain(match error {
        Error::Io(error) => return Fault::Connecting(error),
        Error::Tls(error) => return of_tls(error),
        Error::Timeout(_) => return Fault::NoAnswer,
        Error::MqttState(StateError::ConnectionAborted) => return Fault::Aborted,
        Error::MqttState(
            StateError::Io(error) | StateError::Deserialization(Packet::Io(error)),
        ) => return Fault::Io(error),
        Error::ConnectionRefused(Code::BadUserNamePassword | Code::NotAuthorized) => {
            LinkError::NotAuthorised
        }
        Error::ConnectionRefused(
            Code::RefusedProtocolVersion | Code::UnsupportedProtocolVersion,
        ) => LinkError::Version(Version::V5.as_str()),
        Error::ConnectionRefused(code) => LinkError::Refused(format!("{code:?}")),
        Error::MqttState(StateError::ServerDisconnect { reason_code, reason_string }) => {
            match (reason_code, reason_string) {
                (DisconnectReasonCode::SessionTakenOver, _) => LinkError::TakenOver,
                (code, None) => LinkError::Lost(format!("{code:?}")),
                (code, Some(text)) => LinkError::Lost(format!("{code:?}, {text}")),
            }
        }
        Error::MqttState(StateError::Deserialization(Packet::PayloadSizeLimitExceeded {
            pkt_size,
            ..
        })) => LinkError::TooLarge(pkt_size),
        Error::MqttState(error @ StateError::Deserialization(_)) => {
            LinkError::Protocol(error.to_string())
        }
        Error::NotConnAck(_) => LinkError::Protocol("not a CONNACK".into()),
        error => LinkError::Lost(error.to_string()),
    })
}

fn of_v4(error: v4::ConnectionError) -> Fault {
    use v4::{ConnectReturnCode as Code, ConnectionError as Error, Error as Packet, StateError};
    Fault::Plain(match error {
        Error::Io(error) => return Fault::Connecting(error),
        Error::Tls(error) => return of_tls(error),
        Error::NetworkTimeout => return Fault::NoAnswer,
        Error::MqttState(StateError::ConnectionAborted) => return Fault::Aborted,
        Error::MqttState(
            StateError::Io(error) | StateError::Deserialization(Packet::Io(error)),
        ) => return Fault::Io(error),
        Error::ConnectionRefused(Code::BadUserNamePassword | Code::NotAuthorized) => {
            LinkError::NotAuthorised
        }
        Error::ConnectionRefused(Code::RefusedProtocolVersion) => {
            LinkError::Version(Version::V311.as_str())
        }
        Error::ConnectionRefused(code) => LinkError::Refused(format!("{code:?}")),
        Error::MqttState(StateError::Deserialization(Packet::PayloadSizeLimitExceeded(size))) => {
            LinkError::TooLarge(size)
        }
        Error::MqttState(error @ StateError::Deserialization(_)) => {
            LinkError::Protocol(error.to_string())
        }
        Error::NotConnAck(_) => LinkError::Protocol("not a CONNACK".into()),
        error => LinkError::Lost(error.to_string()),
    })
}
