//! `[clock]`: whose clock the agent goes by.

use super::check::Review;
use super::finding::{Finding, KeyPath};
use super::{Config, hosts, raw};
use crate::clock::{ServerName, Settings, Source};
use crate::engine::gate::GateSettings;
use crate::time::Span;

use std::net::Ipv6Addr;

/// Port of time servers.
const NTP: u16 = 123;

/// What a server looks like.
const EXAMPLE: &str = "\"ntp.example.org\", \"192.0.2.1:123\" or \"[2001:db8::1]:123\"";

pub(super) fn clock(review: &mut Review<'_>, raw: raw::Clock) -> Settings {
    let source = match raw.source {
        Some(raw::ClockSource::Auto) | None => Source::Auto,
        Some(raw::ClockSource::Sntp) => Source::Sntp,
        Some(raw::ClockSource::System) => Source::System,
    };
    let trust_host = raw.trust_host.unwrap_or(false);
    let table = KeyPath::top("clock");
    if trust_host && source == Source::Sntp {
        let message =
            "the host's clock is not asked with source = \"sntp\"; leave one of the two out";
        review.refuse(&table.key("trust-host"), message);
    }
    let given = raw.servers.unwrap_or_default();
    match source {
        Source::Sntp if given.is_empty() => {
            let message = format!("nobody to ask; write servers = [{EXAMPLE}]");
            review.refuse(&table.key("source"), message);
        }
        Source::System if !given.is_empty() => {
            let message = "not asked with source = \"system\"; leave one of the two out";
            review.refuse(&table.key("servers"), message);
        }
        _ => {}
    }
    let mut servers = Vec::new();
    for (at, text) in given.iter().enumerate() {
        match server(text) {
            Ok(server) if servers.contains(&server) => {
                let message = "named twice; one server has one voice";
                review.refuse(&table.key("servers").index(at), message);
            }
            Ok(server) => servers.push(server),
            Err(message) => review.refuse(&table.key("servers").index(at), message),
        }
    }
    Settings { source, trust_host, servers, ..Settings::default() }
}

/// `host`, `host:port`, an address, or `[v6]:port`.
fn server(text: &str) -> Result<ServerName, String> {
    let form = || format!("expected a host, with or without a port: {EXAMPLE}");
    if hosts::may_end_in_a_port(text) {
        let (address, port) = text.rsplit_once(':').unwrap_or((text, "123"));
        return Err(format!(
            "one address, or an address and a port? write \"[{text}]\" or \"[{address}]:{port}\""
        ));
    }
    let (host, port) = parts(text).ok_or_else(form)?;
    let port = match port {
        Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or_else(form)?,
        None => NTP,
    };
    let strange = |c: char| !c.is_alphanumeric() && !"-._:".contains(c);
    if host.is_empty() || host.contains(strange) {
        return Err(form());
    }
    match hosts::fault(host) {
        Some(fault) => Err(fault.to_owned()),
        None => Ok(ServerName { host: host.to_ascii_lowercase(), port }),
    }
}

/// Host and port, if there is one.
fn parts(text: &str) -> Option<(&str, Option<&str>)> {
    let Some(rest) = text.strip_prefix('[') else {
        return Some(match text.parse::<Ipv6Addr>() {
            Ok(_) => (text, None),
            Err(_) => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        });
    };
    let (host, port) = rest.split_once(']')?;
    host.parse::<Ipv6Addr>().ok()?;
    Some((host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) }))
}

impl Config {
    /// A gateway that asks nobody depends on what its host knows, and one that asks one or two on each of them.
    pub(super) fn too_few_to_ask(&self) -> Option<Finding> {
        let clock = &self.clock;
        let message = match clock.servers.len() {
            _ if clock.source == Source::System => return None,
            0 if clock.trust_host => return None,
            0 => {
                "not set: the agent goes by the host's clock, where the kernel says that chrony, ntpd or systemd-timesyncd \
                 keep it, and holds what it hears where it does not; write servers = [\"ntp.example.org\", …], three or \
                 more, so that one that is wrong is found; or trust-host = true, where the host's clock is right anyway"
            }
            1 => {
                "one time server: what it says is the time, right or wrong; name three, so that one that is wrong is found"
            }
            2 => {
                "two time servers: when they contradict each other nobody is believed; name three, so that one that is \
                 wrong is found"
            }
            _ => return None,
        };
        Some(self.warn(&KeyPath::dotted("clock.servers"), message))
    }
}

pub(super) fn gate(review: &mut Review<'_>, raw: &raw::Clock) -> GateSettings {
    let (table, default) = (KeyPath::top("clock"), GateSettings::default());
    let longest = Span::from_hours(24);
    let path = table.key("sync-timeout");
    review.span(&path, raw.sync_timeout, default.sync_timeout, Span::ZERO..=longest);
    let sync_timeout = raw.sync_timeout.map_or(default.sync_timeout, |duration| duration.0);
    let path = table.key("hold-quota");
    let quota = review.size(&path, raw.hold_quota, default.quota, 1 << 20..=1 << 40);
    GateSettings { sync_timeout, quota }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_host_with_or_without_a_port() {
        let read = |text: &str| server(text).ok().map(|name| (name.host.clone(), name.port));
        let is = |host: &str, port| Some((host.to_owned(), port));
        assert_eq!(read("ntp.example.org"), is("ntp.example.org", 123));
        assert_eq!(read("ntp:1123"), is("ntp", 1_123));
        assert_eq!(read("192.0.2.1"), is("192.0.2.1", 123));
        assert_eq!(read("[::1]:1123"), is("::1", 1_123));
        assert_eq!(read("[::1]"), is("::1", 123));
        assert_eq!(read("2001:db8::1"), is("2001:db8::1", 123));
        for wrong in ["", ":123", "ntp:", "ntp:0", "ntp:65536", "[::1", "[ntp]:1", "a b", "a/b"] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
        for text in ["ntp.example.org", "ntp:1123", "[::1]:1123"] {
            assert_eq!(server(text).map(|name| name.to_string()).as_deref(), Ok(text));
        }
    }
}
