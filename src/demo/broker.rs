//! Two brokers in this process, and the link to the central one, which can be cut.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::time::Duration;

use rumqttd::{Broker, Config, ConnectionSettings, RouterConfig, ServerSettings};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::DemoError;
use crate::mqtt::Task;

/// How long a broker may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a broker speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Mqtt3,
    Mqtt5,
}

/// Starts a broker on loopback, for as long as this process lives, and returns its port.
pub(super) async fn start(name: &'static str, protocol: Protocol) -> Result<u16, DemoError> {
    let failed = |error: io::Error| DemoError::Broker { name, reason: error.to_string() };
    let port = free_port().map_err(failed)?;
    let mut broker = Broker::new(config(name, protocol, port));
    let ended = std::thread::Builder::new()
        .name(name.into())
        .spawn(move || broker.start().map_err(|error| error.to_string()))
        .map_err(failed)?;
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
        if ended.is_finished() || Instant::now() > deadline {
            return Err(failed(error));
        }
        sleep(Duration::from_millis(5)).await;
    }
    if ended.is_finished() {
        // Somebody else was faster, and listens there.
        return Err(failed(io::ErrorKind::AddrInUse.into()));
    }
    Ok(port)
}

/// The broker takes a number and does not say which one it took, so one is looked for before.
fn free_port() -> io::Result<u16> {
    Ok(StdListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

fn config(name: &str, protocol: Protocol, port: u16) -> Config {
    let connections = ConnectionSettings {
        connection_timeout_ms: 60_000,
        max_payload_size: 64 << 10,
        max_inflight_count: 100,
        auth: None,
        external_auth: None,
        dynamic_filters: true,
    };
    let server = ServerSettings {
        name: name.into(),
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        tls: None,
        next_connection_delay_ms: 1,
        connections,
    };
    let servers = Some(HashMap::from([(name.to_owned(), server)]));
    let router = RouterConfig {
        max_connections: 100,
        max_outgoing_packet_count: 200,
        max_segment_size: 4 << 20,
        max_segment_count: 10,
        ..RouterConfig::default()
    };
    let mut config = Config { router, ..Config::default() };
    match protocol {
        Protocol::Mqtt3 => config.v4 = servers,
        Protocol::Mqtt5 => config.v5 = servers,
    }
    config
}

/// A link to a broker: connections to `port` are passed on to it, until they are cut.
#[derive(Debug)]
pub(super) struct Uplink {
    pub(super) port: u16,
    open: watch::Sender<bool>,
    _task: Task,
}

impl Uplink {
    pub(super) async fn start(broker: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let (open, state) = watch::channel(true);
        Ok(Self { port, open, _task: Task::spawn(serve(listener, broker, state)) })
    }

    /// Cuts what is connected and refuses what wants to, or lets through again.
    pub(super) fn set_open(&self, open: bool) {
        self.open.send_if_modified(|now| std::mem::replace(now, open) != open);
    }

    pub(super) fn is_open(&self) -> bool {
        *self.open.borrow()
    }
}

async fn serve(listener: TcpListener, broker: u16, state: watch::Receiver<bool>) {
    while let Ok((mut client, _)) = listener.accept().await {
        if !*state.borrow() {
            continue;
        }
        let mut state = state.clone();
        tokio::spawn(async move {
            let Ok(mut central) = TcpStream::connect((Ipv4Addr::LOCALHOST, broker)).await else {
                return;
            };
            let both = [client.set_nodelay(true), central.set_nodelay(true)];
            if both.iter().any(Result::is_err) {
                return;
            }
            tokio::select! {
                _closed = copy_bidirectional(&mut client, &mut central) => {}
                _cut = state.wait_for(|open| !open) => {}
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_link_that_is_cut_ends_connections_and_makes_none() {
        let echo = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = echo.local_addr().unwrap().port();
        let _echo = Task::spawn(async move {
            while let Ok((mut socket, _)) = echo.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = socket.split();
                    let _ended = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        let uplink = Uplink::start(port).await.unwrap();
        let echoed = async || {
            let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, uplink.port)).await.unwrap();
            let mut byte = [0];
            let said = socket.write_all(&[7]).await;
            (said.is_ok() && socket.read_exact(&mut byte).await.is_ok()).then_some((socket, byte))
        };
        let (mut socket, byte) = echoed().await.unwrap();
        assert_eq!(byte, [7]);
        uplink.set_open(false);
        assert!(matches!(socket.read(&mut [0]).await, Ok(0) | Err(_)));
        assert!(echoed().await.is_none());
        uplink.set_open(true);
        assert!(echoed().await.is_some());
    }
}
