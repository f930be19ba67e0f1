//! Names of hosts as people write them: what can be none is told now, and not by a resolver in the field.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Longest name, and longest part of one (RFC 1035, 2.3.4).
const NAME: usize = 253;
const LABEL: usize = 63;

/// What is wrong with a host, without a port: nothing, or why it is neither a name nor an address.
pub(super) fn fault(host: &str) -> Option<&'static str> {
    if host.parse::<Ipv6Addr>().is_ok() || host.parse::<Ipv4Addr>().is_ok() {
        return None;
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    let last = name.rsplit('.').next().unwrap_or_default();
    match () {
        () if !name.is_ascii() => {
            Some("not ASCII; write the name as the DNS has it, which begins with xn--")
        }
        () if name.len() > NAME || name.split('.').any(|label| label.len() > LABEL) => {
            Some("longer than a name of a host can be: 253 characters, 63 between two dots")
        }
        () if name.split('.').any(str::is_empty) => Some(
            "nothing between two dots, or before the first; a name has letters and digits there",
        ),
        () if !name.split('.').all(is_label) => {
            Some("expected letters, digits and `-` inside of a name, with dots between its parts")
        }
        () if last.bytes().all(|byte| byte.is_ascii_digit()) => Some(
            "looks like an address and is none; an IPv4 address has four numbers from 0 to 255",
        ),
        () => None,
    }
}

fn is_label(label: &str) -> bool {
    // `_` is in no host's name by the standard, and in many of private networks.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    label.bytes().all(plain) && !label.starts_with('-') && !label.ends_with('-')
}

/// Whether an IPv6 address without brackets may be meant as a shorter one and a port: `::1:123`.
pub(super) fn may_end_in_a_port(text: &str) -> bool {
    let Some((address, port)) = text.rsplit_once(':') else { return false };
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    digits && address.parse::<Ipv6Addr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_told_from_what_is_neither() {
        for host in [
            "localhost",
            "a.example.org",
            "a.example.org.",
            "192.0.2.1",
            "::1",
            "xn--bcher-kva.example",
            "my_broker",
            "3com.com",
            "0.pool.ntp.org",
            "gw-1",
        ] {
            assert_eq!(fault(host), None, "{host}");
        }
        let long = "a".repeat(64);
        for host in [
            "",
            ".",
            "a..b",
            ".a",
            "-a",
            "a-.b",
            "a b",
            "a/b",
            "bücher.example",
            "256.1.1.1",
            "1.2.3",
            "fe80::1%eth0",
            &long,
        ] {
            assert!(fault(host).is_some(), "{host}");
        }
    }

    #[test]
    fn an_address_that_may_end_in_a_port_is_told_from_one_that_cannot() {
        for text in ["::1:123", "2001:db8::1:2", "fe80::1:1883"] {
            assert!(may_end_in_a_port(text), "{text}");
        }
        for text in ["::1", "2001:db8::1", "2001:db8::a:b", "1:2:3:4:5:6:7:8", "ntp:123", "::"] {
            assert!(!may_end_in_a_port(text), "{text}");
        }
    }
}
