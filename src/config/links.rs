//! The two connections, and what this gateway is called on them.

use super::check::Review;
use super::finding::KeyPath;
use super::identity::Identity;
use super::values::{self, Duration, Size, Whole};
use super::{Broker, Link, Upstream, hosts, raw};
use crate::mqtt::{ClientIdentity, Credentials, FileName, Tls, Version};
use crate::time::Span;
use crate::wire::fields::Fields;
use crate::wire::topic::is_sendable;

use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

/// What the gateway is called: as written, or after this machine.
pub(super) fn identity(review: &mut Review<'_>, raw: raw::Gateway) -> Identity {
    let path = KeyPath::dotted("gateway.id");
    let identity = raw.id.map_or_else(Identity::of_this_machine, Identity::given);
    if identity.id.is_empty() {
        review.refuse(&path, "no id, and this host has no name; set it: id = \"gw-017\"");
    } else if identity.id.contains(|c: char| "/+#".contains(c) || c.is_whitespace())
        || !is_sendable(&identity.id)
    // empty is told above
    {
        review.refuse(
            &path,
            "becomes a level of topics; write it without blanks, `/`, `+` and `#`: \"gw-017\"",
        );
    }
    identity
}

/// What `[broker]` and `[upstream]` have in common. serde could flatten it into both, and would no longer refuse keys
/// that it does not know.
macro_rules! written {
    ($raw:ident) => {
        Written {
            host: $raw.host,
            port: $raw.port,
            version: $raw.version,
            client_id: $raw.client_id,
            user: $raw.user,
            password_file: $raw.password_file,
            tls: $raw.tls,
            ca_file: $raw.ca_file,
            cert_file: $raw.cert_file,
            key_file: $raw.key_file,
            keep_alive: $raw.keep_alive,
            in_flight: $raw.in_flight,
        }
    };
}

/// The devices' broker.
pub(super) fn broker(review: &mut Review<'_>, raw: raw::Broker, gateway: &str) -> Broker {
    let path = KeyPath::top("broker");
    let link = written!(raw);
    // With 3.1.1 the broker decides, and this is the usual choice of one.
    let window = |version| if version == Version::V5 { 10_000 } else { 20 };
    let link = link.check(review, &path, Version::V5, "tidegate-{gateway}", window, gateway);
    if link.version == Version::V311 && raw.session_expiry.is_some() {
        let message = "MQTT 3.1.1 knows none: the broker decides (mosquitto: persistent_client_expiration); \
                       leave it out";
        review.refuse(&path.key("session-expiry"), message);
    }
    let day = Span::from_hours(24);
    Broker {
        link,
        max_payload: max_payload(review, &path, raw.max_payload),
        session_expiry: review.span(
            &path.key("session-expiry"),
            raw.session_expiry,
            Span(7 * day.0),
            Span::from_secs(1)..=Span(3650 * day.0),
        ),
    }
}

/// The central broker.
pub(super) fn upstream(review: &mut Review<'_>, raw: raw::Upstream, gateway: &str) -> Upstream {
    let path = KeyPath::top("upstream");
    let link = written!(raw);
    let client_id = "tidegate-{gateway}-upstream";
    Upstream {
        link: link.check(review, &path, Version::V311, client_id, |_| 100, gateway),
        prefix: prefix(review, &path.key("prefix"), raw.prefix, gateway),
        fields: raw
            .fields
            .map_or_else(Fields::default, |told| told.into_iter().flat_map(|it| it.0).collect()),
    }
}

/// What is written about a connection.
struct Written {
    host: Option<String>,
    port: Option<Whole<1, 65_535>>,
    version: Option<values::Version>,
    client_id: Option<String>,
    user: Option<String>,
    password_file: Option<PathBuf>,
    tls: Option<bool>,
    ca_file: Option<PathBuf>,
    cert_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
    keep_alive: Option<Duration>,
    in_flight: Option<Whole<1, 65_535>>,
}

impl Written {
    fn check(
        self,
        review: &mut Review<'_>,
        table: &KeyPath,
        version: Version,
        client_id: &str,
        window: impl FnOnce(Version) -> u16,
        gateway: &str,
    ) -> Link {
        let version = self.version.map_or(version, |version| version.0);
        let tls = tls(review, table, self.tls, [self.ca_file, self.cert_file, self.key_file]);
        Link {
            host: host(review, table, self.host),
            port: small(self.port, if tls.is_some() { 8883 } else { 1883 }),
            version,
            client_id: self::client_id(review, table, self.client_id, client_id, gateway),
            credentials: credentials(review, table, self.user, self.password_file),
            tls,
            keep_alive: keep_alive(review, table, self.keep_alive),
            in_flight: small(self.in_flight, window(version)),
        }
    }
}

/// The files are those of the authority, the certificate and the key.
fn tls(
    review: &mut Review<'_>,
    table: &KeyPath,
    tls: Option<bool>,
    files: [Option<PathBuf>; 3],
) -> Option<Tls> {
    let keys = ["ca-file", "cert-file", "key-file"];
    let [ca, certificate, key] = files;
    let given = [ca.is_some(), certificate.is_some(), key.is_some()];
    let first = keys.iter().zip(given).find(|(_, given)| *given).map(|(key, _)| *key);
    if let (Some(false), Some(key)) = (tls, first) {
        review
            .refuse(&table.key(key), "for TLS, which tls = false turns off; leave one of them out");
    }
    let missing = match given {
        [_, true, false] => Some(("cert-file", "key-file")),
        [_, false, true] => Some(("key-file", "cert-file")),
        _ => None,
    };
    if let Some((there, missing)) = missing {
        let message = format!("a certificate goes with its key; set {missing} too");
        review.refuse(&table.key(there), message);
    }
    let file = |review: &mut Review<'_>, key: &str, path: Option<PathBuf>| {
        path.map(|path| file_name(review, &table.key(key), &path))
    };
    let ca = file(review, "ca-file", ca);
    let certificate = file(review, "cert-file", certificate);
    let key = file(review, "key-file", key);
    let identity =
        certificate.zip(key).map(|(certificate, key)| ClientIdentity { certificate, key });
    tls.unwrap_or(first.is_some()).then_some(Tls { ca, identity })
}

