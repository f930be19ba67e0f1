//! TLS: whom to trust, how to show who we are, and what went wrong in the words of an operator.
//!
//! rustls with ring, so that a cross build needs a C compiler and nothing else.

use std::io;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use rustls::{AlertDescription, CertificateError, ClientConfig, Error, RootCertStore};

use super::dated::Dated;
use super::error::LinkError;
use super::files::FileName;

/// How to speak TLS with a broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Certificates of the authorities to trust, PEM; those of the system without.
    pub ca: Option<FileName>,
    /// Our own certificate and key, where the broker asks for one.
    pub identity: Option<ClientIdentity>,
}

/// A client certificate (X.509 version 3) and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The certificate and those between it and the authority, PEM.
    pub certificate: FileName,
    /// Its private key, PEM: PKCS #8, PKCS #1 or SEC 1, not encrypted.
    pub key: FileName,
}

impl Tls {
    /// Reads the files as they are now. Certificates are judged by `time`, or by the host's clock.
    ///
    /// # Errors
    /// One of them cannot be read, or is not what it should be.
    pub(crate) fn configure(&self, time: Option<Dated>) -> Result<Arc<ClientConfig>, LinkError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let time: Arc<dyn TimeProvider> = match time {
            Some(time) => Arc::new(time),
            None => Arc::new(DefaultTimeProvider),
        };
        let builder = ClientConfig::builder_with_details(provider, time)
            .with_safe_default_protocol_versions()
            .map_err(|error| LinkError::Tls(error.to_string()))?
            .with_root_certificates(self.roots()?);
        let Some(identity) = &self.identity else {
            return Ok(Arc::new(builder.with_no_client_auth()));
        };
        let certificates = certificates("cert-file", &identity.certificate)?;
        let key =
            PrivateKeyDer::from_pem_slice(&read("key-file", &identity.key)?).map_err(|_| {
                unusable("key-file", "holds no private key in PEM without a passphrase")
            })?;
        let config = builder.with_client_auth_cert(certificates, key).map_err(|error| {
            let problem = match error {
                Error::InconsistentKeys(_) => "is not the key of the certificate in cert-file",
                _ => "is of a kind that cannot be used, or the certificate in cert-file is",
            };
            unusable("key-file", problem)
        })?;
        Ok(Arc::new(config))
    }

    /// What is wrong with the files as they are now, if anything is.
    pub fn fault(&self) -> Option<LinkError> {
        self.configure(None).err()
    }

    fn roots(&self) -> Result<RootCertStore, LinkError> {
        let mut roots = RootCertStore::empty();
        let Some(file) = &self.ca else {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            return if roots.is_empty() { Err(LinkError::NoSystemRoots) } else { Ok(roots) };
        };
        for certificate in certificates("ca-file", file)? {
            let added = roots.add(certificate);
            added.map_err(|_| unusable("ca-file", "holds a certificate that is damaged"))?;
        }
        Ok(roots)
    }
}

fn certificates(
    option: &'static str,
    file: &FileName,
) -> Result<Vec<CertificateDer<'static>>, LinkError> {
    let pem = read(option, file)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err(unusable(option, "holds no certificate in PEM")),
    }
}

fn read(option: &'static str, file: &FileName) -> Result<Vec<u8>, LinkError> {
    file.read().map_err(|error| unusable(option, format!("cannot be read: {error}")))
}

fn unusable(option: &'static str, problem: impl Into<String>) -> LinkError {
    LinkError::File { option, problem: problem.into() }
}

/// The error of the TLS library inside of one of input and output.
pub(super) fn inside(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

/// What a TLS error means. `sent` says whether we have a certificate to show.
pub(super) fn judge(error: &Error, sent: bool) -> LinkError {
    match error {
        Error::InvalidCertificate(error) => certificate(error),
        // What does not begin like TLS is some other protocol.
        Error::InvalidMessage(_) => LinkError::NotTls,
        Error::AlertReceived(alert) if is_about_our_certificate(*alert) => {
            LinkError::ClientCertificate { sent }
        }
        error => LinkError::Tls(error.to_string()),
    }
}

/// TLS 1.2 has no alert for a missing certificate; brokers then say that the handshake failed.
fn is_about_our_certificate(alert: AlertDescription) -> bool {
    use AlertDescription as Alert;
    matches!(
        alert,
        Alert::CertificateRequired
            | Alert::HandshakeFailure
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
            | Alert::DecryptError
    )
}

fn certificate(error: &CertificateError) -> LinkError {
    use CertificateError as Certificate;
    match error {
        // An authority of the same name and another key is another authority.
        Certificate::UnknownIssuer | Certificate::BadSignature => LinkError::UnknownIssuer,
        Certificate::ExpiredContext { not_after, .. } => LinkError::Expired(day(*not_after)),
        Certificate::NotValidYetContext { time, not_before } if time.as_secs() < BUILT => {
            LinkError::ClockUnset(day(*not_before))
        }
        Certificate::NotValidYetContext { not_before, .. } => {
            LinkError::NotYetValid(day(*not_before))
        }
        Certificate::NotValidForNameContext { presented, .. } => LinkError::WrongName(
            presented.iter().map(|name| plain(name)).collect::<Vec<_>>().join(", "),
        ),
        Certificate::NotValidForName => LinkError::WrongName(String::new()),
        error => LinkError::Certificate(error.to_string()),
    }
}

/// 2024-01-01: a clock that shows an earlier time was never set.
const BUILT: u64 = 1_704_067_200;

fn day(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let day = chrono::DateTime::from_timestamp(seconds, 0);
    day.map_or_else(|| "an unknown day".to_owned(), |day| day.format("%Y-%m-%d").to_string())
}

/// `DnsName("localhost")` without the dress.
fn plain(name: &str) -> String {
    name.split_once('(').map_or(name, |(_, rest)| rest.trim_end_matches(')')).replace('"', "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    }

    #[test]
    fn a_certificate_that_is_not_valid_yet_is_the_fault_of_a_clock_that_was_never_set() {
        let not_before = at(1_750_000_000);
        let judged = |now| {
            let error = CertificateError::NotValidYetContext { time: at(now), not_before };
            judge(&Error::InvalidCertificate(error), false)
        };
        assert_eq!(judged(86_400), LinkError::ClockUnset("2025-06-15".into()));
        assert_eq!(judged(BUILT - 1), LinkError::ClockUnset("2025-06-15".into()));
        assert_eq!(judged(BUILT), LinkError::NotYetValid("2025-06-15".into()));
    }

    #[test]
    fn names_of_a_certificate_are_told_plainly() {
        assert_eq!(plain("DnsName(\"localhost\")"), "localhost");
        assert_eq!(plain("IpAddress(127.0.0.1)"), "127.0.0.1");
        assert_eq!(plain("other"), "other");
    }
}
