//! What a gateway is called where nobody named it: stable, and its own.
//!
//! The host's name tells people which machine it is, and is often that of the image; a part of the machine id tells apart
//! what has the same name. The machine id itself is confidential (machine-id(5)), so what is published is a hash of it
//! with a text of our own.

use sha2::{Digest, Sha256};
use std::fs;

/// Keeps our hash apart from those that others make of the machine id.
const SALT: &[u8] = b"tidegate gateway.id v1\0";

/// Where a machine id is.
const MACHINE_ID: [&str; 2] = ["/etc/machine-id", "/var/lib/dbus/machine-id"];

/// Names that machines have before anybody named them: those of images for small computers, and of installers.
const OF_IMAGES: [&str; 16] = [
    "localhost",
    "raspberrypi",
    "raspberry",
    "debian",
    "ubuntu",
    "armbian",
    "orangepi",
    "bananapi",
    "rock",
    "beaglebone",
    "odroid",
    "dietpi",
    "alarm",
    "openwrt",
    "gateway",
    "buildroot",
];

/// What the gateway is called, and why another one may be called the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) id: String,
    pub(super) doubt: Option<Doubt>,
}

/// Why an id may not be this gateway's alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// It is a name that every machine of one image has.
    Image,
    /// It is the host's name alone: there is no machine id.
    NoMachineId,
    /// The machine id is not one that a machine was given.
    Placeholder,
}

impl Doubt {
    /// What to say about it.
    pub(super) fn message(self) -> &'static str {
        match self {
            Self::Image => {
                "a name that every machine of the same image has: results of two gateways with one id cannot be told \
                 apart, and they throw each other out of the broker; give each its own: id = \"gw-017\""
            }
            Self::NoMachineId => {
                "not set, and this system has no machine id yet (/etc/machine-id), so it is the host's name alone: another \
                 host of that name would have the same, and a container another one each time; set an id, or run \
                 systemd-machine-id-setup"
            }
            Self::Placeholder => {
                "not set, and the machine id (/etc/machine-id) is a placeholder: every copy of this system has the same; \
                 set an id, or empty the file and run systemd-machine-id-setup"
            }
        }
    }
}

impl Identity {
    /// One that somebody wrote.
    pub(super) fn given(id: String) -> Self {
        let doubt = is_of_image(&id).then_some(Doubt::Image);
        Self { id, doubt }
    }

    /// After this machine; empty when it has no name.
    pub(super) fn of_this_machine() -> Self {
        let read = |file: &&str| fs::read_to_string(file).ok();
        let host = ["/proc/sys/kernel/hostname", "/etc/hostname"].iter().find_map(read);
        let machine_id = MACHINE_ID.iter().find_map(read);
        Self::of(host.as_deref().unwrap_or_default(), machine_id.as_deref().unwrap_or_default())
    }

    fn of(host: &str, machine_id: &str) -> Self {
        let host = host.trim();
        let Some(machine_id) = machine_id_of(machine_id) else {
            let doubt = if is_of_image(host) { Doubt::Image } else { Doubt::NoMachineId };
            return Self { id: host.to_owned(), doubt: Some(doubt) };
        };
        let hash = Sha256::new().chain_update(SALT).chain_update(&machine_id).finalize();
        let [a, b, c, d, ..] = hash[..] else { unreachable!("a SHA-256 has 32 bytes") };
        let host = if host.is_empty() { "gateway" } else { host };
        let doubt = is_placeholder(&machine_id).then_some(Doubt::Placeholder);
        Self { id: format!("{host}-{a:02x}{b:02x}{c:02x}{d:02x}"), doubt }
    }
}

/// The id in small letters, if there is one: a new system has an empty file, or `uninitialized` in it.
fn machine_id_of(text: &str) -> Option<String> {
    let id = text.trim().to_ascii_lowercase();
    (id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(id)
}

/// One digit over and over, or counted up.
fn is_placeholder(machine_id: &str) -> bool {
    let bytes = machine_id.as_bytes();
    let repeated = (1..=16)
        .any(|step| 32 % step == 0 && bytes.chunks(step).all(|part| part == &bytes[..step]));
    repeated || machine_id.starts_with("0123456789") || machine_id.starts_with("1234567890")
}

fn is_of_image(name: &str) -> bool {
    OF_IMAGES.contains(&name.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: &str = "9ad3f0cfa1c44f0fb1d26b3a7d1d4f6e";

    #[test]
    fn the_default_names_the_host_and_tells_equal_names_apart() {
        let one = Identity::of("raspberrypi\n", &format!("{MACHINE}\n"));
        let other = Identity::of("raspberrypi", "0ad3f0cfa1c44f0fb1d26b3a7d1d4f6e");
        assert!(one.id.starts_with("raspberrypi-") && one.id.len() == "raspberrypi-".len() + 8);
        assert_ne!(one.id, other.id);
        assert_eq!((one.doubt, other.doubt), (None, None));
        assert_eq!(one, Identity::of("raspberrypi", &MACHINE.to_uppercase()), "it is stable");
        assert!(!one.id.contains(&MACHINE[..8]), "the machine id is not published");
    }

    #[test]
    fn an_id_stays_the_same_from_release_to_release() {
        assert_eq!(Identity::of("gw", MACHINE).id, "gw-854fc35e");
    }

    #[test]
    fn what_every_copy_of_an_image_has_is_doubted() {
        let zeros = "0".repeat(32);
        for (host, machine_id, doubt) in [
            ("gw-7", "", Doubt::NoMachineId),
            ("gw-7", "uninitialized\n", Doubt::NoMachineId),
            ("raspberrypi", "", Doubt::Image),
            ("gw-7", &zeros, Doubt::Placeholder),
            ("gw-7", "deadbeefdeadbeefdeadbeefdeadbeef", Doubt::Placeholder),
            ("gw-7", "0123456789abcdef0123456789abcdee", Doubt::Placeholder),
        ] {
            let identity = Identity::of(host, machine_id);
            assert_eq!(identity.doubt, Some(doubt), "{host} {machine_id}");
            assert!(identity.id.starts_with(host));
        }
        assert_eq!(Identity::given("RaspberryPi".into()).doubt, Some(Doubt::Image));
        assert_eq!(Identity::given("gw-017".into()).doubt, None);
        assert_eq!(Identity::of("", "").id, "");
    }
}