/// A path, or the credential that stands for one.
fn file_name(review: &mut Review<'_>, path: &KeyPath, name: &Path) -> FileName {
    let file = FileName::new(name);
    let bare = file
        .credential()
        .is_some_and(|name| name.is_empty() || name.contains('/') || name == "." || name == "..");
    if bare {
        let message = "expected the name of a credential of the service: \"credential:broker\" for \
                       LoadCredential=broker:/etc/tidegate/broker.password";
        review.refuse(path, message);
    }
    file
}

fn max_payload(review: &mut Review<'_>, broker: &KeyPath, given: Option<Size>) -> usize {
    let path = broker.key("max-payload");
    let size = review.size(&path, given, 256 << 10, 1 << 10..=128 << 20);
    usize::try_from(size).unwrap_or(usize::MAX)
}

fn host(review: &mut Review<'_>, table: &KeyPath, given: Option<String>) -> String {
    let host = given.unwrap_or_else(|| "localhost".to_owned());
    if host.is_empty() || host.contains(|c: char| "/@".contains(c) || c.is_whitespace()) {
        let message = "expected a host name or an address, without scheme and login: \
                       \"mqtt.example.org\"; a login is `user` and `password-file`";
        review.refuse(&table.key("host"), message);
        return host;
    }
    let bare = host.trim_matches(['[', ']']);
    let port = bare.contains(':') && bare.parse::<Ipv6Addr>().is_err();
    if port || hosts::may_end_in_a_port(&host) {
        let message = "the port is a key of its own: port = 1883";
        review.refuse(&table.key("host"), message);
    } else if let Some(fault) = hosts::fault(bare) {
        review.refuse(&table.key("host"), fault);
    }
    host
}

fn client_id(
    review: &mut Review<'_>,
    table: &KeyPath,
    given: Option<String>,
    default: &str,
    gateway: &str,
) -> String {
    let template = given.unwrap_or_else(|| default.to_owned());
    sendable(review, &table.key("client-id"), &template);
    let id = template.replace("{gateway}", gateway);
    if id.is_empty() {
        let message = format!("empty; a persistent session needs an id: \"{default}\"");
        review.refuse(&table.key("client-id"), message);
    }
    id
}

fn credentials(
    review: &mut Review<'_>,
    table: &KeyPath,
    user: Option<String>,
    password_file: Option<PathBuf>,
) -> Option<Credentials> {
    let path = table.key("password-file");
    if user.is_none() && password_file.is_some() {
        review.refuse(&path, "a password without a user; set `user` too");
    }
    let password_file = password_file.map(|name| file_name(review, &path, &name));
    sendable(review, &table.key("user"), user.as_deref().unwrap_or_default());
    user.map(|user| Credentials { user, password_file })
}

fn keep_alive(
    review: &mut Review<'_>,
    table: &KeyPath,
    given: Option<Duration>,
) -> std::time::Duration {
    let range = Span::from_secs(5)..=Span::from_hours(18);
    review.span(&table.key("keep-alive"), given, Span::from_secs(30), range)
}

fn prefix(review: &mut Review<'_>, path: &KeyPath, given: Option<String>, gateway: &str) -> String {
    let prefix = given.unwrap_or_else(|| "tidegate/{gateway}".to_owned());
    if prefix.is_empty() || prefix.contains(['+', '#', '\0']) {
        let message = "expected the beginning of topics, not empty and without `+` and `#`: \
                       \"tidegate/{gateway}\"";
        review.refuse(path, message);
    } else if prefix.split('/').any(str::is_empty) {
        review.refuse(path, "an empty level; write it without `/` at either end and without `//`");
    } else if prefix.starts_with('$') {
        // mosquitto acknowledges what is published below $SYS, and throws it away.
        review.refuse(path, "topics that begin with `$` are the broker's own (MQTT 5, 4.7.2)");
    }
    sendable(review, path, &prefix);
    prefix.replace("{gateway}", gateway)
}

/// Refuses what would make a broker close the connection.
fn sendable(review: &mut Review<'_>, path: &KeyPath, text: &str) {
    if !text.is_empty() && !is_sendable(text) {
        let message = "a broker refuses control characters, Unicode's non-characters and more than 65,535 bytes";
        review.refuse(path, message);
    }
}

/// Two clients with one id on one broker would disconnect each other for ever.
pub(super) fn two_clients(review: &mut Review<'_>, broker: &Broker, upstream: &Upstream) {
    let same_broker =
        (&broker.link.host, broker.link.port) == (&upstream.link.host, upstream.link.port);
    if same_broker && broker.link.client_id == upstream.link.client_id {
        let message = "the same client id as in [broker], on the same broker: each connection \
                       would end the other; give them different ids";
        review.refuse(&KeyPath::dotted("upstream.client-id"), message);
    }
}

fn small<const MIN: u64>(given: Option<Whole<MIN, 65_535>>, default: u16) -> u16 {
    given.map_or(default, |number| u16::try_from(number.0).unwrap_or(u16::MAX))
}
