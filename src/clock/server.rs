//! Asking one time server: name, sockets, timeouts. What an answer is worth is decided in `query`.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::net::{UdpSocket, lookup_host};
use tokio::time::{sleep, timeout, timeout_at};
use tracing::debug;

use super::host::boottime;
use super::query::{PACKET, Query, Reply, Sample};
use super::refusal::Refusal;
use super::schedule::Standing;
use super::{Pace, nanos};

/// How long a name may take to be resolved.
const RESOLVING: Duration = Duration::from_secs(5);

/// Addresses of one name that are tried in a row.
const ADDRESSES: usize = 3;

/// Questions to an address without an answer before the next address is tried.
const IN_VAIN: usize = 2;

/// Strange packets that are looked at while an answer is waited for.
const STRANGERS: usize = 16;

/// A time server as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerName {
    /// Host name or address, without brackets.
    pub host: String,
    /// UDP port.
    pub port: u16,
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        match (host.contains(':'), port) {
            (true, port) => write!(f, "[{host}]:{port}"),
            (false, 123) => f.write_str(host),
            (false, port) => write!(f, "{host}:{port}"),
        }
    }
}

/// What came of a few questions to one server.
#[derive(Debug, Default)]
pub(super) struct Burst {
    /// The answer that was on the way for the shortest time.
    pub best: Option<Sample>,
    /// What was not taken.
    pub refused: Vec<Refusal>,
}

/// Asks a few times, at an address that answers. `difference` is our wall time less `CLOCK_BOOTTIME`.
pub(super) async fn ask(
    server: ServerName,
    standing: Standing,
    pace: Pace,
    difference: i64,
) -> Burst {
    let mut burst = Burst::default();
    let addresses = match timeout(RESOLVING, resolve(&server)).await {
        Ok(Ok(addresses)) if !addresses.is_empty() => addresses,
        failed => {
            debug!(%server, ?failed, "the name of a time server has no address");
            burst.refused.push(Refusal::Name);
            return burst;
        }
    };
    for address in addresses.into_iter().take(ADDRESSES) {
        burst.ask_at(address, &standing, &pace, difference).await;
        if burst.best.is_some() || burst.is_unwanted() {
            break;
        }
    }
    debug!(%server, ?burst, "asked");
    burst
}

async fn resolve(server: &ServerName) -> io::Result<Vec<SocketAddr>> {
    Ok(lookup_host((server.host.as_str(), server.port)).await?.collect())
}

impl Burst {
    async fn ask_at(&mut self, to: SocketAddr, standing: &Standing, pace: &Pace, difference: i64) {
        let mut in_vain = 0;
        for question in 0..pace.burst {
            if question > 0 {
                sleep(pace.spacing).await;
            }
            match self.ask_once(to, pace.patience, difference).await {
                Ok(sample) => {
                    let best = self.best.get_or_insert(sample);
                    if sample.round_trip < best.round_trip {
                        *best = sample;
                    }
                    if standing.is_near(sample.round_trip) {
                        return;
                    }
                }
                Err(refusal) => {
                    self.refused.push(refusal);
                    in_vain += usize::from(self.best.is_none());
                    if self.is_unwanted() || in_vain >= IN_VAIN {
                        return;
                    }
                }
            }
        }
    }

    fn is_unwanted(&self) -> bool {
        self.refused.iter().any(|refusal| matches!(refusal, Refusal::KissRate | Refusal::KissDeny))
    }

    /// From a socket of its own: what comes late finds nobody.
    async fn ask_once(
        &mut self,
        to: SocketAddr,
        patience: Duration,
        difference: i64,
    ) -> Result<Sample, Refusal> {
        let network = |_: io::Error| Refusal::Network;
        let any: IpAddr = match to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0)).await.map_err(network)?;
        let deadline = tokio::time::Instant::now() + patience;
        let sent = boottime();
        let query = Query::new(to, sent, sent.saturating_add(difference), fastrand::u64(..));
        socket.send_to(&query.packet, to).await.map_err(network)?;
        let mut buffer = [0; PACKET];
        for _ in 0..STRANGERS {
            let received = timeout_at(deadline, socket.recv_from(&mut buffer)).await;
            let at = boottime();
            let (length, from) = received.map_err(|_| Refusal::Silent)?.map_err(network)?;
            // A task that is held up finds the answer before the end of its patience.
            if at - sent > nanos(patience) {
                return Err(Refusal::Silent);
            }
            match query.judge(Reply { bytes: &buffer[..length], from, at }) {
                Err(refusal) if refusal.is_of_a_stranger() => self.refused.push(refusal),
                judged => return judged,
            }
        }
        Err(Refusal::Origin)
    }
}
