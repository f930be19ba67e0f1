//! Why there is no connection, and what to do about it.

use std::time::Duration;

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
    /// The broker does not speak the version that we ask for.
    #[error("the broker does not speak MQTT {0}")]
    Version(&'static str),
    /// A file that the connection needs is not as it should be.
    #[error("{option} {problem}")]
    File {
        /// The option that names the file.
        option: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// There is no `ca-file`, and the system trusts nobody.
    #[error("this system has no certificates of authorities")]
    NoSystemRoots,
    /// What answers does not speak TLS.
    #[error("the broker does not answer in TLS")]
    NotTls,
    /// The broker's certificate is signed by an authority that we do not know.
    #[error("the broker's certificate is signed by an unknown authority")]
    UnknownIssuer,
    /// The broker's certificate is for other names.
    #[error("the broker's certificate is for another host: {0}")]
    WrongName(String),
    /// The broker's certificate has expired.
    #[error("the broker's certificate expired on {0}")]
    Expired(String),
    /// The broker's certificate is not valid yet.
    #[error("the broker's certificate is valid from {0} only")]
    NotYetValid(String),
    /// The broker's certificate is not valid yet, for a clock that was never set.
    #[error(
        "this gateway's clock is not synchronised: it shows a time before {0}, when the broker's certificate began"
    )]
    ClockUnset(String),
    /// The broker's certificate is bad in another way.
    #[error("the broker's certificate is not accepted: {0}")]
    Certificate(String),
    /// The broker broke the handshake off, as one does that is not content with our certificate.
    #[error("the broker {}", if *sent { "does not accept our certificate" } else { "asks for a certificate of ours" })]
    ClientCertificate {
        /// Whether we have one.
        sent: bool,
    },
    /// TLS failed in another way.
    #[error("TLS failed: {0}")]
    Tls(String),
    /// Another client connected with our client id.
    #[error("another client connected with the same client id")]
    TakenOver,
    /// The broker closed the connection before it had let us in.
    #[error("closed by the broker before it let us in")]
    ClosedEarly,
    /// The broker closed the connection without a word.
    #[error("closed by the broker")]
    Closed,
    /// It did so again and again, soon after letting us in. MQTT 3.1.1 has no other way to say that
    /// another client took over, and mosquitto 2.0.11 does not say it in MQTT 5 either.
    #[error("closed by the broker again and again")]
    KeepsClosing,
    /// It did so for the third time in a while, each time after the connection had held. So it looks to the one of two
    /// clients with one id that keeps the session, whenever the other one tries.
    #[error("closed by the broker once more")]
    ClosedOnceMore,
    /// The connection broke.
    #[error("connection lost: {0}")]
    Lost(String),
    /// Nothing came from the broker, not even an answer to a ping.
    #[error("nothing heard for {0:?}")]
    Silent(Duration),
    /// We did not take what the broker sent.
    #[error("messages could not be taken for {0:?}")]
    Stalled(Duration),
    /// A message waits that is larger than we can take. MQTT 3.1.1 has no way to leave it out.
    #[error("a message is too large to be taken: {0} bytes")]
    TooLarge(usize),
    /// The broker takes publishes and acknowledges none.
    #[error("no publish acknowledged for {0:?}")]
    Unacknowledged(Duration),
    /// The broker lets us in and does not let us publish (MQTT 5 only; in 3.1.1 it does not say so).
    #[error("publishing is not allowed: {0}")]
    MayNotPublish(String),
    /// The broker did not take a publish, because of what is in it.
    #[error("a publish was refused: {0}")]
    PublishRefused(String),
    /// The other side does not speak the protocol as we do.
    #[error("protocol error: {0}")]
    Protocol(String),
}

impl LinkError {
    /// What an operator can do about it, where there is something to do.
    pub fn remedy(&self) -> Option<&'static str> {
        Some(match self {
            Self::Unreachable(_) => "check host and port, and that the broker runs",
            Self::NotAuthorised => {
                "check user and password-file here, and the password_file and ACL of the broker"
            }
            Self::Version("5") => "set version = \"3.1.1\"",
            Self::Version(_) => "set version = \"5\"",
            Self::File { .. } => {
                "mend the file, and let the user that tidegate runs as read it; it is read again at each attempt"
            }
            Self::NoSystemRoots => {
                "install them (Debian: ca-certificates), or name the broker's with ca-file"
            }
            Self::NotTls => "set port to the broker's port for TLS, or tls = false",
            Self::UnknownIssuer => "name the certificate of the broker's authority with ca-file",
            Self::WrongName(_) => {
                "set host to a name in the certificate, or have one issued for this host"
            }
            Self::Expired(_) => "renew the broker's certificate; check this gateway's clock",
            Self::NotYetValid(_) => "check the clocks of this gateway and of who issued it",
            Self::ClockUnset(_) => {
                "it is tried again at once when the clock is synchronised: see `tidegate status` for why it is not"
            }
            Self::Certificate(_) => {
                "have one issued for a server: X.509 version 3, with its names as subjectAltName"
            }
            Self::ClientCertificate { sent: false } => {
                "name one that the broker's authority signed with cert-file and key-file"
            }
            Self::ClientCertificate { sent: true } => {
                "renew cert-file, signed by the authority that the broker trusts; its log says why"
            }
            Self::Tls(_) => "the broker's log says why; it has to speak TLS 1.2 or 1.3",
            Self::TakenOver => "give every gateway a gateway.id and a client id of its own",
            Self::KeepsClosing | Self::ClosedOnceMore => {
                "another client may have the same client id: give every gateway a gateway.id and a client id of its \
                 own; if it is no other client, the broker's log says why"
            }
            // The client library does not tell this from the short refusal of a broker that knows only 3.1.1.
            Self::ClosedEarly => {
                "check that the port is one for MQTT in this version (else set version), and set tls = true if it is one \
                 for TLS; the broker's log says why"
            }
            Self::Refused(_) => "the broker's log says why",
            Self::TooLarge(_) => {
                "set the broker's message_size_limit below it, and max-payload above it until it is through"
            }
            Self::Unacknowledged(_) => "the broker's log says why it holds publishes back",
            Self::MayNotPublish(_) => {
                "allow this client to write everything below upstream.prefix, in the broker's ACL; if it may, the broker's \
                 log says why"
            }
            Self::PublishRefused(_) => "the broker's log says why",
            Self::Protocol(_) => {
                "check that an MQTT broker listens on that port, and set tls = true if it does so in TLS"
            }
            Self::Closed | Self::Lost(_) | Self::Silent(_) | Self::Stalled(_) => return None,
        })
    }

    /// Whether somebody else has our client id, or seems to.
    pub(crate) fn is_of_two_clients(&self) -> bool {
        matches!(self, Self::TakenOver | Self::KeepsClosing | Self::ClosedOnceMore)
    }

    /// Whether the broker closed the connection, whatever for.
    pub(crate) fn is_closing(&self) -> bool {
        matches!(self, Self::Closed | Self::KeepsClosing | Self::ClosedOnceMore)
    }
}
