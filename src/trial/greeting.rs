//! Being let in: name, connection, TLS, login, and until when the broker's certificate is good.

use std::time::Duration;

use tokio::net::lookup_host;
use tokio::time::{Instant, timeout};

use super::session::{PATIENCE, Session};
use super::{Cause, Section, Time};
use crate::config::Link;
use crate::mqtt::{Accepted, Broker, LinkError, Wishes};
use crate::time::Span;

/// How long before its end a certificate is to be renewed.
pub(super) const NOTICE: Span = Span::from_hours(30 * 24);

/// What a connection wants that wants nothing: it leaves nothing behind.
pub(super) fn nothing() -> Wishes {
    Wishes {
        session: None,
        receive_maximum: Some(10),
        // In MQTT 3.1.1 a retained message of any size may come with a subscription.
        incoming: 16 << 20,
        outgoing: 1 << 20,
        packet_ids: 8,
        requests: 16,
        will: None,
    }
}

/// Connects as the agent would, under another name, and says how that went.
pub(super) async fn greet(
    section: &mut Section,
    broker: &Broker,
    wishes: &Wishes,
) -> Option<(Session, Accepted)> {
    let address = resolve(section, broker).await?;
    let began = Instant::now();
    match Session::open(broker, wishes).await {
        Ok((session, accepted)) => {
            let login = match &broker.credentials {
                Some(credentials) => format!("as user \"{}\"", credentials.user),
                None => "without a login".to_owned(),
            };
            let took = began.elapsed().as_millis() + 1;
            let version = broker.version.as_str();
            section.good(format!(
                "{} ({address}): let in {login}, MQTT {version}, within {took} ms",
                broker.address()
            ));
            Some((session, accepted))
        }
        Err(error) => {
            section.broken(&format!("{} ({address})", broker.address()), &error);
            None
        }
    }
}

/// Whether the connection needs what only the service has; then nothing can be tried from here.
pub(super) fn is_out_of_reach(section: &mut Section, link: &Link) -> bool {
    let files = link.files();
    let Some((option, _)) = files.into_iter().find(|(_, file)| !file.is_within_reach()) else {
        return false;
    };
    section.unwise(format!(
        "not tried: {option} is a credential of the service, which this process is not given; to try it, run the check with \
         the same credential: systemd-run --pipe --wait -p LoadCredential=NAME:FILE tidegate check --connect"
    ));
    true
}

/// The first address of the broker.
async fn resolve(section: &mut Section, broker: &Broker) -> Option<String> {
    let host = broker.bare_host();
    let looked_up = timeout(PATIENCE, lookup_host((host, broker.port))).await;
    let failed = match looked_up {
        Ok(Ok(mut addresses)) => match addresses.next() {
            Some(address) => return Some(address.ip().to_string()),
            None => "it has no address".to_owned(),
        },
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {PATIENCE:?}"),
    };
    let message = format!(
        "{}: the name \"{host}\" cannot be resolved: {failed}; check host, and the DNS of this machine",
        broker.address()
    );
    section.bad(Cause::Unreachable, message);
    None
}

/// Until when the broker's certificate is good: whether it would be accepted in a month is asked of TLS itself. The broker
/// is to be one that has let us in.
pub(super) async fn lifetime(section: &mut Section, broker: &Broker, time: &Time) {
    if broker.tls.is_none() {
        return;
    }
    let mut later = broker.clone();
    later.time = Some(time.after(NOTICE));
    match Session::open(&later, &nothing()).await {
        Ok((session, _)) => {
            session.leave().await;
            section.good("the broker's certificate is good for 30 days and more");
        }
        Err(LinkError::Expired(day)) => {
            section.unwise(format!(
                "the broker's certificate, or one that it depends on, expires on {day}; renew it before"
            ));
        }
        Err(error) => {
            let message = format!(
                "until when the broker's certificate is good could not be found out: {error}"
            );
            section.unwise(message);
        }
    }
}

/// What the broker grants of what both connections need.
pub(super) fn quality(section: &mut Section, accepted: &Accepted) {
    if accepted.quality == Some(0) {
        section.bad(
            Cause::Configuration,
            "the broker offers QoS 0 only: what is under way when a connection breaks is lost; let it offer QoS 1",
        );
    }
}

/// The hexadecimal code of MQTT 5 behind a name, as a broker's log may show it.
pub(super) fn reason(name: &str) -> String {
    let code = match name {
        "Failure" | "Unspecified" | "UnspecifiedError" => 0x80,
        "ImplementationSpecific" | "ImplementationSpecificError" => 0x83,
        "NotAuthorized" => 0x87,
        "TopicFilterInvalid" => 0x8f,
        "TopicNameInvalid" => 0x90,
        "PkidInUse" | "PacketIdentifierInUse" => 0x91,
        "QuotaExceeded" => 0x97,
        "PayloadFormatInvalid" => 0x99,
        "SharedSubscriptionsNotSupported" => 0x9e,
        "SubscriptionIdNotSupported" => 0xa1,
        "WildcardSubscriptionsNotSupported" => 0xa2,
        _ => return name.to_owned(),
    };
    format!("{name} (0x{code:02x})")
}

/// As people read a span of seconds.
pub(super) fn spoken(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        seconds if seconds >= 86_400 && seconds % 86_400 == 0 => format!("{} d", seconds / 86_400),
        seconds if seconds >= 3_600 && seconds % 3_600 == 0 => format!("{} h", seconds / 3_600),
        seconds => format!("{seconds} s"),
    }
}
