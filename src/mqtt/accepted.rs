//! What a broker grants when it lets us in.

use std::time::Duration;

use rumqttc::v5::mqttbytes::v5::ConnAck;

/// What the broker grants. MQTT 3.1.1 says the first of it only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// It had kept our session.
    pub(crate) session_present: bool,
    /// Most publishes of ours without an acknowledgement.
    pub(crate) receive_maximum: Option<u16>,
    /// Largest packet from us, in bytes.
    pub(crate) largest: Option<usize>,
    /// How long it keeps our session, where that is not as long as we asked for.
    pub(crate) session: Option<Duration>,
    /// Highest quality of service, where that is not 2.
    pub(crate) quality: Option<u8>,
    /// It takes no retained messages.
    pub(crate) no_retain: bool,
    /// It takes no filters with `+` and `#`.
    pub(crate) no_wildcards: bool,
}

impl Accepted {
    pub(super) fn of_v5(connack: &ConnAck) -> Self {
        let bare = Self { session_present: connack.session_present, ..Self::default() };
        let Some(said) = &connack.properties else { return bare };
        Self {
            receive_maximum: said.receive_max,
            largest: said.max_packet_size.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
            session: said
                .session_expiry_interval
                .map(|seconds| Duration::from_secs(seconds.into())),
            quality: said.max_qos,
            no_retain: said.retain_available == Some(0),
            no_wildcards: said.wildcard_subscription_available == Some(0),
            ..bare
        }
    }
}
